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
        "first piece for all",
        "vectorized",
        ("begin + (p * THREADS + t) * 4)", "begin + t * 4)"),
        ("v[p] = from[p * THREADS + threadIdx.x]", "v[p] = from[threadIdx.x]"),
        "value",
        r"dst\[1024\] got",
    ),
    Wrong(
        "tail left out",
        "vectorized",
        ("min(N, begin + CHUNK), THREADS)", "min(N - 3, begin + CHUNK), THREADS)"),
        ("i < N && i < begin + CHUNK", "i + 3 < N && i < begin + CHUNK"),
        "unwritten",
        r"dst\[297\] was never written",
    ),
]
