# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # FlashAttention, forward
#
# You have all parts: tiles from the matrix product, and a softmax that need not see its whole row. Put together they
# are FlashAttention (Dao et al., 2022). A block takes a tile of queries and walks over tiles of keys and values;
# scores come into being in registers, are used, and are gone. Then you write the rung above, in which tiles travel
# while others are computed, and at the end you set the memory of all rungs side by side.
#
# You need your `online_softmax` from [the notebook before](02_online_softmax.ipynb). Is it there, and right?

# %%
import labkit as lk

attention = lk.problem("attention")
online = attention["online_softmax"]
online.check()

# %% [markdown]
# ## Rung: flash
#
# ```
#                  K, 16 rows at a time              V, 16 rows at a time
#                 +----+----+----+----+             +--------------+
#                 | t0 | t1 | t2 | .. |             |      t0      |
#                 +----+----+----+----+             +--------------+
#   Q             +----+                            |      t1      |
#  +----------+   |    |  a tile of scores,         +--------------+
#  | 32 rows, |   | P  |  32 x 16: it becomes       |      ..      |
#  | one block|   |    |  weights where it is       +--------------+
#  +----------+   +----+
#       for each t:   m, l, O corrected;   O += P V_t
# ```
#
# The state of 32 rows, $(m, l, o)$, is spread over the registers of 64 threads: each thread has 4 rows, and of each
# row of $o$ an eighth. Nothing is stored before the last tile.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: loads</summary>
#
# How many queries does a row of $K$ serve, once it is in shared memory?
#
# <details><summary>Hint 2: FLOP per byte</summary>
#
# A key is a row of $K$ and a row of $V$: 2 D numbers. For each query of the block, it makes one score, 2 D
# operations, and one share of a row of $O$, another 2 D.
#
# <details><summary>Hint 3: the correction</summary>
#
# The tile's largest score is 5. It is all that matters for the rows of $O$ so far.
#
# </details></details></details>

# %% question="attention/flash/rereads" points=1
predicted_ratio = lk.answer("attention/flash/rereads", 32)
predicted_ratio

# %% question="attention/flash/intensity" points=2
predicted_intensity = lk.answer("attention/flash/intensity", 16)
predicted_intensity

# %% question="attention/flash/correction" points=1
lk.answer("attention/flash/correction", 0.0498)

# %% [markdown]
# ### Write
#
# Loading the tiles is given, and so is the product $Q K^T$: each thread has computed 4 x 2 scores, of the queries `y`
# to `y + 3` and the keys `x` and `x + 8` of the tile, in `s[i, j]`. You write the rest: mask, recurrence, and $O$ +=
# $P V$.
#
# A row's 16 scores lie in 8 threads, which are neighbors in a warp (`x` = 0 to 7). They must agree on the largest
# score, so they exchange it. The sum can wait: each thread keeps in `l[i]` the sum of *its own* weights, and only
# after the last tile the eight are added up (that is given). For $P V$, a thread needs all 16 weights of its rows,
# and computes only 2 of them: they meet in shared memory, in `tP`, rows of `LP` numbers. A warp has whole rows, and
# no other warp wants them.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# ```
# for each of the 4 rows i:
#     its two scores: scaled, or -inf where the key is past the end or must not be seen
#     the largest: of m[i] and the two scores, then of the 8 threads (shfl_xor_sync with 4, 2, 1)
#     the correction
#     the two weights, to tP; their sum
#     m[i], l[i] and all o[i, c, e] as the recurrence says
# let the warp's weights arrive
# for each of the tile's 16 values: add weight times value to all o
# ```
#
# <details><summary>Hint 2: who is masked?</summary>
#
# The key of `s[i, j]` has the number `col0 + x + 8 * j` in its row; the query has `row0 + y + i`. A key counts if it is
# below `NK`, and with `causal` only if it is not after the query. A query's weight for it belongs in
# `tP[(y + i) * LP + x + 8 * j]`.
#
# <details><summary>Hint 3: O += P V</summary>
#
# `cuda.syncwarp()` orders what a warp has written before what it reads. Then take 4 values at a time: `lk.cuda.load4`
# gives the weights `j` to `j + 3` of each of your 4 rows, in four calls. For each of these values, and each piece `c`
# of your columns: `lk.cuda.load4` of row `j + e` of `tV`, from column `4 * x + 32 * c` on; then 4 x 4 multiply-adds
# to `o[i, c, f]`.
#
# </details></details></details>

# %% kernel="attention/flash"

# %% check="attention/flash" points=10
flash = attention["flash"]
flash.check()

# %% [markdown]
# ### Profile

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block_static"
THREADS = "launch__block_size"

from labkit.problems.attention import shape


def written(p):
    """The profile `p`, if its kernel multiplies about as often as the two products need."""
    if p[FMA] < attention.flops(p.shape) / 4:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return p


N, D = 128, 64
small = shape(N=N, D=D)
p_tiled, p_online, p_flash = (written(rung.profile(**small)) for rung in (attention["tiled"], online, flash))
p_flash.diff(p_online)

# %%
for p in (p_tiled, p_online, p_flash):
    print(f"{p.kernel:25} {32 * p[LOADED] / N**2:5.1f} bytes loaded and "
          f"{p[INSTRUCTIONS] / N**2:5.1f} instructions of a warp for each score")

of_q = N * D * 4 // 32  # sectors, each query once
less = (p_online[LOADED] - of_q) / (p_flash[LOADED] - of_q)
print(f"{less:g} times fewer sectors of K and V than in online_softmax")

# %% [markdown]
# Both worries of the last notebook are gone. Rows of $K$ and $V$ serve all queries of a block, and a score takes an
# eighth of the instructions, since a thread computes 8 of them side by side and corrects once for a tile.
#
# Where do the scores live? Look at which arrays the kernel touches, and how much of them is stored:

# %%
from labkit.profiling.emulated import profile_emulated


def traced(rung, p):
    """A profile of the emulator, which knows the steps of a block: `p` itself, where it is one."""
    return p if p.origin == "emulated" else profile_emulated(**rung.launches(small))


pictures = traced(flash, p_flash)
for name, used in sorted(pictures.arrays.items()):
    print(f"{name}: {used['loaded']:6,} bytes loaded, {used['stored']:6,} stored")

# %% solved_only=true
assert less == predicted_ratio.value and p_flash[LOADED] < p_tiled[LOADED] / 4
assert p_flash[INSTRUCTIONS] < p_online[INSTRUCTIONS] / 7
assert set(pictures.arrays) == {"Q", "K", "V", "O", "L"}

# %% [markdown]
# And its shared memory: a read of `tK` takes 8 different rows at the same columns, 16 bytes per lane. Rows are padded
# by 16 bytes for that.

# %%
lk.plots.access_map(pictures, "tK")

# %% [markdown]
# In the end, multiply-adds are what counts. How many wavefronts does shared memory hand out for each (for
# each *warp* of them)? A multiprocessor can start 4 in a cycle, and hand out one wavefront.

# %%
per_fma = p_flash[SHARED] / (p_flash[FMA] / 32)
print(f"{per_fma:.2f} wavefronts for each multiply-add")
print(f"so shared memory allows {min(1, 1 / (4 * per_fma)):.0%} of the peak")

# %% [markdown]
# That is what binds flash now, beside the instructions: a thread's piece of scores, 4 x 2, is small, as was
# `register_1d`'s. The kernel in CUDA C++ takes 64 queries and 32 keys for a block, 4 x 4 scores for a thread. Further
# up it takes tensor cores, and they have a notebook of their own in this lab.

# %% solved_only=true
assert 0.3 < per_fma < 0.5

# %% [markdown]
# ### Is it enough?
#
# You predicted how much work a block does for each byte of $K$ and $V$. Where do these bytes come from? At $N = 8192$
# and $D = 128$ a head's $K$ and $V$ take 8 MB, and all blocks of the head want the same. An H200 keeps 60 MB in its
# L2, so that memory delivers them about once, and the L2 all further times. The scores of one head take 268 MB, and
# do not fit there.

# %%
from labkit.models.roofline import roofs

h200 = roofs("NVIDIA H200")
print(f"FLOP for each byte of K and V: {predicted_intensity.value or float('nan'):g} with 32 queries in a block")
for unit in ("FP32", "tensor"):
    from_l2, from_memory = h200.ridges[unit, "L2"], h200.ridges[unit, "DRAM"]
    print(f"{unit:6} is in balance at {from_l2:.0f} for bytes from the L2, {from_memory:.0f} for bytes from memory "
          f"({h200.machine}, {h200.origin})")

# %% [markdown]
# For `float32` units it is enough, for tensor cores it is not: they need numbers of 2 bytes, and more queries in a
# block.

# %% solved_only=true
assert h200.ridges["FP32", "DRAM"] < predicted_intensity.value < h200.ridges["tensor", "L2"]

# %% [markdown]
# ### A warp's own weights

#
# Between writing weights and reading them stands no barrier, only `syncwarp`. Is it needed at all, if a warp's lanes
# run together anyway? Take it out:

# %%
import tempfile
from pathlib import Path

careless = Path(tempfile.mkdtemp(), "flash.py")
careless.write_text(flash.source.replace("cuda.syncwarp()", "pass"))
without = flash.load(careless).check(shapes=[shape(N=32)])
without

# %% solved_only=true
assert not without.passed and without.failures[0].kind == "race"

# %% [markdown]
# Since Volta, lanes of a warp may drift apart. A kernel that reads here without waiting is right by luck, as long as
# it lasts.
#
# ### The causal early exit
#
# With `causal`, a block need not go on after the tile that has its last query's key. On the diagonal, tiles are half
# empty but still computed whole.

# %% question="attention/flash/causal" points=2
predicted_tiles = lk.answer("attention/flash/causal", 20)
predicted_tiles

# %% [markdown]
# Count them, block by block, as they run:

# %%
from labkit.emulator.steps import Steps

run = flash.launches(shape(N=N, D=D, causal=1))


def tiles_of(block):
    """(its first query, how many tiles of keys it reads) of one block."""
    steps = Steps((block, 0, 0))
    profiles[block] = profile_emulated(**run, steps=steps)
    queries, _ = steps.touched("Q", "ld")[0]
    return int(queries.min()) // D, len(steps.touched("tK", "ld"))


profiles = {}
walked = dict(sorted(tiles_of(block) for block in range(N // 32)))
print(f"{sum(walked.values())} tiles; by the block's first query: {walked}")

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

keys = [16 * t for t in range(N // 16)]
kinds = [[0 if key >= 16 * count else 2 if key + 15 > first else 1 for key in keys] for first, count in walked.items()]
figure = go.Figure(
    go.Heatmap(z=kinds, x=keys, y=list(walked), xgap=3, ygap=3, zmin=0, zmax=2, showscale=False,
               colorscale=[(0, "#eceef0"), (1 / 2, "#4292c6"), (1, "#9ecae1")],
               hovertemplate="queries from %{y}, keys from %{x}<extra></extra>")
)
for color, name in (("#4292c6", "all keys seen"), ("#9ecae1", "cut by the diagonal"), ("#eceef0", "never loaded")):
    figure.add_scatter(x=[None], y=[None], mode="markers", name=name,
                       marker=dict(symbol="square", size=13, color=color))
figure.update_layout(
    title=f"Tiles of scores that your kernel computes with causal: {sum(walked.values())} of {len(kinds) * len(keys)}",
    height=330, template="plotly_white", legend=dict(orientation="h", y=-0.3),
    xaxis=dict(title="first key of the tile", tickvals=keys, showgrid=False),
    yaxis=dict(title="first query", autorange="reversed", tickvals=list(walked), showgrid=False),
)
figure

# %% solved_only=true
assert sum(walked.values()) == predicted_tiles.value and walked == {0: 2, 32: 4, 64: 6, 96: 8}
assert profiles[0][LOADED] - of_q == (p_flash[LOADED] - of_q) * predicted_tiles.value / 32

# %% [markdown]
# Nearly half of the tiles are saved. The diagonal costs the rest, and weighs less the longer the rows are. But blocks
# are no longer equal: the last queries have all keys to walk over, the first ones next to none. Which block should
# start first? Let us try, on paper: blocks are handed out in order, each to the place that is free first, and a tile
# takes one unit of time.

# %%
import heapq


def makespan(work, places):
    """When the last of these blocks ends, if each goes to the place that is free first."""
    free = [0] * places
    for units in work:
        heapq.heapreplace(free, free[0] + units)
    return max(free)


tiles = [2 * (block + 1) for block in range(8192 // 32)]  # of the blocks of one head, N = 8192
places = 132 * 6  # multiprocessors, times blocks that fit on each
for heads in (4, 16):
    orders = {
        "the short ones of each head first": heads * tiles,
        "the long ones of each head first": heads * tiles[::-1],
        "the longest of all heads first": sorted(heads * tiles, reverse=True),
    }
    least = max(heads * sum(tiles) / places, max(tiles))
    for name, order in orders.items():
        print(f"{heads:2} heads, {name:34}: {makespan(order, places) / least:.2f} times the least that is possible")

# %% [markdown]
# (On paper, as said.) Whoever starts a long job last keeps everybody waiting. So `flash` turns the order of the
# blocks of each head round. With many heads that helps less, for long jobs of the last head still come late. An order
# over all heads would be nearly perfect, but then the keys and values of all heads would be wanted at once, and share
# the L2.

# %% solved_only=true
for heads in (4, 16):
    short, long, best = (makespan(o, places) for o in (heads * tiles, heads * tiles[::-1], sorted(heads * tiles)[::-1]))
    assert best <= long < short and best < 1.05 * max(heads * sum(tiles) / places, max(tiles))

# %% [markdown]
# ### Explain
#
# FlashAttention does as many multiply-adds as naive, and some exponentials and corrections more. Which traffic has it
# saved, which has it not, and why may it be faster nevertheless at a length at which all scores fit into memory?

# %% [markdown] explain="attention/flash" points=3
# ### BEGIN SOLUTION
# The scores and weights no longer travel at all: they live in registers and, for a moment, in shared memory. K and
# V still come once for every 32 queries, and that grows with the square of N as well, but they are small enough to
# stay in the L2, where the scores of all heads are not. So memory itself delivers little more than Q, K, V and O
# once; a score takes fewer bytes and fewer instructions; and one launch has become of three.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="attention/flash" language="cuda"

# %% check="attention/flash" language="cuda"
attention["flash", "cuda"].check()

# %% [markdown]
# ## A budget: shared memory and registers
#
# How large may tiles be? Whoever wants more queries per block pays in two currencies.

# %% question="attention/flash/shared_bytes" points=1
predicted_bytes = lk.answer("attention/flash/shared_bytes", 36096)
predicted_bytes

# %%
p_128 = flash.profile(**shape(N=32, D=128))
needs = [int(p_128[name]) for name in (THREADS, REGISTERS, SHARED_BYTES)]
print("{} threads, {} registers each, {:,} bytes of shared memory for a block at D = 128".format(*needs))
lk.plots.occupancy(*needs)

# %% [markdown]
# Two currencies, and both are nearly spent: few warps fit, so few that they cannot hide much waiting. That is the
# price of keeping a state in registers. What matters is that each thread has many sums that do not wait for each
# other (8 scores, and $D / 2$ numbers of $O$), and that data is there when it is wanted. The latter is the next
# rung's business.

# %% solved_only=true
assert p_128[SHARED_BYTES] == predicted_bytes.value

# %% [markdown]
# ## Rung: flash_double_buffered
#
# In flash, a block loads two tiles, waits at a barrier until they are there, computes, waits until everybody has
# computed, loads again. While it loads it does not compute. LLM-Speed, the operator library, keeps two buffers of
# everything for that: it computes on tile $t$ in one pair while tile $t + 1$ comes into the other.
#
# ### Predict

# %% question="attention/flash_double_buffered/shared_bytes" points=1
predicted_double = lk.answer("attention/flash_double_buffered/shared_bytes", 52736)
predicted_double

# %% [markdown]
# There is a thriftier way, for $K$ and $V$ are never needed at the same time. While scores are computed, $K$ is in
# use, and $V$'s buffer is free: let $V$ come. While $P V$ is computed, $V$ is in use, and $K$'s buffer is free: let
# the next $K$ come. **Two buffers that take turns**, and not a byte more than before.
#
# The copies are `cp_async`: started by an instruction which returns at once, they pass no register. `start_tile` starts
# those of a tile; `arrive` waits for all that this thread has started, and then for everybody at a barrier.
#
# ### Write
#
# Take over the whole body of the loop from your `flash`, product and all. Then put in what moves the tiles. The first
# $K$ has been started before the loop, and the first `arrive` stands at the top of it.

# %% [markdown]
# <details><summary>Hint 1: how many lines?</summary>
#
# Four lines are new, and one of yours can go.
#
# <details><summary>Hint 2: where?</summary>
#
# $V$'s buffer is free as soon as everybody is past the `arrive` at the top. When is $V$ wanted? Before that it must
# have arrived; and once everybody is there, nobody reads $K$ any more.
#
# <details><summary>Hint 3: the last tile</summary>
#
# There is no $K$ after the last one: start it only if `col0 + BN` is below `keys`. And which of your lines is now
# done by a barrier?
#
# </details></details></details>

# %% kernel="attention/flash_double_buffered"

# %% check="attention/flash_double_buffered" points=5
double = attention["flash_double_buffered"]
double.check()

# %% [markdown]
# ### Who works when
#
# A block's life is cut into pieces by its barriers. In each piece, what comes from global memory, and what is computed?
# Here is the record of a block of each kernel, its first four tiles of keys:

# %%
p_double = written(double.profile(**small))
record = {"flash": pictures, "flash_double_buffered": traced(double, p_double)}
ROWS = {"K comes": "K", "V comes": "V", "scores, from K's tile": "tK", "O, from V's tile": "tV"}
when = {rung: {row: sorted(p.steps.touched(array, "ld")) for row, array in ROWS.items()} for rung, p in record.items()}

# %% jupyter={"source_hidden": true}
from plotly.subplots import make_subplots

SHOWN = 9  # pieces
figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.14, subplot_titles=list(when))
for number, rows in enumerate(when.values(), 1):
    for row, pieces in rows.items():
        mine = [piece for piece in pieces if piece < SHOWN]
        figure.add_bar(orientation="h", base=mine, x=[0.94] * len(mine), y=[row] * len(mine), row=number, col=1,
                       marker_color="#fdae6b" if row.endswith("comes") else "#4292c6", showlegend=False,
                       text=[f"tile {k}" for k in range(len(mine))], textposition="inside", textangle=0,
                       insidetextanchor="middle", hoverinfo="none")
    for piece in range(SHOWN + 1):
        figure.add_vline(x=piece - 0.03, line=dict(color="#202124", width=1), row=number, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, row=number, col=1)
figure.update_xaxes(range=[-0.05, SHOWN], showgrid=False, tickvals=[k + 0.47 for k in range(SHOWN)],
                    ticktext=list(range(SHOWN)))
figure.update_xaxes(title="pieces between barriers, one after the other (a clock would not find them equally long)",
                    row=2, col=1)
figure.update_layout(title="One block: what comes (orange) and what is computed (blue)", height=440,
                     barmode="overlay", template="plotly_white", bargap=0.25)
figure

# %% [markdown]
# In flash, an orange piece never stands above a blue one: one waits for the other, unless another block of the same
# multiprocessor has something to do. In your new kernel something comes in every piece but the last, while something
# is computed in every piece but the first. What is the same in both is the number of barriers.

# %% solved_only=true
flash_when, double_when = when["flash"], when["flash_double_buffered"]
tiles_walked = N // 16
assert not set(flash_when["K comes"] + flash_when["V comes"]) & set(flash_when["scores, from K's tile"])
assert double_when["V comes"] == double_when["scores, from K's tile"]
assert set(double_when["K comes"][1:]) < set(double_when["O, from V's tile"])
assert max(record["flash"].steps.phases) == max(record["flash_double_buffered"].steps.phases) == 2 * tiles_walked
assert p_double[SHARED_BYTES] == p_flash[SHARED_BYTES]
assert predicted_double.value > 48 * 1024 > predicted_bytes.value

# %%
p_double.diff(p_flash)

# %% [markdown]
# The bytes are the same, and so is all arithmetic. Two thirds of the stores to shared memory have gone, since copies
# no longer pass through registers; what is left are the weights. What cannot be counted is the waiting.
#
# ### What would it be worth?
#
# LLM-Speed sets itself the goal of at least 20 percent from pipelining. A clock can tell, on a GPU. What can be told
# without one is *modeled*, from counted blocks, measured rates, and the longest chain of instructions that wait for
# each other:

# %%
import pandas as pd

at = shape(H=64, N=128, D=64)
modeled = {rung.name: lk.predict(rung, **at) for rung in (flash, double)}
times = pd.DataFrame(
    {
        "modeled us": 1e3 * p.ms,
        **{f"{name} alone": 1e3 * p.terms[name] for name in ("latency", "issue", "shared")},
        "bound by": p.binds,
    }
    for p in modeled.values()
)
times.index = list(modeled)
times.style.format(precision=0).set_caption(f"a model of the {modeled[flash.name].device}, not a measurement")

# %% [markdown]
# Look at the column *latency*, what waiting alone would take. It is the one that your four lines were to shorten. Do
# not trust the totals too far: where waiting binds, this model has been off by more than half (`docs/models.md` lists
# its failures).

# %% solved_only=true
assert modeled["attention/flash_double_buffered"].ms < modeled["attention/flash"].ms

# %% [markdown]
# ### Explain
#
# An `arrive` at the top of the loop, another one in its middle. Say for each of the two what would go wrong without its
# barrier, and what without its wait.

# %% [markdown] explain="attention/flash_double_buffered" points=3
# ### BEGIN SOLUTION
# At the top: without the wait, scores would be computed from a K that has not come; without the barrier, from rows
# that other threads have not waited for, and the new V would overwrite rows that slower warps still multiply with. In
# the middle: without the wait, V might not be there; without the barrier, neither others' rows of V nor a free buffer
# for the next K are certain, since slower warps may still read K.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="attention/flash_double_buffered" language="cuda"

# %% check="attention/flash_double_buffered" language="cuda"
attention["flash_double_buffered", "cuda"].check()

# %% [markdown]
# ## On an H200
#
# What does a clock say? Here are our solutions, recorded: four sequences of 16 heads, 4096 tokens each. PyTorch's line
# is its own attention in `float32`.

# %%
LADDER = ["naive", "tiled", "online_softmax", "flash", "flash_double_buffered"]
timed = {(rung, language): attention[rung, language].time(recorded=True) for language in ("numba", "cuda")
         for rung in LADDER}
lk.plots.ladder(list(timed.values()))

# %% [markdown]
# Not every step goes up. Nsight Compute read the counters of the kernels in CUDA C++ as well, at 2048 tokens. A
# scheduler starts an instruction in each cycle at most (an *issue slot*), and shared memory hands out one wavefront.

# %%
DRAM_READ, DRAM_WRITTEN, TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
MULTIPROCESSORS = 132
large = shape(B=4, H=16, N=2048, D=128)
scores = 4 * 16 * 2048**2
read = {language: {rung: attention[rung, language].recorded(**large) for rung in LADDER}
        for language in ("numba", "cuda")}


def summary(p):
    cycles = p[INSTRUCTIONS] / (4 * MULTIPROCESSORS * p[ISSUE] / 100)
    return {
        "ms": p[TIME] / 1e6,
        "GB from and to memory": (p[DRAM_READ] + p[DRAM_WRITTEN]) / 1e9,
        "instructions per score": p[INSTRUCTIONS] / scores,
        "issue slots used, %": p[ISSUE],
        "wavefronts of shared memory, % of cycles": 100 * (p[SHARED] + p[SHARED_STORES]) / MULTIPROCESSORS / cycles,
    }


table = pd.DataFrame({rung: summary(p) for rung, p in read["cuda"].items()}).T
table.style.format(precision=1).set_caption("CUDA C++, read by Nsight Compute on the NVIDIA H200")

# %% [markdown]
# * **online_softmax** moves hardly any bytes, and is no faster than tiled. What it saved was room, not time: the
#   scores of tiled go through memory at a fraction of what memory can do, and what keeps tiled busy is shared memory.
#   In their place come more instructions, for each key a correction, two exponentials and five shuffles.
# * **flash** takes a small part of the instructions for a score, and that is the step up. LLM-Speed states 2 to 4 times
#   tiled's speed.
# * **flash_double_buffered** was to bring 20 percent, and brings a few. Why? Ask what warps wait for:

# %%
from labkit.profiling.metrics import STALLS

steps = {rung: read["cuda"][rung] for rung in ("flash", "flash_double_buffered")}
reasons = [m for m in STALLS if "_stalled_" in m.name and steps["flash"].metrics.get(m.name, 0) >= 0.01]
waiting = pd.DataFrame({rung: {m.title: p[m.name] for m in reasons} for rung, p in steps.items()})
waiting.sort_values("flash", ascending=False).style.format(precision=2).set_caption("warps per issued instruction")

# %%
GLOBAL_WAIT = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
READY = "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
before, after = steps.values()
waits = before[GLOBAL_WAIT] / (1 + waiting["flash"].sum())  # of all warps: one is issued from
blocks = int(min(before["launch__occupancy_limit_registers"], before["launch__occupancy_limit_shared_mem"]))
print(f"flash: {blocks} blocks on a multiprocessor; of its warps' time {waits:.0%} is waiting for global memory,")
print(f"where double buffering leaves {after[GLOBAL_WAIT] / before[GLOBAL_WAIT]:.0%} of it")
for what, rate in (("clock", timed["flash", "cuda"].median_ms / timed["flash_double_buffered", "cuda"].median_ms),
                   ("issue slots", after[ISSUE] / before[ISSUE])):
    print(f"gained, by the {what}: {rate - 1:.1%}")

# %% [markdown]
# The copies do what they should: the wait for global memory (`long scoreboard`) is gone. But it was next to nothing,
# even together with the barriers, where warps wait for those that wait. Three blocks share a multiprocessor, and while
# one waits for its tile, the others multiply; `not selected` says that with each instruction more than one other warp
# could have gone on. Both kernels keep about 70% of the issue slots *and* of shared memory's wavefronts busy. Whoever
# wants 20% must take away instructions and wavefronts: larger pieces for a thread, or tensor cores. A second buffer
# pays where only one block fits.
#
# And numba? Its kernels do the same (flash with tiles half as large). How many times as long do they take, how many
# times as many instructions do they need, and how much longer is it from one instruction to the next?

# %%
compared = pd.DataFrame(
    {
        "time": a[TIME] / b[TIME],
        "instructions": a[INSTRUCTIONS] / b[INSTRUCTIONS],
        "each instruction": b[ISSUE] / a[ISSUE],
    }
    for a, b in zip(read["numba"].values(), read["cuda"].values())
)
compared.index = LADDER
compared.style.format(precision=2).set_caption("numba, in multiples of CUDA C++: time is the product of the others")

# %% [markdown]
# It is the instructions. numba computes indices in 64 bits and looks whether they are negative; and where its compiler
# leaves a nest of loops rolled, a number is picked from a "local" array in registers by one select after the other.

# %% solved_only=true
ms = {key: t.median_ms for key, t in timed.items()}
assert ms["naive", "cuda"] > 3 * ms["tiled", "cuda"] and ms["tiled", "cuda"] > 3 * ms["flash", "cuda"]
assert 0.8 < ms["tiled", "cuda"] / ms["online_softmax", "cuda"] < 1.1
tiled_row, online_row, flash_row = (table.loc[rung] for rung in ("tiled", "online_softmax", "flash"))
assert online_row.iloc[1] * 30 < tiled_row.iloc[1] and online_row.iloc[2] > 1.3 * tiled_row.iloc[2]
assert 1e3 * tiled_row.iloc[1] / tiled_row.iloc[0] < 0.5 * timed["tiled", "cuda"].ceilings["read_gbps"]
assert tiled_row.iloc[4] > 70 and online_row.iloc[4] == 0 and flash_row.iloc[2] * 4 < online_row.iloc[2]
assert 1 < ms["flash", "cuda"] / ms["flash_double_buffered", "cuda"] < 1.12 and 1 < after[ISSUE] / before[ISSUE] < 1.12
barrier = before[GLOBAL_WAIT.replace("long_scoreboard", "barrier")] / (1 + waiting["flash"].sum())
assert waits + barrier < 0.12 and after[GLOBAL_WAIT] < 0.3 * before[GLOBAL_WAIT] and before[READY] > 1 and blocks == 3
assert 60 < flash_row.iloc[3] < 85 and 60 < flash_row.iloc[4] < 85
assert 0.6 < timed["flash_double_buffered", "cuda"].ratio < 1
product = compared["instructions"] * compared["each instruction"]
assert (abs(compared["time"] / product - 1) < 0.2).all() and (compared["instructions"] > 1).all()

# %% [markdown]
# ## Your page: the memory of attention
#
# The buffers of all launches, recorded without being run, in your kernels: `tiled` of the first notebook and the three
# that came after it.

# %%
from labkit.kernels import recording


def buffers(rung, **shape):
    """Bytes of each buffer that the rung's launches use, by its name."""
    run = rung.launches(shape)
    with recording(run["names"]) as record:
        run["fn"]()
    return {buffer.name: buffer.nbytes for buffer in record.buffers}


lengths = [64, 256, 1024, 4096]
rungs = [attention["tiled"], online, flash, double]
taken = {rung.step.name: [sum(buffers(rung, **shape(N=n, D=64)).values()) for n in lengths] for rung in rungs}

# %% jupyter={"source_hidden": true}
further = [2**k for k in range(6, 18)]
figure = go.Figure()
figure.add_scatter(x=further, y=[4 * (n * n + 4 * n * 64 + n) for n in further], mode="lines", name="with scores: N²",
                   line=dict(color="#d9480f", dash="dot"))
figure.add_scatter(x=further, y=[4 * (4 * n * 64 + n) for n in further], mode="lines", name="without: N",
                   line=dict(color="#2171b5", dash="dot"))
for (name, sizes), symbol in zip(taken.items(), ("circle", "circle", "square-open", "x")):
    color = "#d9480f" if name == "tiled" else "#2171b5"
    figure.add_scatter(x=lengths, y=sizes, mode="markers", name=f"your {name}",
                       marker=dict(symbol=symbol, size=8 if symbol == "circle" else 13, color=color))
figure.update_layout(title="All buffers of one head, D = 64, float32: counted, and continued by arithmetic",
                     height=460, template="plotly_white", legend=dict(orientation="h", y=-0.2),
                     xaxis=dict(title="N, queries and keys", type="log", tickvals=further[::2],
                                ticktext=[f"{n:,}" for n in further[::2]]),
                     yaxis=dict(title="bytes", type="log", dtick=1, exponentformat="SI"))
figure

# %% jupyter={"source_hidden": true}
tiled_ms, flash_ms, double_ms = (timed[rung, "cuda"].median_ms for rung in ("tiled", "flash", "flash_double_buffered"))
faster, pipelined = tiled_ms / flash_ms, flash_ms / double_ms
n = 2**17
with_scores, without = 4 * n * n / 1e9, 4 * (4 * n * 64 + n) / 1e6
stated = {
    "memory": ("O(N²) naive, O(N) flash", f"{n:,} keys take {with_scores:.0f} GB of scores in naive and tiled, and "
               f"{without:.0f} MB in all in flash (one head, D = 64, by arithmetic from what was counted)"),
    "tiles": ("32 x 32 in its tiled kernel", "16 x 16 in tiled; 32 x 16 in flash, 64 x 32 in CUDA C++"),
    "double buffering": ("two tiles each of K and V", "one of each; they take turns"),
    "causal": ("stops before keys that no query sees", f"the same: {sum(walked.values())} of 32 tiles, counted"),
    "length": ("flash for 100,000 and more", f"{n:,}: see above"),
    "time": ("flash 2 to 4 times as fast for long rows; 20% more by pipelining",
             f"{faster:.1f} times as fast as tiled, and {pipelined - 1:.0%} more by pipelining (CUDA C++, recorded)"),
}
page = pd.DataFrame([(name, *both) for name, both in stated.items()], columns=["", "LLM-Speed states", "here"])
page.style.hide(axis="index").set_properties(**{"text-align": "left"})

# %% solved_only=true
assert taken["online_softmax"] == taken["flash"] == taken["flash_double_buffered"]
assert taken["flash"] == [4 * (4 * n * 64 + n) for n in lengths]
assert [a - b for a, b in zip(taken["tiled"], taken["flash"])] == [4 * n * n for n in lengths]

# %% [markdown]
# The lecture (CS336, lecture 5) names the two techniques: tiles, and computing again instead of storing. Here you
# have seen the first. The second comes with the backward pass, which wants the weights once more and finds that
# nobody has kept them, but for $L$, one number for each row. And one should say carefully what is gained:
# FlashAttention's work and its loads still grow with $N^2$. What grows like $N$ is its *memory*, and what became
# small is the factor in front.
#
# Next: [FlashAttention, backward](04_flash_backward.ipynb), then [attention on tensor cores](05_tensor_cores.ipynb).
