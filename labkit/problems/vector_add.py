"""vector_add: the sum of two float32 vectors, any length of at least 1."""

from __future__ import annotations

from labkit.problems._metrics import BUSIEST, LOAD_SECTORS, LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor


def reference(A, B):
    return A + B


_SMALL = 4096

problem = Problem(
    name="vector_add",
    lab="01_gpu_basics",
    formula="C[i] = A[i] + B[i]",
    dims=("N",),
    inputs={"A": Tensor(("N",)), "B": Tensor(("N",))},
    outputs={"C": Tensor(("N",))},
    reference=reference,
    baseline=reference,
    flops=lambda d: d["N"],  # one addition per element
    ladder=(
        Step("one_thread", "one thread does everything", "time", bench_shape={"N": 2**16}),
        Step("one_block", "1024 threads take turns", "active lanes per instruction", bench_shape={"N": 2**20},
             gates=(LOAD_SECTORS,)),
        Step("grid", "one thread per element, in blocks of 256", "multiprocessors at work",
             gates=(BUSIEST,), gate_shape={"N": 2**16}, timed=True),
        Step("grid_stride", "a fixed number of blocks goes over everything", "instructions per element"),
        Step("vectorized", "16 bytes per access", "load requests", gates=(LOADS,)),
    ),
    shapes=({"N": 1000}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 1024}, {"N": 4099}),
    large_shapes=({"N": 2**20}, {"N": 1_000_003}),
    profile_shape={"N": _SMALL},
    bench_shape={"N": 2**28},  # 1 GiB each: far past any L2
    odd_shape={"N": _SMALL - 3},
    questions={
        "bytes_per_flop": Question(
            "How many bytes must move per addition, if every number of A and B is read once and every number of C is "
            "written once?",
            lambda: problem.bytes({"N": _SMALL}) / _SMALL,
            "bytes per addition",
            "Two numbers in, one out, of 4 bytes each.",
        ),
        "grid/blocks": Question(
            "A vector has 1000 elements. How many blocks of 256 threads must be launched, so that each element has a "
            "thread?",
            lambda: -(-1000 // 256),
            "blocks",
            "Three blocks are 768 threads; the fourth is needed, and 24 of its threads have nothing to do.",
        ),
        "vectorized/request_ratio": Question(
            "vectorized loads 4 elements with each instruction. How many times fewer load requests than grid does it "
            "issue at N = 4096?",
            lambda: (_SMALL / 32) / (_SMALL / 4 / 32),
            "times",
            "A quarter of the warps, each with the same two loads.",
        ),
    },
)
