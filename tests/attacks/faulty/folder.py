# tries:  a folder with what else lies about.
# part:   all
# ours:   graded

from attacks import write


def make(book, folder, places):
    (folder / "student" / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / "student" / "empty.ipynb").mkdir()
    (folder / "student" / "kernels.py").write_text("raise SystemExit")
    write({"cells": []}, folder / "student" / ".ipynb_checkpoints")
    write(book, folder / "student")
    return folder / "student"
