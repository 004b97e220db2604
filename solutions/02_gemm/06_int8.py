# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix multiplication with whole numbers
#
# Large models are often run on weights of one byte. Half the bytes of `float16` come from memory, and tensor cores do
# twice as many multiply-adds per instruction. What they compute then is *exact*: sums of whole numbers have no rounding
# errors, in any order. What is not exact is the step before, **quantization**.
#
# In this notebook you take your kernel from `float16` to `int8`. Most of it stays as it is, and that is the surprise:
# the hardware hardly notices what is in the bytes. Then you quantize a product of real numbers, and measure what it
# costs in accuracy.
#
# You need your `mma_async` from the notebook before. Is it there, and right?

# %%
import labkit as lk

gemm_f16 = lk.problem("gemm_f16")
mma_async = gemm_f16["mma_async"]
mma_async.check(shapes=[dict(M=129, N=264, K=40)])

# %%
gemm_int8 = lk.problem("gemm_int8")
gemm_int8

# %% [markdown]
# Look at the formula: $B$ is stored as $N \times K$, with $K$ as its inner dimension, like $A$. Libraries call that
# **K-major**, and it is how the weights of a linear layer lie in PyTorch anyway. You will see why it matters.
#
# ## What there is to gain
#
# ### Predict

# %% question="gemm_int8/int8_mma/multiply_adds" points=1
predicted_adds = lk.answer("gemm_int8/int8_mma/multiply_adds", 4096)
predicted_adds

# %% question="gemm_int8/int8_mma/bytes" points=1
predicted_bytes = lk.answer("gemm_int8/int8_mma/bytes", 100663296)
predicted_bytes

# %% [markdown]
# The rates that PyTorch's libraries reach on an H200, as `labkit ceilings` recorded them:

# %%
from labkit import recorded

rates = recorded.ceilings("NVIDIA H200")
print(f"bfloat16 {rates['bf16_tflops']:.0f} TFLOP/s, int8 {rates['int8_tops']:.0f} TOP/s (recorded)")

# %% [markdown]
# Not twice as much. A factor that an instruction offers, a whole kernel has to earn.

# %% solved_only=true
assert 1 < rates["int8_tops"] / rates["bf16_tflops"] < 1.5
assert predicted_adds.value == 2 * 16 * 8 * 16

# %% [markdown]
# ## Exact, as long as it fits
#
# A product of two `int8` fits into 15 bits, and a sum of $K$ of them goes into an `int32`. How long may it be?

# %% [markdown]
# <details><summary>Hint 1: the largest product</summary>
#
# `int8` goes from -128 to 127. Which product is the largest? It is not 127 times 127.
#
# <details><summary>Hint 2: how often it fits</summary>
#
# The largest `int32` is $2^{31} - 1$. Divide and round down.
#
# </details></details>

# %% question="gemm_int8/int8_wmma/largest_sum" points=1
predicted_sum = lk.answer("gemm_int8/int8_wmma/largest_sum", 131071)
predicted_sum

# %% [markdown]
# Beyond that the sum wraps around, without a word. Here is a warp whose sums stand at the largest `int32` already when
# it adds 32 products of 1:

# %%
import numpy as np
from numba import cuda, int32, uint32


@cuda.jit
def one_more(out):
    ones, most = uint32(0x01010101), int32(2**31 - 1)  # four int8 in a register
    c = lk.cuda.mma_m16n8k32((ones, ones, ones, ones), (ones, ones), (most, most, most, most))
    out[cuda.threadIdx.x] = c[0]


wrapped = np.zeros(32, np.int32)
p_one = lk.emulate(one_more, 1, 32, [wrapped])
print(f"{2**31 - 1:,} + 32 = {wrapped[0]:,}")

# %% [markdown]
# Layers of real models are not that deep; an overflow is a thing to know about, not one to meet.
#
# And exact means: the same bits in every order. For `float32`, reversing a sum changes it; for whole numbers nothing
# does. That is why `check()` allows no error at all in this notebook.

# %%
random = np.random.default_rng(0)
whole = random.integers(-128, 128, (2, 4096)).astype(np.int8)
real = random.standard_normal((2, 4096)).astype(np.float32)


def one_by_one(terms):
    """The sum of the terms, added one after the other in their own type."""
    return np.add.accumulate(terms)[-1]


products = whole[0].astype(np.int32) * whole[1]
print(f"int32:   {one_by_one(products)} and, backwards, {one_by_one(products[::-1])}")
print(f"float32: {one_by_one(real[0] * real[1])} and, backwards, {one_by_one((real[0] * real[1])[::-1])}")

# %% solved_only=true
assert (wrapped == -(2**31) + 31).all()
assert predicted_sum.value * 128**2 < 2**31 <= (predicted_sum.value + 1) * 128**2
assert one_by_one(products) == one_by_one(products[::-1])
assert one_by_one(real[0] * real[1]) != one_by_one((real[0] * real[1])[::-1])

# %% [markdown]
# ## Fragments of bytes
#
# `m16n8k32` takes 16 x 32 of $A$ and 32 x 8 of $B$. Four `int8` lie in a register, where two `float16` lay. Here are
# the elements of $A$ for `int8`, and for `float16`; the number is the lane.

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.emulator.tensor import mma_layout


def held_by(places, shape):
    """For each element of a matrix, the lane that holds it. places: element numbers by lane and place."""
    lanes = np.empty(shape, int)
    for lane, elements in enumerate(places):
        lanes.flat[elements] = lane
    return lanes


bytes_a = held_by(mma_layout("a", 16, 8, 32, "s8"), (16, 32))
halves_a = held_by(mma_layout("a", 16, 8, 16, "f16"), (16, 16))
titles = ["A of m16n8k32, int8: 16 x 32", "A of m16n8k16, float16: 16 x 16"]
figure = make_subplots(2, 1, subplot_titles=titles, vertical_spacing=0.1)
for row, lanes in enumerate((bytes_a, halves_a), 1):
    figure.add_heatmap(
        z=lanes, text=lanes, texttemplate="%{text}", textfont=dict(size=9), xgap=1, ygap=1, zmin=0, zmax=31,
        row=row, col=1, colorscale=[(0, "#eaf2fa"), (0.5, "#9ecae1"), (1, "#4292c6")], showscale=False,
        hovertemplate="row %{y}, column %{x}: lane %{z}<extra></extra>",
    )
    for y, x in np.argwhere(lanes == 6):
        figure.add_shape(type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5,
                         line=dict(color="#d93025", width=2), row=row, col=1)
figure.update_yaxes(autorange="reversed", showgrid=False, dtick=4)
figure.update_xaxes(showgrid=False, dtick=4)
figure.update_layout(title="The lane that holds each element; lane 6 framed", template="plotly_white", height=760)

# %% [markdown]
# Byte for byte it is **the same picture**: a row has 32 bytes, and a lane holds bytes $4q$ to $4q + 3$ of it, and 16
# further. So `ldmatrix`, which moves rows of 16 bytes and hands out pieces of 4, brings fragments of `int8` too,
# without knowing.
#
# One thing it cannot do. For $B$, a lane wants 4 elements along $K$. Turned round by `ldmatrix_transposed`, a matrix
# comes in units of 16 bits: *pairs* of bytes stay together, and they are neighbors along the wrong dimension. If $B$
# lies K-major, nothing needs to be turned: its rows are what the lanes want. Here is what a lane's fragment of $B$
# should hold, and where that lies in a K-major tile: pieces of 4 bytes again, 16 apart.

# %%
lane = 6
want = mma_layout("b", 16, 8, 32, "s8")[lane]  # numbers k * 8 + column
columns, k = want % 8, want // 8
print(f"lane {lane} of the fragment of B holds column {set(columns.tolist())}, k = {k.tolist()}")
print(f"as bytes of a tile with 32 per column: {(columns * 32 + k).tolist()}")

# %% solved_only=true
assert (np.repeat(halves_a, 2, axis=1) == bytes_a).all()
every = mma_layout("b", 16, 8, 32, "s8")
g, q = np.arange(32) // 4, np.arange(32) % 4
assert (every % 8 == g[:, None]).all()
assert (every // 8 == np.stack([16 * i + 4 * q + e for i in (0, 1) for e in range(4)], axis=1)).all()

# %% [markdown]
# ## Rung: int8_wmma
#
# As before, first the gentle way, in CUDA C++, with fragments of 16 x 16 x 16. A tile has the same bytes as in
# wmma_tiled and is twice as deep: 128 x 64. But a fragment is only 16 *bytes* deep now.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: rows of 64</summary>
#
# Rows begin 64 bytes apart. You have met that before: it is a row of 32 `float16`.
#
# <details><summary>Hint 2: slices</summary>
#
# 8 rows of 16 bytes, one after the other. How many bytes is that, and how many do the banks have?
#
# </details></details>

# %% question="gemm_int8/int8_wmma/passes_in_rows" points=1
predicted_rows = lk.answer("gemm_int8/int8_wmma/passes_in_rows", 4)
predicted_rows

# %% question="gemm_int8/int8_wmma/passes_in_slices" points=1
predicted_slices = lk.answer("gemm_int8/int8_wmma/passes_in_slices", 1)
predicted_slices

# %% [markdown]
# ### Read
#
# So this kernel stores its tiles in **slices**: first the 16 bytes of `k` = 0 to 15 of all rows, then those of 16 to
# 31, and so on. It takes neither padding nor a swizzle.

# %% kernel="gemm_int8/int8_wmma" language="cuda" given=true

# %% check="gemm_int8/int8_wmma" language="cuda"
int8_wmma = gemm_int8["int8_wmma", "cuda"]
int8_wmma.check()

# %% [markdown]
# ### Profile

# %%
OPERATIONS = {"int8": "sm__ops_path_tensor_src_int8.sum", "float16": "sm__ops_path_tensor_src_fp16.sum"}
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"

shape = dict(M=256, N=256, K=256)
p_wmma = int8_wmma.profile(**shape)
print(f"{p_wmma[OPERATIONS['int8']]:,.0f} tensor operations ({p_wmma.origin})")
print(f"{p_wmma[CONFLICTS]:.0f} conflicts of shared loads, {p_wmma[STORE_CONFLICTS]:.0f} of shared stores")

# %%
lk.plots.access_map(p_wmma, "tA")

# %% [markdown]
# No load has a conflict. The stores have some: neighboring lanes copy neighboring pieces of a row of $A$, and those
# go to different slices, 2048 bytes apart, which is the same bank. One layout does not suit both sides; a swizzle does,
# as you know, and the next kernel has one.

# %% solved_only=true
def worst(row_bytes):
    words = [(row * row_bytes // 4 + word) % 32 for row in range(8) for word in range(4)]
    return max(words.count(bank) for bank in words)


assert worst(64) == predicted_rows.value and worst(16) == predicted_slices.value
assert p_wmma[CONFLICTS] == 0 < p_wmma[STORE_CONFLICTS]
assert p_wmma[OPERATIONS["int8"]] == 2 * 256**3 and p_wmma[OPERATIONS["float16"]] == 0

# %% [markdown]
# ## Rung: int8_mma
#
# Your mma_async, in `int8`. What changes?
#
# - A tile is 128 x 64, in bytes as large as before. A piece of 16 bytes has 16 elements, and a row has 4 pieces, as
#   $A$'s tile had in `float16`. The same swizzle fits, and since $B$ lies as $A$ does, it fits both.
# - One `mma_m16n8k32` goes 32 along $K$.
# - For $B$, no `ldmatrix_transposed`: lanes name rows of $B$'s tile, which are columns of the product.
#
# ### Write

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# Take the loop of your mma_async. `fetch` has one tile to fetch now: call it for both. A step is 64 of $K$, in two
# halves of 32.
#
# <details><summary>Hint 2: a fragment of A</summary>
#
# Lanes 0 to 15 name the 16 rows at `k`, lanes 16 to 31 the same rows 16 elements further.
#
# <details><summary>Hint 3: two fragments of B</summary>
#
# One ldmatrix brings four matrices: for the first 8 columns of the product `k` and `k + 16`, then for the next 8
# columns the same. So lanes 0 to 7 name 8 rows of `tB` at `k`; lanes 8 to 15 the same rows at `k + 16`; lanes 16 to 31
# the next 8 rows. Registers 0 and 1 are the first fragment, 2 and 3 the second.
#
# </details></details></details>

# %% kernel="gemm_int8/int8_mma"

# %% check="gemm_int8/int8_mma" points=8
int8_mma = gemm_int8["int8_mma"]
int8_mma.check()

# %% [markdown]
# ### Profile
#
# The same product with both kernels, in `float16` and in `int8`:

# %%
p_f16 = mma_async.profile(**shape)
p_int8 = int8_mma.profile(**shape)

# %% jupyter={"source_hidden": true}
import pandas as pd

page = pd.DataFrame(
    {
        "tensor operations": int(p[OPERATIONS[kind]]),
        "instructions of tensor cores": int(p[OPERATIONS[kind]]) // size,
        "global load requests": int(p[REQUESTS]),
        "sectors": int(p[SECTORS]),
        "wavefronts of shared loads": int(p[SHARED]),
        "bank conflicts": int(p[CONFLICTS] + p[STORE_CONFLICTS]),
        "barriers of a block": int(max(p.steps.phases)),
    }
    for p, kind, size in ((p_f16, "float16", 4096), (p_int8, "int8", 8192))
)
page.index = ["mma_async, float16", "int8_mma"]
page.T.style.format(thousands=",").set_caption(
    f"M = N = K = {shape['K']} ({p_int8.origin})"
).set_table_styles([{"selector": "td", "props": "text-align: right"}])

# %% [markdown]
# The same number of operations, and half of everything else.

# %% solved_only=true
halved = ["instructions of tensor cores", "global load requests", "sectors", "wavefronts of shared loads",
          "barriers of a block"]  # fmt: skip
assert (page.loc["mma_async, float16", halved] == 2 * page.loc["int8_mma", halved]).all()
assert page["tensor operations"].nunique() == 1 and (page["bank conflicts"] == 0).all()
assert p_int8[INSTRUCTIONS] < p_f16[INSTRUCTIONS]

# %% [markdown]
# ### Explain
#
# Suppose that $B$ came as $K \times N$, as in gemm_f16. Where in the kernel could you turn it round, and why is it
# better if whoever stores the weights does it?

# %% [markdown] explain="gemm_int8/int8_mma" points=2
# ### BEGIN SOLUTION
# On the way into shared memory: single bytes would have to be stored down a column, through registers, for cp.async
# and ldmatrix only move 16 bytes that stay together, or pairs. That is work in every block and for every product. The
# weights are stored once and used again and again, so they are turned round once, before.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# With larger tiles, four stages, blocks that stay, and tiles in an order for the L2, as mma_tuned has them.

# %% kernel="gemm_int8/int8_mma" language="cuda"

# %% check="gemm_int8/int8_mma" language="cuda"
gemm_int8["int8_mma", "cuda"].check()

# %% [markdown]
# ## Quantize
#
# Numbers of a real model are not whole. **Symmetric quantization** divides them by a scale $s$ and rounds:
#
# $$q = \mathrm{round}(x / s), \qquad s = \max|x| \,/\, 127, \qquad x \approx s\,q .$$
#
# A scale for each row of $A$ and one for each column of the product (each row of the K-major $B$) can be taken out of
# the sum, for they do not depend on $k$:
#
# $$C_{ij} \approx s_i\,t_j \sum_k q_{ik}\,r_{jk} .$$
#
# The sum is your kernel's, and exact. All of the error is in the rounding before it.

# %% question="gemm_int8/quantise/largest_error" points=1
predicted_error = lk.answer("gemm_int8/quantise/largest_error", 2 / 127)
predicted_error

# %% [markdown]
# ### Write
#
# Complete `quantize`. `rows=True` makes one scale for each row, `rows=False` one for all.


# %%
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"


def quantize(x, rows=True):
    """int8 numbers of x, contiguous, and the scales, [rows, 1] or [1, 1]. x: float32 [rows, K]."""
    ### BEGIN SOLUTION
    largest = x.abs().amax(dim=1, keepdim=True) if rows else x.abs().max().reshape(1, 1)
    scale = largest.clamp(min=1e-30) / 127  # a row of zeros stays one
    return (x / scale).round().to(torch.int8), scale
    ### END SOLUTION


def product(A, B, rows=True):
    """A @ B.T by int8: A [M, K], B [N, K], float32."""
    (q, s), (r, t) = quantize(A, rows), quantize(B, rows)
    C = torch.empty(A.shape[0], B.shape[0], dtype=torch.int32, device=A.device)
    int8_mma.kernel.launch(C, q, r)
    return C.float() * s * t.T


def error(C, exact):
    """Error of C relative to `exact`: norm by norm."""
    return float((C.double() - exact).norm() / exact.norm())


torch.manual_seed(0)
A, B = torch.randn(64, 512, device=device), torch.randn(64, 512, device=device)
exact = A.double() @ B.double().T
print(f"int8, a scale for each row: {error(product(A, B), exact):.2%}")
print(f"int8, one scale:            {error(product(A, B, rows=False), exact):.2%}")
print(f"bfloat16:                   {error(A.bfloat16().double() @ B.bfloat16().double().T, exact):.2%}")

# %% [markdown]
# Where does this come from? Rounding to steps of $s$ makes an error that is spread evenly between $-s/2$ and $s/2$, and
# has a standard deviation of $s / \sqrt{12}$. Numbers of a normal distribution with standard deviation 1 have a largest
# magnitude of about 3 in a row of 512. So the error of an element is about $3 / 127 / \sqrt{12}$ of its size; both
# operands have one; and in a sum, errors and terms grow alike. Computed, with the scales that your rows have:

# %%
steps = [float(quantize(x)[1].square().mean()) for x in (A, B)]
estimate = (sum(steps) / 12) ** 0.5
print(f"estimated {estimate:.2%}, found {error(product(A, B), exact):.2%}")

# %% [markdown]
# ### Outliers
#
# A single large number spoils its scale, and with it everybody who shares it. Multiply one row of $A$ by 30, or one
# *column* of it, which is one `k` in all rows:

# %%
row, column = A.clone(), A.clone()
row[3] *= 30
column[:, 3] *= 30
found = {}
for name, matrix in (("as it was", A), ("one row x 30", row), ("one column x 30", column)):
    # The other rows' error, and without the outlier's own part of the sum: what is left of everybody else.
    keep = [i for i in range(64) if i != 3]
    others = [k for k in range(512) if k != 3]
    rest = (matrix[keep][:, others].double() @ B[:, others].double().T).norm()
    for rows in (True, False):
        off = product(matrix, B, rows)[keep].double() - (matrix.double() @ B.double().T)[keep]
        found[name, rows] = float(off.norm() / rest)

# %% jupyter={"source_hidden": true}
cases = list(dict.fromkeys(name for name, _ in found))
figure = go.Figure(
    [go.Bar(name=label, x=cases, y=[found[name, rows] for name in cases], texttemplate="%{y:.1%}",
            textposition="outside", cliponaxis=False, marker_color=color)
     for rows, label, color in ((False, "one scale for each matrix", "#9ecae1"),
                                (True, "a scale for each row", "#2171b5"))]
)
figure.update_layout(
    title="Error of the other 63 rows, relative to what the ordinary numbers contribute", barmode="group",
    template="plotly_white", height=400, yaxis=dict(tickformat=".0%"), legend=dict(orientation="h", y=-0.12),
)

# %% [markdown]
# Scales by rows keep a bad row's damage to itself. Against a bad *column*, which every row of $A$ has a part of, they
# help little: the scale of such a `k` would have to stand inside of the sum. Activations of large language models
# have just such columns. There are ways out: leave those few in a wider type, or divide them in $A$ and multiply them
# in $B$ before quantizing; or a scale for each block of some 32 `k`, as the formats of the matrix-vector lab have.

# %% solved_only=true
q, s = quantize(A)
assert q.dtype == torch.int8 and q.shape == A.shape and s.shape == (64, 1) and q.is_contiguous()
assert int(q.abs().amax(dim=1).min()) == 127
assert bool(((q * s - A).abs() <= s / 2 * (1 + 1e-4)).all())
assert abs(float(quantize(torch.tensor([[4.0, 0.1]]))[1]) / 2 - predicted_error.value) < 1e-6
assert quantize(A, rows=False)[1].shape == (1, 1) and not quantize(torch.zeros(2, 8))[0].any()
by_rows, by_one = error(product(A, B), exact), error(product(A, B, rows=False), exact)
assert 0.005 < by_rows < by_one < 0.03 and abs(by_rows / estimate - 1) < 0.1
assert error(A.bfloat16().double() @ B.bfloat16().double().T, exact) < by_rows / 2
assert found["one row x 30", True] == found["as it was", True] < found["one row x 30", False] / 5
assert min(found["one column x 30", rows] for rows in (True, False)) > 5 * found["as it was", True]

# %% [markdown]
# ### Explain
#
# Why can a scale for each row of $A$ be taken out of the sum, and one for each column of $A$ not? What would the kernel
# have to do for the latter?

# %% [markdown] explain="gemm_int8/quantise" points=2
# ### BEGIN SOLUTION
# A row's scale is the same for all terms of a sum, so it is a common factor and multiplies the result. A column's scale
# belongs to one k and differs from term to term. The kernel would have to scale each product before it is added, in
# float32 and outside of the tensor cores; or, if the scale is the same for a block of k, scale the block's whole sum
# and add it to a float32 sum.
# ### END SOLUTION

# %% [markdown]
# ## On an H200
#
# What does a clock say? Here are our solutions, recorded at $M = N = K = 4096$. PyTorch's line is `torch._int_mm`,
# which is cuBLASLt's.

# %%
LADDER = {"int8_wmma": ("int8_wmma", "cuda"), "int8_mma, numba": ("int8_mma", "numba"),
          "int8_mma, C++": ("int8_mma", "cuda")}
timed = {name: gemm_int8[rung].time(recorded=True) for name, rung in LADDER.items()}
lk.plots.ladder(list(timed.values()))

# %% [markdown]
# And how much of it is `int8`? Beside them `mma_async` in `bfloat16`, recorded on the same GPU, and PyTorch in both
# types:

# %%
in_bf16 = lk.problem("gemm_bf16")["mma_async", "cuda"].time(recorded=True)
in_int8 = timed["int8_mma, C++"]
for t, rate in ((in_bf16, "bf16_tflops"), (in_int8, "int8_tops")):
    print(f"{t.label}: {t.tflops:.0f} TOP/s, {t.tflops / rates[rate]:.0%} of {t.math}'s measured ceiling; "
          f"PyTorch {t.tflops / t.ratio:.0f} TOP/s")
ours = in_int8.tflops / in_bf16.tflops
torchs = ours * in_bf16.ratio / in_int8.ratio
print(f"from bfloat16 to int8: our kernels {ours:.2f} times as fast, PyTorch {torchs:.2f} times "
      f"({in_int8.machine}, {in_int8.date})")

# %% [markdown]
# In CUDA C++ the kernel is where the library is, and past what PyTorch reaches in `bfloat16` at this size. Our step is
# larger than the library's. A part of it is not `int8`'s: in C++, int8_mma also has what mma_tuned has beyond
# mma_async. But only one of the two int8_mma is fast. Nsight Compute read the counters of the same product:

# %%
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ALU = "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"
RESIDENT = "sm__warps_active.avg.pct_of_peak_sustained_active"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
LOCAL = "smsp__sass_inst_executed_op_local_ld.sum"
REGISTERS = "launch__registers_per_thread"
SCHEDULERS = 4 * 132
read = {name: gemm_int8[rung].recorded() for name, rung in LADDER.items()}


def summary(p):
    products = p[OPERATIONS["int8"]] / 8192  # in units of an m16n8k32
    cycles = p[INSTRUCTIONS] / (SCHEDULERS * p[ISSUE] / 100)
    return {
        "tensor operations, 1e9": p[OPERATIONS["int8"]] / 1e9,
        "cycles of a scheduler per m16n8k32": cycles / (products / SCHEDULERS),
        "instructions per m16n8k32": p[INSTRUCTIONS] / products,
        "wavefronts of shared loads per m16n8k32": p[SHARED] / products,
        "wavefronts of shared stores per m16n8k32": p[SHARED_STORES] / products,
        "of these, conflicts": p[STORE_CONFLICTS] / products,
        "resident warps, % of those that fit": p[RESIDENT],
        "registers per thread": p[REGISTERS],
        "issue slots used, %": p[ISSUE],
        "pipe of whole numbers and logic used, %": p[ALU],
        "loads of local memory": p[LOCAL],
    }


counted = pd.DataFrame({name: summary(p) for name, p in read.items()})
counted.style.format(precision=1).set_caption("read by Nsight Compute on the NVIDIA H200")

# %% [markdown]
# And what do warps wait for, in % of their time? (In `selected` they issue.)

# %%
from labkit.profiling.metrics import STALL_REASONS

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
waits = pd.DataFrame(
    {name: {"selected": 1.0} | {reason: p[STALLED.format(reason)] for reason in STALL_REASONS}
     for name, p in read.items()}
)
waits = 100 * waits / waits.sum()
waits.insert(0, "what it is", [STALL_REASONS.get(reason, "nothing") for reason in waits.index])
waits[waits["int8_wmma"] >= 4].sort_values("int8_wmma", ascending=False).style.format(precision=0)

# %% [markdown]
# * **int8_wmma** waits for memory. Its tiles come through registers, and a block has nothing on its way while it
#   multiplies: `long_scoreboard` is the largest part, and `short_scoreboard` and `barrier` add to it. The conflicts of
#   its stores, which the emulator had shown, are most of what these stores cost, and about as much as all its loads.
# * **int8_mma** in C++ has half the warps, and needs no more: copies run ahead (`long_scoreboard` falls) and pass
#   registers by (no wavefronts of stores are counted), and with 64 x 64 for a warp a fragment serves more products.
#   What remains is mostly `wait`, the fixed time after an instruction, and `math_pipe_throttle`, the queue of a pipe.
# * **int8_mma** in numba hardly waits for memory either. It spills nothing (no local memory), and has the two blocks on
#   a multiprocessor that `max_registers=128` was to bring. But with each product come about ten times as many
#   instructions as in C++, and they fill the pipe of whole numbers. That is `fetch` and `place`: for each 16 bytes, in
#   every step again, numba divides and multiplies in 64 bits and looks at the sign, where C++ has worked its addresses
#   out before the loop.

# %% solved_only=true
wmma_row, numba_row, cuda_row = (counted[name] for name in LADDER)
rate = {name: t.tflops for name, t in timed.items()}
assert rate["int8_mma, C++"] > 2.5 * rate["int8_wmma"] and rate["int8_wmma"] > 1.1 * rate["int8_mma, numba"]
assert 0.9 < in_int8.ratio < 1.1 and 0.8 < in_int8.tflops / rates["int8_tops"] < 1
assert in_int8.tflops > in_bf16.tflops / in_bf16.ratio
assert ours > 1.3 * torchs
assert {t.machine for t in (in_bf16, *timed.values())} == {"NVIDIA H200"}
assert (counted.loc["tensor operations, 1e9"] == 2 * 4096**3 / 1e9).all()
assert waits["int8_wmma"].idxmax() == "long_scoreboard" and waits.loc["long_scoreboard", "int8_wmma"] > 25
assert (waits.loc[["short_scoreboard", "barrier"], "int8_wmma"] > 5).all()
assert 0.6 < wmma_row.iloc[5] / wmma_row.iloc[4] and 0.8 < wmma_row.iloc[5] / wmma_row.iloc[3] < 1.2
assert cuda_row.iloc[6] < 0.6 * wmma_row.iloc[6] and cuda_row.iloc[3] < 0.75 * wmma_row.iloc[3]
assert cuda_row.iloc[4] == 0 == numba_row.iloc[4]
assert waits.loc["long_scoreboard", "int8_mma, C++"] < 0.5 * waits.loc["long_scoreboard", "int8_wmma"]
assert waits["int8_mma, C++"].idxmax() == "wait" and waits.loc["math_pipe_throttle", "int8_mma, C++"] > 10
assert abs(numba_row.iloc[3] / wmma_row.iloc[3] - 1) < 0.1 and numba_row.iloc[6] > 22 and numba_row.iloc[7] <= 128
assert (counted.loc["loads of local memory"] == 0).all() and waits.loc["long_scoreboard", "int8_mma, numba"] < 5
assert 7 < numba_row.iloc[2] / cuda_row.iloc[2] < 14 and numba_row.iloc[9] > 60 > 2 * cuda_row.iloc[9]
# What is inlined stands in the kernel's first line: half of the instructions that the emulator counts.
deep = int8_mma.profile(sample=1, M=128, N=128, K=1024)
first = next(n for n, line in enumerate(int8_mma.source.splitlines(), 1) if line.startswith("def gemm_int8_mma"))
inlined = sum(line[INSTRUCTIONS] for line in deep.line_counts if line["line"] == first)
assert inlined > 0.4 * deep[INSTRUCTIONS]

# %% [markdown]
# ## Your page
#
# - A product of `int8` has the same bits in any order of its sums, as long as they fit.
# - Fragments of bytes are fragments of `float16`, byte for byte; only $B$ must lie K-major.
# - With the same registers, stages and swizzle, half the instructions and half the bytes do the same number of
#   operations.
# - The error is made before the product, and who shares a scale shares the damage.
