"""Wrong kernels of matvec_q8_0."""

from wrong import Wrong

WRONG = [
    Wrong(
        "unsigned quants",
        "dequantize",
        ("W.view(torch.int8)", "W"),
        (
            "const signed char *q = (const signed char *)(block + 2) + k % 32",
            "const unsigned char *q = block + 2 + k % 32",
        ),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "scale of the first block",
        "dequantize",
        ("halves_of[row, block * 17]", "halves_of[row, 0]"),
        ("*(const half *)block)", "*(const half *)blocks)"),
        "value",
        r"y\[\d\] got",
    ),
    Wrong(
        "scale counted as a quant",
        "dequantize",
        ("at = block * 34 + 2 + k % 32", "at = block * 34 + k % 32"),
        ("(block + 2) + k % 32", "(block) + k % 32"),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "tail past the row",
        "dequantize",
        ("range(2 * lane, K, 64)", "range(2 * lane, K + 32, 64)"),
        ("k < K; k += 64", "k < K + 32; k += 64"),
        "out_of_bounds|value",
        r"x\[|W|y\[",
    ),
    Wrong(
        "division by a zero scale",
        "repacked",
        (
            ("int8(0) if d == 0 else int8(math.floor(x[k] / d + float32(0.5)))", "int8(x[k] / d + float32(0.5))"),
            ("xd[k // 32] = d", "xd[k // 32] = d / d * d"),
        ),
        (
            ("d == 0.0f ? 0 : (signed char)rintf(x[k] / d)", "(signed char)rintf(x[k] / d)"),
            ("xd[k / 32] = d;", "xd[k / 32] = d / d * d;"),
        ),
        "value",
        r"y\[0\] got nan",
    ),
    Wrong(
        "largest without its sign taken off",
        "dp4a",
        ("largest = abs(x[k])", "largest = x[k]"),
        ("float largest = fabsf(x[k])", "float largest = x[k]"),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "misaligned words",
        "dp4a",
        None,
        ("quad(w + 2 + i)", "*(const int *)(w + 2 + i)"),
        "misaligned",
        r"4",
    ),
    Wrong(
        "scale of the next block",
        "repacked",
        ("total += float32(D[d + k // 32])", "total += float32(D[d + (k + 16) // 32])"),
        ("__half2float(d[p / 2])", "__half2float(d[(p + 1) / 2])"),
        "value|out_of_bounds",
        r"y\[0\] got|D",
    ),
    Wrong(
        "4 bits for x",
        "repacked",
        ("largest / float32(127)", "largest / float32(7)"),
        ("largest / 127", "largest / 7"),
        "value",
        r"allowed",
    ),
]
