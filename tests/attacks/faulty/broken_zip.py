# tries:  half of a zip.
# part:   nothing
# ours:   ungradable zip|JSON

import json
import zipfile


def make(book, folder, places):
    with zipfile.ZipFile(folder / "student.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("student.ipynb", json.dumps(book))
    data = (folder / "student.zip").read_bytes()
    (folder / "student.zip").write_bytes(data[: len(data) // 2])
    return folder / "student.zip"
