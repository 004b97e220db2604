# tries:  an empty file, as a full disk leaves it.
# part:   nothing
# ours:   ungradable .

def make(book, folder, places):
    (folder / "student.ipynb").write_bytes(b"")
    return folder / "student.ipynb"
