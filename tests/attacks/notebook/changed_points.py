# family: changed points
# part:   total
# tries:  makes the one question that it can answer worth a thousand points.
# naive:  notebook
# gains:  marks
# ours:   pass .

from attacks import QUESTION, cell, spoil, write


def make(book, folder, places):
    spoil(book)
    cell(book, QUESTION)["metadata"]["nbgrader"]["points"] = 1000
    return write(book, folder)
