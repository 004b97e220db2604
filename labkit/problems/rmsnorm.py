"""rmsnorm: RMS normalization of each row of a float32 matrix, scaled by a weight per column, as in Llama."""

from __future__ import annotations

from labkit.problems._metrics import LOAD_SECTORS, LOADS, STORE_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor


def flops(d) -> int:
    return 4 * d["rows"] * d["cols"]  # per entry: a square, an addition to the sum, two products


def reference(x, w, eps=1e-5):
    return x * (x.square().mean(1, keepdim=True) + eps).rsqrt() * w


def baseline(x, w, eps=1e-5):
    import torch

    return torch.nn.functional.rms_norm(x, (x.shape[1],), w, eps)


def magnitude(x, w, eps=1e-5):
    return reference(x.abs(), w.abs(), eps)


def _rows(shape, generator):
    """Rows of different sizes, from a thousandth (where eps counts) to a thousand."""
    import torch

    how = {"generator": generator, "device": generator.device}
    sizes = 10.0 ** torch.empty((shape[0], 1), device=generator.device).uniform_(-3, 3, generator=generator)
    return torch.randn(shape, **how).mul_(sizes)


def _passes(count: int, cols: int = 4096) -> int:
    return count * cols * 4


problem = Problem(
    name="rmsnorm",
    lab="01_gpu_basics",
    formula="y[r, c] = x[r, c] / sqrt(mean over k of x[r, k]^2 + eps) * w[c]",
    dims=("rows", "cols"),
    inputs={"x": Tensor(("rows", "cols"), make=_rows), "w": Tensor(("cols",))},
    outputs={"y": Tensor(("rows", "cols"))},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=flops,
    options={"eps": 1e-5},
    ladder=(
        Step("two_kernels", "a warp per row normalizes; a second kernel multiplies", "global sectors; DRAM bytes"),
        Step("fused", "multiplied where it is normalized: one kernel", "global store sectors; DRAM bytes",
             gates=(STORE_SECTORS,)),
        Step("vectorized", "the row stays in registers; 16-byte accesses; a block per row", "load sectors; requests",
             gates=(LOADS, LOAD_SECTORS), timed=True),
    ),
    shapes=(
        {"rows": 4, "cols": 256},
        {"rows": 1, "cols": 1},
        {"rows": 5, "cols": 17, "eps": 1.0},
        {"rows": 7, "cols": 1},
        {"rows": 3, "cols": 33},
        {"rows": 33, "cols": 5},
        {"rows": 2, "cols": 123},
        {"rows": 5, "cols": 1031},
        {"rows": 1, "cols": 16404},
        {"rows": 1, "cols": 16391},
    ),
    large_shapes=(
        {"rows": 1024, "cols": 4096},
        {"rows": 4099, "cols": 129},
        {"rows": 333, "cols": 4099},
        {"rows": 5, "cols": 400_003},
        {"rows": 70_001, "cols": 3},
    ),
    profile_shape={"rows": 8, "cols": 2048},
    bench_shape={"rows": 65536, "cols": 4096},
    recorded_at={
        "bench": (
            {"rows": 65536, "cols": 4096},
            {"rows": 262144, "cols": 1024},
            {"rows": 4096, "cols": 65536},
        )
    },
    questions={
        "two_kernels/bytes": Question(
            "A row of 4096 numbers passes through both kernels of two_kernels. How many bytes of x, of the "
            "intermediate result and of y do they load and store? (Leave out the weights, which all rows share.)",
            lambda: _passes(5),
            "bytes",
            "The first kernel reads x twice and writes once, the second reads that and writes y.",
        ),
        "fused/dram_ratio": Question(
            "x has 65536 rows of 4096 numbers, each of which a block of one warp reads twice, in both rungs. 32 such "
            "blocks run on each of 132 multiprocessors; the L2 has 60 MB. By which factor does fused lower the bytes "
            "that move through DRAM?",
            lambda: 5 / 3,
            "times",
            "132 x 32 rows of 16 KB are 69 MB, more than the L2 keeps: both kernels read x from DRAM twice. x, x, tmp "
            "written, tmp read, y are five passes; fused has three.",
            relative=0.03,  # what Nsight Compute counted, 1.67 and 1.71, is right too
        ),
        "vectorized/registers": Question(
            "A block of 256 threads keeps a row of 4096 numbers in registers. How many registers does each thread need "
            "for that?",
            lambda: 4096 // 256,
            "registers",
            "A float32 is one register.",
        ),
    },
)
