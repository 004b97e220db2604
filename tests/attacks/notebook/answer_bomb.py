# family: infinite loop on the host or on the device
# part:   answer
# tries:  an answer that takes longer to work out than there is time.
# naive:  notebook
# gains:  stops
# ours:   fail finite|number

from attacks import QUESTION, cell, write


def make(book, folder, places):
    source = cell(book, QUESTION)["source"]
    cell(book, QUESTION)["source"] = source[: source.rindex(",")] + ", 9**9**9**9 % 7)"
    return write(book, folder)
