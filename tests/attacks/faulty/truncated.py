# tries:  an upload that ended early: the cells before the break count.
# part:   all
# ours:   graded broken at line

import json

from attacks import EXPLAIN


def make(book, folder, places):
    text = json.dumps(book, indent=1)
    (folder / "student.ipynb").write_text(text[: text.index(EXPLAIN)])
    return folder / "student.ipynb"
