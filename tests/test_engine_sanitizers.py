"""Each sanitizer with kernels that trip it, at the right line, thread and element, and twins that do not."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from engine_tools import add, nvrtc, run_cuda, run_numba
from numba import cuda, float32

from labkit.emulator import Emulation, KernelFault, Launch


def line_of(function, text: str) -> int:
    """The line of the test file where `text` stands inside a kernel."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().split("\n")
    start = function.__code__.co_firstlineno - 1
    return next(i + 1 for i in range(start, len(lines)) if text in lines[i])


def fault_of(source: str, grid, block, *values, **options) -> KernelFault:
    with pytest.raises(KernelFault) as info:
        run_cuda(source, grid, block, *values, **options)
    return info.value


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


# ---------------------------------------------------------------------------- bounds


def test_read_past_the_rows() -> None:
    def kernel(A, B):
        i, j = cuda.grid(2)
        if j < A.shape[1]:
            B[0, 0] = A[i, j]  # no check of i

    A, B = np.ones((33, 17), np.float32), np.zeros((1, 1), np.float32)
    with pytest.raises(KernelFault) as info:
        run_numba(kernel, (3, 2), (16, 16), A, B)
    fault = info.value
    assert fault.kind == "out_of_bounds" and fault.kernel == "kernel"
    assert fault.line == line_of(kernel, "no check of i") and fault.file == __file__
    assert fault.array == "A" and fault.index == (33, 0)
    assert fault.thread == (1, 0, 0) and fault.block == (2, 0, 0)
    assert "thread (1, 0, 0) of block (2, 0, 0) reads A[33, 0], outside A[33, 17]" in str(fault)
    again = pickle.loads(pickle.dumps(fault))
    assert str(again) == str(fault) and again.index == (33, 0)
    run_numba(kernel, (33, 2), (1, 16), A, B)


def test_write_past_the_end_and_before_the_start() -> None:
    source = 'extern "C" __global__ void k(int* a, int n) {\n  a[(int)threadIdx.x + n] = 1;\n}'
    fault = fault_of(source, 1, 32, ints(40), 9)
    assert (fault.kind, fault.line, fault.thread, fault.index) == ("out_of_bounds", 2, (31, 0, 0), (40,))
    assert "writes a[40], outside a[40]" in str(fault)
    fault = fault_of(source, 1, 32, ints(40), -2)
    assert (fault.thread, fault.index, fault.array) == ((0, 0, 0), (-2,), "a")
    run_cuda(source, 1, 32, ints(40), 8)


def test_a_stray_index_lands_in_no_other_array() -> None:
    source = 'extern "C" __global__ void k(int* a, int* b, int n) { b[n] = 1; }'
    for n in (40, -1, 1 << 20, -(1 << 20)):
        fault = fault_of(source, 1, 1, ints(40), ints(40), n)
        assert fault.array == "b" and fault.kind == "out_of_bounds"


def test_null_pointer() -> None:
    source = 'extern "C" __global__ void k(int* a) { a[1] = 1; }'
    fault = fault_of(source, 1, 1, bytes(8))
    assert fault.kind == "out_of_bounds" and "0x4, in no array" in str(fault)


def test_idle_threads_may_hold_wild_addresses() -> None:
    source = """
    extern "C" __global__ void k(int* a, int n) {
        int* p = a + (long long)threadIdx.x * 1000000;
        if (threadIdx.x == 0) { *p = 5; a[1] = *p + 1; atomicAdd(p, 1); }
    }"""
    a = ints(4)
    run_cuda(source, 1, 40, a, 0)
    assert a.tolist() == [6, 6, 0, 0]


def test_vector_over_the_end() -> None:
    source = 'extern "C" __global__ void k(float4* a) {\n  a[1].x = a[1].w;\n  float4 v = a[2]; a[0] = v;\n}'
    fault = fault_of(source, 1, 2, np.zeros(10, np.float32))
    assert fault.kind == "out_of_bounds" and fault.line == 3 and "over the end of a[10]" in str(fault)


def test_shared_and_local_bounds() -> None:
    source = """extern "C" __global__ void k(int* a, int n) {
    __shared__ int tile[32];
    tile[threadIdx.x] = 1;
    __syncthreads();
    a[0] = tile[threadIdx.x + n];
}"""
    fault = fault_of(source, 1, 32, ints(1), 3)
    assert (fault.kind, fault.line, fault.array, fault.index) == ("out_of_bounds", 5, "tile", (32,))
    assert fault.thread == (29, 0, 0) and "reads tile[32], outside tile[32]" in str(fault)
    dynamic = """extern __shared__ float s[];
extern "C" __global__ void k(float* a) {
    s[threadIdx.x] = a[threadIdx.x];
}"""
    fault = fault_of(dynamic, 1, 32, np.zeros(32, np.float32), shared=64)
    assert (fault.kind, fault.line, fault.index, fault.thread) == ("out_of_bounds", 3, (16,), (16, 0, 0))
    assert "dynamic shared memory" in fault.mend
    run_cuda(dynamic, 1, 32, np.zeros(32, np.float32), shared=128)
    local = """extern "C" __global__ void k(int* a, int n) {
    int q[4] = {1, 2, 3, 4};
    q[a[0]] = 5;
    a[1] = q[n];
}"""
    fault = fault_of(local, 1, 1, ints(2), 4)
    assert fault.kind == "out_of_bounds" and fault.line == 4 and "local" in str(fault)


def test_misaligned_access() -> None:
    source = """extern "C" __global__ void k(float* a) {
    float4 v = *(float4*)(a + 4 * threadIdx.x + 1);
    a[0] = v.x + v.y + v.z + v.w;
}"""
    fault = fault_of(source, 1, 2, np.zeros(64, np.float32))
    assert (fault.kind, fault.line, fault.array, fault.index) == ("misaligned", 2, "a", (1,))
    assert "16 bytes" in str(fault)
    good = source.replace(" + 1)", " + 4)")
    run_cuda(good, 1, 2, np.zeros(64, np.float32))
    # The same code on x[1:] of an aligned tensor.
    emulation = Emulation()
    pointer = add(emulation, np.zeros(64, np.float32), "a", misalign=4)
    with pytest.raises(KernelFault, match="begins 4 bytes off") as info:
        emulation.run(Launch(nvrtc(good), "k", (1, 1, 1), (2, 1, 1), (pointer,)))
    assert info.value.kind == "misaligned"


# ---------------------------------------------------------------------------- races


def tile_kernel(first: bool, second: bool):
    def both(A, B):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        for k in range(4):
            s[t] = A[k, t]  # store
            cuda.syncthreads()
            B[k, t] = s[63 - t]  # load
            cuda.syncthreads()

    def no_first(A, B):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        for k in range(4):
            s[t] = A[k, t]  # store
            B[k, t] = s[63 - t]  # load
            cuda.syncthreads()

    def no_second(A, B):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        for k in range(4):
            s[t] = A[k, t]  # store
            cuda.syncthreads()
            B[k, t] = s[63 - t]  # load

    return both if first and second else no_second if first else no_first


def test_missing_barriers_are_races() -> None:
    A, B = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32), np.zeros((4, 64), np.float32)
    run_numba(tile_kernel(True, True), 3, 64, A, B)
    np.testing.assert_array_equal(B, A[:, ::-1])
    for first, second in ((False, True), (True, False)):
        kernel = tile_kernel(first, second)
        with pytest.raises(KernelFault) as info:
            run_numba(kernel, 3, 64, A, B)
        fault = info.value
        store, load = line_of(kernel, "# store"), line_of(kernel, "# load")
        assert fault.kind == "race"
        here, before = (load, store) if not first else (store, load)
        assert (fault.line, fault.other_line) == (here, before)
        assert f"line {before}" in str(fault) and "barrier" in fault.mend
        # In lock step the answer is right all the same.
        run_numba(kernel, 3, 64, A, B, sanitize=False)
        np.testing.assert_array_equal(B, A[:, ::-1])


RACE = """extern "C" __global__ void k(int* a) { a += 64 * blockIdx.x;
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    __syncthreads();
    BODY
    __syncthreads();
    a[t] = s[t];
}"""


@pytest.mark.parametrize(
    "body, races",
    [
        ("if (t < 32) s[t + 32] = 1; else s[t] += 1;", True),
        ("if (t < 32) s[t] = 1; else s[t] += 1;", False),
        ("s[0] = t;", True),
        ("s[0] = 5;", False),
        ("s[t / 2] = 5;", False),
        ("s[t / 2] = t;", True),
        ("s[t % 4 + 4 * (t / 4)] = t * 2;", False),
        ("atomicAdd(&s[t / 8], 1);", False),
        ("atomicAdd(&s[0], 1); if (t == 40) s[0] = 9;", True),
        ("atomicAdd(&s[0], 1); a[t] = s[0];", True),
        ("if (t % 2) s[t] = s[t - 1];", False),
        ("s[t] = s[t ^ 1];", True),
        ("int v = s[t ^ 1]; __syncthreads(); s[t] = v;", False),
        ("int v = s[t ^ 1]; __syncwarp(); s[t] = v;", False),
        ("int v = s[t ^ 32]; __syncwarp(); s[t] = v;", True),
        ("if (t < 16) { s[t] = 3; __syncwarp(0xffff); a[t] = s[15 - t]; }", False),
        ("if (t == 0) s[1] = 7; __syncwarp(); if (t == 40) a[0] = s[1];", True),
        ("((char*)s)[t] = 1;", False),
        ("((char*)s)[t / 2] = t;", True),
        ("if (t < 16) { int4 v = ((int4*)s)[t]; v.x++; ((int4*)s)[t] = v; }", False),
        ("if (t < 15) { int4 v = ((int4*)s)[t]; s[4 * t + 7] = v.x + v.w; }", True),
    ],
)
def test_races(body: str, races: bool) -> None:
    source = RACE.replace("BODY", body)
    if races:
        fault = fault_of(source, 2, 64, ints(128))
        assert fault.kind == "race" and fault.line == 6, str(fault)
        assert fault.array == "s" and fault.index is not None
    else:
        run_cuda(source, 2, 64, ints(128))


def test_race_names_both_threads_and_the_element() -> None:
    source = """extern "C" __global__ void k(float* a) {
    __shared__ float s[64];
    s[threadIdx.x] = a[threadIdx.x];
    a[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}"""
    fault = fault_of(source, 1, 64, np.zeros(64, np.float32))
    # Two warps are named rather than two threads of one, for whom less than a block's barrier would do.
    assert (fault.line, fault.other_line, fault.index) == (4, 3, (32,))
    assert fault.mend == "Put a barrier, __syncthreads(), between line 3 and line 4."
    source = source.replace("64", "32")
    fault = fault_of(source, 1, 32, np.zeros(32, np.float32))
    assert (fault.line, fault.other_line, fault.index, fault.other_thread) == (4, 3, (1,), (1, 0, 0))
    assert "thread (0, 0, 0)" in str(fault) and "thread (1, 0, 0) writes at line 3" in str(fault)
    assert "__syncwarp" in fault.mend
    run_cuda(source.replace("(threadIdx.x + 1) % 32", "threadIdx.x"), 1, 32, np.zeros(32, np.float32))


def test_race_found_in_a_later_block_and_chunk() -> None:
    source = """extern "C" __global__ void k(int* a) {
    __shared__ int s[32];
    s[threadIdx.x] = 1;
    if (blockIdx.x == 5) s[31 - threadIdx.x] = 2;
    __syncthreads();
    a[threadIdx.x] = s[threadIdx.x];
}"""
    for chunk_threads in (32, 1 << 14):
        fault = fault_of(source, 8, 32, ints(32), chunk_threads=chunk_threads)
        assert fault.kind == "race" and fault.block == (5, 0, 0)


def test_shuffle_orders_no_memory() -> None:
    body = "int v = s[t ^ 1]; v = __shfl_xor_sync(-1, v, 2); s[t] = v;"
    assert fault_of(RACE.replace("BODY", body), 1, 64, ints(64)).kind == "race"


def test_named_barrier_orders_its_threads_alone() -> None:
    body = 'if (t < 32) { s[t] = 1; asm volatile("bar.sync 3, 32;" ::: "memory"); a[t] = s[31 - t]; }'
    run_cuda(RACE.replace("BODY", body), 1, 64, ints(64))
    body += " else a[t] = s[0];"
    assert fault_of(RACE.replace("BODY", body), 1, 64, ints(64)).kind == "race"


NAMED = """__device__ void sync(int bar, int n) { asm volatile("bar.sync %0, %1;" :: "r"(bar), "r"(n) : "memory"); }
__device__ void arrive(int bar, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(bar), "r"(n) : "memory"); }
extern "C" __global__ void k(int* a, int* g) {
    int t = threadIdx.x, warp = t / 32, v = 0;
    MEMORY
    s[t] = t;
    __syncthreads();
    BODY
    a[blockIdx.x * 128 + t] = v;
}"""


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("memory", ["__shared__ int s[128];", "int* s = g + blockIdx.x * 128;"])
@pytest.mark.parametrize(
    "body, races",
    [
        # Two barriers, and who has met at which.
        ("s[t] = 1; sync(1 + warp / 2, 64); v = s[t ^ 32];", False),
        ("s[t] = 1; sync(1 + warp / 2, 64); v = s[t ^ 64];", True),
        ("s[t] = 1; sync(1 + warp % 2, 64); v = s[t ^ 64];", False),
        ("s[t] = 1; sync(1 + warp / 2, 64); if (warp == 0) v = s[t + 64];", True),
        ("s[t] = 1; sync(1 + warp / 2, 64); __syncthreads(); v = s[t ^ 64];", False),
        ("s[t] = 1; sync(1 + warp / 2, 64); sync(3, 128); v = s[t ^ 64];", False),
        ("s[t] = 1; __syncthreads(); sync(1 + warp / 2, 64); v = s[t ^ 64];", False),
        ("s[t] = 1; sync(1 + warp / 2, 64); sync(3 + warp % 2, 64); v = s[t ^ 96];", False),  # by two barriers
        ("for (int i = 0; i < 4; ++i) { s[t] = i; sync(1 + warp / 2, 64); v += s[t ^ 32]; sync(1 + warp / 2, 64); }",
         False),
        ("for (int i = 0; i < 4; ++i) { s[t] = i; sync(1 + warp / 2, 64); v += s[t ^ 32]; }", True),
        # A chain through warp 1, and one whose links come in the wrong order.
        ("if (warp == 0) { s[0] = 1; sync(1, 64); } else if (warp == 1) { sync(1, 64); sync(2, 64); }"
         " else if (warp == 2) { sync(2, 64); v = s[0]; }", False),
        ("if (warp == 0) { s[0] = 1; sync(1, 64); } else if (warp == 1) { sync(2, 64); sync(1, 64); }"
         " else if (warp == 2) { sync(2, 64); v = s[0]; }", True),
        # Reads before a write: by part of the block, and by all in one instruction.
        ("v = s[0]; sync(1 + warp / 2, 64); if (t == 0) s[0] = 1;", True),
        ("v = s[0]; sync(1 + warp / 2, 64); if (t == 127) s[0] = 1;", True),
        ("if (warp < 2) { v = s[0]; sync(1, 64); } else { v = s[0]; sync(2, 64); if (t == 127) s[0] = 1; }", True),
        ("v = s[0]; if (t == 127) s[0] = 1;", True),
        ("if (warp < 2) sync(1, 64); else { v = s[0]; sync(2, 64); if (t == 127) s[0] = 1; }", False),
        # Who arrives tells what it did before, and hears nothing.
        ("if (warp < 2) { s[t] = 1; arrive(1, 128); } else { sync(1, 128); v = s[t - 64]; }", False),
        ("if (warp < 2) { arrive(1, 128); s[t] = 1; } else { sync(1, 128); v = s[t - 64]; }", True),
        ("if (warp >= 2) { s[t] = 1; sync(1, 128); } else { arrive(1, 128); v = s[t + 64]; }", True),
        ("if (warp < 2) { s[t] = 1; arrive(1, 128); v = s[t ^ 32]; } else sync(1, 128);", True),
        ("if (warp < 2) { s[t] = 1; arrive(1, 128); } else { sync(1, 128); v = s[t - 64] + s[t ^ 32]; }", False),
        ("if (warp < 2) { for (int i = 0; i < 4; ++i) { if (i) sync(2, 128); s[t] = i; arrive(1, 128); } }"
         " else for (int i = 0; i < 4; ++i) { sync(1, 128); v += s[t - 64]; if (i < 3) arrive(2, 128); }", False),
        ("if (warp < 2) { for (int i = 0; i < 4; ++i) { s[t] = i; arrive(1 + i, 128); } }"
         " else for (int i = 0; i < 4; ++i) { sync(1 + i, 128); v += s[t - 64]; }", True),
        ("if (warp >= 2) { s[t] = 1; return; } sync(1, 64); v = s[t + 64];", True),
    ],
)  # fmt: skip
def test_barriers_of_part_of_a_block(body: str, races: bool, memory: str, engine: str) -> None:
    source = NAMED.replace("BODY", body).replace("MEMORY", memory)
    if races:
        fault = fault_of(source, 2, 128, ints(256), ints(256), engine=engine)
        assert fault.kind == "race" and fault.line == 8, str(fault)
    else:
        run_cuda(source, 2, 128, ints(256), ints(256), engine=engine)
        run_cuda(source, 2, 128, ints(256), ints(256), engine=engine, chunk_threads=128)


@pytest.mark.parametrize("writer, reader, races", [(0, 1, False), (2, 1, True), (0, 3, True)])
def test_a_flag_behind_a_barrier_of_part_of_a_block(writer: int, reader: int, races: bool) -> None:
    """Warp 1 of block 0 sets a flag for warp 0 of block 1; warps meet 0 with 1, and 2 with 3."""
    source = NAMED.replace("MEMORY", "int* s = g + 4 + blockIdx.x * 128;").replace(
        "BODY",
        f"""if (blockIdx.x == 0) {{
        if (warp == {writer}) g[1] = 7;
        sync(1 + warp / 2, 64);
        if (t == 32) {{ __threadfence(); atomicExch(g, 1); }}
    }} else {{
        if (t == 0) while (atomicAdd(g, 0) == 0) {{}}
        sync(1 + warp / 2, 64);
        if (warp == {reader}) v = g[1];
    }}""",
    )
    if races:
        assert fault_of(source, 2, 128, ints(256), ints(260)).kind == "race"
    else:
        run_cuda(source, 2, 128, ints(256), ints(260))


# ---------------------------------------------------------------------------- uninitialized


def test_reading_shared_memory_that_nobody_wrote() -> None:
    def kernel(x, y):
        s = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        if t < x.shape[0]:
            s[t] = x[t]
        cuda.syncthreads()
        y[t] = s[t]  # read

    y = np.zeros(64, np.float32)
    run_numba(kernel, 1, 64, np.ones(64, np.float32), y)
    with pytest.raises(KernelFault) as info:
        run_numba(kernel, 1, 64, np.ones(50, np.float32), y)
    fault = info.value
    assert fault.kind == "uninitialized" and fault.line == line_of(kernel, "# read")
    assert fault.thread == (50, 0, 0) and fault.index == (50,)
    run_numba(kernel, 1, 64, np.ones(50, np.float32), y, sanitize=False)


def test_every_block_writes_its_own_shared_memory() -> None:
    source = """extern "C" __global__ void k(int* a) {
    __shared__ int s[2];
    if (blockIdx.x != 2) s[threadIdx.x] = 1;
    __syncthreads();
    a[threadIdx.x] = s[threadIdx.x];
}"""
    fault = fault_of(source, 4, 2, ints(2))
    assert fault.kind == "uninitialized" and fault.block == (2, 0, 0) and fault.array == "s"
    run_cuda(source, 2, 2, ints(2))


# ---------------------------------------------------------------------------- barriers


def test_barrier_in_a_branch() -> None:
    source = """extern "C" __global__ void k(int* a) { a += 256 * blockIdx.x;
    if (threadIdx.x < 128) {
        a[threadIdx.x] = 1;
        __syncthreads();
        a[threadIdx.x] += 1;
    }
    a[threadIdx.x] += 1;
    __syncthreads();
    a[threadIdx.x] = 0;
}"""
    fault = fault_of(source, 2, 256, ints(512))
    assert (fault.kind, fault.line, fault.other_line) == ("barrier", 4, 8)
    assert "128 of 256 threads of block (0, 0, 0)" in str(fault) and "128 wait at line 8" in str(fault)
    run_cuda(source, 2, 128, ints(512))


def test_barrier_after_an_early_exit() -> None:
    def kernel(x, y):
        i = cuda.grid(1)
        s = cuda.shared.array(32, float32)
        if i >= x.shape[0]:  # leave
            return
        s[cuda.threadIdx.x] = x[i]
        cuda.syncthreads()  # wait
        y[i] = s[31 - cuda.threadIdx.x]

    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run_numba(kernel, 2, 32, x, y)
    run_numba(kernel, 4, 32, x, y)  # whole blocks that leave are no fault
    with pytest.raises(KernelFault) as info:
        run_numba(kernel, 2, 32, x[:40], y)
    fault = info.value
    assert fault.kind == "barrier" and fault.block == (1, 0, 0)
    assert fault.line == line_of(kernel, "# wait") and fault.other_line == line_of(kernel, "# leave")
    assert "8 of 32 threads" in str(fault) and "24 have exited" in str(fault)


def test_without_sanitizers_exited_threads_are_not_waited_for() -> None:
    source = """extern "C" __global__ void k(int* a) {
    if (threadIdx.x >= 40) return;
    a[threadIdx.x] = 1;
    __syncthreads();
    a[threadIdx.x] += a[39 - threadIdx.x];
}"""
    a = ints(40)
    run_cuda(source, 1, 64, a, sanitize=False)
    assert a.min() >= 2
    assert fault_of(source, 1, 64, ints(40)).kind == "barrier"


def test_loop_with_a_barrier_and_different_trip_counts() -> None:
    source = """extern "C" __global__ void k(int* a) {
    for (int i = 0; i < threadIdx.x % 2 + 3; ++i)
        __syncthreads();
}"""
    fault = fault_of(source, 1, 64, ints(1))
    assert fault.kind == "barrier" and "32 of 64" in str(fault)


def test_counted_barrier_that_is_never_met() -> None:
    source = """extern "C" __global__ void k(int* a) {
    if (threadIdx.x < 32) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        a[0] = 1;
    }
}"""
    fault = fault_of(source, 1, 64, ints(1))
    assert fault.kind == "barrier" and fault.line == 3 and "32 have exited" in str(fault)


def test_inlined_function_reports_the_line_in_the_kernel() -> None:
    source = """__device__ int get(const int* p, int i) {
    return p[i];
}
__device__ __noinline__ int far(const int* p, int i) {
    return p[i] + 1;
}
extern "C" __global__ void k(int* a, int n) {
    int v = 1;
    if (n < 100)
        v = get(a, n);
    else
        v = far(a, n);
    a[0] = v;
}"""
    fault = fault_of(source, 1, 1, ints(4), 50)
    assert fault.line == 10 and fault.inner is not None and fault.inner[1] == 2
    fault = fault_of(source, 1, 1, ints(4), 150)
    assert fault.line == 12 and fault.inner is not None and fault.inner[1] == 5
    assert "line 12 (inlined from" in str(fault)


def test_missed_barrier_is_told_before_the_race_it_causes() -> None:
    source = """extern "C" __global__ void k(int* a) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i < 3; ++i) {
        s[t] = a[t] + i;
        __syncthreads();
        sum += s[63 - t];
        if (t < 32) __syncthreads();
    }
    a[t] = sum;
}"""
    fault = fault_of(source, 1, 64, ints(64))
    assert (fault.kind, fault.line, fault.other_line) == ("barrier", 8, 6)
    assert "32 of 64" in str(fault)
    run_cuda(source.replace("if (t < 32) ", ""), 1, 64, ints(64))
    assert fault_of(source.replace("if (t < 32) __syncthreads();", ""), 1, 64, ints(64)).kind == "race"
