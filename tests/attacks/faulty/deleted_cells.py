# tries:  a cell that was deleted costs its own points only.
# part:   all
# ours:   graded no cell for

from attacks import EXPLAIN, cell, write


def make(book, folder, places):
    book["cells"].remove(cell(book, EXPLAIN))
    return write(book, folder)
