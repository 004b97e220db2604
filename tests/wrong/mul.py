"""Wrong kernels of mul."""

from wrong import Wrong

WRONG = [
    Wrong(
        "other operation",
        "plain",
        ("x[i] * y", "x[i] + y"),
        ("x[i] * y", "x[i] + y"),
        "value",
        r"dst\[0, 0\] got .* want ",
    ),
    Wrong(
        "row in place of column",
        "plain",
        ("y[i % y.shape[0]]", "y[i // y.shape[0] % y.shape[0]]"),
        ("y[i % C]", "y[i / C % C]"),
        "value",
        r"dst\[0, 1\] got",
    ),
    Wrong(
        "no remainder",
        "plain",
        ("y[i % y.shape[0]]", "y[i]"),
        ("y[i % C]", "y[i]"),
        "out_of_bounds",
        r"reads y\[64\], outside",
    ),
    Wrong(
        "a row too many",
        "vectorized",
        ("rows = min(ROWS, R - row)", "rows = ROWS"),
        ("int rows = min(ROWS, R - row);", "int rows = ROWS;"),
        "out_of_bounds",
        r"x\[",
    ),
    Wrong(
        "alignment taken for granted",
        "vectorized",
        ("aligned = C % 4 == 0 and", "aligned = True or"),
        ("bool aligned = C % 4 == 0 &&", "bool aligned = true ||"),
        "misaligned|out_of_bounds",
        r"16|outside|past",
    ),
]
