# tries:  halves of characters, which JSON can say and UTF-8 cannot.
# part:   all
# ours:   graded

import json

from attacks import EXPLAIN, KERNEL, cell


def make(book, folder, places):
    cell(book, KERNEL)["source"] += "\n# \ud800 half of an emoji\n"
    cell(book, EXPLAIN)["source"] += "\udfff"
    book["cells"].append({"cell_type": "code", "id": "\ud83d", "metadata": {"nbgrader": {"grade_id": "\udc00"}}})
    (folder / "student.ipynb").write_text(json.dumps(book))
    return folder / "student.ipynb"
