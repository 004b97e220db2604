# family: duplicated cells
# part:   total
# tries:  hands the answer that it knows in thirty times.
# naive:  notebook
# gains:  marks
# ours:   pass .

import copy

from attacks import QUESTION, cell, spoil, write


def make(book, folder, places):
    spoil(book)
    book["cells"] += [copy.deepcopy(cell(book, QUESTION)) for _ in range(30)]
    return write(book, folder)
