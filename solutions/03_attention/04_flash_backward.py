# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # FlashAttention, backward
#
# Your `flash` never stores a weight. That is fine as long as nobody wants to train: the gradients of attention are
# made of the weights, all $N \times N$ of them, and a program that remembers what it has computed would have to keep
# them. Here you make them again instead, tile by tile, from one number per row. At the end you train a small model
# through your own two kernels.
#
# You need your `flash` from [the notebook before](03_flash_forward.ipynb).

# %%
import labkit as lk
from labkit.problems.attention import shape

flash = lk.problem("attention")["flash"]
attention_backward = lk.problem("attention_backward")
attention_backward

# %% [markdown]
# ## The mathematics, once and for all
#
# One head, $S = s\,Q K^T$, $P = \mathrm{softmax}(S)$, $O = P V$. Somebody computes a loss from $O$, and tells us how
# it changes with each number of $O$: the matrix $dO$, as large as $O$. Wanted are $dQ$, $dK$ and $dV$, the same for
# $Q$, $K$ and $V$.
#
# **Products are easy.** For $C = AB$ you know $dA = dC\,B^T$ and $dB = A^T dC$ from
# [Ship it](../02_gemm/07_ship_it.ipynb). So
#
# $$dV = P^T dO, \qquad dP = dO\,V^T, \qquad dQ = s\,dS\,K, \qquad dK = s\,dS^T Q .$$
#
# **The softmax** lies between $dP$ and $dS$. In a row $i$, with $L_i = \log \sum_k e^{S_{ik}}$, a weight is
# $P_{ij} = e^{S_{ij} - L_i}$, and a score $S_{ik}$ enters it twice: directly, if $j = k$, and through $L_i$:
#
# $$\frac{\partial P_{ij}}{\partial S_{ik}} = P_{ij}\,(\delta_{jk} - P_{ik}) .$$
#
# Sum over all weights that a score enters, each times its $dP$:
#
# $$dS_{ik} = \sum_j dP_{ij}\,P_{ij}\,(\delta_{jk} - P_{ik})
# = P_{ik}\,\Bigl(dP_{ik} - \underbrace{\textstyle\sum_j P_{ij}\,dP_{ij}}_{D_i}\Bigr).$$
#
# A weight grows at the expense of the others, and $D_i$ is that expense: the mean of the row's $dP$, weighted by $P$.
#
# **And $D_i$ needs no row of $P$.** Put $dP_{ij} = \sum_d dO_{id} V_{jd}$ into it, and change the order of the sums:
#
# $$D_i = \sum_j P_{ij} \sum_d dO_{id} V_{jd} = \sum_d dO_{id} \sum_j P_{ij} V_{jd} = \sum_d dO_{id}\,O_{id} .$$
#
# It is the product of a row of $dO$ with a row of $O$, and both are there. This line is what makes a backward pass in
# tiles possible: no tile has to wait until a row's other tiles have told it their part of $D_i$.

# %% [markdown]
# <details><summary>Hint</summary>
#
# $D$ is the weighted mean of 4 and 0. Then take the formula of $dS$.
#
# </details>

# %% question="attention_backward/softmax_gradient" points=1
lk.answer("attention_backward/softmax_gradient", 3 / 4)

# %% [markdown]
# ### Write it in numpy first
#
# Five lines. Compute $D$ from $O$ and $dO$, not from $P$ and $dP$.

# %%
import numpy as np


def attend(Q, K, V, s):
    """O and L of one head: Q [N, D], K and V [NK, D]."""
    S = s * Q @ K.T
    most = S.max(axis=1)
    L = most + np.log(np.exp(S - most[:, None]).sum(axis=1))
    return np.exp(S - L[:, None]) @ V, L


def gradients(Q, K, V, O, L, dO, s):
    """dQ, dK, dV from what the forward pass left."""
    P = np.exp(s * Q @ K.T - L[:, None])  # the weights, once more
    dQ = dK = dV = None
    ### BEGIN SOLUTION
    D = (dO * O).sum(axis=1)
    dV = P.T @ dO
    dS = P * (dO @ V.T - D[:, None])
    dQ = s * dS @ K
    dK = s * dS.T @ Q
    ### END SOLUTION
    return dQ, dK, dV


# %% [markdown]
# ### The gradient check
#
# How do you know that a gradient is right? You ask the function itself. Walk a little way $\varepsilon$ along some
# direction $U$, forth and back: the loss must change by what the gradient promises,
#
# $$\frac{f(X + \varepsilon U) - f(X - \varepsilon U)}{2\,\varepsilon} \approx \sum dX \cdot U .$$
#
# This finds every wrong sign, scale and transpose, and needs no knowledge of how the gradient was computed. It is
# worth having at hand. Complete it; `f` is a function of one matrix.


# %%
def slope(f, X, U, epsilon):
    """How fast f changes at X along U, from two values of f."""
    rate = float("nan")
    ### BEGIN SOLUTION
    rate = (f(X + epsilon * U) - f(X - epsilon * U)) / (2 * epsilon)
    ### END SOLUTION
    return rate


# %%
random = np.random.default_rng(2)
N, D_HEAD = 12, 32
scale = 1 / np.sqrt(D_HEAD)
values = {name: random.normal(size=(N, D_HEAD)) for name in ("Q", "K", "V")}
dO = random.normal(size=(N, D_HEAD))
directions = {name: random.normal(size=(N, D_HEAD)) for name in values}


def check_gradients(epsilon=1e-5, dtype=float, report=True):
    """The largest relative difference of slopes and gradients, of the three matrices."""
    given = {name: x.astype(dtype) for name, x in values.items()}
    O, L = attend(*values.values(), scale)
    promised = gradients(*values.values(), O, L, dO, scale)
    worst = 0.0
    for (name, x), dX in zip(given.items(), promised, strict=True):
        if dX is None:
            print(f"d{name} is not written yet")
            return float("nan")

        def loss(X, name=name):
            return (attend(**{**given, name: X}, s=dtype(scale))[0] * dO.astype(dtype)).sum()

        U = directions[name]
        measured, wanted = slope(loss, x, U.astype(dtype), dtype(epsilon)), (dX * U).sum()
        worst = max(worst, abs(measured - wanted) / abs(wanted))
        if report:
            print(f"d{name}: along a random direction {measured:+.8f}, by the gradient {wanted:+.8f}")
    return worst


worst = check_gradients()
print(f"relative difference: {worst:.1e}")

# %% [markdown]
# Why $10^{-5}$? With a large step, the function bends; with a small one, two nearly equal numbers are subtracted, and
# their rounding errors are divided by very little. So there is a best step in between, and in `float32` it is larger
# and not good at all:

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

steps = 10.0 ** np.arange(-9, 0.5, 0.5)
curves = {
    dtype.__name__: [check_gradients(epsilon, dtype, report=False) for epsilon in steps] if worst == worst else []
    for dtype in (np.float64, np.float32)
}
figure = go.Figure()
for (name, errors), color in zip(curves.items(), ("#2171b5", "#e6550d"), strict=True):
    figure.add_scatter(x=steps, y=errors, name=name, mode="lines+markers", line_color=color)
figure.update_layout(
    title="How far a slope from two values is off", template="plotly_white", height=340,
    xaxis=dict(title="step", type="log", exponentformat="power"),
    yaxis=dict(title="relative difference", type="log", exponentformat="power"),
)

# %% [markdown]
# Hence the rule: check gradients in `float64`. A kernel in `float32` is then compared with a gradient in `float64`,
# and so it is in `check()`.

# %% solved_only=true
assert worst < 1e-8
assert min(curves["float64"]) < 1e-9 and min(curves["float32"]) > 1e-5
assert curves["float64"][-1] > 1e-3 and curves["float64"][0] > 10 * min(curves["float64"])

# %% [markdown]
# ## What is kept between the passes
#
# PyTorch records a program as it runs. For each operation it keeps what the gradient will need, until the backward
# pass has used it. It can be asked what it keeps:


# %%
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"


def kept(function, *tensors):
    """Bytes that PyTorch keeps for the gradient of function(*tensors), each tensor counted once."""
    found = {}

    def note(t):
        found[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        function(*(t.clone().requires_grad_() for t in tensors))
    return sum(found.values())


def by_hand(q, k, v):
    """Attention as the formula says it."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v


def heads(N, H=1, D=32, B=1):
    """q, k and v of standard normal numbers."""
    generator = torch.Generator().manual_seed(N)
    return [torch.randn(B, H, N, D, generator=generator).to(device) for _ in "qkv"]


lengths = [32, 64, 128, 256, 512, 1024]
kept_by_hand = [kept(by_hand, *heads(N)) for N in lengths]
for N, count in zip(lengths, kept_by_hand, strict=True):
    print(f"N = {N:5}: {count:10,} bytes kept, of which q, k and v are {3 * 4 * N * 32:8,}")

# %% [markdown]
# With each doubling of $N$, the part that is not q, k and v grows four times: the weights. What would that be in a
# real model, and what is left if only $Q$, $K$, $V$, $O$ and $L$ are kept?

# %% [markdown]
# <details><summary>Hint</summary>
#
# Four matrices of N x D numbers, and one number per row.
#
# </details>

# %% question="attention_backward/stored_weights" points=1
lk.answer("attention_backward/stored_weights", 8589934592)

# %% question="attention_backward/kept" points=1
predicted_kept = lk.answer("attention_backward/kept", 16809984)
predicted_kept

# %% solved_only=true
weights = [count - 3 * 4 * N * 32 for N, count in zip(lengths, kept_by_hand, strict=True)]
assert all(w >= 4 * N * N for N, w in zip(lengths, weights, strict=True))
assert 3.5 < weights[-1] / weights[-2] < 4.1

# %% [markdown]
# ## Recompute
#
# With $L_i$ at hand, a weight is one product of two rows, a subtraction and an exponential away:
# $P_{ij} = e^{s\,q_i \cdot k_j - L_i}$. No maximum, no sum over the row, nothing to correct: the forward pass has
# settled all that. So the backward pass takes a tile of queries and a tile of keys, makes their weights, uses them,
# and forgets them. It is the trade of [Fusion and recomputation](../01_gpu_basics/04_fusion_and_recompute.ipynb), on
# a larger scale: arithmetic for memory.
#
# ### Predict
#
# How much arithmetic is it?

# %% [markdown]
# <details><summary>Hint</summary>
#
# List the products: $S$ once more, $dP$, $dV$, $dQ$, $dK$. Each takes as much as one of the two of the forward pass.
#
# </details>

# %% question="attention_backward/flops" points=1
lk.answer("attention_backward/flops", 5 / 2)

# %% [markdown]
# ### Who adds up what?
#
# In the forward pass, a block owned a tile of queries, and walked over the keys. Now look at where a tile of $P$ and
# $dS$ goes: $dQ_i$ is a sum over all **keys**, $dK_j$ and $dV_j$ are sums over all **queries**.

# %% jupyter={"source_hidden": true}
from plotly.subplots import make_subplots

tiles, own = 6, 2
figure = make_subplots(1, 2, subplot_titles=["a block owns keys: dK and dV", "a block owns queries: dQ"],
                       horizontal_spacing=0.12)
for column, by_key in enumerate((True, False), 1):
    z = np.zeros((tiles, tiles))
    z[(slice(None), own) if by_key else (own, slice(None))] = 1
    figure.add_heatmap(z=z, xgap=3, ygap=3, showscale=False, hoverinfo="skip", row=1, col=column,
                       colorscale=[(0, "#eaf2fa"), (1, "#9ecae1")])
    first, last = ((own, -0.3), (own, tiles - 0.7)) if by_key else ((-0.3, own), (tiles - 0.7, own))
    figure.add_annotation(x=last[0], y=last[1], ax=first[0], ay=first[1], xref=f"x{column}", yref=f"y{column}",
                          axref=f"x{column}", ayref=f"y{column}", arrowhead=2, arrowwidth=2.5, arrowcolor="#d93025")
figure.update_xaxes(title="tiles of keys", showticklabels=False)
figure.update_yaxes(title="tiles of queries", showticklabels=False, autorange="reversed")
figure.update_layout(title="Tiles of P and dS, and the way of one block through them", height=380,
                     template="plotly_white")

# %% [markdown]
# A block that walks downwards can keep its sums of $dK$ and $dV$ in registers. But each of its tiles has a share of
# another row of $dQ$. There are two ways out:
#
# - it **adds** its share of $dQ$ to memory, with atomics, as many other blocks do at the same time. All is computed
#   once; the order of the additions, and with it the last bits, differ from run to run;
# - **another kernel**, whose blocks walk across, sums $dQ$ in registers. It has to make $P$ and $dS$ again, for the
#   second time, and nobody ever adds to what somebody else adds to.
#
# The rung `recompute` takes the second way. The kernel on tensor cores in the [next notebook](05_tensor_cores.ipynb)
# takes the first.

# %% question="attention_backward/recompute/products" points=1
predicted_products = lk.answer("attention_backward/recompute/products", 7)
predicted_products

# %% [markdown]
# ## Rung: recompute
#
# ### Write
#
# Three kernels. The first one computes $D$, a warp per row; it is given, and calls the result `R`, for `D` is the
# length of a head in a program. The other two load tiles of 16 queries and 16 keys, call `weights`, and use what it
# leaves in shared memory:
#
# - `tP`, the tile of $P$: row = query, column = key, rows of `LP` numbers;
# - `tS`, the tile of $s\,dS$. The scale is in it already, so that nobody has to think of it again.
#
# You write `weights`, and the two sums. A block has 64 threads, 8 down (`y`) and 8 across (`x`).

# %% [markdown]
# <details><summary>Hint 1: weights, the plan</summary>
#
# ```
# s[i, j] = dp[i, j] = 0                      i = 0, 1: queries y, y + 1;   j = 0, 1: keys x, x + 8
# for d in steps of 4:
#     s[i, j]  += four numbers of q . k        rows of tQ and tK, of LD numbers
#     dp[i, j] += four numbers of dO . v       rows of tdO and tV
# for each of the four pairs:
#     p = exp(s * scale - l), or 0 where the query does not see the key
#     p to tP, p * (dp - r) * scale to tS
# ```
#
# <details><summary>Hint 2: who is not seen?</summary>
#
# A query past the end (`row >= N`), a key past the end (`col >= NK`), and with `causal` a key after its query. Rows
# past the end have no `L` and no `R` either: do not read them.
#
# <details><summary>Hint 3: the sums of the keys</summary>
#
# A thread has keys `y` and `y + 1`, and columns `4 x .. 4 x + 3` of each piece of 32. For each of the 16 queries `i`
# of the tile: four numbers of `tdO` and of `tQ`, at `i * LD + 4 * x + 32 * c`. Key `y + j` has the weight
# `tP[i * LP + y + j]`: the tile of $P$ is read *down* a column, and that is all there is to the transposed $P^T$.
#
# <details><summary>Hint 4: the sums of the queries</summary>
#
# The same with rows: query `y + i` has `tS[(y + i) * LP + j]` for key `j` of the tile, times that row of `tK`.
#
# </details></details></details></details>

# %% kernel="attention_backward/recompute"

# %% check="attention_backward/recompute" points=8
recompute = attention_backward["recompute"]
recompute.check()

# %% [markdown]
# ### Profile
#
# Is it seven products, and was the forward pass two? Count multiply-adds, and divide by those of one product,
# $N \cdot N \cdot D$:

# %%
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
small = shape(N=64, D=32)
p_forward, p_backward = flash.profile(**small), recompute.profile(**small)
product = 64 * 64 * 32
for p in (p_forward, p_backward):
    print(f"{p.kernel:35} {p[FMA]:10,.0f} multiply-adds, {p[FMA] / product:.2f} products ({p.origin})")

# %% [markdown]
# The fractions are exponentials and addresses. Against the 2.5 times that five products would take, this rung does
# 3.5 times the work of the forward pass: the price of a result that is the same each time.
#
# And memory: what your kernels leave between the passes, and what the formula by hand does.

# %%
attend_flash = lk.attention(flash, recompute)
kept_by_flash = [kept(attend_flash, *heads(N)) for N in (32, 64)]
per_row = kept_by_flash[1] / 64
print(f"kept per row: {per_row:g} bytes, 4 x 32 numbers of q, k, v and the result, and one of L")

# %% jupyter={"source_hidden": true}
figure = go.Figure()
figure.add_scatter(x=lengths, y=kept_by_hand, name="the formula by hand", mode="lines+markers", line_color="#e6550d")
figure.add_scatter(x=lengths, y=[per_row * N for N in lengths], name="flash and recompute", mode="lines+markers",
                   line_color="#2171b5")
figure.update_layout(
    title="Kept between the passes, one head of D = 32 (counted; from 128 on flash by its bytes per row)",
    template="plotly_white", height=360, xaxis=dict(title="N", type="log", tickvals=lengths),
    yaxis=dict(title="bytes", type="log", exponentformat="SI"),
)

# %% solved_only=true
assert kept_by_flash == [4 * (4 * N * 32 + N) for N in (32, 64)]
assert per_row * 8192 == predicted_kept.value - 4 * 4 * 8192 * 96  # of heads with 128 numbers
assert 2.0 < p_forward[FMA] / product < 2.4
assert predicted_products.value < p_backward[FMA] / product < predicted_products.value + 0.5

# %% [markdown]
# `lk.attention` is what joins two rungs for PyTorch: its forward pass launches your `flash` and keeps five tensors, its
# backward pass launches your `recompute`. It is a `torch.autograd.Function`, some twenty lines, in
# `labkit/autograd.py`; have a look. Is it right as a whole? Against PyTorch's own formulas in `float64`, with lengths
# that fit no tile, fewer heads of keys than of queries, and a causal mask:

# %%
q, k, v = (t.requires_grad_() for t in heads(37, H=2))
fewer = [t.detach()[:, :1].clone().requires_grad_() for t in (k, v)]
out = attend_flash(q, *fewer, causal=True)
out.square().sum().backward()

exact = [t.detach().double().requires_grad_() for t in (q, *fewer)]
wanted = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=True, enable_gqa=True)
wanted.square().sum().backward()
off = {
    name: float((mine.grad - theirs.grad).abs().max() / theirs.grad.abs().max())
    for name, mine, theirs in zip(("q", "k", "v"), (q, *fewer), exact, strict=True)
}
print("off by, of the largest element:", ", ".join(f"d{name} {error:.0e}" for name, error in off.items()))

# %% solved_only=true
assert max(off.values()) < 1e-5

# %% [markdown]
# ## Train
#
# The smallest task that cannot be done without attention: *say what came before*. A sequence of random letters; at
# each place the model shall name the letter one place back. A word's own vector knows nothing of it, it has to look:
# by its position, one to the left. The model is one head of attention with embeddings and four matrices, and every
# step of its training goes forward through your `flash` and backward through your `recompute`.
#
# To compare, the same model with the same random numbers, with PyTorch's attention in `float64`:

# %%
LETTERS, LENGTH, WIDTH, BATCH = 8, 16, 32, 4


def train(attend, steps, dtype=torch.float32):
    """The loss of each step; attend(q, k, v) is causal."""
    generator = torch.Generator().manual_seed(0)

    def parameter(*size, times):
        return (torch.randn(size, generator=generator) * times).to(device, dtype).requires_grad_()

    letter, position = parameter(LETTERS, WIDTH, times=1), parameter(LENGTH, WIDTH, times=1)
    to_q, to_k, to_v = (parameter(WIDTH, WIDTH, times=WIDTH**-0.5) for _ in "qkv")
    to_letter = parameter(WIDTH, LETTERS, times=WIDTH**-0.5)
    learner = torch.optim.Adam([letter, position, to_q, to_k, to_v, to_letter], lr=0.01)
    losses = []
    for _ in range(steps):
        text = torch.randint(LETTERS, (BATCH, LENGTH), generator=generator).to(device)
        x = letter[text] + position
        q, k, v = ((x @ matrix)[:, None] for matrix in (to_q, to_k, to_v))  # one head
        said = attend(q, k, v)[:, 0] @ to_letter
        loss = torch.nn.functional.cross_entropy(said[:, 1:].flatten(0, 1), text[:, :-1].flatten())
        learner.zero_grad()
        loss.backward()
        learner.step()
        losses.append(loss.item())
    return losses


STEPS = 36
mine = train(lambda q, k, v: attend_flash(q, k, v, causal=True), STEPS)
reference = train(
    lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), STEPS, torch.float64
)

# %% jupyter={"source_hidden": true}
figure = go.Figure()
figure.add_scatter(y=reference, name="PyTorch, float64", line=dict(color="#9ecae1", width=7))
figure.add_scatter(y=mine, name="your kernels, float32", line=dict(color="#d93025", width=2))
figure.add_hline(y=np.log(LETTERS), line_dash="dot", annotation_text="guessing")
figure.update_layout(title="Learning to say what came before", template="plotly_white", height=360,
                     xaxis_title="step", yaxis=dict(title="loss", rangemode="tozero"))

# %% [markdown]
# One curve on top of the other, and down to where the model knows. If a gradient of yours were wrong by a constant,
# this curve would still fall, more slowly, and nobody would notice for weeks. That is why the gradient check came
# first.

# %% solved_only=true
assert mine[-1] < 0.4 < np.log(LETTERS) < mine[0]
assert max(abs(a - b) for a, b in zip(mine, reference, strict=True)) < 1e-3

# %% [markdown]
# ### Explain
#
# At $D = 128$, a weight in `float32` that is kept costs 4 bytes to write and 4 to read; one that is made again costs
# $2 D$ operations, and an exponential. By the rates that were recorded on an H200:

# %%
from labkit import recorded

rates = recorded.ceilings("NVIDIA H200")
keep = 8 / (rates["copy_gbps"] * 1e9)
make = {name: 2 * 128 / (rates[f"{name}_tflops"] * 1e12) for name in ("fp32", "bf16")}
print(f"keep a weight: {1e12 * keep:.2f} ps   make it: {1e12 * make['fp32']:.2f} ps on ordinary units, "
      f"{1e12 * make['bf16']:.2f} ps on tensor cores (recorded rates)")

# %% [markdown]
# So is it worth making the weights again? Give the answer for memory, for time on the ordinary units, and for time on
# tensor cores.

# %% [markdown] explain="attention_backward/recompute" points=3
# ### BEGIN SOLUTION
# For memory always: at N = 8192 and 64 heads the weights alone would take 17 GB in float32, for each layer, so that
# the batch or the length would have to shrink; beyond some length there is no room at all. In time, making a weight
# on the ordinary units takes about twice as long as keeping it, so here time is paid for memory. On tensor cores it
# takes a sixth of the time, and recomputing wins in both.
# ### END SOLUTION

# %% solved_only=true
assert 1.5 < make["fp32"] / keep < 3 and make["bf16"] < keep / 4
assert 4 * 64 * 8192**2 > 17e9

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# With tiles of 32 x 32, which need more than the 48 KiB of shared memory that numba can ask for.

# %% kernel="attention_backward/recompute" language="cuda"

# %% check="attention_backward/recompute" language="cuda"
attention_backward["recompute", "cuda"].check()

# %% [markdown]
# ## On an H200
#
# What does a clock say? Our solutions, recorded: four sequences of 16 heads, 4096 tokens each. All rates count the five
# products that are needed, also of `recompute`, which makes seven. PyTorch's line is its own backward pass in
# `float32`.

# %%
timed = {language: attention_backward["recompute", language].time(recorded=True) for language in ("numba", "cuda")}
lk.plots.ladder(list(timed.values()))

# %%
forward, backward = lk.problem("attention")["flash", "cuda"].time(recorded=True), timed["cuda"]
print(f"CUDA C++: forward {forward.median_ms:.1f} ms, backward {backward.median_ms:.1f} ms, "
      f"{backward.median_ms / forward.median_ms:.1f} times as long ({backward.machine}, {backward.date})")

# %% [markdown]
# 3.5 times would be the seven products against two. So a product takes longer here than in the forward pass. Why?
# Nsight Compute read the counters, at 2048 tokens:

# %%
import pandas as pd

ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
FMA_PIPE = "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"
MULTIPLY = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"
INSTRUCTIONS, TIME = "smsp__inst_executed.sum", "gpu__time_duration.sum"
SHARED = [f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum" for kind in ("ld", "st")]
DRAM = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
BLOCK = ["launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"]
WAITS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
MULTIPROCESSORS = 132
large = shape(B=4, H=16, N=2048, D=128)
of_product = 4 * 16 * 2048**2 * 128  # multiply-adds
read = {"flash, C++": lk.problem("attention")["flash", "cuda"].recorded(**large),
        "recompute, C++": attention_backward["recompute", "cuda"].recorded(**large),
        "recompute, numba": attention_backward["recompute"].recorded(**large)}


def summary(p):
    cycles = p[INSTRUCTIONS] / (4 * MULTIPROCESSORS * p[ISSUE] / 100)
    wavefronts, gigabytes = sum(p[m] for m in SHARED), sum(p[m] for m in DRAM) / 1e9
    products = (p[FMA] + p[MULTIPLY]) / of_product  # a sum of four products begins with a multiplication
    waits = {name: value for name, value in p.metrics.items() if "_stalled_" in name}
    return {
        "products": products,
        "ms per product": p[TIME] / 1e6 / products,
        "wavefronts of shared memory per multiply-add of a warp": wavefronts / (products * of_product / 32),
        "wavefronts of shared memory, % of cycles": 100 * wavefronts / MULTIPROCESSORS / cycles,
        "unit for multiply-adds used, %": p[FMA_PIPE],
        "issue slots used, %": p[ISSUE],
        "warps wait for shared memory, % of their time": 100 * p[WAITS.format("short_scoreboard")]
        / (1 + sum(waits.values())),  # of all warps: one is issued from
        "shared memory of a block, KB": sum(p[m] for m in BLOCK) / 1e3,
        "GB from and to memory": gigabytes,
        "memory, % of its rate": 100 * gigabytes / (p[TIME] / 1e9) / rates["read_gbps"],
    }


table = pd.DataFrame({name: summary(p) for name, p in read.items()})
table.style.format(precision=2).set_caption("read by Nsight Compute on the NVIDIA H200")

# %% [markdown]
# * **Not memory**: it delivers next to nothing. All of `recompute` moves fewer bytes than these heads' weights would
#   take, and they would be written once and read once.
# * **Shared memory**, which hands out a wavefront per cycle, is what is busy, and what warps wait for. The unit for
#   multiply-adds is busy for less than half of the time. A multiply-add here needs almost twice the wavefronts of one
#   in `flash`, since a thread's pieces are smaller: 2 x 4 scores (and as many of $dP$) where `flash` has 4 x 4, and 2
#   rows of a sum where `flash` has 4. Why not larger ones? Four tiles, of $Q$, $K$, $V$ and $dO$, have to lie in shared
#   memory side by side, and with 32 rows each they take what `flash` needs for 64 queries.
# * **numba** comes up against the same limit. Its pieces are smaller still, 2 x 2 scores: it takes as many times longer
#   as it needs more wavefronts.
#
# And what does recomputing cost? The table says how long a product takes, so divide by the weights:

# %%
ps = 1e9 * table.loc["ms per product"] / (4 * 16 * 2048**2)
print(f"to make a weight: {ps['recompute, C++']:.1f} ps in recompute, measured; "
      f"{1e12 * make['fp32']:.1f} ps at the rate of the ordinary units; to keep it: {1e12 * keep:.1f} ps")
saved = 4 * 4 * 16 * 2048**2 / 1e9
moved = table.loc["GB from and to memory", "recompute, C++"]
print(f"all weights at N = 2048: {saved:.2f} GB; recompute moved {moved:.2f} GB in all")

# %% solved_only=true
ratio = backward.median_ms / forward.median_ms
assert backward.flops == 2.5 * forward.flops and {t.machine for t in (forward, *timed.values())} == {"NVIDIA H200"}
assert ratio > 1.15 * 3.5 and 0.35 < backward.ratio < 0.7
flash_row, cuda_row, numba_row = (table[name] for name in read)
assert 2 < flash_row["products"] < 2.3 and 7 < cuda_row["products"] < 7.5 and 7 < numba_row["products"] < 7.5
assert 1.15 < cuda_row["ms per product"] / flash_row["ms per product"] < 1.6
per_fma, busy = (table.loc[name] for name in table.index[2:4])
assert 1.6 < per_fma["recompute, C++"] / per_fma["flash, C++"] < 2
assert busy["flash, C++"] < 75 and (busy.iloc[1:] > 80).all()
assert cuda_row["unit for multiply-adds used, %"] < 50 and cuda_row["issue slots used, %"] < 65
for name in list(read)[1:]:  # short_scoreboard outweighs all other reasons
    waits = {m: value for m, value in read[name].metrics.items() if "_stalled_" in m}
    assert max(waits, key=waits.get) == WAITS.format("short_scoreboard")
    assert table.loc["warps wait for shared memory, % of their time", name] > 25
assert abs(cuda_row["shared memory of a block, KB"] / flash_row["shared memory of a block, KB"] - 1) < 0.05
assert (table.loc["memory, % of its rate"] < 5).all() and moved < 0.9 * saved
longer = timed["numba"].median_ms / timed["cuda"].median_ms
assert longer > 1.1 and 0.85 < longer / (per_fma["recompute, numba"] / per_fma["recompute, C++"]) < 1.2
assert ps["recompute, C++"] > 2 * 1e12 * make["fp32"] > 2 * 1e12 * keep

# %% [markdown]
# Next: the same five products, and the two of the forward pass, on [tensor cores](05_tensor_cores.ipynb).
