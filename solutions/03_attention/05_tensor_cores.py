# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention on tensor cores
#
# `flash` does two products of matrices on units that multiply one number at a time, beside units that multiply whole
# matrices. In [Matrix multiplication on tensor cores](../02_gemm/05_tensor_cores.ipynb) you have learned how to use
# these: fragments, `ldmatrix`, swizzles, `cp.async`. Here you put all of it to work.
#
# Between the two products, though, there is a softmax, which no tensor core can do. What makes FlashAttention-2 (Dao,
# 2023) fast is how little it moves there: scores come out of the first product in registers, become weights in the
# same registers, and go into the second one. By the end of this notebook you have written that kernel, and can say
# which of its instructions are not the tensor cores', and how many.
#
# The tensors are `float16` now, scores and sums `float32`. Without a GPU the emulator does what tensor cores do.

# %%
import labkit as lk
from labkit.problems.attention import shape

attention_f16 = lk.problem("attention_f16")
attention_f16

# %% [markdown]
# ## What is left for the others
#
# A weight takes $4D$ tensor operations, in both products together, and one exponential: at $D = 128$, one in 512. It
# sounds like nothing. But exponentials have a unit of their own, and it is a small one:

# %% [markdown]
# <details><summary>Hint</summary>
#
# 128 times 64 weights. Divide them by 16 per cycle, and their tensor operations by 4096 per cycle.
#
# </details>

# %% question="attention_f16/flash_mma/exponentials" points=2
lk.answer("attention_f16/flash_mma/exponentials", 1 / 2)

# %% [markdown]
# So a kernel that first multiplies, then takes exponentials, then multiplies, would lose a third of its time, and
# there are maxima, sums, roundings and loads as well. They have to run *beside* the products: those of one warp while
# another warp multiplies. And whatever can be saved there is worth saving.

# %% [markdown]
# ## Scores are weights' places
#
# You know the fragments of `m16n8k16`. With $g = \mathrm{lane} / 4$ and $q = \mathrm{lane} \bmod 4$, a lane holds of
# the sums (16 x 8) row $g$, columns $2q$ and $2q + 1$, and the same 8 rows further down. For 16 keys there are two
# such products side by side. And of a left factor (16 x 16) it holds:

# %% jupyter={"source_hidden": true}
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.emulator.tensor import mma_layout


def held_by(places, size):
    """For each element of a matrix, the lane that holds it. places: element numbers by lane and place."""
    lanes = np.empty(size, int)
    for lane, elements in enumerate(places):
        lanes.flat[elements] = lane
    return lanes


sums = held_by(mma_layout("c", 16, 8, 16, "f32"), (16, 8))
pieces = {"scores: two products, 16 x 8 each": np.hstack([sums, sums]),
          "weights: one left factor, 16 x 16": held_by(mma_layout("a", 16, 8, 16, "f16"), (16, 16))}
figure = make_subplots(1, 2, subplot_titles=list(pieces), horizontal_spacing=0.06)
for column, lanes in enumerate(pieces.values(), 1):
    figure.add_heatmap(z=lanes, text=lanes, texttemplate="%{text}", textfont=dict(size=10), xgap=1, ygap=1,
                       colorscale=[(0, "#eaf2fa"), (0.5, "#9ecae1"), (1, "#4292c6")], showscale=False,
                       hovertemplate="row %{y}, column %{x}: lane %{z}<extra></extra>", row=1, col=column)
    for row, col in np.argwhere(lanes == 6):
        figure.add_shape(type="rect", x0=col - 0.5, x1=col + 0.5, y0=row - 0.5, y1=row + 0.5,
                         line=dict(color="#d93025", width=2), row=1, col=column)
figure.add_vline(x=7.5, line_color="#333", line_width=2, row=1, col=1)
figure.update_yaxes(autorange="reversed", showgrid=False, dtick=4)
figure.update_xaxes(showgrid=False, dtick=4)
figure.update_layout(title="The lane that holds each element; lane 6 framed", template="plotly_white", height=470,
                     margin=dict(t=90, b=30))

# %% [markdown]
# The same picture twice. What a lane holds of the scores is what it has to hold of the weights: no shuffle, no shared
# memory, nothing moves. Two `float32` become one register of two `float16`, and that is all.

# %% question="attention_f16/flash_mma/register" points=1
predicted_register = lk.answer("attention_f16/flash_mma/register", 3)
predicted_register

# %% solved_only=true
left, right = pieces.values()
assert (left == right).all()
factor = mma_layout("a", 16, 8, 16, "f16")[6]
lower = [16 * (element // 8) + 8 + element % 8 for element in mma_layout("c", 16, 8, 16, "f32")[6]][2:]
assert [list(factor).index(element) // 2 for element in lower] == [predicted_register.value] * 2

# %% [markdown]
# ### See
#
# One warp, 16 queries and 16 keys of $D = 16$, and no shared memory at all. `s0` and `s1` are the two products; look
# at how `p` is made of them.

# %%
from numba import cuda, float32


@cuda.jit
def chain(O, Q, K, V):
    """O = exp2(Q K^T) V: Q, K 16 x 16, V 16 x 8."""
    lane = cuda.threadIdx.x
    g, q = lane // 4, lane % 4

    def beside(M, row, column):
        return lk.cuda.pack_f16x2(float32(M[row, column]), float32(M[row, column + 1]))

    def below(M, row, column):
        return lk.cuda.pack_f16x2(float32(M[row, column]), float32(M[row + 1, column]))

    def weights(x, y):
        return lk.cuda.pack_f16x2(lk.cuda.exp2_approx(x), lk.cuda.exp2_approx(y))

    zero = (float32(0), float32(0), float32(0), float32(0))
    a = (beside(Q, g, 2 * q), beside(Q, g + 8, 2 * q), beside(Q, g, 2 * q + 8), beside(Q, g + 8, 2 * q + 8))
    # Keys are columns of K^T: a column's elements lie beside each other in K.
    s0 = lk.cuda.mma_m16n8k16(a, (beside(K, g, 2 * q), beside(K, g, 2 * q + 8)), zero)
    s1 = lk.cuda.mma_m16n8k16(a, (beside(K, g + 8, 2 * q), beside(K, g + 8, 2 * q + 8)), zero)
    p = (weights(s0[0], s0[1]), weights(s0[2], s0[3]), weights(s1[0], s1[1]), weights(s1[2], s1[3]))
    o = lk.cuda.mma_m16n8k16(p, (below(V, 2 * q, g), below(V, 2 * q + 8, g)), zero)
    for e in range(4):
        O[g + 8 * (e // 2), 2 * q + e % 2] = o[e]


random = np.random.default_rng(0)
q16, k16, v16 = (0.4 * random.standard_normal((16, size)).astype(np.float16) for size in (16, 16, 8))
made = np.zeros((16, 8), np.float32)
p_chain = lk.emulate(chain, 1, 32, [made, q16, k16, v16])
wanted = np.exp2(q16.astype(float) @ k16.astype(float).T) @ v16
print(f"largest difference to exp2(Q K^T) V: {abs(made - wanted).max():.1e}, of results up to {abs(wanted).max():.1f}")

# %%
OPERATIONS = "sm__ops_path_tensor_src_fp16.sum"  # of tensor cores; a multiply-add is two
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
MULTIPLY = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"
ADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"

shared = p_chain[SHARED] + p_chain[STORES]
print(f"{p_chain[OPERATIONS]:.0f} tensor operations, {shared:.0f} wavefronts of shared memory")

# %% solved_only=true
assert abs(made - wanted).max() < 4e-3 * abs(wanted).max()
assert p_chain[OPERATIONS] == 3 * 4096 and p_chain[SHARED] == p_chain[STORES] == 0

# %% [markdown]
# ### What 16 bits do to the weights
#
# The scores are sums of exact products in `float32`. Only the weights are rounded to 16 bits on their way into the
# second product. They are at most 1, as each row's maximum is subtracted first, so nothing can overflow, and each has
# a relative error of half a unit in the last place: $2^{-11}$ in `float16`, $2^{-8}$ in `bfloat16`. Weights are all
# positive, so in their weighted mean these errors do not blow up:

# %%
import torch

generator = torch.Generator().manual_seed(0)
scores, values = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((256, 1024), (1024, 64)))
exact = torch.softmax(2 * scores, dim=1)
for dtype, unit in ((torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
    off = (exact.to(dtype).double() - exact) @ values
    bound = unit * (exact @ values.abs())
    print(f"weights in {dtype}: off by {float(off.abs().max()):.1e}; each error at its worst would give "
          f"{float(bound.max()):.1e}")
    assert (off.abs() <= bound + 1e-7).all()

# %% [markdown]
# ### The exponential, at its cheapest
#
# The unit for exponentials computes $2^x$. So $e^{s (S - m)}$ takes a multiplication by $\log_2 e$, and a library's
# `exp` some more, to be exact to the last bit for all numbers. The weights are rounded to 16 bits anyway. Fold all
# constants into one, $c = s \log_2 e$, and a weight is
#
# $$e^{s\,(S - m)} = 2^{\,c\,S - c\,m} :$$
#
# one multiply-add, with $c\,m$ computed once per row, and one `ex2`. Count both (with the loads of two constants):


# %%
import math

LOG2_E = 1.4426950408889634


@cuda.jit
def by_exp(out, scores, scale, m):
    i = cuda.threadIdx.x
    out[i] = math.exp(scale * (scores[i] - m))


@cuda.jit
def by_exp2(out, scores, c, cm):
    i = cuda.threadIdx.x
    out[i] = lk.cuda.exp2_approx(scores[i] * c - cm)


@cuda.jit
def copied(out, scores, c, cm):
    i = cuda.threadIdx.x
    out[i] = scores[i]


some, out = np.linspace(-40, 5, 256).astype(np.float32), np.zeros(256, np.float32)
scale, most = np.float32(0.125), np.float32(5)
c = np.float32(scale * LOG2_E)
bare = lk.emulate(copied, 1, 256, [out, some, c, c * most])[INSTRUCTIONS]
spent, off = {}, {}
for kernel, arguments in ((by_exp, (scale, most)), (by_exp2, (c, c * most))):
    name = kernel.py_func.__name__
    spent[name] = (lk.emulate(kernel, 1, 256, [out, some, *arguments])[INSTRUCTIONS] - bare) / 8  # of 8 warps
    exactly = np.exp(float(scale) * (some.astype(float) - float(most)))
    off[name] = abs(out / exactly - 1).max()
    print(f"{name:8} {spent[name]:3.0f} instructions more than a copy, off by at most {off[name]:.1e} of the weight")

# %% [markdown]
# And where a score is $-\infty$, $2^{-\infty}$ is 0, as it should be. (Not so $-\infty - (-\infty)$: a row's maximum
# starts at $-10^{30}$, which no score reaches.)

# %% solved_only=true
assert 2 <= spent["by_exp2"] < spent["by_exp"]
assert max(off.values()) < 2.0**-18

# %% [markdown]
# ## Rung: flash_mma
#
# The schedule is FlashAttention-2's:
#
# - a **block** has a tile of 64 queries, and walks over tiles of 64 keys and values. With `causal`, the blocks with the
#   most keys start first, so that the short ones fill the end;
# - a **warp** has 16 of the queries, and *all* the keys of the tile. So a row of scores is in one warp, in 4 lanes, and
#   the warps have nothing to tell each other. (Its predecessor gave each warp some of the keys, and all warps had to
#   add up their shares of $O$ through shared memory.)
# - $O$ is divided by the sum of weights once, at the end.
#
# Tiles of $Q$, $K$ and $V$ of 64 x 128 `float16` take 16 KiB each, and fill the 48 KiB that numba can ask for. So $K$
# and
# $V$ take turns, as in `flash_double_buffered`: while scores are computed from $K$, $V$ is on its way.
#
# ### Write
#
# Everything between the copies: both products, and the softmax between them. Given are the copies, `place(r, c)`,
# where element `(r, c)` of a tile lies after its swizzle, and what happens after the last tile. Your state, for the
# two rows of this lane (`half` = 0 and 1):
#
# | name | what it is |
# |---|---|
# | `s[j, e]` | sums of product `j` of this tile: 8 keys from `8 * j` on; `e` 0, 1 in the first row, 2, 3 below |
# | `p[k, e]` | the weights of keys `16 * k` to `16 * k + 15`, as the 4 registers of a left factor |
# | `o[j, e]` | the sums of $O$: 8 columns from `8 * j` on |
# | `m[half]`, `l[half]` | the largest score of a row, and the sum of weights *of this lane's keys* |

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# ```
# start copying V
# s = 0; for each 16 of D: a fragment of Q; for each 16 keys: a fragment of K, two products into s[2j], s[2j + 1]
# for both rows:
#     mask, largest (of m, 16 sums, and the 4 lanes of the row), correction
#     weights by exp2, in pairs into p; their sum into l; all o of the row times the correction
# V is there, K is free: start copying the next K
# for each 16 keys: for each 16 columns of V: a fragment, two products into o[2j], o[2j + 1]
# ```
#
# <details><summary>Hint 2: fragments of Q and K</summary>
#
# $Q$ is a left factor: lane n names row `wm + n % 16` and column `16 * k`, 8 further for n of 16 and more. $K$ is a
# right factor *transposed*, and a transposed right factor is what `ldmatrix` brings without turning: rows of $K$ are
# its columns. Let lanes 0 to 7 name 8 keys at `16 * k`, lanes 8 to 15 the same keys 8 columns further, and lanes 16
# to 31 the next 8 keys likewise. Then registers 0 and 1 are the first 8 keys, 2 and 3 the next.
#
# <details><summary>Hint 3: rows of the softmax</summary>
#
# Row `half` of the lane is query `row0 + wm + 8 * half + lane // 4`; its key of `s[j, 2 * half + e]` is
# `col0 + 8 * j + lane % 4 * 2 + e`. The 4 lanes of a row differ in the last two bits of the lane: `shfl_xor_sync`
# with 1 and 2.
#
# <details><summary>Hint 4: weights into p</summary>
#
# Of `s[j, ...]`: an even `j` is the left half of a left factor, an odd one the right half. You have answered which
# register it is: `p[j // 2, j % 2 * 2 + half]`.
#
# <details><summary>Hint 5: V</summary>
#
# $V$ is a right factor as it stands, so its matrices have to be turned on the way: `ldmatrix_transposed`, with lane n
# naming row `16 * k + n % 16`, and column `16 * j`, 8 further for n of 16 and more.
#
# </details></details></details></details></details>

# %% kernel="attention_f16/flash_mma"

# %% check="attention_f16/flash_mma" points=10
flash_mma = attention_f16["flash_mma"]
flash_mma.check()

# %% [markdown]
# ### Profile
#
# To see what a tile costs without what comes before and after all tiles: profile the same queries with 64 keys and
# with 192. The difference is two tiles.

# %%
few, many = (flash_mma.profile(**shape(N=64, NK=keys, D=64)) for keys in (64, 192))


def per_tile(metric, few=few, many=many):
    """Of a tile of 64 keys."""
    return (many[metric] - few[metric]) / 2


needed = 4 * 64 * 64 * 64
products = per_tile(OPERATIONS) / 4096
if not products:
    raise lk.LabkitError("Your flash_mma does not multiply yet; write it, run its cell, and come back.")
print(f"tensor operations per tile {per_tile(OPERATIONS):,.0f}, needed {needed:,} ({few.origin})")
print(f"multiplications of 16 x 8 x 16: {products:.0f}, instructions of warps for each: "
      f"{per_tile(INSTRUCTIONS) / products:.1f}")
print(f"wavefronts of shared loads: {per_tile(SHARED):,.0f}, bank conflicts {per_tile(CONFLICTS):.0f}, stores "
      f"{per_tile(STORES):.0f}")

# %% [markdown]
# Nothing is multiplied in vain, and nothing but the copies of `cp.async` is ever written to shared memory. What the
# ordinary units do, for each of the 64 x 64 weights:

# %% jupyter={"source_hidden": true}
counts = {"multiply-adds": FMA, "multiplications": MULTIPLY, "additions": ADD}
per_weight = {name: per_tile(metric) / 64**2 for name, metric in counts.items()}
figure = go.Figure(go.Bar(x=list(per_weight), y=list(per_weight.values()), texttemplate="%{y:.2f}",
                          marker_color="#2171b5"))
figure.update_layout(title=f"Arithmetic of float32 per weight, D = 64 ({few.origin})", template="plotly_white",
                     height=320, yaxis=dict(title="instructions of threads"))

# %% [markdown]
# The multiply-add is the one before `ex2`, and the addition is the weight's share of the row's sum. And the
# multiplications? They are the corrections: each tile multiplies all 64 numbers of a row of $O$ once, as many as it
# has weights. (What is above 1 is done once per row and tile, in 4 lanes.) Most of these corrections multiply by 1,
# for the largest score of a row is found soon. Keep this in mind.
#
# Against your `flash_double_buffered`, on the same problem:

# %%
double = lk.problem("attention")["flash_double_buffered"]
p_double = double.profile(**shape(N=64, D=64))
print(f"{'':22} {'instructions':>14} {'shared loads':>14}")
for p in (p_double, few):
    print(f"{p.kernel.split(' ')[0].split('/')[1]:22} {p[INSTRUCTIONS]:14,.0f} {p[SHARED]:14,.0f}")
print(f"{p_double[INSTRUCTIONS] / few[INSTRUCTIONS]:.0f} times fewer instructions, "
      f"{p_double[SHARED] / few[SHARED]:.0f} times fewer wavefronts")

# %% solved_only=true
assert per_tile(OPERATIONS) == needed and few[OPERATIONS] == needed
assert per_tile(CONFLICTS) == 0 == per_tile(STORES)
assert per_tile(SHARED) == 4 * (16 + 64 + 64)  # of 4 wavefronts: 4 warps with 4 of Q, 16 of K and 16 of V each
assert all(1 <= count < 1.25 for count in per_weight.values())
assert p_double[INSTRUCTIONS] > 8 * few[INSTRUCTIONS] and p_double[SHARED] > 8 * few[SHARED]

# %% [markdown]
# ### Explain
#
# A colleague wants to put the tile of weights into shared memory, as `flash` did, "so that it can be loaded by
# `ldmatrix` like everything else". What would it cost per tile, and what would it take in addition to stores and
# loads?

# %% [markdown] explain="attention_f16/flash_mma" points=3
# ### BEGIN SOLUTION
# 64 x 64 weights of 2 bytes are 8 KiB: 64 wavefronts to store and 64 to load, on top of 576, and 8 KiB more shared
# memory, which numba's 48 KiB do not have. Between storing and loading, the lanes of the warp have to wait for each
# other, so that exponentials and products of a warp come strictly one after the other. And a swizzle is needed once
# more. All that for data that are in the right lanes already.
# ### END SOLUTION

# %% [markdown]
# ## CUDA C++: what more room brings
#
# In CUDA C++ a block may ask for more shared memory than 48 KiB, and a warp's registers can be used up to the last
# one. The same kernel there has 128 queries, 32 for a warp, and two stages of $K$ and $V$: of 64 keys each at
# $D = 128$, and of 128 keys where rows are shorter.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: with one fragment</summary>
#
# 16 keys are two products of 8, for each 16 queries of the warp.
#
# <details><summary>Hint 2: bytes</summary>
#
# 128 rows of Q; 64 rows of K and of V, twice. A row has 128 numbers of 2 bytes.
#
# </details></details>

# %% question="attention_f16/flash_mma/per_ldmatrix" points=1
predicted_uses = lk.answer("attention_f16/flash_mma/per_ldmatrix", 4)
predicted_uses

# %% question="attention_f16/flash_mma/shared_bytes" points=1
predicted_bytes = lk.answer("attention_f16/flash_mma/shared_bytes", 98304)
predicted_bytes

# %% [markdown]
# ### Optional: write it
#
# Or run the cell with its hole, and go on with the solution. In this version the weights of 16 keys are made right
# before they are used: so the compiler can put the exponentials of the next 16 between the products of these. And the
# loop is there twice, in one text: tiles of which every query sees every key go through it without any checks, which
# leaves more of a warp's instructions to the products. What `edge` is false for, the compiler leaves out.

# %% kernel="attention_f16/flash_mma" language="cuda"

# %% check="attention_f16/flash_mma" language="cuda"
in_cuda = attention_f16["flash_mma", "cuda"]
in_cuda.check()

# %% [markdown]
# ### Corrections that wait
#
# Whose maximum has not grown needs no correction, and whose maximum has grown a little does not *need* one, either:
# all sums of a row may be relative to an older maximum, as long as nothing overflows. In the end $O$ and $l$ are
# divided, and what they are relative to cancels. So this kernel corrects only when a maximum has grown by more than
# $2^8$ (`GROWTH`). A weight is then at most 256, and `float16` reaches 65504.
#
# How often does that happen? The same kernel, with `GROWTH` at 8 and at 0, over 512 keys:

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
multiplied = {}
if in_cuda.path.exists() and "GROWTH" in in_cuda.source:
    for growth in ("0.0f", "8.0f"):
        file = folder / f"growth{growth[0]}.cu"
        file.write_text(in_cuda.source.replace("GROWTH = 8.0f", f"GROWTH = {growth}"))
        p = in_cuda.load(file).profile(**shape(N=128, NK=512, D=64))
        multiplied[growth] = p[MULTIPLY]
        print(f"GROWTH = {growth}: {p[MULTIPLY]:8,.0f} multiplications, {p[INSTRUCTIONS]:8,.0f} instructions of warps")

# %% [markdown]
# Scores of random numbers grow past $2^8$ in the first tile only, where the sums are still 0. A warp decides for its
# 32 rows together: with `GROWTH` at 0, one row with a new maximum is enough to correct all.

# %% solved_only=true
# Of 4 tiles, 3 need no correction: each would multiply 64 numbers of O for 128 rows, and l in 4 lanes.
assert multiplied["0.0f"] - multiplied["8.0f"] == 3 * 128 * (64 + 4)
few_c, many_c = (in_cuda.profile(**shape(N=128, NK=keys, D=64)) for keys in (128, 384))  # a tile, three tiles
one = {m: per_tile(m, few_c, many_c) for m in (OPERATIONS, SHARED, INSTRUCTIONS, CONFLICTS)}
assert one[OPERATIONS] == 4 * needed and one[CONFLICTS] == 0
# 4 warps, 4 wavefronts each: 2 x 4 fragments of Q, 8 x 4 of K and of V; a fragment of K serves 4 products.
assert one[SHARED] == 4 * 4 * (8 + 32 + 32) and 4 * 256 / 4 / (32 + 32) == predicted_uses.value
assert one[INSTRUCTIONS] / 1024 < per_tile(INSTRUCTIONS) / products / 2
assert predicted_bytes.value == 2 * 128 * (128 + 2 * 2 * 64)

# %% [markdown]
# ## Backward
#
# Five products in the [backward pass](04_flash_backward.ipynb), and the same trick once more. The kernel computes the
# scores *turned round*, keys down and queries across: $S^T = K Q^T$. Then what a lane holds of $P^T$ and $dS^T$ is a
# left factor for $dV = P^T dO$ and $dK = dS^T Q$, and a block that owns 128 keys keeps their $dK$ and $dV$ in
# registers from the first query to the last. Two warps share 32 keys: of the scores each computes half of the queries,
# of $dK$ and $dV$ half of the columns, so that all it reads of $Q$ and $dO$ serves 32 keys. The price: each needs the
# other's $P$ and $dS$ too, through shared memory. There all warps find $dS$, for only $dQ$ needs sums over all keys;
# the shares of the blocks are added up in `float32` by atomics.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: registers</summary>
#
# Two tiles of 128 x 128 sums, over 256 threads.
#
# <details><summary>Hint 2: additions</summary>
#
# How many blocks does a head have? Each of them adds to every number of dQ once.
#
# </details></details>

# %% question="attention_backward_f16/mma/registers" points=1
lk.answer("attention_backward_f16/mma/registers", 128)

# %% question="attention_backward_f16/mma/atomic_bytes" points=1
lk.answer("attention_backward_f16/mma/atomic_bytes", 268435456)

# %% [markdown]
# ### Read
#
# Run the cell, it is your kernel now. Find the five products, the places where `p` and `ds` are made, and the
# three barriers of a step, one of which is for two warps. What does each of them protect?

# %% kernel="attention_backward_f16/mma" language="cuda" given=true

# %% check="attention_backward_f16/mma" language="cuda"
backward = lk.problem("attention_backward_f16")["mma", "cuda"]
backward.check()

# %%
REDUCTIONS = "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum"
p_backward = backward.profile(**shape(N=64, NK=128, D=64))
forward_work = 4 * 64 * 128 * 64
print(f"{p_backward[OPERATIONS] / forward_work:g} times the tensor operations of the forward pass")
requests = p_backward[REDUCTIONS]
print(f"{requests:.0f} requests of atomics, {64 * 64 / requests:g} additions each, to 64 x 64 numbers of dQ")

# %% solved_only=true
assert p_backward[OPERATIONS] == 2.5 * forward_work
assert 128 * requests == 64 * 64  # one block of keys, one tile of queries; four numbers of a lane at once

# %% [markdown]
# 2.5, and not the 3.5 of `recompute`: with atomics, nothing is computed twice.
#
# ### Explain
#
# `mma` adds to $dQ$ in an order that depends on which block comes first. What does that mean for somebody who trains a
# model twice with the same seed? And why does the same not happen to $dK$ and $dV$?

# %% [markdown] explain="attention_backward_f16/mma" points=2
# ### BEGIN SOLUTION
# Sums of floating-point numbers depend on their order in the last bits, so two runs differ there, and training
# amplifies it: after some hundred steps the losses differ visibly. Both runs are equally right, but a bug cannot be
# told from noise by comparing runs, and bit-exact restarts are lost. dK and dV of a key belong to one block, and
# each of their numbers to one lane, which adds always in the same order.
# ### END SOLUTION

# %% [markdown]
# ## On an H200
#
# What does a clock say? Our solutions, recorded, for four sequences of 8192 tokens, with 32 heads of $D = 64$ or 16 of
# $D = 128$, where others publish their times. Beside them is what PyTorch runs: FlashAttention-2, which is written with
# `mma.sync` as ours are, and on request cuDNN's kernel, which uses Hopper's `wgmma`.

# %% jupyter={"source_hidden": true}
AT = {f"D = {D}{', causal' * causal}": shape(B=4, H=2048 // D, N=8192, D=D, causal=causal)
      for D in (64, 128) for causal in (0, 1)}
forward, in_numba, back = ({name: rung.time(recorded=True, **at) for name, at in AT.items()}
                           for rung in (in_cuda, flash_mma, backward))
cudnn = {name: attention_f16.rival("cudnn", **at) for name, at in AT.items()}
flash_2 = {column: {name: t.tflops / t.ratio for name, t in timed.items()}
           for column, timed in ((1, forward), (2, back))}
bars = [(1, "ours, numba", "#9ecae1", in_numba), (1, "ours, CUDA C++", "#08519c", forward),
        (1, "FlashAttention-2", "#d9480f", flash_2[1]), (1, "cuDNN", "#fdae6b", cudnn),
        (2, "ours, CUDA C++", "#08519c", back), (2, "FlashAttention-2", "#d9480f", flash_2[2])]
figure = make_subplots(1, 2, subplot_titles=["forward", "backward"], shared_yaxes=True, column_widths=[0.62, 0.38],
                       horizontal_spacing=0.03)
for column, name, color, timed in bars:
    figure.add_bar(x=list(AT), y=[getattr(t, "tflops", t) for t in timed.values()], name=name, marker_color=color,
                   texttemplate="%{y:.0f}", textposition="outside", textangle=0, cliponaxis=False,
                   showlegend=column == 1, row=1, col=column)
some = forward["D = 128"]
figure.update_layout(title=f"float16, {some.origin} on {some.machine}, {some.date}", template="plotly_white",
                     height=430, legend=dict(orientation="h", y=-0.12), yaxis_title="TFLOP/s")

# %% [markdown]
# (In `bfloat16` all is as fast, to within a few percent.) And against the kernels in `float32` of the notebooks before,
# in CUDA C++ at $D = 128$, and at half the length, which hardly matters to a rate:

# %%
from labkit import recorded

rates = recorded.ceilings("NVIDIA H200")
plain = {"forward": lk.problem("attention")["flash_double_buffered", "cuda"].time(recorded=True),
         "backward": lk.problem("attention_backward")["recompute", "cuda"].time(recorded=True)}
worth = {name: now["D = 128"].tflops / plain[name].tflops for name, now in (("forward", forward), ("backward", back))}
for name, times in worth.items():
    print(f"{name:8} {plain[name].tflops:.0f} TFLOP/s without tensor cores, {times:.0f} times as much with them")
print(f"ceilings {rates['fp32_tflops']:.0f} TFLOP/s without, {rates['bf16_tflops'] / rates['fp32_tflops']:.0f} times "
      "as much with them")

# %% [markdown]
# Forward, our kernels gain what the units' ceilings promise; backward more, for `recompute` makes seven products.
#
# ### What limits them?
#
# Take one of a multiprocessor's four schedulers and its tensor core, and one product of 16 x 8 x 16. Below is how many
# cycles it takes, and for how many of these each unit is busy with what belongs to it. If all ran side by side without
# a gap, a product would take as long as the busiest unit. For comparison, `mma_tuned` of
# [the matrix product](../02_gemm/05_tensor_cores.ipynb), which does nothing but multiply, by the same instruction.

# %%
import pandas as pd

ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
DRAM_READ, DRAM_WRITTEN, TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
REGISTERS, BY_REGISTERS = "launch__registers_per_thread", "launch__occupancy_limit_registers"
SCHEDULERS = 4 * 132
read = {"matrix product": lk.problem("gemm_f16")["mma_tuned", "cuda"].recorded(), "forward": in_cuda.recorded(),
        "forward, numba": flash_mma.recorded(), "backward": backward.recorded()}


def of_product(p):
    """Cycles of a scheduler for one m16n8k16, by what they are needed for."""
    n = p[OPERATIONS] / 4096 / SCHEDULERS  # products of a scheduler
    cycles = p[INSTRUCTIONS] / SCHEDULERS / (p[ISSUE] / 100) / n
    memory = (p[DRAM_READ] + p[DRAM_WRITTEN]) / rates["read_gbps"] / p[TIME]
    return {
        "it takes": cycles,
        "tensor core, at its full rate": 4096 / (4096 / 4),
        "shared memory": (p[SHARED] + p[STORES]) / 132 / n,
        "instructions": p[INSTRUCTIONS] / SCHEDULERS / n,
        "exponentials": cycles * p.metrics.get(PIPE.format("xu"), 0) / 100,
        "integers and logic": cycles * p[PIPE.format("alu")] / 100,
        "memory": cycles * memory,
    }


busy = pd.DataFrame({name: of_product(p) for name, p in read.items()})
busy.style.format(precision=1).set_caption("cycles per m16n8k16; D = 128, CUDA C++ unless it says numba")

# %% [markdown]
# And a warp's time for each of its products, by what it waits for. (Two warps share a scheduler.)

# %%
from labkit.profiling.metrics import STALL_REASONS

waits = pd.DataFrame({
    name: {reason: p.metrics.get(STALLED.format(reason), 0) for reason in STALL_REASONS} | {"(it issues)": 1.0}
    for name, p in read.items()
})
waits *= busy.loc["instructions"]
waits.insert(0, "what it is", [STALL_REASONS.get(reason, "nothing") for reason in waits.index])
long_ones = waits[waits[["forward", "backward"]].max(axis=1) >= 0.7]
long_ones.sort_values("forward", ascending=False).style.format(precision=1)

# %% [markdown]
# * **What `mma.sync` gives.** Even the matrix product takes almost twice the 4 cycles. After an `mma.sync`, the machine
#   code for an H200 has a warp rest for up to six cycles (`wait`), and whoever comes sooner than the tensor core is
#   ready waits on (`math pipe throttle`).
# * **Forward** takes a little longer, and no unit is full. Half of a warp's time are these two waits; with 255
#   registers for a thread, a scheduler has two warps, and when one takes exponentials, one is left to multiply.
# * **numba** has the same products and exponentials, but its addresses, in 64 bits and worked out anew each time, keep
#   the unit for integers busy for most of the time.
# * **Backward** has fewer exponentials for a product, five products to the two of forward. It waits for shared memory:
#   $P$ and $dS$ go through it, and all warps fetch $dS$ once more for $dQ$. And with its registers one block of 8 warps
#   fills a multiprocessor. What it adds to $dQ$, by contrast, ends in the L2: for each of 64 heads the bytes that you
#   predicted, and little of it reaches memory.

# %%
p = read["backward"]
print(f"added to dQ: {512 * p[REDUCTIONS] / 1e9:.1f} GB; "  # 16 bytes of each lane
      f"read from memory and written there: {(p[DRAM_READ] + p[DRAM_WRITTEN]) / 1e9:.1f} GB")

# %% [markdown]
# ### Half the $D$
#
# What belongs to a weight, and not to its row of numbers, now falls to half as many products. Forward that is the
# exponential; backward it is also the way of $P$ and $dS$ through shared memory. A small run counts it:

# %%
wavefronts = {}
for D in (128, 64):
    p = backward.profile(**shape(N=64, NK=128, D=D))
    wavefronts[D] = 4 * (p[SHARED] + p[STORES]) / (p[OPERATIONS] / 4096)  # four schedulers share a cycle's wavefront
halved = pd.DataFrame({
    f"D = {D}": {
        "forward: cycles of exponentials": 4096 / (4 * D) / 4,  # a multiprocessor takes 16 per cycle
        "forward: time, relative": forward["D = 128"].tflops / forward[f"D = {D}"].tflops,
        "cuDNN, forward: time, relative": cudnn["D = 128"].tflops / cudnn[f"D = {D}"].tflops,
        "backward: cycles of exponentials": 4096 / (10 * D) / 4,
        "backward: cycles of shared memory": wavefronts[D],
        "backward: time, relative": back["D = 128"].tflops / back[f"D = {D}"].tflops,
    }
    for D in wavefronts
})
halved.style.format(precision=2).set_caption(f"per product: by arithmetic, counted ({p.origin}), and recorded")

# %% [markdown]
# **Forward**, exponentials would now take as long as the products at full rate, and yet little is lost: they do run
# beside the products, as planned. cuDNN loses more, since its products take less time to hide them in. **Backward**,
# the time grows with the wavefronts. There FlashAttention-2 is ahead of us: we have one kernel for all $D$, and its
# registers let one block of 8 warps onto a multiprocessor at $D = 64$, too.
#
# ### Causal
#
# Half of the weights, and almost half of the time. Tiles on the diagonal are computed as a whole, which is not much:

# %%
from labkit.problems.attention import pairs

computed = sum(128 * 128 * (tile + 1) for tile in range(8192 // 128))
in_vain = computed / pairs(AT["D = 128, causal"]) - 1
print(f"in vain on the diagonal: at most {in_vain:.1%}")
kept_rate = {(what, D): timed[f"D = {D}, causal"].tflops / timed[f"D = {D}"].tflops
             for what, timed in (("forward", forward), ("backward", back)) for D in (64, 128)}
for (what, D), kept in kept_rate.items():
    print(f"{what:8} D = {D:3}: {kept:.1%} of the rate without a mask")

# %% [markdown]
# Forward loses somewhat more than that. How a block begins and ends is the same for half as many tiles, and tiles with
# a mask take longer; how much each of it counts is not recorded.

# %% solved_only=true
assert {t.machine for timed in (forward, in_numba, back, cudnn) for t in timed.values()} == {"NVIDIA H200"}
assert all(1.08 < t.ratio < 1.35 for t in forward.values()) and all(0.25 < t.ratio < 0.45 for t in in_numba.values())
assert all(cudnn[name].tflops > 1.2 * t.tflops for name, t in forward.items())
assert all(1.08 < t.ratio if "128" in name else 0.85 < t.ratio < 1 for name, t in back.items())
for problem, timed in (("attention_bf16", forward), ("attention_backward_bf16", back)):
    (rung,) = lk.problem(problem)
    assert all(abs(rung.time(recorded=True, **AT[name]).tflops / t.tflops - 1) < 0.04 for name, t in timed.items())
assert 0.8 < worth["forward"] / (rates["bf16_tflops"] / rates["fp32_tflops"]) < 1.25
assert 1.2 < worth["backward"] / worth["forward"] < 1.8

gemm_row, forward_row, numba_row, backward_row = (busy[name] for name in read)
assert 1.8 < gemm_row["it takes"] / 4 < 2.1 and 1.05 < forward_row["it takes"] / gemm_row["it takes"] < 1.35
assert all(4.5 < waits.loc["wait", name] < 7 for name in ("matrix product", "forward", "backward"))
assert (forward_row.iloc[1:] < 0.65 * forward_row["it takes"]).all() and read["forward"].explain().binds == "latency"
pace = ["wait", "math_pipe_throttle"]
assert waits["forward"].drop("(it issues)").nlargest(2).index.tolist() == pace
assert 0.42 < waits.loc[pace, "forward"].sum() / waits["forward"].sum() < 0.6
assert abs(waits["forward"].sum() / forward_row["it takes"] - 2) < 0.1  # warps of a scheduler
assert abs(forward_row["exponentials"] - 2) < 0.1 and abs(backward_row["exponentials"] - 0.8) < 0.08
assert numba_row["integers and logic"] > 0.65 * numba_row["it takes"]
assert numba_row["integers and logic"] > 10 * forward_row["integers and logic"]
assert abs(numba_row["exponentials"] / forward_row["exponentials"] - 1) < 0.15
assert backward_row.iloc[1:].idxmax() == "shared memory" and read["backward"].explain().binds == "shared"
assert backward_row["shared memory"] > 0.6 * backward_row["it takes"]
assert waits["backward"].idxmax() == "short_scoreboard"
for name, blocks in (("forward", 2), ("backward", 1)):
    assert read[name][REGISTERS] > 240 and read[name][BY_REGISTERS] == blocks
assert 512 * read["backward"][REDUCTIONS] == 4 * 16 * 268435456  # bytes of a head, as in the question
assert backward_row["memory"] < 0.06 * backward_row["it takes"]

near, far = halved["D = 128"], halved["D = 64"]
assert abs(near["backward: cycles of shared memory"] / backward_row["shared memory"] - 1) < 0.05
assert 1.03 < far["forward: time, relative"] < 1.2 < 1.25 < far["cuDNN, forward: time, relative"]
grown = far["backward: cycles of shared memory"] / near["backward: cycles of shared memory"]
assert 1.2 < grown < 1.3 and 0.9 < far["backward: time, relative"] / grown < 1.15
assert in_vain < 0.02 and all(0.9 < kept_rate["forward", D] < 1 - in_vain for D in (64, 128))
assert all(kept_rate["backward", D] > 0.95 for D in (64, 128))

# %% [markdown]
# ## Where this ends
#
# `mma.sync` is what every GPU since Ampere has, and FlashAttention-2 is built on it. On Hopper it cannot reach the
# tensor cores' full rate: a warp has to fetch every fragment into registers, and waits for its own products. Hopper's
# `wgmma` reads its right factor from shared memory by itself and runs on its own, while the warps take exponentials.
# That is another kernel, and another notebook.
