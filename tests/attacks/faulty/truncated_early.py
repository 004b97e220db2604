# tries:  an upload that ended at once.
# part:   nothing
# ours:   ungradable .

import json


def make(book, folder, places):
    (folder / "student.ipynb").write_text(json.dumps(book)[:40])
    return folder / "student.ipynb"
