# tries:  no JSON at all.
# part:   nothing
# ours:   ungradable not JSON

def make(book, folder, places):
    (folder / "student.ipynb").write_text("I could not get Jupyter to run, here is my kernel in words.")
    return folder / "student.ipynb"
