"""Wrong kernels of attention_backward_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "dS read before it is there",
        "mma",
        None,
        ("        __syncthreads();  // dS of", "        // dS of"),
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "P and dS of the other warp read before they are there",
        "mma",
        None,
        ('"bar.sync %0, 64;"', '"// %0"'),
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "stored and not added",
        "mma",
        None,
        ("                add(sums + (i * W::MN + j) * 128, q[i][j]);",
         "                *(float4 *)(sums + (i * W::MN + j) * 128) = *(float4 *)q[i][j];"),
        "value|race",
        r"dQ\[|race|block",
    ),
    Wrong(
        "dS not turned round",
        "mma",
        None,
        ("                ldmatrix_transposed(a[i]", "                ldmatrix(a[i]"),
        "value",
        r"dQ\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "copied into the stage that is read",
        "mma",
        None,
        ("        start(now ^ 1);", "        start(now);"),
        "race|uninitialized|value",
        r".",
    ),
]
