# family: symlinks
# part:   nothing
# tries:  a zip that unpacks to a link to another student's notebook.
# naive:  notebook
# gains:  marks
# ours:   ungradable link

import zipfile


def make(book, folder, places):
    link = zipfile.ZipInfo("lab.ipynb")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(folder / "student.zip", "w") as archive:
        archive.writestr(link, places["@SOLVED@"])
    return folder / "student.zip"
