"""Wrong kernels of diag_mask."""

from wrong import Wrong

WRONG = [
    Wrong(
        "masks the token itself",
        "plain",
        ("s > n_past + row % T", "s >= n_past + row % T"),
        ("s > n_past + row % T", "s >= n_past + row % T"),
        "value",
        r"dst\[0, 0, 4\] got -inf",
    ),
    Wrong(
        "forgets the tokens before",
        "plain",
        ("s > n_past + row % T", "s > row % T"),
        ("s > n_past + row % T", "s > row % T"),
        "value",
        r"dst\[0, 0, 1\] got -inf",
    ),
    Wrong(
        "forgets the heads",
        "plain",
        ("n_past + row % T", "n_past + row"),
        ("n_past + row % T", "n_past + row"),
        "value",
        r"dst\[1, 0, 5\] got .* want -inf",
    ),
    Wrong(
        "very small in place of infinite",
        "plain",
        ("MINUS_INFINITY = float32(-math.inf)", "MINUS_INFINITY = float32(-2147483647)"),
        ("? -__int_as_float(0x7f800000)", "? -2147483647.0f"),
        "value",
        r"got -2.14748e\+09 want -inf",
    ),
    Wrong(
        "a piece masked as a whole",
        "vectorized",
        ("if r < rows and s <= n_past", "if r < rows and s + 3 <= n_past"),
        ("if (r < rows && s <= last[r])", "if (r < rows && s + 3 <= last[r])"),
        "value",
        r"dst\[0, 0, 500\]",
    ),
]
