# tries:  saved in Latin-1.
# part:   all
# ours:   graded not UTF-8

import json

from attacks import KERNEL, cell


def make(book, folder, places):
    cell(book, KERNEL)["source"] += "\n# schon schnell f\u00fcr mich\n"
    (folder / "student.ipynb").write_bytes(json.dumps(book, ensure_ascii=False).encode("latin-1"))
    return folder / "student.ipynb"
