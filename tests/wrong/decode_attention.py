"""Wrong kernels of decode_attention."""

from wrong import Wrong

WRONG = [
    Wrong(
        "keys as if head by head",
        "five_kernels",
        (
            ("    total = float32(0)\n    ### BEGIN SOLUTION\n    for d in range(lane, Q.shape[1]",
             "    total, at = float32(0), h // group * S.shape[1] + t\n    for d in range(lane, Q.shape[1]"),
            ("float32(K[t, h // group, d])", "float32(K[at // K.shape[1], at % K.shape[1], d])"),
        ),
        ("K[((size_t)t * HKV + g) * D + d]", "K[((size_t)g * T + t) * D + d]"),
        "value",
        r"O\[\d, 0\] got",
    ),
    Wrong(
        "values as if their rows were full",
        "five_kernels",
        None,
        ("V[((size_t)g * D + d) * C + t]", "V[((size_t)g * D + d) * T + t]"),
        "value",
        r"O\[\d, \d+\] got",
    ),
    Wrong(
        "no scale",
        "five_kernels",
        ("S[i] *= scale", "S[i] *= 1"),
        ("S[i] *= 1.0f / sqrtf(D);", "S[i] *= 1.0f;"),
        "value",
        r"O\[0, 0\] got",
    ),
    Wrong(
        "mask one too early",
        "five_kernels",
        ("t > n_past else", "t >= n_past else"),
        ("t > n_past ? -INF", "t >= n_past ? -INF"),
        "value",
        r"O\[0, 0\] got",
    ),
    Wrong(
        "a head without keys divided by its sum",
        "five_kernels",
        (" / total if total > 0 else float32(0)  # a row", " / total  # a row"),
        ("sum > 0.0f ? expf(s[t] - most) / sum : 0.0f", "expf(s[t] - most) / sum"),
        "value",
        r"O\[1, 0\] got nan want 0",
    ),
    Wrong(
        "maximum not subtracted",
        "five_kernels",
        (
            ("total += math.exp(S[h, t] - most)", "total += math.exp(S[h, t])"),
            ("math.exp(S[h, t] - most) / total", "math.exp(S[h, t]) / total"),
        ),
        (
            ("sum += expf(s[t] - most)", "sum += expf(s[t])"),
            ("expf(s[t] - most) / sum", "expf(s[t]) / sum"),
        ),
        "value",
        r"O\[\d, 0\] got nan",
    ),
    Wrong(
        "sum so far not shrunk",
        "fused",
        ("        total *= shrink\n", ""),
        ("        sum *= shrink;\n", ""),
        "value",
        r"O\[\d, \d+\] got",
    ),
    Wrong(
        "weights read before they are there",
        "fused",
        ("        cuda.syncthreads()  # all weights are there", "        # all weights are there"),
        ("        __syncthreads();  // all weights are there", "        // all weights are there"),
        "race",
        r"syncthreads",
    ),
    Wrong(
        "next chunk's scores over weights in use",
        "fused",
        ("        cuda.syncthreads()  # nobody reads", "        # nobody reads"),
        ("        __syncthreads();  // nobody reads", "        // nobody reads"),
        "race",
        r"syncthreads",
    ),
    Wrong(
        "tokens past the last",
        "fused",
        ("for t in range(lane, n, 32):", "for t in range(lane, CHUNK, 32):"),
        ("for (int t = lane; t < n; t += 32)", "for (int t = lane; t < CHUNK; t += 32)"),
        "out_of_bounds|uninitialized|value",
        r"V|s\[\d+\]|shared|outside",
    ),
]
