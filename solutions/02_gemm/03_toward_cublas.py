# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix multiplication, toward cuBLAS
#
# Your kernel keeps 64 sums in registers, and shared memory can keep up with it. What is left? Four more
# rungs, each with an idea that every fast kernel uses: wider accesses, loading ahead, tiles for warps,
# and dividing the sum itself. At the end you see how far the whole ladder gets on a real GPU, beside
# NVIDIA's own library, and how exact the results are.
#
# This notebook knows two kinds of numbers. Counts come from your own kernels, from the emulator where
# there is no GPU. Times are *recorded*: somebody measured our solutions on an H200 with the commands of
# this project, and the results are part of it. Such figures say so.
#
# You need your `register_2d` from the notebook before. Is it there, and right?

# %%
import labkit as lk

gemm = lk.problem("gemm")
register_2d = gemm["register_2d"]
register_2d.check()

# %% [markdown]
# ## Where the instructions go
#
# A multiprocessor has 4 schedulers, and each starts one instruction of one warp per cycle. There are
# multiply-add units for just as many. So every instruction that is *not* a multiply-add takes a
# multiply-add's place.

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block_static"
THREADS = "launch__block_size"
BLOCKS = "launch__grid_size"
NANOSECONDS = "gpu__time_duration.sum"


def work(p):
    """Multiply-adds of whole warps: one instruction for 32 lanes."""
    if not p[FMA]:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return p[FMA] / 32


def costs(*profiles):
    for p in profiles:
        print(
            f"{p.kernel:22} {p[INSTRUCTIONS] / work(p):.2f} instructions and "
            f"{p[SHARED] / work(p):g} wavefronts for each multiply-add ({p.origin})"
        )


shape = dict(M=128, N=128, K=32)
p_2d = register_2d.profile(**shape)
costs(p_2d)

# %% [markdown]
# ## Rung 6: vectorized
#
# One instruction can move 16 bytes per lane, 4 numbers side by side, from global or shared memory. In
# CUDA C++ that is a `float4`; in numba, `lk.cuda.load4(array, index)` gives 4 numbers as a tuple and
# `lk.cuda.store4(array, index, values)` writes them. The address must be a multiple of 16 bytes.
#
# The numbers must lie side by side. For $B$ they do: a thread now takes 4 neighboring columns, and 4
# more half a tile further. For $A$ they do not, for a thread's rows lie below each other. So the tile of
# $A$ is stored **transposed** in shared memory: turned round once, on its way in, it can be read in pieces
# of 4 rows from then on.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: instructions</summary>
#
# For each `k`, a thread of register_2d reads 8 numbers of $A$ and 8 of $B$. How many loads is that, if
# each brings 4? How many multiply-adds share them?
#
# <details><summary>Hint 2: wavefronts</summary>
#
# A wavefront delivers one 4-byte word from each of 32 banks. How many bytes is that, and how many lanes
# are served by it, if a lane wants 16?
#
# <details><summary>Hint 3: the other half</summary>
#
# Lanes 16 to 31 want what lanes 0 to 15 have got. But they are not served at the same time.
#
# </details></details></details>

# %% question="gemm/vectorized/shared_load_instructions_per_fma" points=2
lk.answer("gemm/vectorized/shared_load_instructions_per_fma", (8 + 8) / 4 / 64)

# %% question="gemm/vectorized/wavefronts_of_b" points=2
predicted_b = lk.answer("gemm/vectorized/wavefronts_of_b", 4)
predicted_b

# %% [markdown]
# ### Write
#
# The matrices come as flat arrays. `load_row4` is given: it loads 4 numbers of a row of global memory in
# one piece if it may, and one by one at the edges, with zeros outside.

# %% [markdown]
# <details><summary>Hint 1: who copies what</summary>
#
# Each tile has 1024 numbers and there are 256 threads: 4 numbers of each per thread, in one piece. A row
# of $A$'s tile has 8 numbers, so 2 threads copy it; a row of $B$'s has 128, so 32 threads do.
#
# <details><summary>Hint 2: turn round</summary>
#
# The 4 numbers of $A$ belong to one row and 4 values of `k`. In the transposed tile, `k` counts rows, of
# `LDA` numbers each: 4 stores, each a row further. The 4 numbers of $B$ stay together: `lk.cuda.store4`.
#
# <details><summary>Hint 3: multiply</summary>
#
# ```
# for each k of the tile:
#     for the two halves of the tile:
#         a4 = 4 numbers of row k of tA, from row y * 4 of that half on
#         b4 = 4 numbers of row k of tB, from column x * 4 of that half on
#         put them into places 0-3 or 4-7 of the local arrays a and b
#     for i, for j:
#         add a[i] * b[j] to acc[i, j]
# ```
#
# </details></details></details>

# %% kernel="gemm/vectorized"

# %% check="gemm/vectorized" points=6
vectorized = gemm["vectorized"]
vectorized.check()

# %% [markdown]
# ### Profile

# %%
p_vec = vectorized.profile(**shape)
p_vec.diff(p_2d)

# %%
costs(p_2d, p_vec)
print(f"global load requests: {p_2d[REQUESTS]:g} before, {p_vec[REQUESTS]:g} now")
print(f"sectors that they touch: {p_2d[SECTORS]:g} before, {p_vec[SECTORS]:g} now")

# %%
lk.plots.access_map(p_vec, "tB")

# %% [markdown]
# Fewer instructions, fewer requests, and the same bytes: the sectors did not move at all. Wavefronts fell
# by less than the instructions, for a wavefront still delivers at most 128 bytes.

# %% solved_only=true
assert p_2d[REQUESTS] == 4 * p_vec[REQUESTS] and p_2d[SECTORS] == p_vec[SECTORS]
assert p_vec[INSTRUCTIONS] < p_2d[INSTRUCTIONS] and p_vec[FMA] == p_2d[FMA]
assert p_vec[SHARED] / work(p_vec) == 0.1875 == 3 / 16 and p_2d[SHARED] / work(p_2d) == 4 / 16
assert p_vec[STORE_CONFLICTS] == 0
# Per k, two loads of B at the predicted count each, and two of A, whose lanes want 2 pieces only.
assert 64 * p_vec[SHARED] / work(p_vec) == 2 * predicted_b.value + 2 * 2

# %% [markdown]
# ### Explain
#
# A 16-byte load of `tB` takes several wavefronts, a 4-byte load takes one. What, then, is gained by it?

# %% [markdown] explain="gemm/vectorized" points=2
# ### BEGIN SOLUTION
# The scheduler's time. One instruction is issued where there were 4, and the places that become free go
# to multiply-adds. Shared memory delivers the same words as before and can do so while multiply-adds
# are issued, for its wavefronts take no place in the scheduler.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/vectorized" language="cuda"

# %% check="gemm/vectorized" language="cuda"
gemm["vectorized", "cuda"].check()

# %% [markdown]
# ## Rung 7: double_buffered
#
# A thread that needs a number that is not there waits. How much must be under way, so that the machine
# does not wait with it? **Little's law** says it for every queue in the world:
#
# $$\text{in flight} = \text{rate} \times \text{latency}$$
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: rate</summary>
#
# Four schedulers, one multiply-add per cycle each.
#
# <details><summary>Hint 2: latency</summary>
#
# It is given in the question, in cycles.
#
# <details><summary>Hint 3: shared memory</summary>
#
# Count the numbers of one tile of each, padding and all. There are two of each now, and a number has 4
# bytes.
#
# </details></details></details>

# %% question="gemm/double_buffered/multiply_adds_in_flight" points=2
in_flight = lk.answer("gemm/double_buffered/multiply_adds_in_flight", 4 * 4)
in_flight

# %% [markdown]
# Two multiply-adds can be in flight together if neither needs the other's result. Your thread has 64
# sums, which do not need each other. So even the few warps that fit beside such a thread are plenty:

# %%
from labkit.models.occupancy import occupancy


def resident(p):
    return occupancy(int(p[THREADS]), int(p[REGISTERS]), int(p[SHARED_BYTES]))


print(resident(p_vec))
print(f"{resident(p_vec).warps * 64} multiply-adds that need not wait for each other")

# %% [markdown]
# Memory is another matter. Between two tiles, the block asks for numbers, waits until they have come all
# the way from global memory, stores them, and meets at a barrier; nothing is multiplied meanwhile, except
# by other blocks on the same multiprocessor.
#
# The cure: ask *before* there is need. Keep **two** buffers for each tile. While the block multiplies out
# of one, the numbers of the next tile are on their way to registers; after the multiplication, they go to
# the other buffer. And since nobody overwrites what others still read, one barrier per tile is enough.

# %% question="gemm/double_buffered/shared_bytes" points=1
shared_bytes = lk.answer("gemm/double_buffered/shared_bytes", 8 * (132 + 128) * 4 * 2)
shared_bytes

# %% [markdown]
# ### Write

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# ```
# load the first tile into registers, store it in buffer 0, barrier
# for each tile:
#     load the next tile into registers
#     multiply out of the current buffer
#     store the registers in the other buffer, barrier
#     the other buffer is the current one from now on
# ```
#
# <details><summary>Hint 2: the last tile</summary>
#
# There is none after it, and yet no special case is needed: `load_row4` gives zeros where nothing is
# left, and nobody will multiply them.
#
# <details><summary>Hint 3: two buffers in one array</summary>
#
# Buffer `s` of `tA` begins at `s * SIZE_A`, of `tB` at `s * SIZE_B`. All other indices are those of
# vectorized.
#
# </details></details></details>

# %% kernel="gemm/double_buffered"

# %% check="gemm/double_buffered" points=6
double_buffered = gemm["double_buffered"]
double_buffered.check()

# %% [markdown]
# ### Profile

# %%
p_double = double_buffered.profile(**shape)
p_double.diff(p_vec)

# %% [markdown]
# By its counts, the kernel is hardly another one: the same numbers, the same wavefronts, twice the shared
# memory. What changed is *when* things happen, and no count shows that. Only a clock does.
#
# ### What it hides
#
# Here is a clock's record, of our solutions in CUDA C++. In a product of 256 there are 4 blocks, so each
# has a multiprocessor to itself. In one of 4096, there are many, and as many on each multiprocessor as
# fit.

# %%
from statistics import median

from labkit.bench import show_recorded
from labkit.profiling import fidelity

recorded = show_recorded("gemm").timings
small = fidelity.entries("gemm")


def solution(rung, language="cuda"):
    return f"gemm/{rung}{' (CUDA C++)' if language == 'cuda' else ''} (solution)"


def counter(rung, metric, language="cuda"):
    """As Nsight Compute read it on the H200, at M = N = K = 256."""
    return median(small[f"{solution(rung, language)} {gemm.profile_shape}"]["readings"][metric])


def timing(rung, shape=gemm.bench_shape, language="cuda"):
    """As labkit bench measured it on the H200, at M = N = K = 4096 unless told otherwise."""
    return next(t for t in recorded if t.label == solution(rung, language) and t.shape == shape and t.cold)


alone = {rung: counter(rung, NANOSECONDS) / 1e3 for rung in ("vectorized", "double_buffered")}
full = {rung: timing(rung).median_ms for rung in alone}
for size, times, unit in ((256, alone, "us"), (4096, full, "ms")):
    before, after = times.values()
    print(f"{size:4}: {before:.2f} and {after:.2f} {unit}, {before / after:.2f} times as fast")
print(f"(recorded on {timing('vectorized').machine}, {timing('vectorized').date})")

# %% [markdown]
# Alone on its multiprocessor, the kernel gains a lot. In company it gains less than half of that. What a
# tile costs more where it is not loaded ahead, both times:

# %%
multiprocessors = 132  # of an H200
tiles_small = 256 // 8  # along K; each multiprocessor has one block
tiles_full = (4096 // 128) ** 2 * (4096 // 8) / multiprocessors  # of all the blocks that come to a multiprocessor
wait = (alone["vectorized"] - alone["double_buffered"]) / tiles_small
left = (full["vectorized"] - full["double_buffered"]) * 1e3 / tiles_full
company = occupancy(*(int(counter("vectorized", name)) for name in (THREADS, REGISTERS, SHARED_BYTES)))
print(f"alone:      {wait:.2f} us for each tile")
print(f"in company: {left:.2f} us for each tile ({company})")

# %% [markdown]
# With two blocks on a multiprocessor, one multiplies while the other waits. That alone hides most of the
# wait, without a second buffer; the second buffer hides what is left. Both are ways to have enough in flight.
# Double buffering counts most where only one block fits, because tiles are large or threads have many
# registers. That is where the next rung is going.

# %% [markdown]
# Nsight Compute can say it directly. In each cycle it asks every warp what it waits for; here are the answers
# for the product of 4096, recorded on the same GPU, as warps per issued instruction. `long scoreboard` is data
# from global memory; `not selected` is a warp that could go on, while another one did.

# %%
import pandas as pd

from labkit.profiling.metrics import STALLS

seen = {rung: gemm[rung, "cuda"].recorded() for rung in ("vectorized", "double_buffered")}
read = [metric for metric in STALLS if metric.name in seen["vectorized"].metrics]
pd.DataFrame({rung: {metric.title: p[metric.name] for metric in read} for rung, p in seen.items()}).round(2)

# %% [markdown]
# The wait for global memory is gone, as it should be. But even before, more warps were ready to go on than
# were waiting for it: most of that wait was paid for by nobody. What was gained is seen in the issue slots.

# %% solved_only=true
GLOBAL_WAIT = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
READY = "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
before, after = seen["vectorized"], seen["double_buffered"]
assert after[GLOBAL_WAIT] < 0.1 * before[GLOBAL_WAIT] and before[READY] > before[GLOBAL_WAIT]
gain_seen = before["gpu__time_duration.sum"] / after["gpu__time_duration.sum"]
assert abs(after[ISSUE] / before[ISSUE] - gain_seen) < 0.03

# %% solved_only=true
assert p_double[SHARED_BYTES] == shared_bytes.value
assert p_double[SHARED] == p_vec[SHARED] and p_double[FMA] == p_vec[FMA] and p_double[SECTORS] == p_vec[SECTORS]
assert resident(p_vec).warps * 64 > in_flight.value
for rung in alone:
    assert counter(rung, BLOCKS) == 4 < multiprocessors
    assert counter(rung, SHARED) == counter("vectorized", SHARED)
gain_alone, gain_full = (times["vectorized"] / times["double_buffered"] - 1 for times in (alone, full))
assert gain_alone > 0.2 and gain_full < gain_alone / 2
assert 0.1 < wait < 1 and left < wait / 2 and company.blocks == 2

# %% [markdown]
# ### Explain
#
# Somebody doubles the tile, to 256 x 128 of $C$, and finds that with so many registers only one block
# fits on a multiprocessor. Should they double-buffer? Say why: which of the two cases above is theirs?

# %% [markdown] explain="gemm/double_buffered" points=2
# ### BEGIN SOLUTION
# Yes. Theirs is the first case, however large the matrix: with one block on a multiprocessor, nobody
# multiplies while it waits for its next tile, and every tile costs the whole wait on top of its
# multiplication. Loaded ahead, the numbers travel during the multiplication of the tile before.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/double_buffered" language="cuda"

# %% check="gemm/double_buffered" language="cuda"
gemm["double_buffered", "cuda"].check()

# %% [markdown]
# ## Rung 8: warp_tile
#
# Bigger pieces for fewer reads: that worked for blocks and for threads. There is a level between them.
# The 32 lanes of a warp read at the same time, and what several of them want is delivered once. So it
# matters which part of $C$ a **warp** owns:

# %% jupyter={"source_hidden": true}
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

row, col = np.mgrid[0:128, 0:128]
owners = {
    "vectorized: strips of the whole width": (row % 64 // 8, row // 8 % 2),  # the warp, and a checkerboard
    "warp_tile: compact parts": (row // 32 * 2 + col // 64, (row // 32 + col // 64) % 2),
}
figure = make_subplots(1, 2, subplot_titles=list(owners))
for n, (warp, board) in enumerate(owners.values(), 1):
    figure.add_heatmap(z=np.where(warp == 0, 2, board), colorscale=["#eff3f8", "#dbe4ee", "#2171b5"],
                       showscale=False, hoverinfo="none", row=1, col=n)
figure.update_yaxes(autorange="reversed", dtick=32, title="row of the tile", title_standoff=5)
figure.update_xaxes(dtick=32, title="column of the tile")
figure.update_layout(title="What the first of 8 warps owns of a tile of 128 x 128 (dark)", template="plotly_white",
                     width=860, height=460)

# %% [markdown]
# Both have the same area, 2048 elements.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: what is needed</summary>
#
# A row of $C$ needs one number of $A$ for each `k`, a column one number of $B$. It does not matter how
# many lanes want it.
#
# <details><summary>Hint 2: vectorized</summary>
#
# Its warps own 16 rows and 128 columns, which is how the question gets its two numbers.
#
# <details><summary>Hint 3: the same again</summary>
#
# Do that for a part of 32 rows and 64 columns, and add.
#
# </details></details></details>

# %% question="gemm/warp_tile/numbers_per_k" points=2
predicted_numbers = lk.answer("gemm/warp_tile/numbers_per_k", 96)
predicted_numbers

# %% [markdown]
# ### Write
#
# `m0` and `n0` are given: the first row and column of this thread in the tile. Its other rows come in
# groups of 4, `4 * LANES_M` apart, and its columns `4 * LANES_N` apart. The lanes are numbered in a way
# that suits the hardware: if neighbors in pairs want the same 16 bytes, a load takes half as many
# wavefronts.

# %% [markdown]
# <details><summary>Hint 1: what stays</summary>
#
# Nearly all of double_buffered: how tiles are loaded, stored, and exchanged.
#
# <details><summary>Hint 2: what changes</summary>
#
# Only where a thread reads its numbers in the tiles, when it multiplies.
#
# <details><summary>Hint 3: where</summary>
#
# In row `k` of `tA`, the groups of 4 begin at `m0` and at `m0 + 4 * LANES_M`; in row `k` of `tB`, at `n0`
# and at `n0 + 4 * LANES_N`.
#
# </details></details></details>

# %% kernel="gemm/warp_tile"

# %% check="gemm/warp_tile" points=4
warp_tile = gemm["warp_tile"]
warp_tile.check()

# %% [markdown]
# ### Profile

# %%
p_warp = warp_tile.profile(**shape)
p_warp.diff(p_double)

# %%
costs(p_2d, p_vec, p_double, p_warp)

# %%
lk.plots.access_map(p_warp, "tB")

# %% [markdown]
# The arithmetic is the same, the instructions are, and so is every byte from global memory. Shared memory
# alone is asked for less.

# %% solved_only=true
def neighbors(p, array):
    """Distinct words that the first warp's first read of `array` wants."""
    access = next(a for a in p.accesses if a.array == array and a.op == "ld")
    return len({address // 4 + i for address in access.addresses for i in range(access.width // 4)})


assert neighbors(p_vec, "tA") + neighbors(p_vec, "tB") == (16 + 128) / 2  # each of two reads, half of it
assert neighbors(p_warp, "tA") + neighbors(p_warp, "tB") == predicted_numbers.value / 2
assert p_warp[SHARED] / work(p_warp) == 1 / 8 and p_warp[SHARED] < p_double[SHARED]
assert p_warp[FMA] == p_double[FMA] and p_warp[SECTORS] == p_double[SECTORS]
assert abs(p_warp[INSTRUCTIONS] / p_double[INSTRUCTIONS] - 1) < 0.02
assert all((w == 0).sum() == 2048 for w, _ in owners.values())

# %% [markdown]
# ### Explain
#
# You have seen the same argument three times, for blocks, threads, and warps. Say it once, for all.

# %% [markdown] explain="gemm/warp_tile" points=2
# ### BEGIN SOLUTION
# Whoever owns a piece of C must fetch as many numbers for each k as the piece has rows and columns, its
# half circumference, and does as many multiply-adds as it has elements, its area. So larger and squarer
# pieces need fewer numbers per multiply-add, at whatever level of memory the piece is held.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# This is the kernel that competes with NVIDIA's. It has more of everything: 8 x 16 elements per thread,
# and tiles copied by `cp.async`, an instruction that carries numbers from global to shared memory without
# a register between. Writing it is a project of its own.

# %% kernel="gemm/warp_tile" language="cuda"

# %% check="gemm/warp_tile" language="cuda"
gemm["warp_tile", "cuda"].check()

# %% [markdown]
# ## Rung 9: split_k
#
# All these kernels share a weakness, and it has nothing to do with memory. Blocks are handed out by tiles
# of $C$. What if $C$ is small, and only $K$ is large?
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: tiles</summary>
#
# How many tiles of 128 x 128 are there in 256 x 256?
#
# <details><summary>Hint 2: slices</summary>
#
# How many tiles of 64 x 64 are there in 1024 x 1024? Each is computed once per slice of $K$.
#
# <details><summary>Hint 3: divide</summary>
#
# Slices are whole; round down.
#
# </details></details></details>

# %% question="gemm/split_k/busy_multiprocessors" points=1
busy = lk.answer("gemm/split_k/busy_multiprocessors", 4)
busy

# %% question="gemm/split_k/slices" points=1
lk.answer("gemm/split_k/slices", 4224 // (16 * 16))

# %% [markdown]
# So divide the sum too: each block adds up its own slice of $K$ and leaves a partial result in a workspace,
# and a second kernel adds the partial results.
#
# ### Write
#
# Two kernels, two gaps. Slices are whole tiles of `BK`, so that they begin where tiles do; the last slices
# may be short, or empty.

# %% [markdown]
# <details><summary>Hint 1: the first kernel</summary>
#
# It is register_2d with 64 threads and tiles of 64 x 64, whose loop over $K$ begins and ends elsewhere.
#
# <details><summary>Hint 2: where</summary>
#
# The number of slices is `partial.shape[0]`. Divide `K` by it, rounding up, and round that up to a multiple
# of `BK`: the length of a slice. Block `z` begins at `z` times that and ends one slice later, or at `K`.
#
# <details><summary>Hint 3: the second kernel</summary>
#
# One thread per element of $C$: a loop over the slices, in order, and one store. (In order, so that the
# result is the same in every run.)
#
# </details></details></details>

# %% kernel="gemm/split_k"

# %% check="gemm/split_k" points=6
split_k = gemm["split_k"]
split_k.check()

# %% [markdown]
# ### Profile
#
# A small $C$ and a long sum:

# %%
long = dict(M=64, N=64, K=512)
p_split = split_k.profile(**long)
p_whole = warp_tile.profile(**long)
slices = -(-long["K"] // 64)
print(f"warp_tile: {p_whole[BLOCKS]:.0f} block, {p_whole[STORED_SECTORS] * 32:,.0f} bytes stored")
print(f"split_k: {slices} slices, {p_split[STORED_SECTORS] * 32:,.0f} bytes stored")

# %% [markdown]
# The price is the workspace: $C$ is stored once per slice, read again, and stored for good. What it is
# worth, the clock tells. Here is a $C$ of 256 x 256 with a very long sum, where nearly all of the
# machine has nothing to do under warp_tile, recorded on the H200 (both kernels of split_k together):

# %%
tall = dict(M=256, N=256, K=65536)
for rung in ("warp_tile", "split_k"):
    t = timing(rung, tall)
    print(f"{rung:10} {t.median_ms:7.3f} ms, {t.ratio:.0%} of PyTorch's speed ({t.origin} on {t.machine}, {t.date})")

# %% solved_only=true
assert p_whole[BLOCKS] == 1 and busy.value == 4 == counter("double_buffered", BLOCKS)
assert timing("warp_tile", tall).median_ms > 10 * timing("split_k", tall).median_ms
assert p_split[STORED_SECTORS] == (slices + 1) * p_whole[STORED_SECTORS]

# %% [markdown]
# ### Explain
#
# Why does split_k not pay for a large $C$, such as 4096 x 4096?

# %% [markdown] explain="gemm/split_k" points=2
# ### BEGIN SOLUTION
# A large C has enough tiles to give every multiprocessor several blocks, so there is no idle part of the
# machine to win. What remains is the cost: every further slice writes and reads back all of C once more.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/split_k" language="cuda"

# %% check="gemm/split_k" language="cuda"
gemm["split_k", "cuda"].check()

# %% [markdown]
# ## How exact is it?
#
# A `float32` has a mantissa of 24 bits: each addition rounds, by at most $u = 2^{-24}$ of its result. A sum
# of $K$ terms rounds about $K$ times. If all roundings went the same way, the relative error of a sum of
# positive terms would reach $K u$. They do not: they go up and down, and like the steps of a drunkard they
# lead about $\sqrt K$ far. Let us see, with sums of random positive products, computed one after the other,
# and in 16 slices:

# %%
u = 2.0**-24
random = np.random.default_rng(0)


def rounding(K, slices):
    """Relative error of 500 float32 sums of K products, each in `slices` parts: root of the mean square."""
    a, b = random.random((2, K, 500), dtype=np.float32)
    parts = (a * b).reshape(slices, K // slices, 500)
    exact = parts.sum(axis=(0, 1), dtype=np.float64)  # the products as they are: their own rounding is left out
    partial = np.zeros((slices, 500), np.float32)
    for k in range(K // slices):
        partial += parts[:, k]  # one float32 addition after the other, in each slice
    total = np.zeros(500, np.float32)
    for part in partial:
        total += part
    return float(np.sqrt(np.mean((total / exact - 1) ** 2)))


lengths = [2**n for n in range(6, 17, 2)]
one_by_one = [rounding(K, 1) for K in lengths]
in_slices = [rounding(K, 16) for K in lengths]

# %% [markdown]
# And your own kernels, `register_2d` and `split_k`, with a sum of 1024 positive products:

# %%
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"
torch.manual_seed(0)
A, B = torch.rand(16, 1024, device=device), torch.rand(1024, 16, device=device)
exact = A.double() @ B.double()
own = {}
for rung in (register_2d, split_k):
    C = torch.empty(16, 16, device=device)
    rung.kernel.launch(C, A, B)
    own[rung.name] = float(((C.double() / exact - 1) ** 2).mean().sqrt())
own

# %% jupyter={"source_hidden": true}
figure = go.Figure()
lines = {"at worst: K u": [K * u for K in lengths], "sqrt(K) u": [K**0.5 * u for K in lengths]}
for (name, values), color in zip(lines.items(), ["#bdc1c6", "#80868b"]):
    figure.add_scatter(x=lengths, y=values, name=name, mode="lines", line=dict(dash="dash", color=color))
for (name, values), color in zip({"one after the other": one_by_one, "in 16 slices": in_slices}.items(),
                                 ["#d9480f", "#2171b5"]):
    figure.add_scatter(x=lengths, y=values, name=name, mode="lines+markers", line_color=color)
for (name, value), color in zip(own.items(), ["#d9480f", "#2171b5"]):
    figure.add_scatter(x=[1024], y=[value], name=f"your {name}", mode="markers",
                       marker=dict(symbol="diamond", size=12, color=color, line=dict(width=1, color="#202124")))
figure.update_layout(
    title="Relative error of float32 sums of K positive products", template="plotly_white", height=440,
    xaxis=dict(title="K", type="log", tickvals=lengths, ticktext=[f"{K:,}" for K in lengths]),
    legend=dict(orientation="h", y=-0.2),
    yaxis=dict(title="relative error", type="log", dtick=1, exponentformat="power"),
)

# %% [markdown]
# The drunkard it is: the error of a plain sum keeps below $\sqrt K\,u$ and grows as that does, far from the
# worst. Slices make it smaller, for every sum is shorter, and the errors of the slices are independent. So
# split_k is not only a way to fill the machine: it is the more exact kernel. And every reordering of a sum
# gives another result in the last bits. That is why `check()` compares with a `float64` result, and allows
# what an honest reordering may cost.

# %% solved_only=true
for K, error in zip(lengths, one_by_one):
    assert 0.1 * K**0.5 * u < error < K**0.5 * u < K * u
growth = one_by_one[-1] / one_by_one[0]
assert 0.5 < growth / (lengths[-1] / lengths[0]) ** 0.5 < 2
assert all(s < o for K, s, o in zip(lengths, in_slices, one_by_one) if K >= 1024)
assert own["gemm/split_k"] < own["gemm/register_2d"] < 1024**0.5 * u

# %% [markdown]
# ## The whole ladder, on an H200
#
# What has it all been worth? `time()` measures your kernel where there is a GPU, and shows what was recorded
# of our solution where there is none:

# %%
gemm["naive"].time()

# %%
gemm["vectorized"].time()

# %% [markdown]
# All rungs, in both languages, with PyTorch (which calls cuBLAS) measured in turns with them:

# %%
later = ("fixed_tile", "stream_k")  # rungs of the next notebook
bench = [t for t in recorded if t.shape == gemm.bench_shape and t.cold and not any(name in t.label for name in later)]
lk.plots.ladder(bench)

# %% [markdown]
# One step goes down: in numba, register_2d is slower than register_1d. The idea is not to blame, for in CUDA
# C++ it is a step up. But look at what numba's compiler makes of it:

# %%
for language in ("numba", "cuda"):
    needs = {name: int(counter("register_2d", name, language)) for name in (THREADS, REGISTERS, SHARED_BYTES)}
    instructions = counter("register_2d", INSTRUCTIONS, language) / (counter("register_2d", FMA, language) / 32)
    print(f"{language:6} {needs[REGISTERS]} registers, {instructions:.2f} instructions per multiply-add,")
    print(f"       {occupancy(*needs.values())}")

# %% [markdown]
# More registers leave room for one block only, and more instructions keep it busy with other things than
# multiplying. With wide accesses most of that goes away, and numba is nearly as fast as C++.

# %% solved_only=true
down, up = (
    timing("register_2d", language=language).tflops / timing("register_1d", language=language).tflops
    for language in ("numba", "cuda")
)
assert down < 1 < up
assert counter("register_2d", INSTRUCTIONS, "numba") > 1.5 * counter("register_2d", INSTRUCTIONS)
assert occupancy(256, int(counter("register_2d", REGISTERS, "numba"))).blocks == 1
assert 0.85 < timing("vectorized", language="numba").tflops / timing("vectorized").tflops < 1

# %% [markdown]
# And beside the times, what this ladder was built on: what the kernel asks of shared memory and of the
# schedulers (read by Nsight Compute at 256), and how much of the machine's peak it reached (timed at 4096).
# The peak is a multiply-add for 128 lanes per cycle, on each multiprocessor, at the clock of the run.

# %% jupyter={"source_hidden": true}
import pandas as pd

rungs = ["smem_tile", "register_1d", "register_2d", "vectorized", "double_buffered", "warp_tile"]
peak = multiprocessors * 128 * 2 * timing("vectorized").sm_clock_mhz[1] / 1e6
read = pd.DataFrame(
    {
        "wavefronts per multiply-add": counter(rung, SHARED) / (counter(rung, FMA) / 32),
        "instructions per multiply-add": counter(rung, INSTRUCTIONS) / (counter(rung, FMA) / 32),
        "registers per thread": int(counter(rung, REGISTERS)),
        "median ms": timing(rung).median_ms,
        "TFLOP/s": timing(rung).tflops,
        "of PyTorch": timing(rung).ratio,
        "of the peak": timing(rung).tflops / peak,
    }
    for rung in rungs
)
read.insert(0, "shared memory allows", [min(1, 1 / (4 * w)) for w in read["wavefronts per multiply-add"]])
read.index = rungs
percent = {name: "{:.0%}" for name in ("shared memory allows", "of PyTorch", "of the peak")}
read.style.format({**percent, "registers per thread": "{:d}"}, precision=2).set_caption(
    f"CUDA C++, recorded on {bench[0].machine}, {bench[0].date}; the peak is {peak:.1f} TFLOP/s"
)

# %% [markdown]
# Read it from top to bottom. First shared memory was what bound the kernel, and two rungs made it wait for
# shared memory no longer. Then it was instructions: wide accesses took away most of those that do not
# multiply. Double buffering changed no count and still won time, which blocks had spent waiting. The last
# rung does all of it together, with bigger pieces, and half of the remaining instructions gone; its header
# says how. So it comes close to PyTorch's library, and that does not reach the peak either.
#
# It has been the same multiplication all the time, with the same number of operations. From the first rung to
# the last, nothing changed but where the numbers were kept.

# %% solved_only=true
assert all(t.origin == "recorded" for t in bench)
cuda_times = [timing(rung).median_ms for rung in ("naive", "coalesced", *rungs)]
assert all(slow > fast for slow, fast in zip(cuda_times[:5], cuda_times[1:6]))  # up to vectorized
assert timing("warp_tile").median_ms == min(cuda_times) and 0.95 < timing("warp_tile").ratio < 1.05
assert all(read["of the peak"] < read["shared memory allows"])
assert read["shared memory allows"].is_monotonic_increasing
assert list(read["shared memory allows"] < 1) == [True, True, False, False, False, False]
others = read["instructions per multiply-add"] - 1
assert others["vectorized"] < others["register_2d"] / 2
assert abs(others["double_buffered"] - others["vectorized"]) < 0.05
assert timing("double_buffered").median_ms < timing("vectorized").median_ms
assert others["warp_tile"] < 0.6 * others["vectorized"]
assert timing("warp_tile").tflops / timing("warp_tile").ratio < peak  # PyTorch
assert len({t.flops for t in bench}) == 1
