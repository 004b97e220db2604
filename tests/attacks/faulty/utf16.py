# tries:  saved in UTF-16 by an editor.
# part:   all
# ours:   graded UTF-8

import json


def make(book, folder, places):
    (folder / "student.ipynb").write_bytes(json.dumps(book).encode("utf-16"))
    return folder / "student.ipynb"
