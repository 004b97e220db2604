# tries:  numbers that no machine has.
# part:   all
# ours:   graded

import json


def make(book, folder, places):
    text = json.dumps(book).replace('"nbformat": 4', '"nbformat": ' + "9" * 100_000)
    (folder / "student.ipynb").write_text(text.replace('"metadata": {}', '"metadata": {"x": -1e99999, "y": NaN}', 1))
    return folder / "student.ipynb"
