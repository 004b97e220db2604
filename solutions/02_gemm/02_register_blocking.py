# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix multiplication, from shared memory to registers
#
# Your tiled kernel reads little from global memory. Yet it is far from what the machine can do, and
# this notebook shows why, and what to do about it: let each thread compute more than one element, and
# keep its numbers in **registers**.
#
# You climb as before: predict, write, check, profile, explain. By the end you can say how much work a
# kernel does for each byte at *every* level of memory, read a bank conflict off a picture, and tell
# how many warps of a kernel fit on a multiprocessor, and what stops more from coming.
#
# You need your `smem_tile` from the first notebook. Is it there, and right?

# %%
import labkit as lk

gemm = lk.problem("gemm")
smem_tile = gemm["smem_tile"]
smem_tile.check()

# %% [markdown]
# ## Why registers
#
# A number can come from four places, each smaller, nearer and faster than the one before: the GPU's
# main memory (DRAM); the caches, which answer global loads; shared memory; and the registers of the
# thread itself. What a kernel needs of each, its own counters tell. Divide the work by the bytes, and
# you have its **arithmetic intensity** at that level.

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
DRAM = "dram__bytes_read.sum"  # the kernel's own code among them
DATA = "labkit__distinct_bytes_global_op_ld.sum"  # without it: what the emulator tells, and no GPU
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block_static"
THREADS = "launch__block_size"


def work(p):
    """Multiply-adds of whole warps: one instruction for 32 lanes."""
    if not p[FMA]:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return p[FMA] / 32


def intensity(p):
    """FLOP per byte at each level of memory."""
    flops = 2 * 32 * work(p)
    return {
        "DRAM": flops / p.metrics.get(DATA, p[DRAM]),
        "global loads": flops / (32 * p[SECTORS]),  # a sector is 32 bytes
        "shared memory": flops / (128 * p[SHARED]),  # a wavefront takes all 32 banks, 4 bytes each
        "registers": 2 / (4 * 4),  # a multiply-add reads three numbers and writes one
    }


shape = dict(M=256, N=256, K=32)
p_tile = smem_tile.profile(**shape)
intensity(p_tile)

# %% [markdown]
# Registers give 16 bytes for every multiply-add and still keep up: all else would be too slow for
# that. The question is how often a number has to be fetched *into* registers.
#
# Shared memory is the bottleneck now. Why? In every cycle, a multiprocessor of an H100 or H200 can
# start multiply-adds for 128 lanes, which are 4 warps, and shared memory can serve one wavefront. So
# whoever needs more than a quarter of a wavefront per multiply-add waits for shared memory:

# %%
FMA_PER_CYCLE = 4  # of whole warps; NVIDIA H100 white paper: 128 FP32 cores per multiprocessor


def wavefronts(p):
    """Wavefronts of shared loads for each multiply-add of a warp."""
    return p[SHARED] / work(p)


def most(p):
    """The fraction of the peak that shared memory allows."""
    return min(1, 1 / (FMA_PER_CYCLE * wavefronts(p)))


print(f"smem_tile: {wavefronts(p_tile):g} wavefronts per multiply-add ({p_tile.origin})")
print(f"so at most {most(p_tile):.0%} of the machine's multiply-adds, however good the rest is")

# %% solved_only=true
assert intensity(p_tile)["registers"] == 2 / 16
assert intensity(p_tile)["shared memory"] < intensity(p_tile)["global loads"] < intensity(p_tile)["DRAM"]
assert FMA_PER_CYCLE * 32 == 128 and most(p_tile) < 1 / 4
assert wavefronts(p_tile) == 1.5

# %% [markdown]
# In your code there are two reads for each multiply-add. That it is less than two wavefronts is the
# compiler's doing: it reads four neighbors of a row of `tA` with one instruction, where it can.

# %% [markdown]
# ## Rung 4: register_1d
#
# Let one thread compute 8 elements of $C$, one below the other. All 8 are in the same column, so they
# need the same number of $B$:
#
# ```
#                            tB
#                          . b . .      b: read once from shared memory, kept in a register,
#                                          used 8 times
#            tA
#        . . a0 . .        . c0 . .
#        . . a1 . .        . c1 . .     a0 ... a7: read from shared memory, used once each
#          ...               ...
#        . . a7 . .        . c7 . .     c0 ... c7: the thread's sums, in registers all the while
# ```
#
# A block of 64 x 8 threads computes 64 x 64 elements, and stages 8 columns of $A$ and 8 rows of $B$
# at a time.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: one k</summary>
#
# All `k` are alike. What does a thread read from `tA` and from `tB` for one of them?
#
# <details><summary>Hint 2: and what does it do with it?</summary>
#
# It adds a product to each of its sums. How many are there?
#
# <details><summary>Hint 3: divide</summary>
#
# Reads for one `k`, divided by multiply-adds for one `k`. It is a bit more than 1.
#
# </details></details></details>

# %% question="gemm/register_1d/shared_reads_per_fma" points=2
predicted_1d = lk.answer("gemm/register_1d/shared_reads_per_fma", (8 + 1) / 8)
predicted_1d

# %% [markdown]
# ### Write
#
# `acc` is an array of the thread's own. Its loops have fixed bounds, so the compiler unrolls them and
# puts every element in a register.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# As in smem_tile: a loop over the tiles along $K$, and in it copy, wait, multiply, wait. Only the tiles
# are no squares any more, and multiplying has one loop more.
#
# <details><summary>Hint 2: who copies what</summary>
#
# There are 64 x 8 threads, and a tile has as many elements: one of each tile per thread. For `tB`, the
# thread's own `x` and `y` fit. For `tA`, which has 64 rows of 8, use the thread's number `t`: let 8
# neighbors take a row.
#
# <details><summary>Hint 3: multiply</summary>
#
# ```
# for each k of the tile:
#     keep the k-th number of column x of tB in a variable
#     for each of my 8 rows i (they begin at row y * TM of the tile):
#         add to acc[i]
# ```
#
# </details></details></details>

# %% kernel="gemm/register_1d"

# %% check="gemm/register_1d" points=4
register_1d = gemm["register_1d"]
register_1d.check()

# %% [markdown]
# ### Profile

# %%
p_1d = register_1d.profile(**shape)
p_1d.diff(p_tile)

# %%
for p in (p_tile, p_1d):
    print(f"{p.kernel}: {wavefronts(p):g} wavefronts per multiply-add, at most {most(p):.0%} of the peak")
print(f"{p_tile[REQUESTS] / p_1d[REQUESTS]:g} times fewer global load requests")

# %% [markdown]
# Shared memory is asked less, and global memory much less: a tile of 64 x 64 uses each number that it
# loads 64 times, one of 16 x 16 only 16 times. For shared memory, the gain is smaller than that. Here
# is the read of `tA`:

# %%
lk.plots.access_map(p_1d, "tA")

# %% [markdown]
# All 32 lanes want the same word, and a whole wavefront goes by to deliver its 4 bytes. Reading one
# number for all costs as much as reading 32 different ones.

# %% solved_only=true
assert wavefronts(p_1d) == 9 / 8 == predicted_1d.value
assert p_tile[REQUESTS] == 4 * p_1d[REQUESTS] and intensity(p_1d)["global loads"] == 64 / 4
a_read = next(a for a in p_1d.accesses if a.array == "tA" and a.op == "ld")
assert len(set(a_read.addresses)) == 1
assert p_1d[FMA] == p_tile[FMA] and p_1d[REGISTERS] > p_tile[REGISTERS]

# %% [markdown]
# ### Explain
#
# A number of `tB` now serves 8 multiply-adds, and still a thread reads more than one number for each
# of them. Which reads are left, and why can no longer column get rid of them?

# %% [markdown] explain="gemm/register_1d" points=2
# ### BEGIN SOLUTION
# The reads of tA are left: each of a thread's 8 sums lies in another row and needs a number of its own,
# which is used for one multiply-add and forgotten. A longer column has more rows and needs as many more
# numbers of A, so the reads per multiply-add stay above 1.
# ### END SOLUTION

# %% solved_only=true
assert all((rows + 1) / rows > 1 for rows in (8, 16, 32, 64))

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/register_1d" language="cuda"

# %% check="gemm/register_1d" language="cuda"
gemm["register_1d", "cuda"].check()

# %% [markdown]
# ## Rung 5: register_2d
#
# Not a column, then, but a **square**: 8 rows and 8 columns of $C$ per thread. A number of $A$ serves
# all columns, a number of $B$ all rows:
#
# ```
#                     b0 b1 ... b7       read into registers
#
#            a0        c  c ...  c
#            a1        c  c ...  c       64 sums, in registers
#            ...
#            a7        c  c ...  c
# ```
#
# A block of 16 x 16 threads computes 128 x 128 elements. One thing is new: a thread's rows and columns
# are not neighbors. Thread `(x, y)` owns the rows `y`, `y + 16`, `y + 32`, ... and the columns `x`,
# `x + 16`, ... so that the lanes of a warp read neighboring words.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: one k again</summary>
#
# How many numbers of `tA` and of `tB` does a thread read for one `k`? How many sums does it add to?
#
# <details><summary>Hint 2: FLOP per byte</summary>
#
# Per step, a block loads 128 x 8 numbers of $A$ and as many of $B$, 4 bytes each.
#
# <details><summary>Hint 3: and does with them</summary>
#
# A multiplication and an addition for each of 128 x 128 elements, 8 times.
#
# </details></details></details>

# %% question="gemm/register_2d/shared_reads_per_fma" points=2
predicted_2d = lk.answer("gemm/register_2d/shared_reads_per_fma", (8 + 8) / 64)
predicted_2d

# %% question="gemm/register_2d/arithmetic_intensity" points=2
predicted_intensity = lk.answer("gemm/register_2d/arithmetic_intensity", 2 * 128**2 / (2 * 128 * 4))
predicted_intensity

# %% [markdown]
# ### Write
#
# The kernel has arguments more: factors `alpha` and `beta`, and two switches that say whether $A$ and
# $B$ are transposed. `launch` hands you arrays that are turned the right way, so the indices are those
# of before; you need the switches only to keep accesses coalesced, and may leave them aside at first.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# Copy, wait, multiply, wait, as before. The tiles have 1024 elements each, and there are 256 threads:
# every thread copies several, in a loop that strides over the tile.
#
# <details><summary>Hint 2: copy</summary>
#
# Let `i` run from `t` in steps of `THREADS`. Element number `i` of `tA` is in row `i // BK`, column
# `i % BK`; of `tB`, in row `i // BN`, column `i % BN`. If $A$ is transposed, neighbors in memory lie
# one below the other: then go through the tile by columns.
#
# <details><summary>Hint 3: multiply</summary>
#
# ```
# for each k of the tile:
#     read my 8 numbers of tA into a local array a
#     read my 8 numbers of tB into a local array b
#     for i, for j:
#         add a[i] * b[j] to acc[i, j]
# ```
#
# `a` and `b` are made like `acc`, before the loop.
#
# </details></details></details>

# %% kernel="gemm/register_2d"

# %% check="gemm/register_2d" points=6
register_2d = gemm["register_2d"]
register_2d.check()

# %% [markdown]
# ### Profile

# %%
p_2d = register_2d.profile(**shape)
p_2d.diff(p_1d)

# %%
for p in (p_tile, p_1d, p_2d):
    print(f"{p.kernel}: {wavefronts(p):g} wavefronts per multiply-add, at most {most(p):.0%} of the peak")

# %% [markdown]
# Shared memory is no longer what forbids the peak: it can just keep up. Here is a read of each tile.
# The lanes of a warp have two different `y`, so they want two words of `tA`; and 16 different `x`.

# %%
lk.plots.access_map(p_2d, "tA")

# %%
lk.plots.access_map(p_2d, "tB")

# %% solved_only=true
assert wavefronts(p_2d) == 1 / 4 == predicted_2d.value and most(p_2d) == 1
assert intensity(p_2d)["global loads"] == predicted_intensity.value
reads = {a.array: len(set(a.addresses)) for a in reversed(p_2d.accesses) if a.op == "ld" and a.space == "shared"}
assert reads == {"tA": 2, "tB": 16}

# %% [markdown]
# Work per byte at every level, for your three kernels:

# %% jupyter={"source_hidden": true}
import pandas as pd
import plotly.graph_objects as go
from IPython.display import display

profiles = {"smem_tile": p_tile, "register_1d": p_1d, "register_2d": p_2d}
levels = pd.DataFrame({name: intensity(p) for name, p in profiles.items()})
display(levels.style.format(precision=3).set_caption(f"FLOP per byte at M = N = {shape['M']}, K = {shape['K']}"))
figure = go.Figure(
    [
        go.Bar(name=name, x=list(levels.index), y=list(levels[name]), marker_color=color,
               texttemplate="%{y:.3g}", textposition="outside", cliponaxis=False)
        for name, color in zip(levels, ["#c6dbef", "#6baed6", "#2171b5"])
    ]
)
figure.update_layout(
    title="Work for each byte that comes from ...", barmode="group", template="plotly_white", height=420,
    yaxis=dict(title="FLOP per byte (logarithmic)", type="log", dtick=1),
    legend=dict(orientation="h", y=-0.12),
)

# %% [markdown]
# The nearer the memory, the less work a byte of it has to carry: near memory is fast. At DRAM nothing
# moves, for at this size every kernel fetches each number once, and the caches answer the rest. What
# climbs is the two levels in between. That is the whole art: with each level, bigger pieces of $C$ for
# fewer bytes.

# %% solved_only=true
assert levels.loc["DRAM"].nunique() == 1 and levels.loc["registers"].nunique() == 1
assert levels.loc["global loads"].is_monotonic_increasing
assert levels.loc["shared memory"].is_monotonic_increasing
assert (levels.loc["global loads"] > levels.loc["shared memory"]).all()
assert (levels.loc["shared memory"] > levels.loc["registers"]).all()

# %% [markdown]
# ### Explain
#
# From register_1d to register_2d, a thread's work grew 8-fold. By how much did its reads of shared
# memory grow, for one `k`? Why is a square the best shape?

# %% [markdown] explain="gemm/register_2d" points=2
# ### BEGIN SOLUTION
# A thread reads 16 numbers for one k, where it read 9: less than twice as many for 8 times the work. The
# reads go with the circumference of its piece of C, rows plus columns, and the work with its area; of
# all rectangles of the same area, the square has the smallest circumference.
# ### END SOLUTION

# %% solved_only=true
assert min((rows + 64 // rows, rows) for rows in (1, 2, 4, 8, 16, 32, 64)) == (16, 8)
assert (16 / 9 < 2) and work(p_2d) == work(p_1d)

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/register_2d" language="cuda"

# %% check="gemm/register_2d" language="cuda"
gemm["register_2d", "cuda"].check()

# %% [markdown]
# ## One kernel, four layouts
#
# Libraries compute $C = \alpha\,\mathrm{op}(A)\,\mathrm{op}(B) + \beta C$, where op may transpose. N is a
# matrix as it stands, T a transposed one. Your kernel can do all four:

# %%
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"
torch.manual_seed(0)
M, N, K = 33, 65, 17
launch = register_2d.kernel.launch
errors = {}
for trans_a in (0, 1):
    for trans_b in (0, 1):
        A, B, C = (torch.randn(*size, device=device) for size in ((M, K), (K, N), (M, N)))
        want = 2 * (A.double() @ B.double()) - 0.5 * C.double()
        stored_A = A.T.contiguous() if trans_a else A  # as it lies in memory
        stored_B = B.T.contiguous() if trans_b else B
        launch(C, stored_A, stored_B, alpha=2.0, beta=-0.5, trans_a=trans_a, trans_b=trans_b)
        errors["NT"[trans_a] + "NT"[trans_b]] = float((C - want).abs().max())
errors

# %% solved_only=true
assert list(errors) == ["NN", "NT", "TN", "TT"]
assert max(errors.values()) < 4 * K * 2.0**-24 * 8  # a sum of K products of normal numbers, doubled

# %% [markdown]
# ## Banks
#
# `LDA`, the length of a row of `tA`, is 9 and not 8. The ninth number of a row is never used. Why waste
# it? Because of transposed layouts: if $A$ is stored transposed, neighboring lanes fetch numbers that
# belong *below* each other in `tA`, and store down a column.
#
# A wavefront takes one word from, or to, each of the 32 banks. Different words in the same bank are a
# **conflict**, and go one after the other.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: which word?</summary>
#
# Lane `n` writes the word number `8 * n` of the tile.
#
# <details><summary>Hint 2: which bank?</summary>
#
# The bank is that number modulo 32. Write it down for lanes 0 to 7. What comes after?
#
# <details><summary>Hint 3: how many in one bank?</summary>
#
# The 32 words fall into 4 banks, evenly.
#
# </details></details></details>

# %% question="gemm/register_2d/column_store_wavefronts" points=2
predicted_conflict = lk.answer("gemm/register_2d/column_store_wavefronts", 8)
predicted_conflict

# %% [markdown]
# ### See
#
# This kernel does nothing else: a warp writes a column of a tile whose rows have `pitch` words. Here it
# is without padding, and with.

# %%
import numpy as np
from numba import cuda, float32


@cuda.jit
def store_down_a_column(out, pitch):
    lane = cuda.threadIdx.x
    tile = cuda.shared.array(32 * 36, float32)
    tile[lane * pitch] = lane
    out[lane] = tile[lane * pitch]


def column_store(pitch):
    return lk.emulate(store_down_a_column, 1, 32, [np.zeros(32, np.float32), pitch])


stores = {pitch: column_store(pitch) for pitch in (8, 9)}
lk.plots.access_map(stores[8], "tile")

# %%
lk.plots.access_map(stores[9], "tile")

# %% [markdown]
# With rows of 9, each row begins one bank further on, and the column meets all banks. Every pitch, from
# the emulator's counts:

# %% jupyter={"source_hidden": true}
pitches = list(range(1, 37))
counts = [column_store(pitch)[SHARED_STORES] for pitch in pitches]
figure = go.Figure(go.Bar(x=pitches, y=counts, marker_color=["#2171b5" if p % 2 else "#c6dbef" for p in pitches]))
figure.update_layout(
    title="Wavefronts to store 32 words down a column", template="plotly_white", height=340,
    xaxis=dict(title="words from one row to the next (dark: odd)", dtick=4), yaxis=dict(title="wavefronts", dtick=8),
)

# %% [markdown]
# Odd pitches have no conflicts at all, and the powers of two, which everybody would choose, are the
# worst. That is why tiles are **padded**. Now your own kernel, with $A$ transposed:

# %%
from labkit.profiling.emulated import profile_emulated

inputs = gemm.make_inputs(dict(M=128, N=128, K=32))
C = torch.empty(128, 128)
stored = {0: inputs["A"], 1: inputs["A"].T.contiguous()}
p_layout = {
    layout: profile_emulated(
        lambda t=t: launch(C, stored[t], inputs["B"], trans_a=t),
        label=f"gemm/register_2d {layout}", names={"C": C, "A": stored[t], "B": inputs["B"]},
    )
    for t, layout in enumerate(("NN", "TN"))
}
for layout, p in p_layout.items():
    print(f"{layout}: {p[STORE_CONFLICTS]:.0f} bank conflicts in {p[SHARED_STORES]:.0f} wavefronts of shared stores")

# %% [markdown]
# Nothing is free: with padding, the plain layout NN has a few conflicts of its own, one per store,
# where rows of 8 would have had none. Better twice as long once in a while than 8 times as long. Where
# only NN is wanted, other layouts of the tile are better, as the next notebook shows.

# %% solved_only=true
assert predicted_conflict.value == stores[8][SHARED_STORES] and stores[9][SHARED_STORES] == 1
assert all((count == 1) == (pitch % 2 == 1) for pitch, count in zip(pitches, counts))
assert counts[pitches.index(32)] == max(counts) == 32
assert p_layout["TN"][STORE_CONFLICTS] == 0
stored_words = 2 * 128 * 32 / 32  # of both tiles, in whole warps
assert p_layout["NN"][STORE_CONFLICTS] == stored_words / 2  # the stores of tA; those of tB have none

# %% [markdown]
# ## What it costs: occupancy
#
# A multiprocessor holds several blocks at once, so that it has something to do while some of them wait.
# Their warps are all there at the same time, with all their registers: a thread that takes more
# registers leaves room for fewer threads. How many warps are there, of the 64 that would be possible,
# is called **occupancy**.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: a block</summary>
#
# How many registers do 256 threads take, if each has 128?
#
# <details><summary>Hint 2: blocks</summary>
#
# How often does that go into 65536? Blocks come whole or not at all.
#
# <details><summary>Hint 3: warps</summary>
#
# A block of 256 threads has 256 / 32 warps.
#
# </details></details></details>

# %% question="gemm/register_2d/resident_warps" points=2
predicted_warps = lk.answer("gemm/register_2d/resident_warps", 16)
predicted_warps

# %% [markdown]
# ### Your kernels
#
# Registers are portioned by the warp, and threads and shared memory have their limits too;
# `occupancy` knows the rules, and says which limit is met first. What your kernels need stands in
# their profiles: the registers are those that NVIDIA's own assembler gave them.

# %%
from labkit.models.occupancy import occupancy


def resident(p):
    return occupancy(int(p[THREADS]), int(p[REGISTERS]), int(p[SHARED_BYTES]))


for name, p in profiles.items():
    print(f"{name:12} {p[REGISTERS]:.0f} registers per thread: {resident(p)}")

# %% jupyter={"source_hidden": true}
registers = list(range(16, 256))
figure = go.Figure(
    go.Scatter(x=registers, y=[occupancy(256, r).warps for r in registers], mode="lines", line_shape="hv",
               name="256 threads per block", line_color="#9aa0a6")
)
for (name, p), color in zip(profiles.items(), ["#9ecae1", "#4292c6", "#08519c"]):
    figure.add_scatter(x=[p[REGISTERS]], y=[resident(p).warps], mode="markers+text", text=[name], name=name,
                       textposition="top right", marker=dict(size=12, color=color), showlegend=False)
figure.update_layout(
    title="Work per thread needs registers, and registers make room for fewer warps", template="plotly_white",
    height=420, xaxis=dict(title="registers per thread", dtick=32, range=[0, 270]),
    yaxis=dict(title="warps on a multiprocessor", dtick=8, range=[0, 70]), legend=dict(orientation="h", y=-0.2),
)

# %% [markdown]
# From one element per thread to 64, occupancy falls and falls, and yet each of these kernels can do
# more than the one before. Occupancy is no goal in itself. Many warps are *one* way to have something
# to do while others wait; a thread with 64 independent sums is another. How much is enough, the next
# notebook works out.

# %% solved_only=true
fits = [resident(p) for p in profiles.values()]
assert fits[0].fraction > fits[1].fraction > fits[2].fraction
assert fits[1].limiter == fits[2].limiter == "registers"
assert [most(p) for p in profiles.values()] == sorted(most(p) for p in profiles.values())
assert occupancy(256, 128).warps == predicted_warps.value
assert occupancy(32, 16).limits["warps"] == 64

# %% [markdown]
# ## Your page

# %% jupyter={"source_hidden": true}
page = pd.DataFrame(
    {
        "elements of C per thread": elements,
        "global load requests": int(p[REQUESTS]),
        "FLOP per byte, global": intensity(p)["global loads"],
        "FLOP per byte, shared": intensity(p)["shared memory"],
        "shared wavefronts per multiply-add": wavefronts(p),
        "at most, of the peak": f"{most(p):.0%}",
        "registers per thread": int(p[REGISTERS]),
        "warps per multiprocessor": resident(p).warps,
    }
    for elements, p in zip((1, 8, 64), profiles.values())
)
page.index = list(profiles)


def predicted(answer):
    return "nothing" if answer.value is None else f"{answer.value:g} reads per multiply-add"


page["you predicted"] = ["", predicted(predicted_1d), predicted(predicted_2d)]
page.T.style.format(precision=3, thousands=",").set_table_styles([{"selector": "td", "props": "text-align: right"}])

# %% [markdown]
# And what your kernel spends besides multiply-adds: of all instructions that it executes, only some
# multiply.

# %%
for name, p in profiles.items():
    print(f"{name:12} {p[INSTRUCTIONS] / work(p):.1f} instructions for each multiply-add")

# %% [markdown]
# (Emulated, these are instructions of PTX; the assembler merges some of them and splits others.) Fewer
# instructions for the same numbers: that is where the next notebook begins.

# %% solved_only=true
spent = [p[INSTRUCTIONS] / work(p) for p in profiles.values()]
assert spent[2] < spent[0] and spent[2] > 1
