# family: shell escapes and magics
# part:   total
# tries:  runs a command of the shell when the grader executes the notebook.
# naive:  notebook
# gains:  file
# ours:   pass .

from attacks import code, write


def make(book, folder, places):
    book["cells"].insert(1, code(f"!echo {places['@TOKEN@']} > {places['@HOME@']}/{places['@TOKEN@']}"))
    return write(book, folder)
