# tries:  a kernel cell that became text by a slip of the keyboard.
# part:   all
# ours:   graded of the type markdown

from attacks import KERNEL, cell, write


def make(book, folder, places):
    cell(book, KERNEL)["cell_type"] = "markdown"
    return write(book, folder)
