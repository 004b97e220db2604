# tries:  another editor dropped all ids and metadata.
# part:   all
# ours:   graded its id is gone

from attacks import write


def make(book, folder, places):
    for cell in book["cells"]:
        cell["metadata"] = {}
        cell.pop("id")
    book["metadata"] = {}
    return write(book, folder)
