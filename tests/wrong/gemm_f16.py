"""Wrong kernels of gemm_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "missing barrier before the product",
        "mma_sync",
        ("        cuda.syncthreads()  # the tiles", "        # the tiles"),
        ("        __syncthreads();  // the tiles", "        // the tiles"),
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "missing barrier after the product",
        "mma_sync",
        ("        cuda.syncthreads()  # nobody", "        # nobody"),
        ("        __syncthreads();  // nobody", "        // nobody"),
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "B not turned round",
        "mma_sync",
        ("lk.cuda.ldmatrix_transposed(tB", "lk.cuda.ldmatrix(tB"),
        ("            ldmatrix_transposed(b[j]", "            ldmatrix(b[j]"),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
    Wrong(
        "written swizzled, read as it is",
        "mma_sync",
        ("r * BN + (piece ^ (r % 8)) * 8", "r * BN + piece * 8"),
        (
            "tB + place<BN>(k + lane % 16, wn + 16 * j + lane / 16 * 8)",
            "tB + (k + lane % 16) * BN + wn + 16 * j + lane / 16 * 8",
        ),
        "value",
        r"C\[0, \d+\] got .* want ",
    ),
    Wrong(
        "sums in float16",
        "wmma",
        None,
        (
            ("accumulator, 16, 16, 16, float> c", "accumulator, 16, 16, 16, T> c"),
            ("wmma::fill_fragment(c, 0.0f)", "wmma::fill_fragment(c, T(0.0f))"),
            ("__shared__ __align__(32) float sums[256]", "__shared__ __align__(32) T sums[256]"),
            ("= sums[i];", "= (float)sums[i];"),
        ),
        "value",
        r"allowed",
    ),
    Wrong(
        "tail of K not zeroed",
        "wmma_tiled",
        None,
        ("= r < rows && c < cols ? from[", "= r < rows && c <= cols ? from["),
        "value|out_of_bounds",
        r"C\[|reads [AB]",
    ),
    Wrong(
        "copies not waited for",
        "mma_async",
        ("        lk.cuda.cp_async_wait(1)  # this", "        lk.cuda.cp_async_wait(2)  # this"),
        ('"n"(STAGES - 2)', '"n"(STAGES - 1)'),
        "race|uninitialized",
        r"cp\.async|wait|written",
    ),
    Wrong(
        "stage overwritten while it is read",
        "mma_async",
        ("        ahead = (stage + STAGES - 1) % STAGES", "        ahead = stage"),
        ("start(step + STAGES - 1);  //", "start(step + STAGES);  //"),
        "race|uninitialized|value",
        r".",
    ),
    Wrong(
        "last group of rows forgotten",
        "mma_tuned",
        None,
        ("rows = min(GROUP, tiles_m - first)", "rows = GROUP"),
        "unwritten|value|out_of_bounds",
        r"C\[",
    ),
    Wrong(
        "sums carried into the next tile",
        "mma_tuned",
        None,
        ("                    sum = 0.0f;", "                    sum += 0.0f;"),
        "value",
        r"C\[\d+, \d+\] got",
    ),
]
