"""gemm_f16: the product of two float16 matrices with sums in float32, on tensor cores; any M, N, K of at least 1."""

from __future__ import annotations

from labkit.problems.gemm import flops
from labkit.problems.problem import Problem, Question, Step, Tensor

# Multiply-adds of one m16n8k16, for a warp.
_MMA = 16 * 8 * 16


def reference(A, B):
    return A @ B


def baseline(A, B):
    """cuBLAS, sums and result in float32; on the CPU the same in float32."""
    import torch

    if A.is_cuda:
        return torch.mm(A, B, out_dtype=torch.float32)
    return A.float() @ B.float()


def _fragment_reads(rows: int, cols: int) -> float:
    """Elements that a warp reads from shared memory per multiply-add, if it owns rows x cols of C."""
    return (rows + cols) / (rows * cols)


def _conflicts(row_bytes: int) -> int:
    """Passes of the 32 banks that 8 rows of 16 bytes take, if rows are `row_bytes` apart."""
    words = [(row * row_bytes // 4 + word) % 32 for row in range(8) for word in range(4)]
    return max(words.count(bank) for bank in words)


_NO_WMMA = "numba has no wmma fragments; mma_sync has labkit's intrinsics"
SHAPES = (
    {"M": 16, "N": 16, "K": 16},
    {"M": 1, "N": 1, "K": 1},
    {"M": 33, "N": 65, "K": 17},
    {"M": 129, "N": 264, "K": 40},
    {"M": 5, "N": 123, "K": 123},
    {"M": 64, "N": 48, "K": 136},
    {"M": 133 * 128, "N": 8, "K": 8},  # more tiles than an H200 has multiprocessors, for blocks that take several
)

problem = Problem(
    name="gemm_f16",
    lab="02_gemm",
    formula="C[M,N] = A[M,K] @ B[K,N]",
    dims=("M", "N", "K"),
    inputs={"A": Tensor(("M", "K"), "float16"), "B": Tensor(("K", "N"), "float16")},
    outputs={"C": Tensor(("M", "N"))},
    reference=reference,
    baseline=baseline,
    flops=flops,
    math="float16",
    ladder=(
        Step(
            "wmma", "16 x 16 fragments, from global memory", "tensor operations; sectors",
            languages=("cuda",), why=_NO_WMMA,
        ),
        Step(
            "wmma_tiled", "tiles in shared memory, padded; 2 x 4 fragments per warp", "sectors; bank conflicts",
            languages=("cuda",), why=_NO_WMMA,
        ),
        Step("mma_sync", "ldmatrix and mma.sync on swizzled tiles", "shared wavefronts per tensor operation"),
        Step("mma_async", "cp.async into several stages", "stalls; tensor pipe"),
        Step(
            "mma_tuned", "blocks that stay, tiles in an order for the L2, copies between the products",
            "L2 hit rate; DRAM bytes; tensor pipe",
            languages=("cuda",), why="the tile order is the idea, and numba would say it the same way",
        ),
    ),
    shapes=SHAPES,
    large_shapes=(
        {"M": 1024, "N": 1024, "K": 1024},
        {"M": 1023, "N": 1025, "K": 511},
        {"M": 4097, "N": 136, "K": 2056},
    ),
    profile_shape={"M": 256, "N": 256, "K": 128},
    odd_shape={"M": 129, "N": 264, "K": 72},
    bench_shape={"M": 4096, "N": 4096, "K": 4096},
    questions={
        "wmma/instructions": Question(
            "A warp has 16 x 16 x 16 multiply-adds to do. How many FFMA instructions would that be, if each does one "
            "per lane?",
            lambda: 16**3 / 32,
            "instructions",
            "4096 multiply-adds over 32 lanes. The tensor cores take two instructions, m16n8k16 each.",
        ),
        "wmma/peak_intensity": Question(
            "In wmma, a warp loads two fragments of 16 x 16 float16 from global memory for each 16 x 16 x 16 product. "
            "How many FLOP does it do per byte loaded?",
            lambda: 2 * 16**3 / (2 * 16 * 16 * 2),
            "FLOP/byte",
            "2 * 4096 operations for 2 * 512 bytes.",
        ),
        "wmma_tiled/intensity": Question(
            "A block of wmma_tiled owns 128 x 128 of C. How many FLOP does it do per byte loaded from global memory "
            "(K large)?",
            lambda: 2 * 128 * 128 / ((128 + 128) * 2),
            "FLOP/byte",
            "For each k it loads 128 + 128 elements of 2 bytes and does 128 * 128 multiply-adds.",
        ),
        "wmma_tiled/conflicts": Question(
            "8 rows of a fragment, 16 bytes each, are read together. The tile has rows of 32 float16, without padding. "
            "How many passes through the banks does that take?",
            lambda: _conflicts(32 * 2),
            "passes",
            "Rows are 64 bytes apart: every second row begins in the same bank, and 8 rows meet in fours.",
        ),
        "wmma_tiled/conflicts_padded": Question(
            "And if rows are 16 bytes longer, 80 bytes apart?",
            lambda: _conflicts(40 * 2),
            "passes",
            "The 8 rows begin in banks 0, 20, 8, 28, 16, 4, 24, 12: all 32 banks once.",
        ),
        "mma_sync/lane_of_c": Question(
            "m16n8k16: which lane holds the sum in row 9, column 5?",
            lambda: 4 * (9 % 8) + 5 // 2,
            "",
            "Row 9 is row 1 of the lower half: g = 1; column 5 is in pair q = 2; the lane is 4 * g + q.",
        ),
        "mma_sync/swizzled_piece": Question(
            "A row of mma_sync's tile of A has 4 pieces of 16 bytes, and piece p of row r is stored in place "
            "p ^ (r // 2 % 4). In which place does piece 1 of row 6 lie?",
            lambda: 1 ^ (6 // 2 % 4),
            "",
            "6 // 2 % 4 = 3, and 1 ^ 3 = 2.",
        ),
        "mma_sync/reads_per_multiply_add": Question(
            "A warp of mma_sync owns 64 x 32 of C. How many elements does it read from shared memory per multiply-add?",
            lambda: _fragment_reads(64, 32),
            "elements per multiply-add",
            "For each k: 64 of A and 32 of B, for 64 * 32 multiply-adds.",
        ),
        "mma_async/stages": Question(
            "A stage of mma_async in numba is a tile of A, 128 x 32, and one of B, 32 x 128, in float16. How many "
            "stages fit into the 48 KiB that a block may have without asking for more?",
            lambda: 48 * 1024 // ((128 * 32 + 32 * 128) * 2),
            "stages",
            "A stage takes 16 KiB.",
        ),
        "mma_async/multiplications_per_ldmatrix": Question(
            "In CUDA C++, a warp of mma_async owns 64 x 64 of C. For 16 steps of k it needs 64 x 16 of A and 16 x 64 "
            "of B; one ldmatrix brings 16 x 16. How many m16n8k16 does it do per ldmatrix?",
            lambda: (64 * 64 * 16 / _MMA) / (64 / 16 + 64 / 16),
            "instructions per ldmatrix",
            "32 multiplications, 4 + 4 loads.",
        ),
        "mma_async/shared_bytes": Question(
            "A stage of mma_async is a tile of A, 128 x 32, and one of B, 32 x 256, in float16. How many bytes of "
            "shared memory do its four stages take?",
            lambda: 4 * (128 * 32 + 32 * 256) * 2,
            "bytes",
            "More than 48 KiB must be asked for: the launch does.",
        ),
        "mma_tuned/loads_row_order": Question(
            "128 tiles of 128 x 256 are in flight, at K = 4096, in float16. Taken row by row from a C that is 32 tiles "
            "wide, they cover 4 rows of tiles. How many bytes of A and B do they read, each once?",
            lambda: (4 * 128 + 32 * 256) * 4096 * 2,
            "bytes",
            "4 rows of 128, and all 32 columns of 256.",
        ),
        "mma_tuned/loads_grouped": Question(
            "The same 128 tiles, as 8 rows of 16 tiles?",
            lambda: (8 * 128 + 16 * 256) * 4096 * 2,
            "bytes",
            "8 rows of 128 and 16 columns of 256: nearer to a square, whose edges are the shortest for its area.",
        ),
        "precision/exact_integers": Question(
            "float16 keeps 11 significant bits and counts every whole number up to 2048. bfloat16 keeps 8. Up to which "
            "number is every whole number exact in bfloat16?",
            lambda: 2**8,
            "",
            "257 needs 9 bits.",
        ),
    },
)
