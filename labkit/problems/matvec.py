"""matvec: a float16 matrix, row-major, times a float32 vector, summed in float32: generation's main work.

As in yalm: weights are stored in float16 and widened when they are read, everything else is float32. Any M, K of at
least 1.
"""

from __future__ import annotations

from labkit.models import decode
from labkit.problems._metrics import LOAD_SECTORS, LOADS, STORES
from labkit.problems.problem import Problem, Question, Step, Tensor

_SMALL = {"M": 64, "K": 512}


def reference(W, x):
    return W @ x


def torch_fp16(W, x):
    """What people call in PyTorch: it has no product of float16 and float32, so x and y are float16 too."""
    import torch

    return torch.mv(W, x.half()).float()


def _sectors(addresses) -> int:
    """Distinct 32-byte sectors behind the bytes at these addresses."""
    return len({address // 32 for address in addresses})


problem = Problem(
    name="matvec",
    lab="01_gpu_basics",
    formula="y[m] = sum over k of W[m, k] * x[k]",
    dims=("M", "K"),
    inputs={"W": Tensor(("M", "K"), "float16"), "x": Tensor(("K",))},
    outputs={"y": Tensor(("M",))},
    reference=reference,
    baseline=None,
    rivals={"torch_fp16": torch_fp16},
    flops=lambda d: 2 * d["M"] * d["K"],  # a multiplication and an addition per weight
    ladder=(
        Step("thread_per_row", "one thread per row, which reads its row alone", "sectors per load request"),
        Step("warp_per_row", "a warp per row: lanes read neighbors, then add up", "sectors per request; warps",
             gates=(LOAD_SECTORS,), timed=True),
        Step("block_transpose", "32 rows per block, their sums stored by one warp", "store requests and sectors",
             gates=(STORES,)),
        Step("vectorized", "16 bytes of W per access, several rows per warp", "load requests; bytes in flight",
             gates=(LOADS,), timed=True),
    ),
    shapes=(
        {"M": 33, "K": 64},
        {"M": 1, "K": 1},
        {"M": 5, "K": 17},
        {"M": 17, "K": 123},
        {"M": 3, "K": 520},
        {"M": 70, "K": 40},
        {"M": 4, "K": 1304},
    ),
    large_shapes=({"M": 4096, "K": 4096}, {"M": 1023, "K": 4097}, {"M": 1021, "K": 1000}),
    profile_shape=_SMALL,
    odd_shape={"M": 61, "K": 505},
    bench_shape={"M": 28672, "K": 8192},  # Llama 2 70B, up projection: 470 MB
    questions={
        "intensity": Question(
            "How many operations does matvec do per byte of W that it reads, if it reads each float16 once?",
            lambda: 2 / 2,
            "FLOP/byte",
            "A multiplication and an addition for each weight of 2 bytes.",
        ),
        "tokens_per_second": Question(
            "yalm counts 15,020,875,776 bytes per token for Mistral-7B in float16 with a context of 4096. How many "
            "tokens per second does an RTX 4090 generate at most, with 1008 GB/s?",
            lambda: decode.speed(decode.MISTRAL_7B.bytes_per_token(4096, classifier=4), "RTX 4090").tokens_per_s,
            "tokens/s",
            "Bandwidth divided by bytes.",
        ),
        "thread_per_row/resident_threads": Question(
            "Mistral-7B multiplies 4096 rows. thread_per_row starts 4096 threads; an H200 can hold 132 * 2048. What "
            "percentage of these places is taken?",
            lambda: 100 * 4096 / (132 * 2048),
            "%",
            "One thread per row is far too few to keep memory busy.",
        ),
        "warp_per_row/sectors_per_request": Question(
            "In warp_per_row, lane n reads W[row, k + n]. How many 32-byte sectors does this request touch, if it "
            "begins on one?",
            lambda: _sectors(lane * 2 for lane in range(32)),
            "sectors per request",
            "32 neighbors of 2 bytes are 64 bytes.",
        ),
        "block_transpose/store_requests": Question(
            "32 warps have a sum each. In warp_per_row every warp stores its own. How many times fewer store requests "
            "does block_transpose issue?",
            lambda: 32 / 1,
            "times",
            "One warp stores all 32 sums, side by side: 128 bytes in one request.",
        ),
        "vectorized/requests_per_row": Question(
            "How many times fewer load requests for W does vectorized issue than block_transpose at K = 8192?",
            lambda: (8192 / 32) / (8192 / (32 * 8)),
            "times",
            "A lane reads 8 weights of 2 bytes at once, where it read one.",
        ),
    },
)
