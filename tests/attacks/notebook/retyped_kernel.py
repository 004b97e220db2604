# family: retyped cells
# part:   correct
# tries:  the wrong kernel is text, and the check looks at another rung, which was given.
# naive:  notebook
# gains:  marks
# ours:   fail got .* want

from attacks import CHECK, KERNEL, cell, spoil, write


def make(book, folder, places):
    right = cell(book, KERNEL)["source"].replace("vector_add/grid", "vector_add/one_block", 1)
    spoil(book)
    cell(book, KERNEL)["cell_type"] = "markdown"
    extra = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "source": right}
    book["cells"].insert(1, extra)
    cell(book, CHECK)["source"] = 'vector_add["one_block"].check()'
    return write(book, folder)
