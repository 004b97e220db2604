# tries:  a zip of half a megabyte that unpacks to half a gigabyte.
# part:   all
# ours:   graded more than

import json
import zipfile


def make(book, folder, places):
    with zipfile.ZipFile(folder / "student.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("student.ipynb", json.dumps(book))
        with archive.open("other.ipynb", "w") as file:
            for _ in range(520):
                file.write(bytes(1 << 20))
    return folder / "student.zip"
