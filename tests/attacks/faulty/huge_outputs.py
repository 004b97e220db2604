# tries:  200 MB of outputs.
# part:   all
# ours:   graded

import json


def make(book, folder, places):
    text = json.dumps(book)
    flood = '{"output_type": "stream", "name": "stdout", "text": ["' + "x" * (1 << 20) + '"]}'
    before, after = text.split('"outputs": []', 1)
    with open(folder / "student.ipynb", "w") as file:
        file.write(before + '"outputs": [' + flood)
        for _ in range(200):
            file.write(", " + flood)
        file.write("]" + after)
    return folder / "student.ipynb"
