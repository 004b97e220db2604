# family: foreign kernelspec
# part:   total
# tries:  names a kernel of its own, with the command that starts it.
# naive:  notebook
# gains:  file
# ours:   pass .

from attacks import write


def make(book, folder, places):
    command = ["touch", f"{places['@HOME@']}/{places['@TOKEN@']}"]
    book["metadata"]["kernelspec"] = {"name": "mine", "display_name": "Mine", "language": "sh", "argv": command}
    return write(book, folder)
