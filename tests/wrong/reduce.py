"""Wrong kernels of reduce."""

from wrong import Wrong

WRONG = [
    Wrong(
        "missing barrier after loading",
        "sequential",
        ("    cuda.syncthreads()  # nobody adds", "    # nobody adds"),
        ("    __syncthreads();  // nobody adds", "    // nobody adds"),
        "race",
        r"barrier|syncthreads",
        ("sums[t] += sums[t + s]", "sums[t] += sums[t + s]"),
    ),
    Wrong(
        "missing barrier between steps",
        "interleaved",
        ("        cuda.syncthreads()  # the next", "        # the next"),
        ("        __syncthreads();  // the next", "        // the next"),
        "race",
        r"barrier|syncthreads",
        ("sums[t] += sums[t + s]", "sums[t] += sums[t + s]"),
    ),
    Wrong(
        "reads past the end",
        "sequential",
        ("x[i] if i < N else float32(0)", "x[i]"),
        ("i < N ? x[i] : 0.0f", "x[i]"),
        "out_of_bounds",
        r"reads .*, outside",
    ),
    Wrong(
        "pairs beyond the block",
        "strided",
        ("if j < BLOCK:", "if j <= BLOCK:"),
        ("if (j < BLOCK)", "if (j <= BLOCK)"),
        "out_of_bounds",
        r"sums",
    ),
    Wrong(
        "half of a warp left out",
        "shuffle",
        ("    d = 16\n", "    d = 8\n"),
        ("int d = 16; d", "int d = 8; d"),
        "value",
        r"y\[0\] got .* want ",
    ),
    Wrong(
        "shuffle in part of a warp",
        "shuffle",
        ("    if t < 32:  # all", "    if t < WARPS:  # all"),
        ("    if (t < 32)  // all", "    if (t < WARPS)  // all"),
        "shuffle",
        r"lane",
    ),
    Wrong(
        "tail forgotten",
        "vectorized",
        ("cuda.blockIdx.x * BLOCK + t, N, cuda", "cuda.blockIdx.x * BLOCK + t, whole, cuda"),
        ("i < N; i += (size_t)gridDim.x * BLOCK", "i < whole; i += (size_t)gridDim.x * BLOCK"),
        "value",
        r"y\[0\] got 0 want ",
    ),
    Wrong(
        "half precision inside",
        "vectorized",
        (
            ("from numba import cuda", "from numba.cuda.types import float16\nfrom numba import cuda"),
            ("        value += x[i]", "        value = float32(float16(value + x[i]))"),
        ),
        (
            ("constexpr int BLOCK = 256;", "#include <cuda_fp16.h>\nconstexpr int BLOCK = 256;"),
            ("        value += x[i];", "        value = __half2float(__float2half(value + x[i]));"),
        ),
        "value",
        r"allowed",
    ),
    Wrong(
        "no fence before the ticket",
        "grid_wide",
        ("        cuda.threadfence()  # the sum", "        # the sum"),
        ("        __threadfence();  // the sum", "        // the sum"),
        "race",
        r"fence",
    ),
    Wrong(
        "the first block adds",
        "grid_wide",
        ("cuda.atomic.add(tickets, 0, 1) == blocks - 1", "cuda.atomic.add(tickets, 0, 1) == 0"),
        ("atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1", "atomicInc(&tickets, gridDim.x - 1) == 0"),
        "uninitialized|race",
        r"partial",
    ),
]
