"""scale: every number times a factor, as attention scores are scaled by 1 / sqrt(head size); float32, any length."""

from __future__ import annotations

from labkit.problems._operators import FLAT, operator, requests_question

FACTOR = 128**-0.5  # heads of 128, as in Llama 2 7B


def reference(x, factor=FACTOR):
    return x * factor


problem = operator(
    "scale",
    "dst[i] = factor * x[i]",
    reference,
    magnitude=lambda x, factor=FACTOR: (x * factor).abs(),
    flops=lambda d: d["N"],
    options={"factor": FACTOR},
    questions={"vectorized/numbers_per_request": requests_question()},
    **{**FLAT, "shapes": (*FLAT["shapes"], {"N": 40, "factor": -3.0})},
)
