# tries:  a kernel cell that was copied and changed: the first counts, and a sentence says so.
# part:   all
# ours:   graded stands in 2 cells

import copy

from attacks import KERNEL, cell, write


def make(book, folder, places):
    second = copy.deepcopy(cell(book, KERNEL))
    second["source"] = second["source"].replace("A[i] + B[i]", "A[i] * B[i]")
    book["cells"].append(second)
    return write(book, folder)
