# tries:  cells that are no cells, among those that are.
# part:   all
# ours:   graded no cell

from attacks import write


def make(book, folder, places):
    odd = [None, 7, "cell", [], {}, {"cell_type": 5, "source": {}}, {"cell_type": "code", "source": [1, None, "x"]},
           {"cell_type": "code", "source": "", "metadata": [], "id": 12},
           {"cell_type": "code", "metadata": {"nbgrader": 3}}]
    book["cells"] = odd + book["cells"] + odd
    book["metadata"] = "none"
    return write(book, folder)
