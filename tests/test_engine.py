"""Kernels from numba and NVRTC on the interpreter, against numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from engine_tools import INT, add, numba_ptx, nvrtc, ptx_kernel, run_cuda, run_numba
from numba import cuda, float32, int32

from labkit.emulator import Emulation, KernelFault, Launch, Pointer
from labkit.emulator.ops import f32, fma32
from labkit.emulator.ptx import parse

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


# ---------------------------------------------------------------------------- gemm


def naive(A, B, C):
    i, j = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        total = float32(0)
        for k in range(A.shape[1]):
            total += A[i, k] * B[k, j]
        C[i, j] = total


def tiled(A, B, C):
    sA = cuda.shared.array((16, 16), float32)
    sB = cuda.shared.array((16, 16), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    j = cuda.blockIdx.x * 16 + tx
    i = cuda.blockIdx.y * 16 + ty
    total = float32(0)
    for t in range((A.shape[1] + 15) // 16):
        k = t * 16
        sA[ty, tx] = A[i, k + tx] if i < A.shape[0] and k + tx < A.shape[1] else float32(0)
        sB[ty, tx] = B[k + ty, j] if j < B.shape[1] and k + ty < B.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += sA[ty, k] * sB[k, tx]
        cuda.syncthreads()
    if i < C.shape[0] and j < C.shape[1]:
        C[i, j] = total


def chained_fma(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """What a thread per element computes: float32, fused, in order of k."""
    total = np.zeros(A.shape[0] * B.shape[1], np.float32)
    for k in range(A.shape[1]):
        a, b = np.broadcast_arrays(A[:, k, None], B[None, k])
        total = fma32(a.ravel(), b.ravel(), total)
    return total.reshape(A.shape[0], B.shape[1])


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 65, 17), (16, 16, 16), (50, 7, 40)])
@pytest.mark.parametrize("kernel", [naive, tiled])
@pytest.mark.parametrize("chunk_threads", [256, 1 << 14])
def test_gemm(kernel, shape: tuple, chunk_threads: int) -> None:
    M, N, K = shape
    A, B, C = normal(M, K), normal(K, N), np.full((M, N), np.nan, np.float32)
    tiles = -(-M // 16), -(-N // 16)
    run_numba(kernel, tiles if kernel is naive else tiles[::-1], (16, 16), A, B, C, chunk_threads=chunk_threads)
    np.testing.assert_array_equal(C, chained_fma(A, B))


def test_gemm_256_is_fast_enough() -> None:
    """One core: 8 s for the naive kernel, 15 s for the tiled one; both take well under one."""
    import time

    A, B, C = normal(256, 256), normal(256, 256), np.empty((256, 256), np.float32)
    for kernel, limit in ((naive, 8), (tiled, 15)):
        start = time.process_time()
        run_numba(kernel, (16, 16), (16, 16), A, B, C)
        assert time.process_time() - start < limit
        np.testing.assert_allclose(C, A @ B, atol=1e-3)


# ---------------------------------------------------------------------------- control flow


def collatz(x, steps):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    n = x[i]
    count = 0
    while n != 1:
        if n % 2 == 0:
            n //= 2
        else:
            n = 3 * n + 1
        count += 1
        if count > 100:
            break
    steps[i] = count


def test_divergent_loops() -> None:
    x = np.arange(1, 201, dtype=np.int64)
    steps = np.zeros(200, np.int64)
    run_numba(collatz, 4, 64, x, steps)

    def count(n: int) -> int:
        c = 0
        while n != 1 and c <= 100:
            n, c = (n // 2 if n % 2 == 0 else 3 * n + 1), c + 1
        return c

    assert steps.tolist() == [count(int(n)) for n in x]


def test_switch_and_nested_branches() -> None:
    source = """
    extern "C" __global__ void k(int* a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        int v = 0;
        switch (a[i]) {
            case 0: v = 10; break;
            case 1: v = 11;
            case 2: v += 5; break;
            case 3: for (int j = 0; j < i; ++j) { if (j % 3 == 0) continue; v += j; } break;
            case 4: v = i > 40 ? 1 : 2; break;
            case 5: v = 100 / (i + 1); break;
            case 6: v = -7 / 2; break;
            case 7: v = i * i; break;
            default: v = -1;
        }
        a[i] = v;
    }"""
    a = RNG.integers(0, 9, 90).astype(np.int32)
    want = []
    for i, c in enumerate(a.tolist()):
        loop = sum(j for j in range(i) if j % 3)
        want.append([10, 16, 5, loop, 1 if i > 40 else 2, 100 // (i + 1), -3, i * i, -1][c])
    run_cuda(source, 3, 33, a, 90)
    assert a.tolist() == want


def test_three_dimensional_grid_and_partial_warps() -> None:
    source = """
    extern "C" __global__ void k(int* a) {
        int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        int threads = blockDim.x * blockDim.y * blockDim.z;
        int lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        a[block * threads + thread] = block * 1000000 + threadIdx.z * 10000 + threadIdx.y * 1000
            + threadIdx.x * 100 + lane;
    }"""
    grid, block = (3, 2, 4), (5, 3, 3)
    a = np.zeros(24 * 45, np.int32)
    run_cuda(source, grid, block, a, chunk_threads=200)
    want = [
        b * 1000000 + t // 15 * 10000 + t // 5 % 3 * 1000 + t % 5 * 100 + t % 32 for b in range(24) for t in range(45)
    ]
    assert a.tolist() == want


def test_uniform_loops_keep_numbers_for_registers() -> None:
    """A loop counter is one number, not an array, also under a guard that some threads fail."""
    A, B, C = normal(33, 40), normal(40, 33), np.zeros((33, 33), np.float32)
    from labkit.emulator import engine

    seen = []
    original = engine.Machine.loop

    def loop(self) -> None:
        original(self)
        program = self.program
        seen.append(sum(not isinstance(v, np.ndarray) for v in self.R[: len(program.registers)]))

    engine.Machine.loop = loop
    try:
        run_numba(naive, (3, 3), (16, 16), A, B, C)
    finally:
        engine.Machine.loop = original
    assert seen and min(seen) > 60


def test_spin_lock_inside_a_warp_ends() -> None:
    """The smallest program counter alone would spin for ever; threads take turns."""
    source = """
    extern "C" __global__ void k(int* lock, int* count) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) {
                *(volatile int*)count += 1;
                __threadfence();
                atomicExch(lock, 0);
                done = true;
            }
        }
    }"""
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run_cuda(source, 1, 8, lock, count)
    assert count[0] == 8
    hard = """
    extern "C" __global__ void k(int* flag, int* out) {
        if (threadIdx.x == 1) { while (((volatile int*)flag)[0] == 0) {} out[0] = 5; }
        else { out[1] = 6; __threadfence(); atomicExch(flag, 1); }
    }"""
    flag, out = np.zeros(1, np.int32), np.zeros(2, np.int32)
    run_cuda(hard, 1, 2, flag, out)
    assert out.tolist() == [5, 6]


def test_flag_between_blocks() -> None:
    source = """
    extern "C" __global__ void k(int* flag, int* out) {
        if (blockIdx.x == 0) { while (atomicAdd(flag, 0) < 3) {} out[0] = 7; }
        else { atomicAdd(flag, 1); }
    }"""
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run_cuda(source, 4, 1, flag, out)
    assert out[0] == 7


def test_endless_loop_is_reported() -> None:
    source = """
extern "C" __global__ void k(volatile int* a) {
    if (threadIdx.x == 3)
        while (a[0] == 0) {}
}"""
    with pytest.raises(KernelFault) as info:
        run_cuda(source, 1, 32, np.zeros(1, np.int32), max_steps=20_000)
    fault = info.value
    assert fault.kind == "no_progress" and fault.line == 4 and fault.thread == (3, 0, 0)


# ---------------------------------------------------------------------------- barriers


def reduce(x, out):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.blockIdx.x * 128 + t]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


def test_tree_reduction() -> None:
    x, out = normal(5 * 128), np.zeros(5, np.float32)
    run_numba(reduce, 5, 128, x, out)
    want = x.reshape(5, 128)
    while want.shape[1] > 1:
        half = want.shape[1] // 2
        want = want[:, :half] + want[:, half:]
    np.testing.assert_array_equal(out, want[:, 0])


def test_blocks_pass_barriers_on_their_own() -> None:
    """Blocks with different numbers of turns, each with a barrier."""
    source = """
    extern "C" __global__ void k(int* a) {
        __shared__ int s[64];
        int t = threadIdx.x;
        s[t] = t;
        for (int turn = 0; turn <= blockIdx.x; ++turn) {
            __syncthreads();
            int v = s[(t + 1) % 64];
            __syncthreads();
            s[t] = v;
        }
        a[blockIdx.x * 64 + t] = s[t];
    }"""
    a = np.zeros(6 * 64, np.int32)
    run_cuda(source, 6, 64, a)
    want = [(t + b + 1) % 64 for b in range(6) for t in range(64)]
    assert a.tolist() == want


def test_reducing_barriers() -> None:
    source = """
    extern "C" __global__ void k(int* a, int* n, int* all, int* any) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        n[i] = __syncthreads_count(a[i] > 5);
        all[i] = __syncthreads_and(a[i] > 5);
        any[i] = __syncthreads_or(a[i] > 5);
    }"""
    a = RNG.integers(0, 10, (4, 40)).astype(np.int32)
    a[0], a[1] = 9, 1
    n, every, some = (np.zeros_like(a) for _ in range(3))
    run_cuda(source, 4, 40, a, n, every, some)
    yes = a > 5
    np.testing.assert_array_equal(n, np.broadcast_to(yes.sum(1, keepdims=True), a.shape))
    np.testing.assert_array_equal(every != 0, np.broadcast_to(yes.all(1, keepdims=True), a.shape))
    np.testing.assert_array_equal(some != 0, np.broadcast_to(yes.any(1, keepdims=True), a.shape))


def test_named_barriers_hand_over() -> None:
    """A producer warp arrives, consumer warps wait, with a thread count."""
    source = """
    extern "C" __global__ void k(int* a) {
        __shared__ int s[32];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (warp == 0) {
            s[lane] = lane * 3;
            asm volatile("bar.arrive 1, 96;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 96;" ::: "memory");
            a[(warp - 1) * 32 + lane] = s[31 - lane];
        }
    }"""
    a = np.zeros(64, np.int32)
    run_cuda(source, 1, 96, a)
    assert a.tolist() == [3 * (31 - lane) for lane in range(32)] * 2


def test_named_barriers_of_one_instruction_open_each_for_itself() -> None:
    """Warp 0 comes late, after warps 2 and 3 have passed theirs; warp 1 waits for it all the same."""
    source = """
    extern "C" __global__ void k(int* a) {
        __shared__ int s[32], flag;
        int t = threadIdx.x, warp = t / 32;
        flag = 0;
        __syncthreads();
        if (warp == 0) {
            while (atomicAdd(&flag, 0) == 0) {}
            s[t] = t;
        }
        asm volatile("bar.sync %0, 64;" :: "r"(1 + warp / 2) : "memory");
        if (warp == 2) atomicExch(&flag, 1);
        if (warp == 1) a[t - 32] = s[63 - t];
    }"""
    for sanitize in (True, False):
        a = np.zeros(32, np.int32)
        run_cuda(source, 1, 128, a, sanitize=sanitize)
        assert a.tolist() == list(range(31, -1, -1))


def test_barrier_with_a_count_after_an_early_exit() -> None:
    source = """
    extern "C" __global__ void k(int* a) {
        __shared__ int s[64];
        if (threadIdx.x >= 64) return;
        s[threadIdx.x] = threadIdx.x;
        asm volatile("bar.sync 2, 64;" ::: "memory");
        a[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    a = np.zeros(64, np.int32)
    run_cuda(source, 1, 128, a)
    assert a.tolist() == list(range(63, -1, -1))


# ---------------------------------------------------------------------------- atomics


@pytest.mark.parametrize("space", ["global", "shared"])
def test_integer_atomics(space: str) -> None:
    source = """
    extern "C" __global__ void k(unsigned* out, int* signed_out, unsigned* old) {
        __shared__ unsigned s[8];
        __shared__ int q[2];
        int t = threadIdx.x;
        if (t < 8) s[t] = out[t];
        if (t < 2) q[t] = signed_out[t];
        __syncthreads();
        unsigned* u = SHARED ? s : out;
        int* i = SHARED ? q : signed_out;
        old[t] = atomicAdd(u, 2);
        atomicMin(u + 1, t + 3); atomicMax(u + 2, t); atomicInc(u + 3, 6); atomicDec(u + 4, 9);
        atomicAnd(u + 5, ~(1u << (t % 32))); atomicOr(u + 6, 1u << (t % 7)); atomicXor(u + 7, t);
        atomicMin(i, -t); atomicMax(i + 1, t - 50);
        __syncthreads();
        if (SHARED) { if (t < 8) out[t] = s[t]; if (t < 2) signed_out[t] = q[t]; }
    }""".replace("SHARED", "1" if space == "shared" else "0")
    n = 70
    out = np.array([100, 50, 3, 2, 4, 0xFFFFFFFF, 0, 12345], np.uint32)
    signed = np.array([5, -100], np.int32)
    old = np.zeros(n, np.uint32)
    run_cuda(source, 1, n, out, signed, old)
    assert sorted(old.tolist()) == list(range(100, 100 + 2 * n, 2))
    inc, dec, xor = 2, 4, 12345
    for t in range(n):
        inc = 0 if inc >= 6 else inc + 1
        dec = 9 if dec == 0 or dec > 9 else dec - 1
        xor ^= t
    assert out.tolist() == [100 + 2 * n, 3, n - 1, inc, dec, 0, 127, xor]
    assert signed.tolist() == [1 - n, n - 1 - 50]


def test_float_atomics_and_compare_and_swap() -> None:
    def kernel(x, y):
        i = cuda.grid(1)
        cuda.atomic.add(y, 0, x[i])
        cuda.atomic.max(y, 1, x[i])
        cuda.atomic.min(y, 2, x[i])
        cuda.atomic.add(y, 3 + i % 5, float32(1))

    for dtype in (np.float32, np.float64):
        x = RNG.integers(-50, 50, 300).astype(dtype)
        y = np.zeros(8, dtype)
        run_numba(kernel, 3, 100, x, y)
        assert y.tolist() == [x.sum(), x.max(), x.min(), 60, 60, 60, 60, 60]


def test_histogram_in_shared_memory() -> None:
    def kernel(x, counts):
        s = cuda.shared.array(16, int32)
        t = cuda.threadIdx.x
        if t < 16:
            s[t] = 0
        cuda.syncthreads()
        cuda.atomic.add(s, x[cuda.grid(1)], 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(counts, t, s[t])

    x = RNG.integers(0, 16, 512).astype(np.int64)
    counts = np.zeros(16, np.int32)
    run_numba(kernel, 4, 128, x, counts)
    assert counts.tolist() == np.bincount(x, minlength=16).tolist()


# ---------------------------------------------------------------------------- warps

LANES = np.arange(64)


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(width: int) -> None:
    source = f"""
    extern "C" __global__ void k(int* a) {{
        int t = threadIdx.x, n = blockDim.x;
        a[t] = __shfl_up_sync(-1, t, 3, {width});
        a[n + t] = __shfl_down_sync(-1, t, 3, {width});
        a[2 * n + t] = __shfl_xor_sync(-1, t, 5, {width});
        a[3 * n + t] = __shfl_sync(-1, t, t * 7, {width});
        double d = __shfl_sync(-1, t + 0.5, 2, {width});
        a[4 * n + t] = (int)(2 * d);
    }}"""
    a = np.zeros((5, 64), np.int32)
    run_cuda(source, 1, 64, a)
    low = LANES // width * width
    inside = LANES - low
    assert a[0].tolist() == np.where(inside >= 3, LANES - 3, LANES).tolist()
    assert a[1].tolist() == np.where(inside + 3 < width, LANES + 3, LANES).tolist()
    assert a[2].tolist() == (low + (inside ^ 5)).tolist()
    assert a[3].tolist() == (low + LANES * 7 % width).tolist()
    assert a[4].tolist() == (2 * (low + 2) + 1).tolist()


def test_votes() -> None:
    source = """
    extern "C" __global__ void k(unsigned* a) {
        int t = threadIdx.x, n = blockDim.x;
        a[t] = __ballot_sync(-1, t % 3 == 0);
        a[n + t] = __any_sync(-1, t == 40);
        a[2 * n + t] = __all_sync(-1, t < 32);
        a[3 * n + t] = t % 2 ? __activemask() : 0;
        if (t % 4 == 1) a[4 * n + t] = __ballot_sync(0x22222222, t > 20);
        a[5 * n + t] = __match_any_sync(-1, t % 3);
        a[6 * n + t] = __reduce_add_sync(-1, t);
        a[7 * n + t] = __reduce_max_sync(-1, t ^ 5);
    }"""
    a = np.zeros((8, 64), np.uint32)
    run_cuda(source, 1, 64, a)

    def ballot(test) -> list[int]:
        warps = [sum(1 << (t % 32) for t in range(32 * w, 32 * w + 32) if test(t)) for w in range(2)]
        return [warps[t // 32] for t in range(64)]

    assert a[0].tolist() == ballot(lambda t: t % 3 == 0)
    assert a[1].tolist() == [0] * 32 + [1] * 32
    assert a[2].tolist() == [1] * 32 + [0] * 32
    assert set(a[3][1::2].tolist()) == {0xAAAAAAAA}
    assert a[4].tolist() == [v if t % 4 == 1 else 0 for t, v in enumerate(ballot(lambda t: t % 4 == 1 and t > 20))]
    for t in range(64):
        same = sum(1 << (u % 32) for u in range(t // 32 * 32, t // 32 * 32 + 32) if u % 3 == t % 3)
        assert a[5][t] == same
        assert a[6][t] == sum(range(t // 32 * 32, t // 32 * 32 + 32))
        assert a[7][t] == t // 32 * 32 + 31


def test_warp_reduction_in_a_partial_warp() -> None:
    def kernel(x, out):
        v = x[cuda.grid(1)]
        for k in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(0xFFFFFFFF, v, k)
        if cuda.laneid == 0:
            out[cuda.blockIdx.x] = v

    x, out = np.arange(64, dtype=np.float32), np.zeros(2, np.float32)
    run_numba(kernel, 2, 32, x, out)
    assert out.tolist() == [x[:32].sum(), x[32:].sum()]


# ---------------------------------------------------------------------------- memory


def test_local_arrays() -> None:
    def kernel(x, y):
        i = cuda.grid(1)
        a = cuda.local.array(8, float32)
        for k in range(8):
            a[(k * 3) % 8] = x[i] + k
        total = float32(0)
        for k in range(8):
            total = total * 2 + a[(k + i) % 8]
        y[i] = total

    x, y = normal(100), np.zeros(100, np.float32)
    run_numba(kernel, 4, 25, x, y)
    want = []
    for i in range(100):
        a = np.zeros(8, np.float32)
        for k in range(8):
            a[k * 3 % 8] = x[i] + f32(k)
        # numba: float32 times an int64 is a float64, and so is the sum.
        total = 0.0
        for k in range(8):
            total = total * 2 + float(a[(k + i) % 8])
        want.append(total)
    np.testing.assert_array_equal(y, np.array(want, np.float32))


def test_vector_and_narrow_accesses() -> None:
    source = """
    extern "C" __global__ void k(float4* a, double2* b, signed char* c, unsigned short* d, float2* e) {
        int t = threadIdx.x;
        float4 v = a[t]; a[t] = make_float4(v.w, v.z, v.y, v.x);
        double2 w = b[t]; b[t] = make_double2(w.y, w.x);
        c[t] = c[t] * 2 - 1; d[t] = d[t] * 3 + 7;
        if (t % 2) { float2 f = e[t]; e[t] = make_float2(f.y, f.x); }
    }"""
    a, b = normal(40, 4), RNG.standard_normal((40, 2))
    c, d = RNG.integers(-128, 128, 40).astype(np.int8), RNG.integers(0, 65536, 40).astype(np.uint16)
    e = normal(40, 2)
    wants = (
        a[:, ::-1].copy(),
        b[:, ::-1].copy(),
        (c.astype(int) * 2 - 1).astype(np.int8),
        d * np.uint16(3) + np.uint16(7),
    )
    odd = e.copy()
    odd[1::2] = e[1::2, ::-1]
    run_cuda(source, 1, 40, a, b, c, d, e)
    for got, want in zip((a, b, c, d, e), (*wants, odd), strict=True):
        np.testing.assert_array_equal(got, want)


def test_pointers_to_several_arrays_in_one_instruction() -> None:
    source = """
    extern "C" __global__ void k(int* a, int* b, int* out) {
        int t = threadIdx.x;
        int* p = t % 3 ? a : b;
        out[t] = p[t];
        if (t % 5) p[t] = t;
        __syncthreads();
        atomicAdd(p, 1);
        out[40 + t] = atomicAdd(p + 1, 2) >= 0;
    }"""
    a, b, out = np.arange(100, 140, dtype=np.int32), np.arange(200, 240, dtype=np.int32), np.zeros(80, np.int32)
    a[:2] = b[:2] = 0
    wa, wb = a.copy(), b.copy()
    want = [(wa if t % 3 else wb)[t] for t in range(40)]
    for t in range(40):
        if t % 5:
            (wa if t % 3 else wb)[t] = t
    thirds = sum(t % 3 == 0 for t in range(40))
    wa[0] += 40 - thirds
    wb[0] += thirds
    wa[1] += 2 * (40 - thirds)
    wb[1] += 2 * thirds
    run_cuda(source, 1, 40, a, b, out)
    assert out[:40].tolist() == want and a.tolist() == wa.tolist() and b.tolist() == wb.tolist()
    assert out[40:].all()


def test_dynamic_and_static_shared_memory() -> None:
    source = """
    extern __shared__ float s[];
    extern "C" __global__ void k(float* a, int n) {
        __shared__ double d[32];
        int t = threadIdx.x;
        s[t] = a[t]; ((int*)(s + n))[t] = t; d[t] = t + 0.25;
        __syncthreads();
        a[t] = s[n - 1 - t] + ((int*)(s + n))[n - 1 - t] + (float)d[(t + 1) % n];
    }"""
    a = normal(32)
    want = a[::-1] + np.arange(31, -1, -1, dtype=np.float32)
    want = want + ((np.arange(32) + 1) % 32 + 0.25).astype(np.float32)
    run_cuda(source, 1, 32, a, 32, shared=32 * 8)
    np.testing.assert_array_equal(a, want)


def test_generic_pointers_into_shared_and_local_memory() -> None:
    source = """
    __device__ __noinline__ int sum(const int* p, int n) { int r = 0; for (int i = 0; i < n; ++i) r += p[i]; return r; }
    extern "C" __global__ void k(int* a) {
        __shared__ int s[4];
        int q[4];
        for (int i = 0; i < 4; ++i) q[i] = threadIdx.x * i;
        if (threadIdx.x < 4) s[threadIdx.x] = threadIdx.x + 10;
        __syncthreads();
        a[threadIdx.x] = sum(s, 4) * 1000 + sum(q, 4) + sum(a + 32, 2);
    }"""
    a = np.arange(34, dtype=np.int32)
    run_cuda(source, 1, 32, a)
    assert a[:32].tolist() == [46 * 1000 + 6 * t + 65 for t in range(32)]


def test_constants_globals_and_structs() -> None:
    source = """
    struct P { float f[3]; int n; };
    __constant__ int table[5] = {3, 1, 4, 1, 5};
    __device__ unsigned counter = 10;
    __device__ int* where = nullptr;
    __device__ __noinline__ float get(P p, int i) { return p.f[i] * p.n; }
    extern "C" __global__ void k(float* a, P p, int* old) {
        int t = threadIdx.x;
        a[t] = table[t % 5] + get(p, t % 3);
        old[t] = atomicAdd(&counter, 1);
    }"""
    a, old = np.zeros(20, np.float32), np.zeros(20, np.int32)
    p = struct.pack("<fffi", 0.5, 1.5, 2.5, 4)
    emulation = run_cuda(source, 1, 20, a, p, old)
    assert a.tolist() == [[3, 1, 4, 1, 5][t % 5] + [2, 6, 10][t % 3] for t in range(20)]
    assert sorted(old.tolist()) == list(range(10, 30))
    # A module's variables live on from launch to launch.
    run_cuda(source, 1, 20, a, p, old, emulation=emulation)
    assert sorted(old.tolist()) == list(range(30, 50))


def test_calls_with_several_levels_and_early_returns() -> None:
    source = """
    __device__ __noinline__ int leaf(int x) { if (x < 3) return -x; return x * x; }
    __device__ __noinline__ int middle(int x, int y) { if (y) { return leaf(x) + leaf(y); } return leaf(x + 1); }
    extern "C" __global__ void k(int* a) { int t = threadIdx.x; if (t != 7) a[t] = middle(t, t % 3) + leaf(5); }"""
    a = np.zeros(40, np.int32)

    def leaf(x: int) -> int:
        return -x if x < 3 else x * x

    want = [leaf(t) + leaf(t % 3) + 25 if t % 3 else leaf(t + 1) + 25 for t in range(40)]
    want[7] = 0
    run_cuda(source, 1, 40, a)
    assert a.tolist() == want


def test_device_math() -> None:
    source = """
    extern "C" __global__ void k(float* x, float* y, double* z) {
        int t = threadIdx.x, n = blockDim.x;
        y[t] = expf(x[t]); y[n + t] = sinf(x[t]); y[2 * n + t] = logf(fabsf(x[t])); y[3 * n + t] = tanhf(x[t]);
        y[4 * n + t] = x[t] / 3.0f; y[5 * n + t] = sqrtf(fabsf(x[t])); y[6 * n + t] = powf(fabsf(x[t]), 1.3f);
        z[t] = exp((double)x[t]); z[n + t] = sin((double)x[t]); z[2 * n + t] = fma((double)x[t], 1e-20, -1.0);
    }"""
    n = 64
    x = normal(n) * np.float32(4)
    y, z = np.zeros((7, n), np.float32), np.zeros((3, n))
    run_cuda(source, 1, n, x, y, z)
    d = x.astype(np.float64)
    size = np.abs(d)
    for got, want in zip(
        y, (np.exp(d), np.sin(d), np.log(size), np.tanh(d), d / 3, np.sqrt(size), size**1.3), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=5e-7, atol=1e-6)
    np.testing.assert_array_equal(y[4], x / np.float32(3))
    np.testing.assert_array_equal(y[5], np.sqrt(np.abs(x)))
    np.testing.assert_allclose(z[0], np.exp(d), rtol=4e-16)
    np.testing.assert_allclose(z[1], np.sin(d), rtol=4e-16, atol=1e-16)


def test_trigonometry_of_large_arguments() -> None:
    """The Payne-Hanek path of sinf: local memory, a table, 64-bit products."""
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }'
    x = np.array([1e6, -3e7, 123456.7, 2e9, 0.5, 1e20, 106000.0, -0.1], np.float32)
    want = [0.0] * 8
    from fractions import Fraction

    # sin through a reduction by exact fractions of pi to 60 digits.
    pi = Fraction(314159265358979323846264338327950288419716939937510582097494459, 10**62)
    for i, v in enumerate(x):
        turns = Fraction(float(v)) / (2 * pi)
        rest = (turns - round(turns)) * 2 * pi
        want[i] = np.sin(float(rest))
    run_cuda(source, 1, 8, x)
    np.testing.assert_allclose(x, want, rtol=3e-7, atol=1e-7)


def test_unused_atomic_is_a_reduction_and_hooks_see_accesses() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.accesses, self.counts = [], {}

        def begin(self, launch, program) -> None:
            self.program = program

        def end(self, busiest) -> None:
            self.ended = True

        def executed(self, pc, active, on) -> None:
            before = self.counts.get(pc, (0, 0, 0))
            self.counts[pc] = (before[0] + active.warps, before[1] + active.threads, before[2] + on.threads)

        def access(self, instr, space, kind, addr, mask, width, chunk) -> None:
            lanes = np.broadcast_to(addr, chunk.valid.shape)[mask.index]
            self.accesses.append((space, kind, width, mask.threads, mask.warps, int(lanes.min()), int(lanes.max())))

    source = """
    extern "C" __global__ void k(float4* a, int* n) {
        __shared__ float s[40];
        int t = threadIdx.x;
        float4 v = a[t];
        s[t] = v.x + v.y;
        __syncthreads();
        if (t < 5) atomicAdd(n, 1);
        if (s[39 - t] > 1e9f) n[1] = 1;
    }"""
    recorder = Recorder()
    a, n = normal(40, 4), np.zeros(2, np.int32)
    emulation = run_cuda(source, 1, 40, a, n, counters=recorder)
    base = emulation.memory.buffers[0].base
    assert recorder.accesses[0] == ("global", "ld", 16, 40, 2, base, base + 39 * 16)
    assert ("shared", "st", 4, 40, 2, 0, 39 * 4) in recorder.accesses
    assert ("shared", "ld", 4, 40, 2, 0, 39 * 4) in recorder.accesses
    kinds = [(s, k, count, warps) for s, k, _, count, warps, _, _ in recorder.accesses]
    assert ("global", "red", 5, 1) in kinds
    assert recorder.ended and n[0] == 5
    first = recorder.counts[0]
    assert first == (2, 40, 40)
    for instruction in recorder.program:
        if instruction.op == "red" or instruction.op == "atom":
            assert recorder.counts[instruction.index][2] == 5


# ---------------------------------------------------------------------------- hand-written PTX


def run_ptx(body: str, a: np.ndarray, block: int = 32, declarations: str = "") -> np.ndarray:
    emulation = Emulation()
    launch = Launch(
        ptx_kernel(body, declarations=declarations), "k", (1, 1, 1), (block, 1, 1), (add(emulation, a, "a"),)
    )
    emulation.run(launch)
    return a


def test_predicated_instructions_keep_the_old_value() -> None:
    body = """
    setp.lt.u32 %p1, %r0, 10;
    mov.u32 %r1, 7;
    @%p1 mov.u32 %r1, 9;
    @!%p1 add.u32 %r1, %r1, %r0;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    @%p1 st.global.u32 [%rd2], %r1;
    @!%p1 st.global.u32 [%rd2], %r1;
    """
    a = run_ptx(body, np.zeros(32, np.uint32))
    assert a.tolist() == [9 if t < 10 else 7 + t for t in range(32)]


def test_packing_and_unpacking() -> None:
    body = """
    cvt.u64.u32 %rd3, %r0;
    mov.b64 %rd4, {%r0, 17};
    mov.b64 {%r2, %r3}, %rd4;
    mov.b32 {%h1, %h2}, 0x12345678;
    mov.b32 %r4, {%h2, %h1};
    add.u32 %r5, %r2, %r3;
    mul.wide.u32 %rd1, %r0, 8;
    add.u64 %rd2, %rd0, %rd1;
    st.global.v2.u32 [%rd2], {%r5, %r4};
    """
    a = run_ptx(body, np.zeros((32, 2), np.uint32))
    assert a[:, 0].tolist() == [t + 17 for t in range(32)]
    assert set(a[:, 1].tolist()) == {0x56781234}


def test_setp_with_two_results_and_negated_operand() -> None:
    body = """
    setp.lt.u32 %p1, %r0, 20;
    setp.gt.and.u32 %p2|%p3, %r0, 5, !%p1;
    selp.u32 %r1, 1, 0, %p2;
    selp.u32 %r2, 2, 0, %p3;
    add.u32 %r3, %r1, %r2;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r3;
    """
    a = run_ptx(body, np.zeros(32, np.uint32))
    assert a.tolist() == [((t > 5 and t >= 20) * 1) + ((not t > 5 and t >= 20) * 2) for t in range(32)]


def test_indexed_branch() -> None:
    body = """
    and.b32 %r1, %r0, 3;
    mov.u32 %r2, 0;
table: .branchtargets L0, L1, L2, L0;
    brx.idx %r1, table;
L0: add.u32 %r2, %r2, 100;
    bra DONE;
L1: add.u32 %r2, %r2, 200;
L2: add.u32 %r2, %r2, 300;
DONE:
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r2;
    """
    a = run_ptx(body, np.zeros(32, np.uint32))
    assert a.tolist() == [[100, 500, 300, 100][t % 4] for t in range(32)]


def test_carry_flag_is_kept_per_thread() -> None:
    body = """
    sub.u32 %r1, 0, %r0;
    add.cc.u32 %r2, %r1, 5;
    addc.u32 %r3, 0, 0;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r3;
    """
    a = run_ptx(body, np.zeros(32, np.uint32))
    assert a.tolist() == [int((2**32 - t) % 2**32 + 5 >= 2**32) for t in range(32)]


def test_special_registers() -> None:
    body = """
    mov.u32 %r1, %lanemask_lt;
    mov.u32 %r2, %warpid;
    mov.u32 %r3, %nctaid.x;
    mov.u32 %r4, WARP_SZ;
    mov.u32 %r8, %clock;
    mov.u64 %rd5, %clock64;
    mov.u64 %rd6, %clock64;
    setp.gt.u64 %p1, %rd6, %rd5;
    selp.u32 %r5, 1, 0, %p1;
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd2, %rd0, %rd1;
    st.global.v4.u32 [%rd2], {%r1, %r2, %r4, %r5};
    """
    a = run_ptx(body, np.zeros((64, 4), np.uint32), block=64)
    assert a.tolist() == [[(1 << t % 32) - 1, t // 32, 32, 1] for t in range(64)]


def test_unknown_instruction_names_itself_and_the_line() -> None:
    source = """
extern "C" __global__ void k(float* a) {
    float v = a[threadIdx.x];
    asm volatile("tex.1d.v4.f32.f32 {%0, %0, %0, %0}, [a, {%0}];" : "+f"(v));
    a[threadIdx.x] = v;
}"""
    try:
        ptx = nvrtc(source)
    except AssertionError:
        pytest.fail("the test's source does not compile")
    emulation = Emulation()
    with pytest.raises(KernelFault) as info:
        emulation.run(Launch(ptx, "k", (1, 1, 1), (32, 1, 1), (add(emulation, normal(32), "a"),)))
    assert info.value.kind == "unsupported" and info.value.line == 4
    assert "tex.1d.v4.f32.f32" in str(info.value)


def test_printf_says_that_it_is_missing() -> None:
    source = '#include <cstdio>\nextern "C" __global__ void k(int* a) {\n printf("%d", a[0]);\n}'.replace(
        "#include <cstdio>\n", ""
    )
    with pytest.raises(KernelFault, match="printf") as info:
        run_cuda(source, 1, 1, np.zeros(1, np.int32))
    assert info.value.line == 2


def test_trap_names_the_thread() -> None:
    source = 'extern "C" __global__ void k(int* a) {\n if (threadIdx.x == 5) __trap();\n}'
    with pytest.raises(KernelFault) as info:
        run_cuda(source, 1, 32, np.zeros(1, np.int32))
    assert info.value.kind == "trap" and info.value.thread == (5, 0, 0) and info.value.line == 2


def test_wrong_launches_are_refused() -> None:
    source = 'extern "C" __global__ void k(int* a, int n) { a[threadIdx.x] = n; }'
    a = np.zeros(32, np.int32)
    for arguments in ((a,), (a, b"123"), (a, 1, 2)):
        with pytest.raises(KernelFault) as info:
            run_cuda(source, 1, 32, *arguments)
        assert info.value.kind == "launch"
    with pytest.raises(KernelFault, match="1024"):
        run_cuda(source, 1, 1025, a, 1)
    with pytest.raises(KernelFault, match="no kernel named nope"):
        Emulation().run(Launch(nvrtc(source), "nope", (1, 1, 1), (1, 1, 1), ()))


def test_shared_arrays_of_a_fixed_size_have_48_kib() -> None:
    """As ptxas has it: what it refuses to compile for a GPU must not pass here."""
    source = """extern "C" __global__ void k(float* a) {
        __shared__ volatile float tile[SIZE];
        tile[threadIdx.x] = 3;
        a[threadIdx.x] = tile[threadIdx.x];
    }"""
    a = np.zeros(32, np.float32)
    run_cuda(source.replace("SIZE", "12 * 1024"), 1, 32, a)
    assert (a == 3).all()
    with pytest.raises(KernelFault, match=r"take 49,156 bytes\. The compiler allows a block 49,152 \(48 KiB\)"):
        run_cuda(source.replace("SIZE", "12 * 1024 + 1"), 1, 32, a)


def test_pointer_offsets_and_misaligned_bases() -> None:
    """x[1:] of a float32 tensor: 4 bytes off a 256-byte boundary, still good for 4-byte loads."""
    source = 'extern "C" __global__ void k(float* a, int n) { int t = threadIdx.x; if (t < n) a[t] += 1; }'
    a = np.zeros(33, np.float32)
    emulation = Emulation()
    pointer = add(emulation, a[1:], "a", misalign=4)
    emulation.run(Launch(nvrtc(source), "k", (1, 1, 1), (32, 1, 1), (Pointer(pointer.buffer, 8), INT.pack(30))))
    assert a.tolist() == [0] * 3 + [1] * 30


def test_numba_entry_is_found_by_its_name() -> None:
    ptx = numba_ptx(naive, *[np.zeros((2, 2), np.float32)] * 3)
    program = parse(ptx).program(parse(ptx).entries[0])
    assert program.kernel == "naive" and program.file == __file__
