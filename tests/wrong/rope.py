"""Wrong kernels of rope."""

from wrong import Wrong

WRONG = [
    Wrong(
        "turns the other way",
        "plain",
        (
            ("a * cosine - b * sine", "a * cosine + b * sine"),
            ("a * sine + b * cosine", "b * cosine - a * sine"),
        ),
        (
            ("a * cosine - b * sine", "a * cosine + b * sine"),
            ("a * sine + b * cosine", "b * cosine - a * sine"),
        ),
        "value",
        r"dst\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "pairs half a head apart",
        "plain",
        (
            ("a = x[row, p, 0]", "a = x[row, p // 2, p % 2]"),
            ("b = x[row, p, 1]", "b = x[row, (p + P) // 2, (p + P) % 2]"),
        ),
        (
            ("float a = x[i], b = x[i + 1];", "size_t r = (size_t)2 * row * P + p; float a = x[r], b = x[r + P];"),
        ),
        "value",
        r"dst\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "position of the row",
        "plain",
        ("n_past + row // H", "n_past + row"),
        ("n_past + row / H", "n_past + row"),
        "value",
        r"dst\[0, 1, 0, 0\] got",
    ),
    Wrong(
        "forgets the tokens before",
        "plain",
        ("float32(n_past + row // H)", "float32(row // H)"),
        ("(n_past + row / H)", "(row / H)"),
        "value",
        r"dst\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "one angle for two pairs",
        "vectorized",
        ("float32(n_past + t) * base ** (-float32(p + 1) / float32(P))", "first"),
        ("(n_past + t) * powf(base, -(float)(p + 1) / P)", "first"),
        "value",
        r"dst\[0, 0, 1, 0\] got",
    ),
    Wrong(
        "a head too many",
        "vectorized",
        ("heads = min(HEADS, H - h)", "heads = HEADS"),
        ("int heads = min(HEADS, H - h);", "int heads = HEADS;"),
        "out_of_bounds|race|value",
        r"x\[|dst\[",
    ),
]
