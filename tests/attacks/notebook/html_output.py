# family: HTML and JavaScript outputs
# part:   total
# tries:  outputs with a script in them, for the page of whoever grades by eye.
# naive:  notebook
# gains:  exec
# ours:   pass .

from attacks import CHECK, cell, write


def make(book, folder, places):
    page = f"<script>alert('{places['@TOKEN@']}')</script><b>passed</b>"
    output = {"output_type": "display_data", "data": {"text/html": page}, "metadata": {}}
    cell(book, CHECK)["outputs"] = [output]
    return write(book, folder)
