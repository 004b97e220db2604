# tries:  an expression deeper than a parser goes, in a cell beside the graded ones.
# part:   all
# ours:   graded

from attacks import EXPLAIN, code, write


def make(book, folder, places):
    book["cells"].append(code('lk.answer("vector_add/grid/blocks", ' + "(" * 20_000 + "4" + ")" * 20_000 + ")"))
    book["cells"].append(code('lk.answer("vector_add/grid/blocks", ' + "-" * 90_000 + "4)"))
    book["cells"].append(code(EXPLAIN))
    return write(book, folder)
