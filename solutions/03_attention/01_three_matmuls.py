# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention, from three matrices
#
# $Q$, $K$ and $V$ are multiplied, with a softmax in between. You know both parts: the products from
# [Matrix multiplication](../02_gemm/01_naive_to_tiled.ipynb), the softmax from
# [Reductions, softmax and RMSNorm](../01_gpu_basics/05_reductions_and_norms.ipynb). Here you put them together, in
# three kernels, as everybody did for years. Then you look at what lies between the kernels, and find that this, and not
# the arithmetic, is the trouble with attention. The next two notebooks take it away.
#
# Every rung goes the way you know: predict, write, check, profile, explain. No GPU is needed: where there is none, the
# kernels run on an emulator, and what it counts is marked *emulated*.

# %%
import labkit as lk

attention = lk.problem("attention")
attention

# %% [markdown]
# ## The formula
#
# $$O = \mathrm{softmax}(s\,Q K^T)\,V$$
#
# Row $i$ of $Q$ is a **query**, what a word looks for; rows of $K$ are **keys**, what each word offers; rows of $V$
# are **values**. The **score** of query $i$ and key $j$ is their product, $q_i \cdot k_j$, times a scale $s$, usually
# $1/\sqrt D$. The softmax makes weights out of the scores of a query, and its row of $O$ is the weighted sum of all
# values. A language model may not look ahead: with a **causal** mask, query $i$ sees the keys $0 \ldots i$ only, and
# all other scores are $-\infty$.
#
# Here it is in numpy, for 16 words:

# %%
import numpy as np

random = np.random.default_rng(1)
words, D = 16, 32
Q, K, V = random.normal(size=(3, words, D)).astype(np.float32)


def softmax(scores):
    """Of each row; the largest score of the row is subtracted, so that no exponential overflows."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


S = Q @ K.T / np.sqrt(D)
P = softmax(S)
P_causal = softmax(np.where(np.tri(words, dtype=bool), S, -np.inf))
O = P @ V

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go
from plotly.subplots import make_subplots

figure = make_subplots(1, 3, horizontal_spacing=0.06,
                       subplot_titles=["scores: every query with every key", "weights: each row adds up to 1",
                                       "weights with a causal mask"])
for column, (matrix, scale) in enumerate([(S, "RdBu"), (P, "Blues"), (P_causal, "Blues")], 1):
    middle = dict(zmid=0) if scale == "RdBu" else dict(zmin=0, zmax=0.6)
    figure.add_heatmap(z=matrix, colorscale=scale, showscale=False, xgap=1, ygap=1, row=1, col=column,
                       hovertemplate="query %{y}, key %{x}: %{z:.2f}<extra></extra>", **middle)
    figure.update_xaxes(title="key", tickvals=[0, 5, 10, 15], constrain="domain", row=1, col=column)
    figure.update_yaxes(title="query" if column == 1 else "", tickvals=[0, 5, 10, 15], autorange="reversed",
                        scaleanchor=f"x{column if column > 1 else ''}", constrain="domain", row=1, col=column)
figure.update_layout(height=390, template="plotly_white", margin=dict(t=60, b=50))
figure

# %% solved_only=true
assert np.allclose(P.sum(axis=1), 1) and np.allclose(P_causal.sum(axis=1), 1)
assert P_causal[0, 0] == 1 and (np.triu(P_causal, 1) == 0).all()

# %% [markdown]
# A model has many **heads**, each with a $Q$, $K$ and $V$ of its own: `B` batches of `H` heads. (Several query heads
# may share a key head, `HK` of them in all; your kernels get the number of query heads per key head as `group`.) The
# heads know nothing of each other, so you may think of one.
#
# Besides $O$, all our kernels write $L_i = \log \sum_j e^{s_{ij}}$, one number for each query. The backward pass will
# want it.
#
# ### How much work, how much data?

# %% question="attention/flops" points=1
lk.answer("attention/flops", 4 * 8192 * 8192 * 128)

# %% question="attention/compulsory_bytes" points=1
lk.answer("attention/compulsory_bytes", 16809984)

# %% [markdown]
# That makes some two thousand FLOP for every byte, which is plenty. A GPU's arithmetic and memory are in balance at far
# fewer:

# %%
from labkit.models.roofline import roofs

h200 = roofs("NVIDIA H200")
ridge = {unit: h200.ridges[unit, "DRAM"] for unit in ("FP32", "tensor")}
print(f"{h200.machine}, {h200.origin}: arithmetic is the limit from {ridge['FP32']:.0f} FLOP per byte on in float32,")
print(f"on tensor cores in bfloat16 from {ridge['tensor']:.0f}")

# %% [markdown]
# If attention were slow, then, memory could not be to blame. Could it?

# %% solved_only=true
best = attention.flops({**attention.problem.profile_shape, "N": 8192, "NK": 8192, "D": 128}) / 16809984
assert 2000 < best < 2100 and best > 10 * ridge["tensor"]

# %% [markdown]
# ## Rung 1: naive
#
# Three kernels, word by word: one thread per score; one warp per row for its softmax; one thread per element of $O$.
# The scores lie in a matrix $S$ in memory between them, `N` x `NK` numbers for each head.
#
# ```
#   Q, K --> [ scores ] --> S --> [ softmax ] --> S --> [ weighted sum ] --> O
#                                                 V -----^
# ```
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: the scores kernel</summary>
#
# A warp is two rows of the block: 16 keys, 2 queries. All its lanes are at the same `d`. Where do the numbers `K[j,
# d]` of neighboring keys lie?
#
# <details><summary>Hint 2: a score's life</summary>
#
# The softmax needs the largest score of its row, then the sum of exponentials, then the weights. The scores of a long
# row do not fit in a warp's registers: it reads them again each time.
#
# </details></details>

# %% question="attention/naive/sectors_of_k" points=1
predicted_sectors = lk.answer("attention/naive/sectors_of_k", 16)
predicted_sectors

# %% question="attention/naive/score_traffic" points=2
predicted_traffic = lk.answer("attention/naive/score_traffic", 24)
predicted_traffic

# %% [markdown]
# ### Write
#
# Three gaps, one in each kernel. `scale` comes ready; in the softmax, all 32 lanes of the warp work on one row, and `m`
# begins with the lowest finite number.

# %% [markdown]
# <details><summary>Hint 1: scores</summary>
#
# A sum over `d` of `Q[head, i, d]` times `K[head // group, j, d]`; then the scale; then the mask. `-math.inf` is minus
# infinity; write `float32(-math.inf)`, so that `s` stays a `float32`.
#
# <details><summary>Hint 2: softmax</summary>
#
# ```
# this lane's columns: t, t + 32, t + 64, ...
# m = largest of this lane's scores;  exchange by shfl_xor_sync: 16, 8, 4, 2, 1
# l = sum of exp(score - m) of this lane's scores;  exchange in the same way
# each of this lane's scores becomes exp(score - m) / l
# ```
#
# `cuda.shfl_xor_sync(ALL, m, d)` gives the `m` of the lane whose number differs in the bit `d`.
#
# <details><summary>Hint 3: a row of minus infinity</summary>
#
# If all keys are left out, every exponential is 0, and so is the sum. PyTorch makes such a row of $O$ zero: let the
# weights be 0 where `l` is 0.
#
# </details></details></details>

# %% kernel="attention/naive"

# %% check="attention/naive" points=6
naive = attention["naive"]
naive.check()

# %% [markdown]
# The check has keys of $-\infty$, rows without any key, and scores above 100. Take the `- m` out of your exponentials
# and check again: what does it say? Then put it back.
#
# ### Profile

# %%
from labkit.problems.attention import shape

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def written(p):
    """The profile `p`, if its kernel multiplies about as often as the two products need."""
    if p[FMA] < attention.flops(p.shape) / 4:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return p


small = shape(N=64, D=64)  # one head
p_naive = written(naive.profile(**small))
p_naive

# %% [markdown]
# Here is the first warp's load from $K$, drawn from the addresses that the run really used:

# %%
from labkit.profiling.emulated import profile_emulated

pictures = profile_emulated(**naive.launches(small))
lk.plots.access_map(pictures, "K")

# %% [markdown]
# You have met this in the naive matrix product: lanes that walk down a column. And each score takes one such load for
# every `d`.
#
# Now look at the arrays. How many distinct bytes of each do the kernels use? (Each kernel counts for itself, so $S$
# counts twice: two kernels write it, two read it.)

# %% jupyter={"source_hidden": true}
import pandas as pd

names = ("Q", "K", "V", "S", "O", "L")
if not all(name in pictures.arrays for name in names):
    raise lk.LabkitError(f"{pictures.kernel} does not use all arrays yet; write it, run its cell, and come back.")
of_arrays = {name: pictures.arrays[name] for name in names}
pd.DataFrame(of_arrays).T.rename(columns=lambda what: f"bytes {what}").style.format(thousands=",")

# %% [markdown]
# At $N = 64 = D$ all matrices are equally large. But only one of them grows with the *square* of $N$.

# %% solved_only=true
first_load = next(a for a in pictures.accesses if a.array == "K" and a.op == "ld")
assert len({address // 32 for address in first_load.addresses}) == predicted_sectors.value
assert p_naive[FMA] > 2 * 64 * 64 * 64  # the two products, and what is inside of the exponentials
assert p_naive[STORED] * 32 == 2 * 4 * 64 * 64 + 4 * 64 * 64 + 64 * 32  # S twice, O, and L, a lane at a time

# %% [markdown]
# ## What lies between
#
# ### Predict

# %% question="attention/naive/score_bytes" points=1
lk.answer("attention/naive/score_bytes", 17179869184)

# %% question="attention/naive/longest" points=1
longest = lk.answer("attention/naive/longest", 23469)
longest

# %% [markdown]
# ### Measure
#
# Count it, for your kernels. A launch can be *recorded* without being run: then we see every buffer that the kernels
# are given, those that `launch` has allocated for itself too.

# %%
from labkit.kernels import recording


def buffers(rung, **shape):
    """Bytes of each buffer that the rung's launches use, by its name."""
    run = rung.launches(shape)
    with recording(run["names"]) as record:
        run["fn"]()
    return {buffer.name: buffer.nbytes for buffer in record.buffers}


lengths = [64, 128, 256, 512, 1024, 2048, 4096]
measured = {N: buffers(naive, **shape(N=N, D=64)) for N in lengths}
for N in (64, 1024, 4096):
    print(f"N = {N:4}: S {measured[N]['S'] / 2**20:9.3f} MiB, all others together "
          f"{sum(measured[N].values()) / 2**20 - measured[N]['S'] / 2**20:6.3f} MiB")

# %% jupyter={"source_hidden": true}
HEADS, FULL = 64, 141e9
further = [2**k for k in range(6, 18)]
figure = go.Figure()
figure.add_scatter(x=further, y=[HEADS * 4 * (4 * N * 64 + N) for N in further], name="Q, K, V, O and L",
                   mode="lines", line=dict(color="#2171b5", dash="dot"))
figure.add_scatter(x=further, y=[HEADS * 4 * N * N for N in further], name="S, by arithmetic: 4 N² bytes for each head",
                   mode="lines", line=dict(color="#d9480f", dash="dot"))
figure.add_scatter(x=lengths, y=[HEADS * sum(b.values()) for b in measured.values()], mode="markers",
                   name="all buffers of your kernels, counted for one head, times 64",
                   marker=dict(color="#202124", size=9))
figure.add_scatter(x=further[::len(further) - 1], y=[FULL, FULL], name="all memory of an H200, 141 GB", mode="lines",
                   line=dict(color="#5f6368", dash="dash"))
figure.update_layout(title="Memory that 64 heads take, D = 64, float32", template="plotly_white", height=460,
                     legend=dict(orientation="h", y=-0.2),
                     xaxis=dict(title="N, queries and keys", type="log", tickvals=further[::2],
                                ticktext=[f"{N:,}" for N in further[::2]]),
                     yaxis=dict(title="bytes", type="log", dtick=1, exponentformat="SI"))
figure

# %% [markdown]
# The orange line climbs twice as steeply: double the length, and the scores take four times the room. A context of
# 128 thousand words, which models have had for years, is out of reach by a factor of thirty; the matrices that we
# really want, in blue, would take a sixteenth of the GPU.

# %% solved_only=true
assert all(measured[N]["S"] == 4 * N * N for N in lengths)
assert all(sum(measured[N].values()) - measured[N]["S"] == 4 * (4 * N * 64 + N) for N in lengths)
assert abs(HEADS * 4 * longest.value**2 / FULL - 1) < 0.01
assert 25 < HEADS * 4 * 2.0**34 / FULL < 35 and abs(HEADS * 4 * (4 * 2**17 * 64 + 2**17) / FULL - 1 / 16) < 0.005

# %% [markdown]
# ### Is it slow, too?
#
# Room is one thing, traffic another. You have counted the bytes of a score's life. For each score, the products do $4
# D$ operations:

# %%
per_score = predicted_traffic.value or float("nan")
print(f"{4 * 128 / per_score:.0f} FLOP for each byte of scores, at D = 128")
print(f"balance: {ridge['FP32']:.0f} in float32, {ridge['tensor']:.0f} on tensor cores")

# %% [markdown]
# ### Explain
#
# In `float32`, is the traffic of the scores what limits this kernel on an H200? And what if the products ran on tensor
# cores?

# %% [markdown] explain="attention/naive" points=2
# ### BEGIN SOLUTION
# No: 21 FLOP per byte is on the right of the ridge of 14, so the arithmetic of float32 takes longer than moving the
# scores. On tensor cores it is on the left of 177 by a factor of eight: the products would be done in an eighth of the
# time that the scores need to travel. The faster the arithmetic, the more the scores cost.
# ### END SOLUTION

# %% solved_only=true
assert ridge["FP32"] < 4 * 128 / 24 < ridge["tensor"] / 8

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# The three launches stand in the header, with a `workspace` line for the scores.

# %% kernel="attention/naive" language="cuda"

# %% check="attention/naive" language="cuda"
attention["naive", "cuda"].check()

# %% [markdown]
# ## Rung 2: tiled
#
# The two products are matrix products, and you know what to do about those: tiles in shared memory, 16 x 16. There is
# one difference to your `smem_tile`. The first product is $Q K^T$: both factors are taken **by rows**, of which the
# sum runs over the columns.
#
# ```
#        K, 16 of its rows                S
#        . . +----+ . .
#        . . | tK | . .                one block computes
#        . . +----+ . .                this tile of S:  S[y, x] = sum over d of tQ[y, d] tK[x, d]
#                                      +----+
#   Q    . . +----+ . .                |    |
#        . . | tQ | . .                +----+
#        . . +----+ . .
#            ---> both move along d
# ```
#
# So threads that are neighbors in `x` read `tK` down a column. That is why its rows have 17 words.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: requests</summary>
#
# In naive, a thread makes two loads for each step of its sum. Here it makes two for each tile. How many steps does a
# tile cover?
#
# <details><summary>Hint 2: wavefronts</summary>
#
# Word `w` of shared memory lies in bank `w % 32`. With rows of 16 words, lane `x` wants the word `16 * x + d`. In how
# many banks do the words of 16 rows lie? (The other 16 lanes want the same words.)
#
# </details></details>

# %% question="attention/tiled/request_ratio" points=2
predicted_ratio = lk.answer("attention/tiled/request_ratio", 16)
predicted_ratio

# %% question="attention/tiled/unpadded_wavefronts" points=1
predicted_wavefronts = lk.answer("attention/tiled/unpadded_wavefronts", 8)
predicted_wavefronts

# %% [markdown]
# ### Write
#
# The two products; the softmax between them is that of naive, and is given. Mind the tails: where $Q$, $K$, $V$ or the
# weights have ended, a zero stands in the tile.

# %% [markdown]
# <details><summary>Hint 1: scores</summary>
#
# A loop over `d0` = 0, 16, 32 ...: thread (`x`, `y`) copies `Q[head, i, d0 + x]`, and of $K$ row `j0 + y`, column `d0
# + x`. Barrier, 16 steps of the sum, barrier.
#
# <details><summary>Hint 2: weighted sum</summary>
#
# A loop over `j0` = 0, 16, 32 ... below `NK`: thread (`x`, `y`) copies the weight of its own query `i` and key `j0 +
# x`, and of $V$ row `j0 + y`, its own column `d`. This product is an ordinary one: row of `tP` times column of `tV`.
#
# <details><summary>Hint 3: nobody leaves early</summary>
#
# A thread whose query is past the end still copies keys and values that the others need, and it must come to every
# barrier.
#
# </details></details></details>

# %% kernel="attention/tiled"

# %% check="attention/tiled" points=5
tiled = attention["tiled"]
tiled.check()

# %% [markdown]
# ### Profile

# %%
p_tiled = written(tiled.profile(**small))
p_tiled.diff(p_naive)

# %% [markdown]
# The requests fell by less than you predicted, because the softmax is in them, and it did not change: each row is read
# three times, 32 scores to a request. Take these out:

# %%
of_softmax = 64 * 3 * 64 // 32  # rows, passes, requests for each
for p in (p_naive, p_tiled):
    print(f"{p.kernel:16} {p[REQUESTS] - of_softmax:7,.0f} load requests of the products, {of_softmax} of the softmax")

# %% [markdown]
# And the banks. Rows of 17 words are there for the reads. Here is a read of `tK`, from your kernel, and from a copy
# of it with rows of 16 words:

# %%
import tempfile
from pathlib import Path

unpadded = Path(tempfile.mkdtemp(), "tiled.py")
unpadded.write_text(tiled.source.replace("TILE, PADDED = 16, 17", "TILE, PADDED = 16, 16"))
p_unpadded = profile_emulated(**tiled.load(unpadded).launches(small))
lk.plots.access_map(profile_emulated(**tiled.launches(small)), "tK")

# %%
lk.plots.access_map(p_unpadded, "tK")

# %%
print(f"{p_tiled[CONFLICTS]:,.0f} bank conflicts of loads, {p_unpadded[CONFLICTS]:,.0f} without padding")

# %% [markdown]
# (Without padding, rows begin on 16 bytes, and the compiler then takes four words of a row with one instruction. So
# there are fewer reads than the picture says, and each is in conflict for longer.)
#
# Padding has its price, which the table above names: conflicts of shared *stores*. A warp writes two rows of a tile,
# and with 17 words to a row, the last word of the second row falls into the bank of the first word of the first. One
# pass more for each store of such a tile; but a tile is stored once, and read 16 times.

# %% solved_only=true
assert p_naive[REQUESTS] - of_softmax == predicted_ratio.value * (p_tiled[REQUESTS] - of_softmax)
assert p_tiled[CONFLICTS] == 0 < p_unpadded[CONFLICTS]
read = next(a for a in p_unpadded.accesses if a.array == "tK" and a.op == "ld")
words = {address // 4 for address in read.addresses}
assert max(sum(word % 32 == bank for word in words) for bank in range(32)) == predicted_wavefronts.value
assert p_tiled[STORE_CONFLICTS] == 16 * 8 * 2 * 64 // 16  # blocks, warps, tiles, steps of d
assert p_tiled[STORED] == p_naive[STORED]
fell = 1 - p_tiled[LOADED] / p_naive[LOADED]
assert 0.94 < fell < 0.96

# %%
print(f"{1 - p_tiled[LOADED] / p_naive[LOADED]:.0%} fewer sectors loaded; {p_tiled[STORED]:,.0f} stored, as before")

# %% [markdown]
# LLM-Speed, a library of such operators, has the same two rungs. Its architecture notes state about 75 percent less
# global traffic for its tiled kernel, with tiles of 32 x 32, and recommend it for lengths from 128 to 2048; the naive
# one for up to 64. Ours saves more, because ours has more to save: its naive kernel keeps a row of scores in shared
# memory, where ours goes through $S$. A percentage means little without what it is a percentage *of*.
#
# ### Explain
#
# Both kernels compute the same $S$ and store the same sectors. Suppose that both products took no time at all. What
# would still have to happen, and how does it grow with $N$?

# %% [markdown] explain="attention/tiled" points=2
# ### BEGIN SOLUTION
# Every score would still be written, read three times, written as a weight and read once more: 24 bytes for each of N
# times N scores, in each head. The tiles made the factors cheap, whose bytes grow like N D for each row of tiles;
# what is between the products grows with the square of N, and no tiling of a single product touches it.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="attention/tiled" language="cuda"

# %% check="attention/tiled" language="cuda"
attention["tiled", "cuda"].check()

# %% [markdown]
# ## Your page

# %% jupyter={"source_hidden": true}
S_bytes = 4 * 64 * 64
page = pd.DataFrame(
    {
        "load requests": int(p[REQUESTS]),
        "bytes loaded (sectors x 32)": int(32 * p[LOADED]),
        "bytes stored": int(32 * p[STORED]),
        "wavefronts of shared loads": int(p[SHARED]),
        "bytes of S": S_bytes,
    }
    for p in (p_naive, p_tiled)
)
page.index = ["naive", "tiled"]
page.style.format(thousands=",").set_caption(f"one head, N = 64, D = 64 ({p_tiled.origin})")

# %% [markdown]
# CS336, the course whose fifth lecture this lab follows, sees it the same way: the products are ordinary tiled
# products, and the softmax is the hard part, for it needs a whole row at once.
#
# Why not do the softmax where the scores are computed, in the block that has them in its registers? Because a block has
# 16 scores of a row, and a softmax needs the row: its largest score, and its sum. That is the one obstacle between the
# products, and it falls in the next notebook: [Online softmax](02_online_softmax.ipynb).
