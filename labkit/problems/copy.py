"""copy: every stride-th element of a float32 array, from an offset on.

stride 1 and offset 0 are a plain copy. An offset that is no multiple of 4 misaligns it; field number `offset` of an
array of structs of `stride` numbers is gathered with a stride.
"""

from __future__ import annotations

from labkit.problems._metrics import LOAD_SECTORS, LOADS, STORE_SECTORS, STORES
from labkit.problems.problem import Problem, Question, Step, Tensor

_SMALL = 4096


def reference(A, offset=0, stride=1):
    return A[offset::stride]


def _baseline(A, offset=0, stride=1):
    import torch

    return A[offset::stride].clone(memory_format=torch.contiguous_format)


def _sectors(indices) -> int:
    """Distinct 32-byte sectors behind float32 elements at these flat indices (bases are 256-byte aligned)."""
    return len({index * 4 // 32 for index in indices})


problem = Problem(
    name="copy",
    lab="01_gpu_basics",
    formula="B[i] = A[offset + stride * i]",
    dims=("N",),
    inputs={"A": Tensor(("(N - 1) * stride + offset + 1",))},
    outputs={"B": Tensor(("N",))},
    reference=reference,
    baseline=_baseline,
    flops=lambda d: 0,
    traffic=lambda d: 2 * 4 * d["N"],  # what is asked for; a stride makes memory send more
    options={"offset": 0, "stride": 1},
    ladder=(
        Step("chunked", "each thread copies 32 neighbors", "sectors per request"),
        Step("coalesced", "neighboring threads copy neighbors", "sectors per request",
             gates=(LOAD_SECTORS, STORE_SECTORS)),
        Step("unrolled", "four loads in flight per thread", "time; requests stay", timed=True),
        Step("vectorized", "four neighbors in one load of 16 bytes", "load requests", gates=(LOADS, STORES)),
    ),
    shapes=(
        {"N": 1000},
        {"N": 1},
        {"N": 5},
        {"N": 33, "offset": 1},
        {"N": 4099, "offset": 4},
        {"N": 4500, "offset": 3},
        {"N": 123, "stride": 3},
        {"N": 4099, "offset": 4, "stride": 8},
        {"N": 8192},
    ),
    large_shapes=({"N": 2**20}, {"N": 1_000_003, "offset": 3}, {"N": 200_001, "offset": 5, "stride": 7}),
    profile_shape={"N": _SMALL},
    bench_shape={"N": 2**28},  # 1 GiB each way: far past any L2
    recorded_at={
        "bench": ({"N": 2**28}, {"N": 2**28, "offset": 1}, {"N": 2**27, "stride": 2}, {"N": 2**25, "stride": 8}),
        "profiles": ({"N": 2**24},),
    },
    odd_shape={"N": _SMALL - 3, "offset": 1, "stride": 3},
    questions={
        "chunked/sectors_per_request": Question(
            "In chunked, thread t copies elements 32 t to 32 t + 31, one after the other. How many 32-byte sectors "
            "does one load request of a warp touch?",
            lambda: _sectors(32 * lane for lane in range(32)),
            "sectors",
            "Lanes are 128 bytes apart, so that no two share a sector.",
        ),
        "coalesced/sectors_per_request": Question(
            "In coalesced, thread t copies element t. How many sectors does one load request touch?",
            lambda: _sectors(range(32)),
            "sectors",
            "128 bytes side by side.",
        ),
        "coalesced/misaligned": Question(
            "The same with offset 1: lane n reads A[first + n + 1], and first is a multiple of 32. How many sectors?",
            lambda: _sectors(range(1, 33)),
            "sectors",
            "The same 128 bytes, shifted by 4: the last lane reaches into a fifth sector.",
        ),
        "coalesced/stride_2": Question(
            "And with stride 2: lane n reads A[2 * (first + n)]. How many sectors?",
            lambda: _sectors(range(0, 64, 2)),
            "sectors",
            "The lanes span 256 bytes and use every second number of them.",
        ),
        "unrolled/bytes_in_flight": Question(
            "A multiprocessor holds 2048 threads. In unrolled, each starts four loads of 4 bytes before it stores. How "
            "many bytes can be in flight for a multiprocessor at most?",
            lambda: 4 * 4 * 2048,
            "bytes",
            "16 bytes per thread; Little's law asks for about 12,000 on an H200, and its curve for two to three times "
            "that.",
        ),
    },
)
