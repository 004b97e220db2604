"""transpose: a float32 matrix with rows and columns exchanged, any M and N of at least 1."""

from __future__ import annotations

from labkit.problems._metrics import LOADS, SHARED_BYTES, SHARED_LOADS, STORE_SECTORS, STORES
from labkit.problems.problem import Problem, Question, Step, Tensor


def reference(A):
    return A.T


def _wavefronts(words) -> int:
    """Passes through the 32 banks for one 4-byte word per lane."""
    banks = [word % 32 for word in set(words)]
    return max(banks.count(bank) for bank in banks)


problem = Problem(
    name="transpose",
    lab="01_gpu_basics",
    formula="B[j, i] = A[i, j]",
    dims=("M", "N"),
    inputs={"A": Tensor(("M", "N"))},
    outputs={"B": Tensor(("N", "M"))},
    reference=reference,
    baseline=lambda A: A.T.contiguous(),
    flops=lambda d: 0,
    ladder=(
        Step("naive", "one thread per element, rows of A read in order", "sectors per store request"),
        Step("tiled", "32 x 32 tiles through shared memory", "sectors per store; shared wavefronts",
             gates=(STORE_SECTORS,)),
        Step("padded", "rows of the tile 33 words apart", "shared wavefronts", gates=(SHARED_LOADS,)),
        Step("swizzled", "columns of the tile permuted, no padding", "shared bytes; wavefronts stay",
             gates=(SHARED_BYTES,)),
        Step("vectorized", "4 x 4 elements per thread, 16-byte accesses", "requests; wavefronts",
             gates=(LOADS, STORES), timed=True),
    ),
    shapes=(
        {"M": 64, "N": 96},
        {"M": 1, "N": 1},
        {"M": 5, "N": 123},
        {"M": 123, "N": 5},
        {"M": 33, "N": 65},
        {"M": 1, "N": 70},
        {"M": 70, "N": 1},
        {"M": 68, "N": 132},
    ),
    large_shapes=({"M": 1024, "N": 1024}, {"M": 1023, "N": 517}, {"M": 130, "N": 70_003}),
    profile_shape={"M": 128, "N": 256},
    bench_shape={"M": 65536, "N": 4096},  # 1 GiB each way
    recorded_at={"profiles": ({"M": 8192, "N": 4096},)},
    odd_shape={"M": 125, "N": 246},
    questions={
        "tiled/column_wavefronts": Question(
            "A tile of 32 x 32 words lies in shared memory, one row after the other. A warp reads a column: lane n "
            "reads row n. How many wavefronts does that take?",
            lambda: _wavefronts(lane * 32 for lane in range(32)),
            "wavefronts",
            "Rows are 32 words apart: the whole column lies in one bank, which serves one word at a time.",
        ),
        "padded/column_wavefronts": Question(
            "In padded, rows are 33 words apart. How many wavefronts does a warp need to read a column now?",
            lambda: _wavefronts(lane * 33 for lane in range(32)),
            "wavefronts",
            "Row n begins one bank further on than row n - 1.",
        ),
        "swizzled/place": Question(
            "In swizzled, element (row, column) of a tile stands in place row * 32 + (column ^ row), where ^ is the "
            "exclusive or of the bits. In which place does element (5, 3) stand?",
            lambda: 5 * 32 + (3 ^ 5),
            "",
            "3 is 011 and 5 is 101 in binary; the bits that differ are 110, which is 6.",
        ),
        "vectorized/requests_ratio": Question(
            "How many times fewer global load requests does vectorized issue than naive?",
            lambda: 4,
            "times",
            "Each lane loads 16 bytes instead of 4.",
        ),
    },
)
