"""What ptxas's code tells the counters beyond the PTX: merged atomics, expansions, DRAM bytes, occupancy."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.emulator.counters import LAUNCH_BYTES, Counters
from labkit.emulator.trace import Trace
from labkit.kernels import emulating
from labkit.profiling.emulated import Watched, residence

SOURCE = r"""
#define K extern "C" __global__ void
#define I (blockIdx.x * blockDim.x + threadIdx.x)
K count(int *out, const int *in) {
    __shared__ int bins[64];
    if (threadIdx.x < 64) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[I]], 1);
    __syncthreads();
    if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];
}
K add_twos(int *out, const int *in) {
    __shared__ int bins[64];
    if (threadIdx.x < 64) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[I]], 2);
    __syncthreads();
    if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];
}
K take_places(int *out, int *next, const int *in) {
    if (in[I] & 1)
        out[atomicAdd(next, 1)] = in[I];
}
K take_places_by_shared(int *out, int *next, const int *in) {
    __shared__ int first;
    if (threadIdx.x == 0) first = atomicAdd(next, blockDim.x);
    __syncthreads();
    out[first + threadIdx.x] = in[I];
}
K tickets(int *out, int *next, const int *in) { out[I] = atomicAdd(next, 1) + in[I]; }
K exponentials(float *out, const float *in) { out[I] = __expf(in[I]) * 2 + in[I]; }
K divided(float *out, const float *in) { out[I] = in[I] / in[I + 1] + in[I]; }
K copied(float *out, const float *in) { out[I] = in[I]; }
K stored_first(float *w) { volatile float *v = w; v[I] = 1; v[I] = v[I] * 2; }
K scaled(float *out) { out[I] *= 2; }
K crowded(float *out, const float *in) {
    __shared__ float tile[20000 / 4];
    tile[threadIdx.x] = in[I];
    __syncthreads();
    out[I] = tile[threadIdx.x ^ 1];
}
"""
LOADS = r"""
#define K extern "C" __global__ void
// Only the loop needs q: ptxas loads it where the loop begins.
K needed_in_loop(float *out, const float4 *q, const float *in, const int *lengths) {
    int n = lengths[blockIdx.x];
    float4 v = q[threadIdx.x];
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += v.x * in[4 * i] + v.y * in[4 * i + 1] + v.z * in[4 * i + 2] + v.w * in[4 * i + 3];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
template <int N> __device__ void many(float *out, const float *in) {
    float x = in[threadIdx.x];
    #pragma unroll
    for (int i = 1; i < N; ++i)
        x = x * in[threadIdx.x + i] + in[threadIdx.x + 2 * i];
    out[threadIdx.x] = x;
}
K one_of_two(float *out, const float *in, int small) {
    if (small) many<100>(out, in); else many<200>(out, in);
}
K aligned_arrays(float *out) {
    extern __shared__ __align__(128) unsigned char anything[];
    anything[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = anything[threadIdx.x ^ 1];
}
K beside_it(float *out) {
    __shared__ float mine[65];
    mine[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = mine[threadIdx.x ^ 1];
}
K staged(float *out, const float *in) {
    __shared__ __align__(128) float rows[2][4 * 68];
    for (int s = 0; s < 2; ++s) {
        float *to = &rows[s][threadIdx.x / 16 * 68 + threadIdx.x % 16 * 4];
        asm volatile("cp.async.HOW.shared.global [%0], [%1], 16;" ::
                     "r"((unsigned)__cvta_generic_to_shared(to)), "l"(in + 4 * threadIdx.x) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = rows[0][threadIdx.x / 16 * 68 + threadIdx.x % 16 * 4];
}
// As often as not, a lane copies nothing, or only some of its bytes, and the rest is zeros; from `back` lanes before.
K staged_partly(float *out, const float *in, int bytes, int back) {
    __shared__ __align__(128) float row[256];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                 "r"((unsigned)__cvta_generic_to_shared(row + 4 * threadIdx.x)),
                 "l"(in + 4 * (threadIdx.x - threadIdx.x % 2 * back)), "r"(threadIdx.x % 2 ? bytes : 16) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = row[4 * threadIdx.x];
}
"""
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"
FLOPS = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"
DRAM = "dram__bytes_read.sum"
RESIDENT = "sm__maximum_warps_per_active_cycle_pct"


def profile(name, *args, grid=1, block=64):
    return lk.emulate(lk.cuda_kernel(SOURCE, name), grid, block, args)


@pytest.fixture
def bins():
    return np.zeros(64, np.int32)


def test_adding_one_serves_all_lanes_of_a_bin_at_once(bins):
    same = profile("count", bins, np.zeros(64, np.int32))
    assert (same[WAVES], same[CONFLICTS]) == (2, 0) and bins[0] == 64
    # Bins n and n + 32 lie in one bank: two words, two wavefronts, however many lanes want each.
    two = profile("count", bins, np.arange(64, dtype=np.int32) % 4 // 2 * 32)
    assert (two[WAVES], two[CONFLICTS]) == (4, 2)
    assert same.fidelity[WAVES] == two.fidelity[CONFLICTS] == "exact"


def test_other_sums_serve_one_lane_per_bank(bins):
    same = profile("add_twos", bins, np.zeros(64, np.int32))
    assert (same[WAVES], same[CONFLICTS]) == (64, 62) and same.fidelity[WAVES] == "exact"


def test_one_lane_adds_for_its_warp(bins):
    found = profile("tickets", np.zeros(64, np.int32), bins[:1], np.zeros(64, np.int32))
    assert (found[REQUESTS.format("atom")], found[SECTORS.format("atom")]) == (2, 2)
    assert found.fidelity[SECTORS.format("atom")] == "exact"
    assert found.fidelity[SECTORS.format("st")] == "exact", "its places do not come from the atomic"


@pytest.mark.parametrize("name", ["take_places", "take_places_by_shared"])
def test_places_that_come_from_atomics_are_a_bound(name, bins):
    found = profile(name, np.zeros(64, np.int32), bins[:1], np.arange(64, dtype=np.int32))
    store, load = (found.fidelity[SECTORS.format(kind)] for kind in ("st", "ld"))
    assert (store, load, found.fidelity[REQUESTS.format("st")]) == ("bound", "exact", "exact")
    assert any("atomics" in note for note in found.notes)


def test_an_expansion_is_a_bound_where_the_code_has_more_of_it():
    data = np.ones(65, np.float32)
    exponential = profile("exponentials", np.zeros(64, np.float32), data)
    assert exponential[FLOPS.format("fma")] == 64 and exponential.fidelity[FLOPS.format("fma")] == "exact"
    divided = profile("divided", np.zeros(64, np.float32), data)
    assert divided.fidelity[FLOPS.format("fma")] == "bound"


def test_dram_bytes_are_data_code_and_what_every_launch_reads():
    found = profile("copied", np.zeros(1024, np.float32), np.ones(1024, np.float32), grid=16)
    assert found[DRAM] == 4096 + found["labkit__code_bytes"] + LAUNCH_BYTES
    assert found["labkit__code_bytes"] % 128 == 0 < found["labkit__code_bytes"] and found.fidelity[DRAM] == "modeled"
    assert profile("scaled", np.ones(64, np.float32)).fidelity[DRAM] == "bound", "it loads what it stores"


def loads(name, *args, grid=1, how="cg"):
    return lk.emulate(lk.cuda_kernel(LOADS.replace("HOW", how), name), grid, 64, args)


@pytest.mark.parametrize("lengths, claim", [((3, 1), "exact"), ((3, 0), "bound")])
def test_a_load_that_moved_behind_a_branch_is_exact_where_all_go_there(lengths, claim):
    out, q, numbers = np.zeros(128, np.float32), np.ones((64, 4), np.float32), np.ones(16, np.float32)
    found = loads("needed_in_loop", out, q, numbers, np.array(lengths, np.int32), grid=2)
    assert found.fidelity[REQUESTS.format("ld")] == found.fidelity[SECTORS.format("ld")] == claim


def test_dram_bytes_are_a_bound_where_much_code_does_not_run():
    found = loads("one_of_two", np.zeros(64, np.float32), np.ones(1024, np.float32), 1)
    assert found["labkit__code_bytes"] > 4096 and found.fidelity[DRAM] == "bound"


def test_static_shared_memory_is_rounded_up_as_ptxas_does():
    static = "launch__shared_mem_per_block_static"
    found = loads("beside_it", np.zeros(64, np.float32))
    assert (found[static], found.fidelity[static]) == (384, "exact")


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("how, sectors", [("cg", 2 * 2 * 18), ("ca", 2 * 2 * 16)])
def test_copies_past_the_l1_count_by_where_they_go(how, sectors, engine):
    counters = Counters()
    with emulating(Watched(counters=counters, trace=Trace(), engine=engine)):
        lk.cuda_kernel(LOADS.replace("HOW", how), "staged")[1, 64](np.zeros(64, np.float32), np.ones(256, np.float32))
    assert counters.metrics[SECTORS.format("ld")] == sectors
    assert counters.metrics[REQUESTS.format("ld")] == 4
    assert counters.fidelity[SECTORS.format("ld")] == "exact"


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("bytes, back", [(16, 0), (0, 0), (0, 1), (12, 0)])
def test_copies_of_some_bytes_count_as_whole_ones(bytes, back, engine):
    counters = Counters()
    with emulating(Watched(counters=counters, trace=Trace(), engine=engine)):
        kernel = lk.cuda_kernel(LOADS.replace("HOW", "cg"), "staged_partly")
        kernel[1, 64](np.zeros(64, np.float32), np.ones(256, np.float32), bytes, back)
    assert (counters.metrics[REQUESTS.format("ld")], counters.metrics[SECTORS.format("ld")]) == (2, 32)
    assert (counters.fidelity[REQUESTS.format("ld")], counters.fidelity[SECTORS.format("ld")]) == ("exact", "exact")


def test_what_nobody_has_written_before_is_not_read_from_dram():
    data = np.ones(64, np.float32)
    kernel = lk.cuda_kernel(SOURCE, "stored_first")

    def count(new):
        emulation = Watched(counters=Counters(), trace=Trace())
        with emulating(emulation):
            kernel[1, 64](data)  # makes the buffer known
            before = emulation.counters.metrics[DRAM]
            if new:
                emulation.memory.buffers[0].forget()
            kernel[1, 64](data)
        return emulation.counters.metrics[DRAM] - before

    assert count(new=False) - count(new=True) == 256


def test_occupancy_is_told_with_what_limits_it():
    full = profile("copied", np.zeros(1024, np.float32), np.ones(1024, np.float32), grid=4, block=256)
    assert full[RESIDENT] == 100 and full.fidelity[RESIDENT] == "exact" and not full.notes
    assert "launch__occupancy_limit_shared_mem" not in full.metrics
    crowded = profile("crowded", np.zeros(64, np.float32), np.ones(64, np.float32))
    assert crowded[RESIDENT] == pytest.approx(100 * 11 * 2 / 64)
    assert crowded["launch__occupancy_limit_shared_mem"] == 11
    assert crowded["launch__occupancy_limit_warps"] == 32
    assert "11 blocks of 2 warps, 34% of the warps" in crowded.notes[-1]
    assert crowded.notes[-1].endswith("first: shared memory.")


def test_several_launches_are_as_full_as_the_emptiest():
    facts = {"launch__shared_mem_per_block_static": 0, "launch__shared_mem_per_block_dynamic": 0}
    small = {**facts, "launch__block_size": 256, "launch__registers_per_thread": 32}
    large = {**facts, "launch__block_size": 512, "launch__registers_per_thread": 100}
    found, notes = residence([small, large])
    assert found[RESIDENT] == 25 and found["launch__occupancy_limit_registers"] == 1 and len(notes) == 1
    refused, notes = residence([{**large, "launch__block_size": 1024}])
    assert refused == {} and notes[0].startswith("A GPU refuses this launch.")
    assert residence([facts]) == ({}, [])
