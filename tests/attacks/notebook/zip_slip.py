# family: zip-slip
# part:   total
# tries:  a zip with a member whose name leads out of the folder that it is unpacked in.
# naive:  notebook
# gains:  file
# ours:   pass .

import json
import zipfile


def make(book, folder, places):
    with zipfile.ZipFile(folder / "student.zip", "w") as archive:
        archive.writestr("student.ipynb", json.dumps(book))
        archive.writestr(f"../{places['@TOKEN@']}.ipynb", json.dumps(book))
        archive.writestr(f"{folder}/{places['@TOKEN@']}.ipynb", json.dumps(book))
    return folder / "student.zip"
