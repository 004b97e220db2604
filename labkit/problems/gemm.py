"""gemm: the product of two float32 matrices, row-major, any M, N, K of at least 1."""

from __future__ import annotations

import math

from labkit.models.waves import QUESTIONS as CLIFF
from labkit.problems._metrics import BUSIEST, LOAD_SECTORS, LOADS, SHARED_LOADS, STORE_SECTORS
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


def _shared_reads(rows: int, cols: int) -> float:
    """Numbers read from shared memory per multiply-add by a thread that owns rows x cols elements of C."""
    return (rows + cols) / (rows * cols)


def _wavefronts(addresses, width: int = 4) -> int:
    """Passes through the 32 banks for `width` bytes at each lane's address: 32 lanes, or 8 at a time for 16 bytes."""
    together = 128 // width
    passes = 0
    for first in range(0, 32, together):
        words = {a // 4 + i for a in addresses[first : first + together] for i in range(width // 4)}
        banks = [word % 32 for word in words]
        passes += max(banks.count(bank) for bank in banks)
    return passes


def _resident_warps(threads: int, registers: int) -> int:
    """Warps that the 65536 registers of a multiprocessor hold, in whole blocks."""
    return 65536 // (threads * registers) * (threads // 32)


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
        Step("coalesced", "threadIdx.x along the rows", "sectors per request, loads and stores",
             gates=(LOAD_SECTORS, STORE_SECTORS)),
        Step("smem_tile", "tiles of A and B staged in shared memory", "global load requests; shared wavefronts",
             gates=(LOADS,)),
        Step("register_1d", "a column of 8 elements per thread, in registers", "shared wavefronts per multiply-add",
             gates=(SHARED_LOADS,)),
        Step(
            "register_2d",
            "a square of 8 x 8 elements per thread",
            "shared wavefronts per multiply-add; occupancy",
            options={"alpha": 1.0, "beta": 0.0, "trans_a": 0, "trans_b": 0},
            gates=(SHARED_LOADS,), timed=True,
        ),
        Step("vectorized", "16-byte accesses, A transposed in shared memory", "memory instructions",
             gates=(LOADS,), timed=True),
        Step("double_buffered", "the next tile loaded while this one is multiplied", "stalls at the barrier",
             timed=True),
        Step("warp_tile", "tiles for blocks, warps and threads, several in flight", "shared wavefronts; FMA pipe",
             gates=(SHARED_LOADS,), timed=True),
        Step("split_k", "K divided over blocks, for a small C", "waves per multiprocessor",
             gates=(BUSIEST,), gate_shape={"M": 128, "N": 128, "K": 4096}, timed=True),
        Step("fixed_tile", "one tile of 256 x 128, whatever the size", "time against N", languages=("cuda",),
             timed=True),
        Step("stream_k", "all tiles' work divided evenly over blocks", "time against N", languages=("cuda",),
             timed=True),
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
    recorded_at={
        "bench": (
            {"M": 4096, "N": 4096, "K": 4096},
            {"M": 1024, "N": 1024, "K": 1024},
            {"M": 4095, "N": 4097, "K": 4093},
            {"M": 256, "N": 256, "K": 65536},
        ),
        "profiles": ({"M": 1024, "N": 1024, "K": 1024}, {"M": 4096, "N": 4096, "K": 4096}),
    },
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
            "A: 16 rows, each in a sector of its own. B: two neighbors in one sector.",
        ),
        "coalesced/sectors_per_request": Question(
            "In coalesced, threadIdx.x counts columns. How many sectors per load request now, on average?",
            lambda: _sectors_per_request(lambda x, y: y, lambda x, y: x),
            "sectors per request",
            "A: two rows, two sectors. B: 16 neighbors are 64 bytes, two sectors.",
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
        "register_1d/shared_reads_per_fma": Question(
            "A thread of smem_tile reads two numbers from shared memory for each multiply-add. How many does a thread "
            "of register_1d read per multiply-add, which owns 8 elements of one column of C?",
            lambda: _shared_reads(8, 1),
            "numbers per multiply-add",
            "For each k: 8 numbers of its rows of A and one of its column of B, for 8 multiply-adds.",
        ),
        "register_2d/shared_reads_per_fma": Question(
            "How many numbers does a thread of register_2d, which owns 8 x 8 elements of C, read from shared memory "
            "per multiply-add?",
            lambda: _shared_reads(8, 8),
            "numbers per multiply-add",
            "For each k: 8 numbers of A and 8 of B, for 8 * 8 multiply-adds.",
        ),
        "register_2d/arithmetic_intensity": Question(
            "How many FLOP does a block of register_2d, with its 128 x 128 elements of C, do per byte that it loads "
            "from global memory (K large)?",
            lambda: _tile_intensity(128),
            "FLOP/byte",
            "Each number that a block loads serves 128 multiply-adds, as it served 16 in smem_tile.",
        ),
        "register_2d/column_store_wavefronts": Question(
            "A tile of A is kept in shared memory as 128 rows of 8 numbers, one row after the other. A warp stores "
            "down a column: lane n writes row n. How many wavefronts does that take?",
            lambda: _wavefronts([lane * 8 * 4 for lane in range(32)]),
            "wavefronts",
            "Rows are 8 banks apart: every fourth row begins in the same bank, and a bank takes one word at a time.",
        ),
        "register_2d/resident_warps": Question(
            "A multiprocessor has 65536 registers. How many warps of a kernel can be on it at once, if a block has 256 "
            "threads and a thread needs 128 registers?",
            lambda: _resident_warps(256, 128),
            "warps",
            "A block takes half of the registers, so two blocks of 8 warps fit.",
        ),
        "vectorized/shared_load_instructions_per_fma": Question(
            "A thread of vectorized reads the same numbers as one of register_2d, but 4 of them with each instruction. "
            "How many shared load instructions does it need per multiply-add?",
            lambda: _shared_reads(8, 8) / 4,
            "instructions per multiply-add",
            "For each k: 2 loads of 4 numbers of A and 2 of B, for 64 multiply-adds.",
        ),
        "vectorized/wavefronts_of_b": Question(
            "16 neighboring threads read 16 neighboring pieces of 16 bytes of a row of tB; the other half of the "
            "warp reads the same pieces. Lanes are served 8 at a time. How many wavefronts does the load take?",
            lambda: _wavefronts([lane % 16 * 16 for lane in range(32)], width=16),
            "wavefronts",
            "8 lanes of 16 bytes are 128 bytes, all that the 32 banks give at once; 32 lanes are four such groups.",
        ),
        "double_buffered/multiply_adds_in_flight": Question(
            "Each of the 4 schedulers of a multiprocessor can start a multiply-add for a whole warp in every "
            "cycle, and its sum can be used 4 cycles later. How many must be in flight on the multiprocessor, at all "
            "times, to keep it busy?",
            lambda: 4 * 1 * 4,
            "multiply-adds of a warp",
            "Little's law: in flight = rate * latency = 4 per cycle * 4 cycles.",
        ),
        "double_buffered/shared_bytes": Question(
            "vectorized keeps one tile of A, 8 rows of 132 numbers with the padding, and one of B, 8 rows of 128. How "
            "many bytes of shared memory does a block of double_buffered take?",
            lambda: 2 * (8 * 132 + 8 * 128) * 4,
            "bytes",
            "Two of each.",
        ),
        "warp_tile/numbers_per_k": Question(
            "A warp of vectorized owns 16 x 128 elements of C and needs 16 numbers of A and 128 of B for each k. How "
            "many numbers does a warp of warp_tile need, which owns 32 x 64 elements?",
            lambda: 32 + 64,
            "numbers per k",
            "One of A for each of its rows, one of B for each of its columns.",
        ),
        "split_k/busy_multiprocessors": Question(
            "C is 256 x 256, and a block computes 128 x 128 of it. How many multiprocessors of a GPU have work, "
            "at most?",
            lambda: (256 // 128) * (256 // 128),
            "multiprocessors",
            "A block runs on one multiprocessor, and there are no more blocks than tiles, however large K is.",
        ),
        "split_k/slices": Question(
            "For a C of 1024 x 1024, split_k takes tiles of 64 x 64 and cuts a long K into slices, as many as bring it "
            "to 4224 blocks. How many slices is that?",
            lambda: 4224 // ((1024 // 64) * (1024 // 64)),
            "slices",
            "256 tiles, each once per slice.",
        ),
        "ship_it/largest_square": Question(
            "A kernel computes the place of an element as row * N + col in 32-bit integers, which go up to 2147483647. "
            "What is the largest N for which a matrix of N x N floats has all its places in that range?",
            lambda: math.isqrt(2**31),
            "rows",
            "The last place is N * N - 1; 46340 * 46340 is just below 2**31.",
            relative=0.0,
        ),
        "ship_it/backward_ratio": Question(
            "C = A @ B takes 2 * M * N * K operations. Training needs the gradients of A and of B, too. How many times "
            "the operations of the forward product does the backward pass take?",
            lambda: (2 * _CUBE["M"] * _CUBE["K"] * _CUBE["N"] * 2) / flops(_CUBE),
            "times",
            "With G the gradient of C, that of A is G @ B.T and that of B is A.T @ G: two products of the same size.",
        ),
        **CLIFF,
    },
)
