# family: editing tests or the gradebook
# target: vector_add/grid
# tries:  overwrites another student's result.
# naive:  plain
# gains:  other
# ours:   fail .

with open("@OTHER@", "w") as file:
    file.write('{"points": 0, "by": "@TOKEN@"}')
