# family: deleted cells
# part:   correct
# tries:  deletes the check of the kernel that is wrong, and with it the points that it could lose.
# naive:  notebook
# gains:  marks
# ours:   fail got .* want

from attacks import CHECK, cell, spoil, write


def make(book, folder, places):
    spoil(book)
    book["cells"].remove(cell(book, CHECK))
    return write(book, folder)
