"""cp.async: what lands when, and the mistakes that follow from it."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.emulator import KernelFault

SOURCE = r"""
__device__ unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int SIZE> __device__ void copy(float *to, const float *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at(to)), "l"(from), "n"(SIZE), "r"(bytes));
}
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

extern "C" __global__ void shift(float *out, const float *in, int n)
{
    __shared__ __align__(16) float stage[2][64];
    int t = threadIdx.x;
    copy<4>(&stage[0][t], in + t, t < n ? 4 : 0);  // beyond n the address lies outside, and zero comes
    commit();
    copy<4>(&stage[1][t], in, t % 2 ? 4 : 0);
    commit();
    wait<1>();  // the first group alone
    BARRIER;
    out[t] = stage[0][t ^ 63];
    LAST_WAIT;
    out[64 + t] = stage[1][t];  // one's own copy needs no barrier
}

extern "C" __global__ void wide(float *out, const float *in, int bytes)
{
    __shared__ __align__(16) float row[32 * 4];
    int t = threadIdx.x;
    copy<16>(row + 4 * t, in + 4 * t, bytes);
    commit();
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    for (int i = 0; i < 4; ++i)
        out[4 * t + i] = row[4 * t + i];
}

extern "C" __global__ void reuse(float *out, const float *in)
{
    __shared__ float stage[64];
    int t = threadIdx.x;
    stage[t] = in[t];
    __syncthreads();
    out[t] = stage[t ^ 63];
    copy<4>(&stage[t], in + t, 4);  // others may still be reading
    commit();
    wait<0>();
    __syncthreads();
    out[t] += stage[t ^ 63];
}
"""


def run(name, threads, *args, barrier="__syncthreads()", last="wait<0>()"):
    kernel = lk.cuda_kernel(SOURCE, name, defines=(f"BARRIER={barrier}", f"LAST_WAIT={last}"))
    return lk.emulate(kernel, 1, threads, args)


def data(n):
    return np.random.default_rng(0).standard_normal(n).astype(np.float32)


def test_groups_land_in_order_and_zero_fill_reads_nothing():
    a, out = data(40), np.full(128, np.nan, np.float32)
    run("shift", 64, out, a, 40)
    padded = np.r_[a, np.zeros(24, np.float32)]
    assert (out[:64] == padded[::-1]).all()
    assert (out[64:] == np.where(np.arange(64) % 2, a[0], 0)).all()


@pytest.mark.parametrize("size", [0, 3, 4, 7, 12, 16])
def test_a_part_of_16_bytes(size):
    a, out = data(128), np.full(128, np.nan, np.float32)
    run("wide", 32, out, a, size)
    want = a.reshape(32, 4).copy().view(np.uint8).reshape(32, 16)
    want[:, size:] = 0
    assert (out.view(np.uint8).reshape(32, 16) == want).all()


def test_a_part_of_16_bytes_may_end_at_the_end_of_the_array():
    a, out = data(127), np.full(128, np.nan, np.float32)
    run("wide", 32, out, a, 12)
    with pytest.raises(KernelFault, match=r"reads in\[127\], outside in\[127\]|over the end of in"):
        run("wide", 32, out, a, 16)


def test_a_missing_barrier_is_a_race_although_the_copy_has_landed():
    with pytest.raises(KernelFault) as found:
        run("shift", 64, np.zeros(128, np.float32), data(64), 64, barrier="")
    assert found.value.kind == "race"


def test_a_missing_wait_reads_what_nobody_has_written():
    with pytest.raises(KernelFault) as found:
        run("shift", 64, np.zeros(128, np.float32), data(64), 64, last="")
    assert found.value.kind == "uninitialized"


def test_a_copy_over_what_others_still_read_is_a_race():
    with pytest.raises(KernelFault) as found:
        run("reuse", 64, np.zeros(64, np.float32), data(64))
    assert found.value.kind == "race"
