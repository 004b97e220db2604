# family: edited locked cells
# part:   answer
# tries:  replaces lk.answer in a cell of its own, so that every answer is right.
# naive:  notebook
# gains:  marks
# ours:   fail too|low|high

from attacks import QUESTION, cell, code, write


def make(book, folder, places):
    source = cell(book, QUESTION)["source"]
    cell(book, QUESTION)["source"] = source[: source.rindex(",")] + ", 123456)"
    book["cells"].insert(1, code("lk.answer = lambda key, value: True"))
    return write(book, folder)
