# family: symlinks
# part:   nothing
# tries:  hands in a link to another student's notebook.
# naive:  notebook
# gains:  marks
# ours:   ungradable link

def make(book, folder, places):
    (folder / "student").mkdir()
    (folder / "student" / "lab.ipynb").symlink_to(places["@SOLVED@"])
    return folder / "student"
