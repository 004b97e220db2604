# family: HTML and JavaScript outputs
# target: vector_add/grid
# tries:  an error message of megabytes, with markup in it, for the page that shows it.
# naive:  plain
# gains:  exec
# ours:   fail RuntimeError

raise RuntimeError("<script>alert('@TOKEN@')</script>" * 20_000)
