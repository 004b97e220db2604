"""gemm: the product of two float32 matrices, row-major, any M, N, K of at least 1."""

from __future__ import annotations

from labkit.problems.problem import Problem, Question, Step, Tensor


def flops(d) -> int:
    return 2 * d["M"] * d["N"] * d["K"]  # K multiplications and K additions per element of C


def reference(A, B):
    return A @ B


def _sectors(indices) -> int:
    """Distinct 32-byte sectors behind float32 elements at these flat indices (bases are 256-byte aligned)."""
    return len({index * 4 // 32 for index in indices})


def _sectors_per_request(row_of, col_of, N: int = 256, K: int = 256) -> float:
    """Mean over the loads of A[row, k] and B[k, col] by the first warp of a 16 x 16 block."""
    warp = [(lane % 16, lane // 16) for lane in range(32)]  # threadIdx.x runs fastest
    a = _sectors(row_of(x, y) * K for x, y in warp)
    b = _sectors(col_of(x, y) for x, y in warp)
    return (a + b) / 2


def _tile_load_ratio(K: int = 256, tile: int = 16) -> float:
    per_warp_direct = 2 * K  # one load of A and one of B for each k
    per_warp_tiled = 2 * (K // tile)  # one load of each per tile
    return per_warp_direct / per_warp_tiled


def _tile_intensity(tile: int = 16) -> float:
    return (tile * tile * tile * 2) / (2 * tile * tile * 4)


_CUBE = {"M": 256, "N": 256, "K": 256}

problem = Problem(
    name="gemm",
    lab="02_gemm",
    formula="C[M,N] = A[M,K] @ B[K,N]",
    dims=("M", "N", "K"),
    inputs={"A": Tensor(("M", "K")), "B": Tensor(("K", "N"))},
    outputs={"C": Tensor(("M", "N"))},
    reference=reference,
    baseline=reference,
    flops=flops,
    ladder=(
        Step("naive", "one thread per element, threadIdx.x down the rows", "sectors per global load request"),
        Step("coalesced", "threadIdx.x along the rows", "sectors per request, loads and stores"),
        Step("smem_tile", "tiles of A and B staged in shared memory", "global load requests; shared wavefronts"),
        Step("register_1d", "a column of 8 elements per thread, in registers", "shared wavefronts per multiply-add"),
        Step(
            "register_2d",
            "a square of 8 x 8 elements per thread",
            "shared wavefronts per multiply-add; occupancy",
            options={"alpha": 1.0, "beta": 0.0, "trans_a": 0, "trans_b": 0},
        ),
        Step("vectorized", "16-byte accesses, A transposed in shared memory", "memory instructions"),
        Step("double_buffered", "the next tile loaded while this one is multiplied", "stalls at the barrier"),
        Step("warp_tile", "tiles for blocks, warps and threads, several in flight", "shared wavefronts; FMA pipe"),
        Step("split_k", "K divided over blocks, for a small C", "waves per multiprocessor"),
    ),
    shapes=(
        {"M": 16, "N": 16, "K": 16},
        {"M": 1, "N": 1, "K": 1},
        {"M": 33, "N": 65, "K": 17},
        {"M": 5, "N": 123, "K": 123},
        {"M": 64, "N": 48, "K": 32},
        {"M": 1, "N": 70, "K": 3},
        {"M": 70, "N": 1, "K": 40},
        {"M": 17, "N": 15, "K": 1},
    ),
    large_shapes=(
        {"M": 1024, "N": 1024, "K": 1024},
        {"M": 1023, "N": 1025, "K": 511},
        {"M": 4097, "N": 129, "K": 2050},
    ),
    profile_shape=_CUBE,
    bench_shape={"M": 4096, "N": 4096, "K": 4096},
    questions={
        "flops": Question(
            "How many floating-point operations does C = A @ B need at M = N = K = 256?",
            lambda: flops(_CUBE),
            "FLOP",
            "Each of the M*N elements takes K multiplications and K additions.",
        ),
        "compulsory_bytes": Question(
            "How many bytes must move at the very least at M = N = K = 256, "
            "if A and B are read once and C is written once?",
            lambda: problem.bytes(_CUBE),
            "bytes",
            "Three matrices of 256 * 256 floats of 4 bytes.",
        ),
        "naive/sectors_per_request": Question(
            "In naive, a warp loads A[row, k] and B[k, col] (16 x 16 blocks, M = N = K = 256). "
            "How many 32-byte sectors does a load request touch, on average over the two?",
            lambda: _sectors_per_request(lambda x, y: x, lambda x, y: y),
            "sectors per request",
            "A: 16 rows, each in a sector of its own. B: two neighbours in one sector.",
        ),
        "coalesced/sectors_per_request": Question(
            "In coalesced, threadIdx.x counts columns. How many sectors per load request now, on average?",
            lambda: _sectors_per_request(lambda x, y: y, lambda x, y: x),
            "sectors per request",
            "A: two rows, two sectors. B: 16 neighbours are 64 bytes, two sectors.",
        ),
        "smem_tile/global_load_ratio": Question(
            "How many times fewer global load requests does smem_tile (16 x 16) issue than coalesced at K = 256?",
            _tile_load_ratio,
            "times",
            "A warp loads two elements per lane for 16 steps of k, instead of for one.",
        ),
        "smem_tile/arithmetic_intensity": Question(
            "How many FLOP does a block of smem_tile do per byte that it loads from global memory (K large)?",
            _tile_intensity,
            "FLOP/byte",
            "Two tiles of 16 * 16 floats feed 16 * 16 * 16 multiply-adds.",
        ),
    },
)
