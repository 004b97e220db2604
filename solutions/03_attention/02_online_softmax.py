# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Online softmax
#
# A softmax needs the largest score of its row, then the sum, and only then a weight. So it seems that all scores must
# be kept until the last one is known, and that is what fills the memory. In this notebook you find out that nothing
# has to be kept but three things. You derive how, step by step; then you **prove it by test**, first in numpy, then
# for a kernel that you write: attention in one kernel, with no score in memory.
#
# You need your `tiled` from [the notebook before](01_three_matmuls.ipynb). Is it there, and right?

# %%
import labkit as lk

attention = lk.problem("attention")
tiled = attention["tiled"]
tiled.check()

# %% [markdown]
# ## What it is worth
#
# Suppose that somebody found a softmax which needs each score only twice: written once, read once.

# %% question="attention/online_softmax/intensity" points=1
fewest = lk.answer("attention/online_softmax/intensity", 64)
fewest

# %%
from labkit.models.roofline import roofs

h200 = roofs("NVIDIA H200")
for unit in ("FP32", "tensor"):
    print(f"{unit:6} {h200.ridges[unit, 'DRAM']:4.0f} FLOP per byte are the balance ({h200.machine}, {h200.origin})")

# %% [markdown]
# Not enough for tensor cores, by far. It is not a matter of fewer trips to memory; the scores must not go there at all.
#
# ## The recurrence, step by step
#
# **Step 1: what is wanted.** One query, its scores $s_1, s_2, \ldots$, one value $v_j$ for each. With the largest score
# $m$ subtracted, so that no exponential overflows:
#
# $$l = \sum_j e^{s_j - m}, \qquad o = \sum_j e^{s_j - m}\, v_j, \qquad O = o / l, \qquad L = m + \log l$$
#
# The division comes last: it can wait until the sums are complete. Only $m$ is needed early.
#
# **Step 2: stop early.** Suppose that only the first $j$ keys have come. With *their* largest score $m_j$ we can
# compute
#
# $$l_j = \sum_{k \le j} e^{s_k - m_j}, \qquad o_j = \sum_{k \le j} e^{s_k - m_j}\, v_k .$$
#
# **Step 3: one key more.** If $s_{j+1}$ is not larger than $m_j$, then $m$ stays, and each sum gets one more term. If
# it is larger, every term of the old sums has been computed relative to the wrong maximum. But how wrong?
#
# $$e^{s_k - m_{j+1}} = e^{s_k - m_j} \cdot e^{m_j - m_{j+1}}$$
#
# The last factor is the same for all terms, so it can be taken out of the sum. One multiplication corrects all that has
# been added so far, however much that is. And where $m$ stays, the factor is $e^0 = 1$: one formula serves both.
#
# ### Predict

# %% question="attention/online_softmax/sum" points=1
lk.answer("attention/online_softmax/sum", 1.406)

# %% [markdown]
# ### Write
#
# So the **state** of a row is $(m, l, o)$: two numbers and a vector as long as a value. Write the step from one state
# to the next.

# %%
import numpy as np

LOWEST = np.finfo(np.float32).min  # the lowest finite number


def start(D, m=LOWEST):
    """The state before any key."""
    return np.float32(m), np.float32(0), np.zeros(D, np.float32)


def finish(state):
    """(O, L) of a state: a row without any key has O = 0 and L = -inf."""
    m, l, o = state
    return (o / l, m + np.log(l)) if l != 0 else (0 * o, np.float32(-np.inf))


# %% [markdown]
# <details><summary>Hint 1: the new maximum</summary>
#
# It is the larger one of `m` and `s`. Everything else is relative to it.
#
# <details><summary>Hint 2: two factors</summary>
#
# The correction for what is there, `np.exp(old maximum - new maximum)`, and the weight of the new key, `np.exp(s - new
# maximum)`.
#
# <details><summary>Hint 3: the same for both sums</summary>
#
# A new sum is the old one times the correction, plus the new key's share: its weight for `l`, its weight times `v` for
# `o`.
#
# </details></details></details>


# %%
def add(state, s, v):
    """The state after one more key, with the score s and the value v."""
    m, l, o = state
    ### BEGIN SOLUTION
    largest = max(m, s)
    correct, weight = np.exp(m - largest), np.exp(s - largest)
    m, l, o = largest, l * correct + weight, o * correct + weight * v
    ### END SOLUTION
    return m, l, o


# %% [markdown]
# ### Prove it
#
# One example proves nothing. What proves something, to an engineer, is a **property** that must hold for *every* row,
# and a program that looks hard for a row that breaks it. The property: after the last key, `finish` gives what the
# formula gives, computed in `float64` with all scores at hand. The rows: those that have hurt somebody before, then
# random ones, short before long, so that the first row which fails is an easy one to think about.

# %%
INF = np.inf
NASTY = {
    "one key": [0.3], "equal scores": [1, 1, 1], "rising scores": range(20), "falling scores": range(20, 0, -1),
    "large scores": [1000, 999, 500], "very negative scores": [-1000, -1001], "large jumps": [-3000, 0, 3000, 2999],
    "the first key left out": [-INF, 1, 2], "the last key left out": [1, 2, -INF], "every key left out": [-INF, -INF],
}  # fmt: skip


def rows(number):
    """(what it is, scores, values) of all kinds of rows; a score of -inf leaves a key out."""
    random = np.random.default_rng(0)
    for name, scores in NASTY.items():
        yield name, np.array(scores, np.float32), random.normal(size=(len(scores), 3)).astype(np.float32)
    for k in range(number):
        keys = 1 + random.integers(2 + k // 4)
        scores = random.choice([0.1, 1, 10, 300]) * random.normal(size=keys)
        scores[random.random(keys) < random.choice([0, 0.2])] = -INF
        yield f"random row {k}", scores.astype(np.float32), random.normal(size=(keys, 3)).astype(np.float32)


def exact(s, v):
    """(O, L) by the formula, in float64."""
    s, v = s.astype(np.float64), v.astype(np.float64)
    if s.max() == -INF:
        return 0 * v[0], -INF
    e = np.exp(s - s.max())
    return e @ v / e.sum(), s.max() + np.log(e.sum())


def prove(result, number=300):
    """Look for a row for which `result(s, v)` is not (O, L); says what it found, in words."""
    tried = 0
    with np.errstate(all="ignore"):
        for name, s, v in rows(number):
            (O, L), (want_O, want_L) = result(s, v), exact(s, v)
            O_right = np.abs(O - want_O).max() < 1e-4 * np.abs(v).max()  # False for NaN, too
            L_right = L == want_L or abs(L - want_L) < 1e-4 * (1 + abs(want_L))
            if not (O_right and L_right):
                shown = ", ".join(f"{x:g}" for x in s[:6]) + (" ..." if len(s) > 6 else "")
                return (f"Wrong for {name}, scores {shown}: O[0] = {O[0]:.6g}, should be {want_O[0]:.6g}; "
                        f"L = {L:.6g}, should be {want_L:.6g}.")
            tried += 1
    return f"Right for all {tried} rows."


def one_by_one(s, v, first=LOWEST):
    state = start(v.shape[1], first)
    for score, value in zip(s, v):
        state = add(state, score, value)
    return finish(state)


print(prove(one_by_one))

# %% [markdown]
# **A test that cannot fail proves nothing either.** Break your `add`: correct `l` and forget `o`; or begin with
# another maximum. Which row gives you away? Here is one such change, made for you, which looks harmless and natural.
# Let `m` begin with $-\infty$, which is, after all, the maximum of nothing:

# %%
print(prove(lambda s, v: one_by_one(s, v, first=-INF)))

# %% [markdown]
# It works for ordinary rows. But if the first key is left out, the correction is $e^{-\infty - (-\infty)}$, and that
# is not a number. The lowest finite number does no harm: it is smaller than any score, and its exponentials are 0.

# %% solved_only=true
assert prove(one_by_one) == "Right for all 310 rows."
assert "the first key left out" in prove(lambda s, v: one_by_one(s, v, first=-INF))


def broken(change):
    """one_by_one with `change(largest, correct, weight, state, v)` in place of the last line of add."""

    def result(s, v):
        state = start(v.shape[1])
        for score, value in zip(s, v):
            largest = max(state[0], score)
            correct, weight = np.exp(state[0] - largest), np.exp(score - largest)
            state = largest, *change(correct, weight, state, value)
        return finish(state)

    return result


assert prove(broken(lambda c, w, state, v: (state[1] * c + w, state[2] * c + w * v))).startswith("Right")
for wrong, row in {
    "o forgotten": (lambda c, w, state, v: (state[1] * c + w, state[2] + w * v), "rising scores"),
    "l forgotten": (lambda c, w, state, v: (state[1] + w, state[2] * c + w * v), "rising scores"),
    "new key corrected": (lambda c, w, state, v: ((state[1] + w) * c, (state[2] + w * v) * c), "one key"),
    "all forgotten": (lambda c, w, state, v: (state[1] + w, state[2] + w * v), "rising scores"),
}.values():
    assert row in prove(broken(wrong)), row

# %% [markdown]
# ### Watch it
#
# A row of 200 keys, as they come. Above, the scores and the largest so far; below, $l$, which falls each time that it
# is corrected.

# %% jupyter={"source_hidden": true}
from plotly.subplots import make_subplots

scores = np.random.default_rng(1).normal(size=200).astype(np.float32) * 1.5
state, history = start(1), []
for s in scores:
    state = add(state, s, np.ones(1, np.float32))
    history.append(state)
corrected = [k for k in range(1, 200) if history[k][0] > history[k - 1][0]]
figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.08)
figure.add_scatter(y=scores, mode="markers", marker=dict(size=4, color="#9ecae1"), name="scores", row=1, col=1)
figure.add_scatter(y=[h[0] for h in history if h[0] > LOWEST], mode="lines", line=dict(shape="hv", color="#d9480f"),
                   name="m, the largest so far", row=1, col=1)
figure.add_scatter(y=[h[1] for h in history], mode="lines", line=dict(color="#2171b5"), name="l, the sum", row=2, col=1)
for k in corrected:
    figure.add_vline(x=k, line=dict(color="#bdc1c6", width=1, dash="dot"))
figure.update_xaxes(title="key", row=2, col=1)
figure.update_layout(title=f"200 keys in random order, {len(corrected)} corrections after the first key", height=430,
                     template="plotly_white", legend=dict(orientation="h", y=-0.18))
figure

# %% [markdown]
# Corrections are rare, and they get rarer. How rare, for a long row?

# %% [markdown]
# <details><summary>Hint: one key</summary>
#
# All orders of the first $k$ scores are equally likely. With what probability is the last of them the largest? Add
# this up over all $k$. (Python can: `sum(...)`.)
#
# </details>

# %% question="attention/online_softmax/records" points=2
predicted_records = lk.answer("attention/online_softmax/records", 9.59)
predicted_records

# %%
orders = np.random.default_rng(0).random((400, 8192), dtype=np.float32)
largest = np.maximum.accumulate(orders, axis=1)
records = 1 + (largest[:, 1:] > largest[:, :-1]).sum(axis=1)
print(f"in 400 random orders: {records.mean():.2f} times on average, {records.min()} to {records.max()} times")

# %% solved_only=true
assert abs(records.mean() / predicted_records.value - 1) < 0.06
assert 2 < len(corrected) < 15 and history[-1][0] == scores.max()

# %% [markdown]
# So nearly all corrections are multiplications by 1. (FlashAttention-4 skips most of them.) And each
# of the few true ones costs one rounding, no more. Here is how exact the sum $l$ is in `float32`, by the recurrence,
# and with the maximum known beforehand:

# %%
u = 2.0**-24


def errors(N, number=20):
    """Relative error (root of the mean square) of l, in u, for random rows of N scores: by `add`, and in two passes."""
    found = []
    for s in np.random.default_rng(N).normal(size=(number, N)).astype(np.float32):
        state = start(1)
        for score in s:
            state = add(state, score, np.ones(1, np.float32))
        e = np.exp(s - s.max())
        want = np.exp(s.astype(np.float64) - state[0]).sum(), e.sum(dtype=np.float64)
        found.append((state[1] / want[0] - 1, np.cumsum(e)[-1] / want[1] - 1))
    return np.sqrt(np.mean(np.square(found), axis=0)) / u


for N in (64, 512, 4096):
    print("N = {:5}: online {:5.1f} u, in two passes {:5.1f} u".format(N, *errors(N)))

# %% solved_only=true
for N in (64, 512, 4096):
    online, two_passes = errors(N)
    assert online < 1.5 * two_passes + 2 and online < 2 * N**0.5

# %% [markdown]
# ## Merging
#
# **Step 4: many keys more.** Nothing in step 3 asked for a *single* new key. Let one state hold some keys, another
# state hold others: lanes of a warp, tiles of a matrix, blocks of a grid. Correct each to the larger of the two
# maxima, and add.
#
# ### Predict

# %% question="attention/online_softmax/merge" points=1
lk.answer("attention/online_softmax/merge", 4.27)

# %% [markdown]
# ### Write


# %%
def merge(a, b):
    """The state of all keys of the states a and b."""
    m, l, o = a
    ### BEGIN SOLUTION
    largest = max(a[0], b[0])
    of_a, of_b = np.exp(a[0] - largest), np.exp(b[0] - largest)
    m, l, o = largest, a[1] * of_a + b[1] * of_b, a[2] * of_a + b[2] * of_b
    ### END SOLUTION
    return m, l, o


# %% [markdown]
# ### Prove it
#
# The same property, for every way to cut a row into parts and every order to merge them in:


# %%
random = np.random.default_rng(1)


def in_parts(s, v):
    """(O, L) by states of random parts of the row, some of them empty, merged in random order."""
    cuts = np.sort(random.integers(0, len(s) + 1, size=3))
    states = []
    for part_s, part_v in zip(np.split(s, cuts), np.split(v, cuts)):
        state = start(v.shape[1])
        for score, value in zip(part_s, part_v):
            state = add(state, score, value)
        states.append(state)
    while len(states) > 1:
        a, b = (states.pop(random.integers(len(states))) for _ in range(2))
        states.append(merge(a, b))
    return finish(states[0])


print(prove(in_parts))

# %% [markdown]
# This is worth more than it seems. Since any order will do, blocks may take keys in tiles, as in the next notebook, and
# a long row may be divided among blocks, as in [decoding](06_decode_and_kv_cache.ipynb).

# %% solved_only=true
assert prove(in_parts) == "Right for all 310 rows."
swapped, merge = merge, lambda a, b: (max(a[0], b[0]), a[1] + b[1], a[2] + b[2])
assert prove(in_parts).startswith("Wrong")
merge = swapped

# %% [markdown]
# ## The rung: online_softmax
#
# One kernel. A warp takes a query and walks over the keys with it. The numbers of a row of $Q$, $K$, $V$ and $O$ are
# spread over the lanes, each has every 32nd of them (`PARTS` at most):
#
# ```
#   lane          0         1         2    ...      31
#   q[0]       Q[i, 0]   Q[i, 1]   Q[i, 2]  ...  Q[i, 31]
#   q[1]       Q[i, 32]  Q[i, 33]  Q[i, 34] ...  Q[i, 63]        and so on, up to D
# ```
#
# So a score is a sum over lanes, and after it every lane knows it; then each lane carries out the recurrence, for its
# own numbers of $o$.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: what is stored</summary>
#
# A row of $O$ has 64 numbers of 4 bytes here. A number of $L$ is written by lane 0 alone: one request, and one sector.
#
# <details><summary>Hint 2: what is loaded</summary>
#
# For each key, the warp loads a row of $K$ and a row of $V$. How many sectors does a row have?
#
# </details></details>

# %% question="attention/online_softmax/store_sectors" points=1
predicted_stores = lk.answer("attention/online_softmax/store_sectors", 576)
predicted_stores

# %% question="attention/online_softmax/load_sectors" points=1
predicted_loads = lk.answer("attention/online_softmax/load_sectors", 16)
predicted_loads

# %% [markdown]
# ### Write
#
# The gap is the body of the loop over keys: one score, and your `add`. $q$ has been multiplied by the scale already,
# and with `causal` the loop ends at the query, so that no mask is needed.

# %% [markdown]
# <details><summary>Hint 1: the score</summary>
#
# Each lane adds up `q[e]` times its numbers of row `j` of `K[head // group]`, columns `32 * e + lane`, as far as they
# are below `D`. Then the sums of all lanes: `shfl_xor_sync(0xFFFFFFFF, s, d)` for `d` = 16, 8, 4, 2, 1.
#
# <details><summary>Hint 2: the recurrence</summary>
#
# ```
# largest of m and s
# the correction and the weight, by math.exp
# l: times the correction, plus the weight
# o[e]: times the correction, plus the weight times this lane's numbers of row j of V
# m is largest from now on
# ```
#
# <details><summary>Hint 3: if the check finds float64</summary>
#
# `s = float32(0)` and not `s = 0.0`: a number with a point is a `float64` to numba, and all that touches it becomes
# one.
#
# </details></details></details>

# %% kernel="attention/online_softmax"

# %% check="attention/online_softmax" points=6
online = attention["online_softmax"]
online.check()

# %% [markdown]
# ### Prove it
#
# `check()` compares with a reference. Some properties need none: they hold for attention as such, and whoever breaks
# them is wrong, whatever a reference may say.

# %%
import torch

from labkit.kernels import gpu
from labkit.problems.attention import shape

device = "cuda" if gpu.available() else "cpu"


def run(rung, Q, K, V, **options):
    """(O, L) of a rung's kernel; all of one batch and one head."""
    Q, K, V = (t[None, None].to(device).contiguous() for t in (Q, K, V))
    O, L = torch.empty_like(Q), torch.empty(Q.shape[:3], device=device)
    rung.kernel.launch((O, L), Q, K, V, **options)
    return O[0, 0].cpu(), L[0, 0].cpu()


def broken_properties(rung, scale, seed):
    """What is not as it must be, for random matrices whose scores are about as large as `scale`."""
    generator = torch.Generator().manual_seed(seed)
    N, NK, D = 1 + seed % 5, 1 + 7 * seed % 23, 32
    Q, K, V = (torch.randn(n, D, generator=generator) for n in (N, NK, NK))
    O, L = run(rung, Q, K, V, scale=scale)
    shuffled = torch.randperm(NK, generator=generator)
    again, _ = run(rung, Q, K[shuffled], V[shuffled], scale=scale)
    ones, _ = run(rung, Q, K, torch.ones_like(V), scale=scale)
    alone, _ = run(rung, Q, K[:1], V[:1], scale=scale)
    left_out = K.clone()
    left_out[:, 0] = -torch.inf
    nothing, of_nothing = run(rung, Q.abs() + 0.1, left_out, V, scale=scale)
    weights = torch.exp((scale * Q.double() @ K.double().T) - L.double()[:, None])
    margin = 1e-4 * (1 + scale)
    holds = {
        "O lies between the smallest and the largest value": bool(
            (O <= V.max(0).values + margin).all() and (O >= V.min(0).values - margin).all()),
        "the order of the keys does not matter": bool((O - again).abs().max() < margin),
        "values of 1 give 1": bool((ones - 1).abs().max() < 1e-5),
        "one key gives its value": bool((alone - V[:1]).abs().max() < 1e-5),
        "no key gives 0, and L = -inf": bool((nothing == 0).all() and (of_nothing == -torch.inf).all()),
        "weights made with L add up to 1": bool((weights.sum(1) - 1).abs().max() < margin),
    }  # fmt: skip
    return [name for name, well in holds.items() if not well]


found = [(scale, seed, names) for scale in (0.2, 2.0, 50.0) for seed in range(4)
         if (names := broken_properties(online, scale, seed))]
print(found[0] if found else "all properties hold, for all 12 draws")

# %% solved_only=true
assert not found

# %% [markdown]
# Take one of the corrections out of your kernel, and run these cells again: which of the properties notice? Not all
# of them do. Values of 1 give 1 as long as `l` and `o` are wrong *in the same way*.
#
# ### Profile

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def written(p):
    """The profile `p`, if its kernel multiplies about as often as the two products need."""
    if p[FMA] < attention.flops(p.shape) / 4:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return p


small = shape(N=64, D=64)
p_tiled, p_online = written(tiled.profile(**small)), written(online.profile(**small))
p_online.diff(p_tiled)

# %% [markdown]
# First the good news: what is stored, and what memory it takes. Recorded, without being run:

# %%
from labkit.kernels import recording


def buffers(rung, **shape):
    """Bytes of each buffer that the rung's launches use, by its name."""
    run = rung.launches(shape)
    with recording(run["names"]) as record:
        run["fn"]()
    return {buffer.name: buffer.nbytes for buffer in record.buffers}


print(f"sectors stored: {p_tiled[STORED]:,.0f} by tiled, {p_online[STORED]:,.0f} by online_softmax")
for N in (64, 1024, 4096):
    sizes = [sum(buffers(rung, **shape(N=N, D=64)).values()) / 2**20 for rung in (tiled, online)]
    print("N = {:4}: all buffers take {:7.3f} MiB in tiled, {:6.3f} MiB in online_softmax".format(N, *sizes))

# %% [markdown]
# Now the bad news:

# %%
scores_computed = 64 * 64
for p in (p_tiled, p_online):
    print(f"{p.kernel:25} {p[LOADED] / scores_computed:5.1f} sectors loaded and "
          f"{p[INSTRUCTIONS] / scores_computed:5.1f} instructions of a warp for each score")

# %% solved_only=true
assert p_online[STORED] == predicted_stores.value
assert p_online[LOADED] == 64 * 64 * predicted_loads.value + 64 * 8  # and a row of Q for each query
assert p_online[LOADED] > 6 * p_tiled[LOADED] and p_online[INSTRUCTIONS] > 3 * p_tiled[INSTRUCTIONS]
for N in (64, 1024):
    with_scores = buffers(tiled, **shape(N=N, D=64))
    assert with_scores.pop("S") == 4 * N * N and buffers(online, **shape(N=N, D=64)) == with_scores

# %% [markdown]
# Every warp reads all of $K$ and $V$ for itself. (Its neighbors read them at about the same time, so most of it comes
# from the L1, not from memory.) And a whole warp is busy with *one* score. Where do the instructions go? Line by
# line, in one block:

# %%
from labkit.profiling.emulated import profile_emulated

lk.plots.source(profile_emulated(**online.launches(small)))

# %% [markdown]
# ### The causal early exit
#
# With `causal`, the loop ends at the query: what would be masked is not even loaded.

# %%
for rung, p in ((tiled, p_tiled), (online, p_online)):
    p_causal = rung.profile(**shape(N=64, D=64, causal=1))
    print(f"{rung.name:25} with causal: {p_causal[LOADED] / p[LOADED]:4.0%} of the sectors, "
          f"{p_causal[INSTRUCTIONS] / p[INSTRUCTIONS]:4.0%} of the instructions")

# %% solved_only=true
pairs = 64 * 65 // 2
assert p_causal[LOADED] == pairs * predicted_loads.value + 64 * 8
assert tiled.profile(**shape(N=64, D=64, causal=1))[LOADED] == p_tiled[LOADED]

# %% [markdown]
# ### Explain
#
# A lane does 2 multiply-adds for a score's product and 2 for its share of $o$ (at $D = 64$). What else does it do for
# each score, and how would you have all this work serve more than one score or more than one query?

# %% [markdown] explain="attention/online_softmax" points=3
# ### BEGIN SOLUTION
# Five shuffles with an addition each, a maximum, two exponentials, which all 32 lanes compute with the same result,
# and two loads each of K and V, whose addresses take the most instructions of all. If a block took several queries
# and a tile of keys, a thread could compute whole scores in registers from shared memory, correct a row once for a
# tile and not for each key, and a loaded row of K or V would serve all queries of the block.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="attention/online_softmax" language="cuda"

# %% check="attention/online_softmax" language="cuda"
attention["online_softmax", "cuda"].check()

# %% [markdown]
# ## Your page

# %% jupyter={"source_hidden": true}
import pandas as pd

page = pd.DataFrame(
    {
        "sectors loaded": int(p[LOADED]),
        "sectors stored": int(p[STORED]),
        "warp instructions": int(p[INSTRUCTIONS]),
        "bytes of scores in memory": at["S"] if "S" in at else 0,
        "and at N = 131,072, by arithmetic": 4 * (2**17) ** 2 if "S" in at else 0,
    }
    for p, at in ((p_tiled, buffers(tiled, **small)), (p_online, buffers(online, **small)))
)
page.index = ["tiled", "online_softmax"]
page.style.format(thousands=",").set_caption(f"one head, N = 64, D = 64 ({p_online.origin})")

# %% [markdown]
# LLM-Speed, the operator library, keeps the same state for each row, `row_max`, `row_sum` and a rescale factor, and
# the lecture (CS336, lecture 5) derives the same correction, after Milakov and Gimelshein (2018). Both go on at once
# to do it for *tiles*. That is [FlashAttention](03_flash_forward.ipynb), and with what you have proved here, it is a
# matter of bookkeeping.
