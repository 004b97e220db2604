"""Wrong kernels of ffn_glu."""

from wrong import Wrong

WRONG = [
    Wrong(
        "silu of the other half",
        "fused_glu",
        ("gate / (float32(1) + math.exp(-gate)) * up", "up / (float32(1) + math.exp(-up)) * gate"),
        ("gate / (1.0f + expf(-gate)) * up", "up / (1.0f + expf(-up)) * gate"),
        "value",
        r"h\[0\] got",
    ),
    Wrong(
        "sigmoid in place of silu",
        "fused_glu",
        ("h[row] = gate / ", "h[row] = float32(1) / "),
        ("h[row] = gate / ", "h[row] = 1.0f / "),
        "value",
        r"h\[0\] got",
    ),
    Wrong(
        "sum of one lane",
        "fused_glu",
        ("    up = warp_sum(up)\n", ""),
        ("    up = warp_sum(up);\n", ""),
        "value",
        r"h\[0\] got",
    ),
    Wrong(
        "all lanes store",
        "fused_glu",
        ("    if lane == 0:\n        h[row]", "    if lane >= 0:\n        h[row]"),
        ("    if (lane == 0)\n        h[row]", "    if (lane >= 0)\n        h[row]"),
        "race|value",
        r"h\[\d+\]",
    ),
    Wrong(
        "no bound",
        "three_kernels",
        ("if m < h.shape[0]:", "if m < h.shape[0] + 1:"),
        ("if (m < M)", "if (m < M + 1)"),
        "out_of_bounds",
        r"gate|outside|h\[",
    ),
    Wrong(
        "no silu",
        "three_kernels",
        ("gate[m] / (float32(1) + math.exp(-gate[m])) * up[m]", "gate[m] * up[m]"),
        ("gate[m] / (1.0f + expf(-gate[m])) * up[m]", "gate[m] * up[m]"),
        "value",
        r"h\[0\] got",
    ),
]
