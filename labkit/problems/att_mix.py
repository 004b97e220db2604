"""att_mix: the values of all tokens, weighted by what a softmax left and added up: attention's second half, one query.

As in yalm: att is float32 [H, T], v is [T, HKV, D], out is float32 [H, D]; query head h takes the values of head
h / (H / HKV). v is float32, and float16 from the rung of that name on. D is a multiple of 32.
"""

from __future__ import annotations

from labkit.errors import LabkitError
from labkit.problems._metrics import LOAD_SECTORS, LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

_YALM = {"T": 4096, "H": 32, "HKV": 8, "D": 128}  # Mistral-7B, as its author profiled it
_HALF = {"v": "float16"}
CHUNK = 256  # tokens that a block of global_atomics has at most
GLOBAL_ATOMICS = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"


def _grouped(att, v):
    """att as [HKV, H / HKV, T], v as [HKV, T, D]; LabkitError where the shapes do not fit."""
    (H, T), (_, HKV, D) = att.shape, v.shape
    if H % HKV:
        raise LabkitError(f"H must be a multiple of HKV, so that value heads serve equally many, not {H} and {HKV}.")
    if D % 32:
        raise LabkitError(f"The head size D must be a multiple of 32, not {D}.")
    return att.view(HKV, H // HKV, T), v.transpose(0, 1)


def reference(att, v):
    weights, values = _grouped(att, v)
    return (weights @ values).view(att.shape[0], -1)


def baseline(att, v):
    """A batched product in float32; a float16 cache is widened first."""
    return reference(att, v.float())


def _weights(shape, generator):
    """What a softmax leaves of scores with a standard deviation of 2."""
    import torch

    return (2 * torch.randn(shape, generator=generator, device=generator.device)).softmax(-1)


def sectors(stride: int, width: int, lanes: int = 32) -> int:
    """32-byte sectors that one request of a warp touches: lanes `stride` bytes apart read `width` bytes each."""
    return len({(lane * stride + byte) // 32 for lane in range(lanes) for byte in range(width)})


problem = Problem(
    name="att_mix",
    lab="03_attention",
    formula="out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d]",
    dims=("T", "H", "HKV", "D"),
    inputs={"att": Tensor(("H", "T"), make=_weights), "v": Tensor(("T", "HKV", "D"))},
    outputs={"out": Tensor(("H", "D"))},
    reference=reference,
    baseline=baseline,
    flops=lambda d: 2 * d["T"] * d["H"] * d["D"],  # a multiplication and an addition for each
    ladder=(
        Step("warp_per_output", "a warp per number of out: lanes read tokens, a row of v apart", "sectors per request"),
        Step("global_atomics", "lanes read neighbors; blocks of 256 tokens add up in memory", "load sectors; atomics",
             gates=(LOAD_SECTORS,), timed=True),
        Step("shared_atomics", "a block per head, its warps add up in shared memory", "global atomics; blocks",
             gates=(GLOBAL_ATOMICS,)),
        Step("fp16", "v in float16", "sectors; bytes from memory", dtypes=_HALF, gates=(LOAD_SECTORS,)),
        Step("half2", "two numbers of v per load", "load requests", dtypes=_HALF, gates=(LOADS,)),
        Step("prefetch", "16 loads before the first sum", "instructions that wait for one another", dtypes=_HALF,
             timed=True),
    ),
    shapes=(
        {"T": 33, "H": 4, "HKV": 2, "D": 64},
        {"T": 1, "H": 1, "HKV": 1, "D": 32},
        {"T": 17, "H": 3, "HKV": 1, "D": 96},
        {"T": 129, "H": 2, "HKV": 2, "D": 32},
        {"T": 523, "H": 3, "HKV": 3, "D": 64},
        {"T": 1021, "H": 2, "HKV": 1, "D": 128},
    ),
    large_shapes=(_YALM, {"T": 12345, "H": 8, "HKV": 1, "D": 128}, {"T": 777, "H": 33, "HKV": 11, "D": 160}),
    profile_shape={"T": 512, "H": 4, "HKV": 2, "D": 64},
    odd_shape={"T": 501, "H": 6, "HKV": 3, "D": 96},
    bench_shape={"T": 65536, "H": 32, "HKV": 8, "D": 128},  # 268 MB of values in float32
    questions={
        "warp_per_output/sectors": Question(
            "In warp_per_output, lane n reads v[t + n, g, d] in float32, with HKV = 8 and D = 128. How many 32-byte "
            "sectors does such a request touch?",
            lambda: sectors(8 * 128 * 4, 4),
            "sectors per request",
            "Tokens are 4096 bytes apart: every lane is alone in its sector.",
        ),
        "warp_per_output/used": Question(
            "What percentage of the bytes in these sectors does the request use?",
            lambda: 100 * 32 * 4 / (32 * sectors(8 * 128 * 4, 4)),
            "%",
            "4 bytes of each 32. The others serve 7 other warps, if they come before the line has left the cache.",
        ),
        "global_atomics/sectors": Question(
            "In global_atomics, lane n reads v[t, g, d + n] in float32. How many sectors does this request touch?",
            lambda: sectors(4, 4),
            "sectors per request",
            "32 neighbors of 4 bytes are 128 bytes.",
        ),
        "global_atomics/additions": Question(
            "How many warp-wide atomic additions does global_atomics do for one head at T = 4096, D = 128, with 256 "
            "tokens per block?",
            lambda: 4096 // CHUNK * 128 // 32,
            "requests",
            "16 blocks, each adds its 128 sums, 32 at a time.",
        ),
        "shared_atomics/blocks": Question(
            "shared_atomics has one block per head. How many percent of the 132 multiprocessors of an H200 have one, "
            "with 32 heads?",
            lambda: 100 * 32 / 132,
            "%",
            "32 blocks; the other 100 multiprocessors have nothing to do.",
        ),
        "fp16/sectors": Question(
            "Lane n reads v[t, g, d + n] in float16. How many sectors does this request touch?",
            lambda: sectors(2, 2),
            "sectors per request",
            "32 neighbors of 2 bytes are 64 bytes.",
        ),
        "half2/requests": Question(
            "How many times fewer load requests for v does half2 issue than fp16?",
            lambda: (128 / 32) / (128 / 64),
            "times",
            "A lane takes two numbers at once; a row of 128 takes two requests of a warp and not four.",
        ),
        "prefetch/in_flight": Question(
            "A warp of prefetch asks for the values of 16 tokens before it uses the first, 4 bytes per lane. How many "
            "bytes of v does a block of 32 warps have in flight then?",
            lambda: 16 * 4 * 32 * 32,
            "bytes",
            "16 loads of 128 bytes for each of 32 warps: more than twice the 26,000 bytes that Little's law asks of a "
            "multiprocessor.",
        ),
    },
)
