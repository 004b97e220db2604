# family: shell escapes and magics
# part:   total
# tries:  a cell of bash.
# naive:  notebook
# gains:  file
# ours:   pass .

from attacks import code, write


def make(book, folder, places):
    book["cells"].insert(0, code(f"%%bash\ntouch {places['@HOME@']}/{places['@TOKEN@']}"))
    return write(book, folder)
