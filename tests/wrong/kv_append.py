"""Wrong kernels of kv_append."""

from wrong import Wrong

WRONG = [
    Wrong(
        "turns the other way",
        "three_kernels",
        (
            ("a * cosine - b * sine", "a * cosine + b * sine"),
            ("a * sine + b * cosine", "b * cosine - a * sine"),
        ),
        ("pair.x * by.x - pair.y * by.y, pair.x * by.y + pair.y * by.x",
         "pair.x * by.x + pair.y * by.y, pair.y * by.x - pair.x * by.y"),
        "value",
        r"K\[0, 32, 0, 0\] got",
    ),
    Wrong(
        "every sequence at the first one's position",
        "three_kernels",
        ("cache[b, positions[b] + n,", "cache[b, positions[0] + n,"),
        ("positions[b] + n) * C", "positions[0] + n) * C"),
        "unwritten|value",
        r"[KV]\[1, \d+, 0, 0\]",
    ),
    Wrong(
        "the angle of the first new token for all",
        "fused",
        ("turn[t, p, 0], turn[t, p, 1]", "turn[t - token % N, p, 0], turn[t - token % N, p, 1]"),
        ("((const float2 *)turn)[t * P + p]", "((const float2 *)turn)[(size_t)positions[b] * P + p]"),
        "value",
        r"K\[0, 13, 0, 0\] got",
    ),
    Wrong(
        "values turned too",
        "fused",
        ("V[b, t, c] = float16(v[token, c])", "V[b, t, c] = float16(v[token, c] * cosine - v[token, c + 1] * sine)"),
        ("__floats2half2_rn(value.x, value.y)", "__floats2half2_rn(value.x * by.x - value.y * by.y, value.y)"),
        "value",
        r"V\[0, 32, 0, 0\] got",
    ),
    Wrong(
        "the row before cleared",
        "fused",
        ("    V[b, t, c] = float16(v[token, c])\n",
         "    V[b, t, c] = float16(v[token, c])\n    if t > 0 and N == 1:\n        V[b, t - 1, c] = float16(0)\n"),
        ("    ((half2 *)V)[at] =",
         "    if (t > 0 && N == 1) ((half2 *)V)[at - HKV * P] = half2();\n    ((half2 *)V)[at] ="),
        "value",
        r"V\[0, 31, 0, 0\] got 0 want nan",
    ),
    Wrong(
        "one pair's angle for two",
        "vectorized",
        ("x[2] * by[2] - x[3] * by[3]", "x[2] * by[0] - x[3] * by[1]"),
        ("x.z * by.z - x.w * by.w", "x.z * by.x - x.w * by.y"),
        "value",
        r"K\[0, 32, 0, 2\] got",
    ),
    Wrong(
        "a head too many",
        "vectorized",
        ("heads = min(HEADS, HKV - h)", "heads = HEADS"),
        ("int heads = min(HEADS, HKV - h);", "int heads = HEADS;"),
        "out_of_bounds|race|value",
        r"[kvKV]\[|outside",
    ),
]
