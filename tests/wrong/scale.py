"""Wrong kernels of scale."""

from wrong import Wrong

WRONG = [
    Wrong(
        "divides",
        "plain",
        ("        dst[i] = factor * x[i]", "        dst[i] = x[i] / factor"),
        ("        dst[i] = factor * x[i]", "        dst[i] = x[i] / factor"),
        "value",
        r"dst\[0\] got .* want ",
    ),
    Wrong(
        "factor built in",
        "plain",
        ("        dst[i] = factor *", "        dst[i] = np.float32(128**-0.5) *"),
        ("        dst[i] = factor *", "        dst[i] = 0.08838834764f *"),
        "value",
        r"dst\[0\] got",
    ),
    Wrong(
        "one block's pieces for all",
        "vectorized",
        ("lk.cuda.load4(x, i)", "lk.cuda.load4(x, i % 512)"),
        ("(x + i);", "(x + i % 512);"),
        "value",
        r"dst\[512\] got",
    ),
    Wrong(
        "tail left out",
        "vectorized",
        ("min(N, i + 4)):", "min(N - 1, i + 4)):"),
        ("i < N && i < end", "i + 1 < N && i < end"),
        "unwritten",
        r"dst\[\d+\] was never written",
    ),
]
