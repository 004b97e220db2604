# family: edited locked cells
# part:   correct
# tries:  a wrong kernel, and a check cell that says True.
# naive:  notebook
# gains:  marks
# ours:   fail got .* want

from attacks import CHECK, cell, spoil, write


def make(book, folder, places):
    spoil(book)
    cell(book, CHECK)["source"] = "True"
    return write(book, folder)
