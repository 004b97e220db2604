# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix multiplication, from naive to tiled
#
# You will write the same function three times. Every version computes the same numbers with the
# same arithmetic; what changes is how it reads memory. By the end you can say, before you run a
# kernel, how much memory traffic it causes, and check yourself against a profiler.
#
# You climb a ladder, and every rung goes the same way:
#
# 1. **predict** a number, with pencil and paper;
# 2. **write** the kernel;
# 3. **check** that it is right, on awkward shapes too;
# 4. **profile** it, and compare with your prediction and with the rung below;
# 5. **explain** in two sentences what happened.
#
# You need Python, and no GPU: where there is none, the kernels run on an emulator that executes the
# real compiled code and counts what the hardware would count. Such results are marked *emulated*.
# Run a cell with Shift+Enter.

# %%
import labkit as lk

# %% [markdown]
# ## The work
#
# $C = A B$, in single precision (4 bytes per number): each element of $C$ is the sum of $K$
# products, $C_{ij} = \sum_k A_{ik} B_{kj}$.
#
# Before any code: how much work is that, and how much data? Put a number in place of the dots. An
# expression such as `3 * 256**2` is fine. Change it and run the cell again as often as you like.

# %% question="gemm/flops" points=1
lk.answer("gemm/flops", 2 * 256**3)

# %% question="gemm/compulsory_bytes" points=1
lk.answer("gemm/compulsory_bytes", 3 * 256**2 * 4)

# %% [markdown]
# Work divided by data is what makes matrix multiplication special: there is a lot to do with each
# number that is read, *if* it is kept at hand once it is there. The kernels below differ in nothing
# else.

# %%
gemm = lk.problem("gemm")
gemm

# %% [markdown]
# ## How a GPU runs your code
#
# You write a function for **one thread**, called a kernel. A launch runs it in thousands of threads,
# and each asks where it is to find out what it should do. Threads come in **blocks** (below, 16 x 16
# of them), and blocks in a **grid**. `cuda.threadIdx` is a thread's place in its block,
# `cuda.blockIdx` its block's place in the grid, `cuda.blockDim` the size of a block.
#
# The hardware does not run threads one by one. It takes 32 at a time, a **warp**, and all 32
# **lanes** of a warp carry out the same instruction together. Which threads share a warp? Let them
# tell us: this kernel does nothing but write down who each thread is.

# %%
import numpy as np
from numba import cuda


@cuda.jit
def who_am_i(warp, lane):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    number = y * cuda.blockDim.x + x  # threads are numbered along x first
    warp[y, x] = number // 32
    lane[y, x] = number % 32


warp = np.zeros((16, 16), np.int32)
lane = np.zeros((16, 16), np.int32)
who_am_i[1, (16, 16)](warp, lane)  # [how many blocks, the shape of a block]

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

figure = go.Figure(
    go.Heatmap(z=warp % 2, text=lane, texttemplate="%{text}", showscale=False, xgap=1, ygap=1,
               colorscale=["#dbe9f6", "#9ecae1"], hoverinfo="none")
)
figure.update_layout(
    title="One block: each number is a lane, each band of color a warp",
    xaxis=dict(title="threadIdx.x", dtick=1), yaxis=dict(title="threadIdx.y", dtick=1),
    yaxis_autorange="reversed", width=620, height=520, template="plotly_white",
)
figure

# %% [markdown]
# So **a warp is two rows of the block**: `threadIdx.x` runs fastest. Keep this picture in mind; all
# that follows depends on it.

# %% solved_only=true
assert (warp[0] == 0).all() and (warp[1] == 0).all() and (warp[2] == 1).all()
assert (lane[1] == np.arange(16, 32)).all()

# %% [markdown]
# ## Rung 1: naive
#
# One thread per element of $C$. The kernel is given. Run its cell: `%%kernel` keeps it as a file of
# your own, compiles it, and puts it on the ladder under the name in the first line.

# %% kernel="gemm/naive" given=true

# %% [markdown]
# Is it right? `check()` runs it on small and awkward shapes (one row, sizes that no block divides),
# compares with an exact result, and watches every memory access.

# %% check="gemm/naive"
naive = gemm["naive"]
naive.check()

# %% [markdown]
# ### Predict
#
# When a warp reads memory, its 32 lanes send their addresses together: that is one **request**.
# Memory answers in **sectors** of 32 bytes, 8 neighboring `float32`. Lanes that want the same
# sector share it. So a request costs between 1 sector (all lanes in one) and 32 (each lane
# in its own), and the sectors are what travels.
#
# $A$ and $B$ lie in memory row by row. Take the first warp of a block, look up its `threadIdx` in
# the picture above, and follow the two loads of `A[row, k]` and `B[k, col]` for one `k`.

# %% [markdown]
# <details><summary>Hint 1: which elements?</summary>
#
# Write down `row` and `col` for lanes 0, 1, 15, 16 and 31. Which lanes have the same `row`?
#
# <details><summary>Hint 2: A</summary>
#
# Lanes with different rows of $A$ are a whole row apart in memory, 1024 bytes here. Can two of
# them fall in one sector? How many different rows are there in the warp?
#
# <details><summary>Hint 3: B</summary>
#
# All lanes read the same row `k` of $B$, and how many different columns? Are these columns
# neighbors? The answer is the mean of the two loads.
#
# </details></details></details>

# %% question="gemm/naive/sectors_per_request" points=2
predicted_naive = lk.answer("gemm/naive/sectors_per_request", 8.5)
predicted_naive

# %% [markdown]
# ### Profile
#
# Now measure. A small matrix is enough: every warp does the same. The long names are those of
# Nsight Compute, NVIDIA's profiler, so that you will recognize them there.

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"  # a multiply and an add, in one thread

shape = dict(M=64, N=64, K=64)
p_naive = naive.profile(**shape)
p_naive

# %%
print(f"{p_naive[PER_REQUEST]} sectors per load request ({p_naive.origin})")
print(f"{2 * p_naive[FMA]:.0f} FLOP executed, {gemm.flops(shape)} needed")

# %% solved_only=true
assert 2 * p_naive[FMA] == gemm.flops(shape)

# %% [markdown]
# The arithmetic is exactly what is needed, nothing is computed twice. The memory traffic is another
# story. Here is the first warp at its first load from $A$, drawn from the addresses that the run
# really used:

# %%
lk.plots.access_map(p_naive, "A")

# %% [markdown]
# And its load from $B$:

# %%
lk.plots.access_map(p_naive, "B")

# %% solved_only=true
assert p_naive[PER_REQUEST] == 8.5 == gemm.problem.questions["naive/sectors_per_request"].value()

# %% [markdown]
# ### Explain
#
# Of each sector that the load of $A$ brings, how many bytes does the warp use at that moment? Which
# line of the kernel is to blame? Two sentences, in the cell below (double-click it).

# %% [markdown] explain="gemm/naive" points=2
# ### BEGIN SOLUTION
# Each sector of A serves the two lanes that share a row, and both want the same 4 bytes of its 32.
# To blame is the line that derives the row from `threadIdx.x`: neighbors in a warp walk down a
# column of A, and each step lands a whole row further on in memory.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# Every rung also exists in CUDA C++, the language most kernels are written in. Skip these cells, or
# do them instead; the ideas are the same. The `launch` line says what Python's `launch` says.

# %% kernel="gemm/naive" language="cuda" given=true

# %% check="gemm/naive" language="cuda"
gemm["naive", "cuda"].check()

# %% [markdown]
# ## Rung 2: coalesced
#
# Nothing forces `threadIdx.x` to count rows. Let it count **columns**, so that the lanes of a warp
# lie side by side in $C$, and with it in $B$. When neighboring lanes read neighboring addresses,
# their accesses are *coalesced*: they share sectors.
#
# ### Predict
#
# The same question as before. Follow the first warp again: which rows of $A$, which columns of $B$?

# %% [markdown]
# <details><summary>Hint 1: the warp in C</summary>
#
# The warp is two rows of the block. In $C$ these are now two rows as well, of 16 columns each.
#
# <details><summary>Hint 2: A</summary>
#
# Half of the lanes read one address in $A$, the other half another. Equal addresses share a sector.
#
# <details><summary>Hint 3: B</summary>
#
# 16 neighboring columns are 16 x 4 bytes in a row; divide by the size of a sector.
#
# </details></details></details>

# %% question="gemm/coalesced/sectors_per_request" points=2
predicted_coalesced = lk.answer("gemm/coalesced/sectors_per_request", 2)
predicted_coalesced

# %% [markdown]
# ### Write
#
# `launch` below already counts columns along x. Write the body: it differs from naive in two lines.

# %% [markdown]
# <details><summary>Hint 1: what stays</summary>
#
# The loop over `k`, the product and the bounds check stay as they are in naive.
#
# <details><summary>Hint 2: what changes</summary>
#
# Only how `row` and `col` are found. Which of them should differ between neighboring lanes?
#
# <details><summary>Hint 3: how</summary>
#
# `col` is built from the three x's (`blockIdx`, `blockDim`, `threadIdx`), `row` from the three y's.
#
# </details></details></details>

# %% kernel="gemm/coalesced"

# %% check="gemm/coalesced" points=4
coalesced = gemm["coalesced"]
coalesced.check()

# %% [markdown]
# ### Profile
#
# `diff` sets two profiles side by side: what moved, and by how much.

# %%
p_coalesced = coalesced.profile(**shape)
p_coalesced.diff(p_naive)

# %%
lk.plots.access_map(p_coalesced, "A")

# %%
lk.plots.access_map(p_coalesced, "B")

# %% [markdown]
# The requests are as many as before, and the arithmetic is the same; each request needs fewer
# sectors.

# %% solved_only=true
assert p_coalesced[REQUESTS] == p_naive[REQUESTS] and p_coalesced[FMA] == p_naive[FMA]
assert p_coalesced[PER_REQUEST] < p_naive[PER_REQUEST]
assert p_coalesced[PER_REQUEST] == 2

# %% [markdown]
# ### Explain
#
# The load of $B$ now takes **more** sectors than in naive, and the kernel is still the better one. How
# can that be? Compare the pictures.

# %% [markdown] explain="gemm/coalesced" points=2
# ### BEGIN SOLUTION
# In naive, a warp wanted 2 different columns of B, in one sector; now it wants 16, in 2 sectors, and
# uses every byte of them. The load of A fell from 16 sectors to 2 in exchange, so that the two loads
# together take 4 sectors instead of 17.
# ### END SOLUTION

# %% solved_only=true
requests = p_naive[REQUESTS] / 2  # of A, and as many of B
assert p_naive[SECTORS] == 17 * requests and p_coalesced[SECTORS] == 4 * requests

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/coalesced" language="cuda"

# %% check="gemm/coalesced" language="cuda"
gemm["coalesced", "cuda"].check()

# %% [markdown]
# ## Rung 3: smem_tile
#
# The accesses are tidy now, but there are far too many of them. Within a block, all 16 threads of a
# row read the same row of $A$, each for itself, and all 16 of a column the same column of $B$.
#
# A block has a memory of its own: **shared memory**, small, fast, and visible to all threads of the
# block. So let the threads fetch together what all of them need. Per step, the block copies a **tile**
# of 16 x 16 elements of $A$ and one of $B$ to shared memory, each thread one element of each; then
# every thread reads what it needs from there:
#
# ```
#                           B
#                       . . . . . .
#                       +----+ . .      tB: 16 rows of B, in the columns of the block;
#                       | tB | . .          moves down, step by step
#                       +----+ . .
#                       . . . . . .
#           A
#     . . . . . . . .
#     . . +----+ . .    +----+
#     . . | tA | . .    | C  |          one block computes this tile of C
#     . . +----+ . .    +----+
#     . . . . . . . .                   tA: 16 columns of A, in the rows of the block;
#                                           moves to the right
# ```
#
# Threads of a block do not run in step. Before anyone reads a tile, all of it must have been written,
# and before anyone overwrites it, all must have finished reading. `cuda.syncthreads()` is a
# **barrier**: no thread passes before all threads of the block have arrived.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: one step</summary>
#
# Count for one step, that is for one pair of tiles; all steps are alike.
#
# <details><summary>Hint 2: requests</summary>
#
# In coalesced, a thread loads one element of $A$ and one of $B$ for each `k`. Here, it loads one of
# each per step. How many `k` does a step cover?
#
# <details><summary>Hint 3: FLOP per byte</summary>
#
# Per step, the block loads two tiles of 16 x 16 numbers of 4 bytes, and each of its 16 x 16
# threads does 16 multiplications and 16 additions.
#
# </details></details></details>

# %% question="gemm/smem_tile/global_load_ratio" points=2
predicted_ratio = lk.answer("gemm/smem_tile/global_load_ratio", 16)
predicted_ratio

# %% question="gemm/smem_tile/arithmetic_intensity" points=2
lk.answer("gemm/smem_tile/arithmetic_intensity", 4)

# %% [markdown]
# ### Write
#
# Mind the edges: $K$ need not be a multiple of 16, nor $M$ and $N$. What should stand in a tile where
# the matrix has ended, so that the sums stay right?

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# A loop over the tiles along $K$. In it: copy, wait, multiply, wait.
#
# <details><summary>Hint 2: who copies what</summary>
#
# Thread (`x`, `y`) fills place `[y, x]` of both tiles: from $A$ its own row, and the column that is `x`
# after the beginning of the tile; from $B$ the row that is `y` after it, and its own column. Where that
# lies outside of the matrix, it writes a zero, which adds nothing. Never skip a barrier: threads
# outside of $C$ copy and wait like all others.
#
# <details><summary>Hint 3: nearly the code</summary>
#
# ```
# for k0 = 0, TILE, 2 TILE, ... while below K:
#     tA[y, x] = A at (my row, k0 + x), or 0 outside of A
#     tB[y, x] = B at (k0 + y, my column), or 0 outside of B
#     barrier
#     for k = 0 ... TILE - 1:
#         add (k-th of row y in tA) times (k-th of column x in tB) to acc
#     barrier
# ```
#
# </details></details></details>

# %% kernel="gemm/smem_tile"

# %% check="gemm/smem_tile" points=6
smem_tile = gemm["smem_tile"]
smem_tile.check()

# %% [markdown]
# ### Profile

# %%
p_tile = smem_tile.profile(**shape)
p_tile.diff(p_coalesced)

# %%
lk.plots.access_map(p_tile, "A")

# %% [markdown]
# All lanes of the request now read something different: no address is asked for twice. Not by another
# warp either, nor later on. Count how often one block reads each element of $A$ from global memory, first in
# coalesced, then in your tiled kernel (same colors):

# %%
lk.plots.reuse(p_coalesced, "A")

# %%
lk.plots.reuse(p_tile, "A", most=16)

# %% [markdown]
# From 16 times to once. And it comes in portions: press play, and watch the tile move through $A$ from barrier to
# barrier.

# %%
lk.plots.tile_walk(p_tile, "A")

# %% [markdown]
# What the requests to global memory lost has become reads of shared memory. That lies inside the
# multiprocessor and is much closer. It is made of 32 **banks**, side by side, each 4 bytes wide, and in
# one pass, a **wavefront**, each bank hands out one word (to any number of lanes). Here is a read of
# the tile of $B$:

# %%
lk.plots.access_map(p_tile, "tB")

# %%
for p in (p_coalesced, p_tile):
    if not p[REQUESTS]:
        raise lk.LabkitError(f"{p.kernel} loads nothing yet; write it, run its cell, and come back.")
print(f"{p_coalesced[REQUESTS] / p_tile[REQUESTS]:g} times fewer global load requests")
print(f"{p_coalesced[SECTORS] / p_tile[SECTORS]:g} times fewer sectors")
print(f"{p_tile[SHARED]:.0f} wavefronts of shared loads, {p_coalesced[SHARED]:.0f} before")

# %% solved_only=true
assert p_tile[REQUESTS] < p_coalesced[REQUESTS] and p_tile[SECTORS] < p_coalesced[SECTORS]
assert set(p_coalesced.steps.grid_of("A", "ld").flat) == {0, 16} and set(p_tile.steps.grid_of("A", "ld").flat) == {0, 1}
assert all(set(elements % shape["K"]) == set(range(16 * k, 16 * k + 16))
           for k, (elements, _) in enumerate(p_tile.steps.touched("A", "ld").values()))
assert p_tile[SHARED] > 0 and p_coalesced[SHARED] == 0
assert p_tile[FMA] == p_coalesced[FMA]

# %% [markdown]
# ### What a barrier is for
#
# Take the first barrier out of your kernel. On a GPU, such a kernel often gives the right result, and
# then once in a while it does not. The check does not rely on luck: it sees that one thread reads
# what another wrote, with nothing between them. Which two lines does it name? Then do the same with the
# second barrier, in the kernel's own cell, and put it back.

# %%
import tempfile
from pathlib import Path

broken = Path(tempfile.mkdtemp(), "smem_tile.py")
broken.write_text(smem_tile.source.replace("cuda.syncthreads()", "pass", 1))
no_barrier = smem_tile.load(broken).check()
no_barrier

# %% solved_only=true
assert not no_barrier.passed
assert no_barrier.failures[0].kind in ("race", "uninitialized")

# %% [markdown]
# ### Explain
#
# The requests fell by one factor, the sectors by a smaller one. Where did the difference go?

# %% [markdown] explain="gemm/smem_tile" points=2
# ### BEGIN SOLUTION
# Requests fell 16-fold, sectors 8-fold, because a request now takes 4 sectors where it took 2: in the
# coalesced kernel half of a warp shared one element of A, and a warp covered 16 columns of B twice
# over; a tile's request has 32 different elements, in two runs of 64 bytes, and needs them all.
# ### END SOLUTION

# %% solved_only=true
assert p_coalesced[REQUESTS] == 16 * p_tile[REQUESTS]
assert p_coalesced[SECTORS] == 8 * p_tile[SECTORS]
assert p_tile[PER_REQUEST] == 4

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm/smem_tile" language="cuda"

# %% check="gemm/smem_tile" language="cuda"
gemm["smem_tile", "cuda"].check()

# %% [markdown]
# ## Your page
#
# Everything that you measured, on one page. Bytes are sectors times 32; FLOP per byte says how much
# work was done for each byte that came from global memory.

# %% jupyter={"source_hidden": true}
import pandas as pd

profiles = {"naive": p_naive, "coalesced": p_coalesced, "smem_tile": p_tile}
page = pd.DataFrame(
    {
        "load requests": int(p[REQUESTS]),
        "sectors per request": p[PER_REQUEST],
        "bytes loaded": int(32 * p[SECTORS]),
        "FLOP per byte loaded": gemm.flops(shape) / (32 * p[SECTORS]),
        "wavefronts of shared loads": int(p[SHARED]),
    }
    for p in profiles.values()
)
page.index = list(profiles)


def predicted(answer, unit):
    return "nothing" if answer.value is None else f"{answer.value:g} {unit}"


page["you predicted"] = [
    predicted(predicted_naive, "sectors per request"),
    predicted(predicted_coalesced, "sectors per request"),
    predicted(predicted_ratio, "times fewer requests"),
]
page.style.format(precision=2, thousands=",")

# %% jupyter={"source_hidden": true}
go.Figure(
    go.Bar(x=page["bytes loaded"], y=page.index, orientation="h", texttemplate="%{x:,.0f} bytes",
           marker_color=["#c6dbef", "#6baed6", "#2171b5"])
).update_layout(
    title=f"Bytes loaded from global memory for the same product, M = N = K = {shape['M']}",
    yaxis_autorange="reversed", height=300, template="plotly_white",
)

# %% [markdown]
# And the least that any kernel could load, each element of $A$ and $B$ once:

# %%
least = 4 * (shape["M"] * shape["K"] + shape["K"] * shape["N"])
print(f"{least:,} bytes; your tiled kernel loads {page['bytes loaded']['smem_tile'] / least:g} times that.")

# %% solved_only=true
assert page["bytes loaded"].is_monotonic_decreasing
assert page["FLOP per byte loaded"].is_monotonic_increasing
assert page["bytes loaded"]["smem_tile"] >= least

# %% [markdown]
# What is left is the next rung's work: a block of 16 x 16 threads uses each number that it loads 16
# times. Bigger tiles use it more often, and each thread then has to compute more than one element.
