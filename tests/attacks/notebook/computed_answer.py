# family: importing the solution or reference module
# part:   answer
# tries:  asks the lab for the value that its answer is compared with.
# naive:  notebook
# gains:  marks
# ours:   fail number|arithmetic

from attacks import QUESTION, cell, spoil, write


def make(book, folder, places):
    spoil(book)
    source = cell(book, QUESTION)["source"]
    value = 'vector_add.problem.questions["bytes_per_flop"].value()'
    cell(book, QUESTION)["source"] = f"{source[: source.rindex(',')]}, {value})"
    return write(book, folder)
