"""Wrong kernels of attention_backward."""

from wrong import Wrong

WRONG = [
    Wrong(
        "row sums forgotten",
        "recompute",
        ("p * (dp[i, j] - r) * scale", "p * dp[i, j] * scale"),
        ("p * (dp[i][j] - r) * scale", "p * dp[i][j] * scale"),
        "value",
        r"d[QK]\[0, 0, 0, 0\] got .* want ",
    ),
    Wrong(
        "later keys seen",
        "recompute",
        ("seen = row < N and col < NK and (not causal or col <= row)", "seen = row < N and col < NK"),
        ("row < N && col < NK && (!causal || col <= row)", "row < N && col < NK"),
        "value",
        r"dQ\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "first query head of the group alone",
        "recompute",
        ("range(head * group, (head + 1) * group)", "range(head * group, head * group + 1)"),
        ("h < (head + 1) * group; ++h", "h < head * group + 1; ++h"),
        "value",
        r"d[KV]\[0, \d, 0, 0\] got",
    ),
    Wrong(
        "gradient of the scaled query",
        "recompute",
        ("(dp[i, j] - r) * scale", "(dp[i, j] - r)"),
        ("(dp[i][j] - r) * scale", "(dp[i][j] - r)"),
        "value",
        r"dQ\[0, 0, 0, 0\] got",
    ),
    Wrong(
        "dS read before it is there",
        "recompute",
        ("            cuda.syncthreads()  # dS is", "            # dS is"),
        ("        __syncthreads();  // dS is", "        // dS is"),
        "race",
        r"barrier|syncthreads|sync",
    ),
]
