# tries:  nested deeper than any reader goes.
# part:   nothing
# ours:   ungradable .

def make(book, folder, places):
    (folder / "student.ipynb").write_text('{"cells": ' + "[" * 200_000)
    return folder / "student.ipynb"
