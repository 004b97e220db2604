# tries:  a notebook of format 3.
# part:   all
# ours:   graded

from attacks import write


def make(book, folder, places):
    for cell in book["cells"]:
        cell["input"] = cell.pop("source")
    return write({"worksheets": [{"cells": book["cells"]}], "nbformat": 3, "metadata": {}}, folder)
