# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A cache in 4 bits: writing and reading it
#
# Four bits say 16 different things, from 0 to 15. In this notebook you turn rows of 128 real numbers into bytes and
# back, byte for byte as PyTorch's library FBGEMM lays them out. You test your code with rows that are meant to break
# it, measure what is lost and who loses it, and then read such a cache in a kernel. The last part is a trick that the
# fastest kernel of this lab stands on: numbers that turn into floating point without being converted.

# %%
import labkit as lk

int4_gqa = lk.problem("int4_gqa")
int4_gqa

# %% [markdown]
# ## The layout
#
# A row is what one token keeps of one head. It has $G$ groups of $128 / G$ numbers that lie side by side, with $G = 1$
# (**row-wise**) or $G = 4$. First come, for each group, a scale and a shift in `float16`, then 64 bytes with two
# numbers each:
#
# $$x = q \cdot \text{scale} + \text{shift}, \qquad \text{shift} = \min, \qquad
# \text{scale} = \frac{\max - \min}{15}, \qquad q = 0, 1, \dots, 15 .$$

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go
from plotly.subplots import make_subplots


def cells_of(groups):
    """What each byte of a row is: (kind, words)."""
    found = []
    for g in range(groups):
        name = f" of group {g}" if groups > 1 else ""
        found += [(0, f"scale{name}, {half} byte") for half in ("low", "high")]
        found += [(1, f"shift{name}, {half} byte") for half in ("low", "high")]
    for i in range(64):
        group = 2 * i // (128 // groups)
        found.append((2 + group % 2, f"numbers {2 * i} (low four bits) and {2 * i + 1} (high), group {group}"))
    return found


figure = make_subplots(2, 1, subplot_titles=["row-wise: 68 bytes", "4 groups: 80 bytes"], vertical_spacing=0.16)
for place, groups in enumerate((1, 4), 1):
    cells = cells_of(groups)
    width = 20
    rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    z = [[kind for kind, _ in row] + [None] * (width - len(row)) for row in rows]
    words = [[f"byte {r * width + c}: {text}" for c, (_, text) in enumerate(row)] + [""] * (width - len(row))
             for r, row in enumerate(rows)]  # fmt: skip
    short = [[str(r * width + c) for c in range(len(row))] + [""] * (width - len(row)) for r, row in enumerate(rows)]
    figure.add_heatmap(z=z, customdata=words, hovertemplate="%{customdata}<extra></extra>", text=short,
                       texttemplate="%{text}", textfont=dict(size=10), xgap=2, ygap=2, zmin=0, zmax=3, showscale=False,
                       colorscale=[(0, "#fdae6b"), (0.33, "#fdd0a2"), (0.67, "#c6dbef"), (1, "#9ecae1")], row=place,
                       col=1)  # fmt: skip
for color, name in (("#fdae6b", "scale, 2 bytes"), ("#fdd0a2", "shift, 2 bytes"), ("#c6dbef", "two numbers a byte"),
                    ("#9ecae1", "numbers of groups 1 and 3")):  # fmt: skip
    marker = dict(symbol="square", size=12, color=color)
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)
figure.update_yaxes(autorange="reversed", visible=False)
figure.update_xaxes(visible=False)
figure.update_layout(title="A row, byte by byte", template="plotly_white", height=430, margin=dict(t=90, b=10),
                     legend=dict(orientation="h", y=-0.02))  # fmt: skip

# %% [markdown]
# ### By hand
#
# Take a row whose least number is -3 and whose greatest is 4.5.

# %% question="int4_gqa/quantization/scale" points=1
lk.answer("int4_gqa/quantization/scale", 7.5 / 15)

# %% [markdown]
# <details><summary>Hint: the two halves of a byte</summary>
#
# The low four bits count as they are, the high four 16 times as much.
#
# </details>

# %% question="int4_gqa/quantization/byte" points=1
lk.answer("int4_gqa/quantization/byte", 7 + 16 * 2)

# %% [markdown]
# ## Write the writer and the reader
#
# Now for any rows, and for both layouts. `write` takes numbers, `float32 [rows, 128]`, and gives bytes,
# `uint8 [rows, 68]` or `[rows, 80]`; `read` goes back. Mind three things:
#
# - Scale and shift are kept in `float16`, so they are rounded. Find $q$ with the *rounded* ones, for those are what the
#   reader will have.
# - A group can be constant. Then its scale is 0, and 0 / 0 is not a number. What should $q$ be?
# - After rounding, $q$ may come out as -1 or 16. It must not.
#
# <details><summary>Hint 1: groups</summary>
#
# `x.reshape(len(x), groups, -1)` has the groups along its second axis.
#
# <details><summary>Hint 2: bytes of float16</summary>
#
# An array of `float16` with scales and shifts in turn, seen as bytes: `.view(np.uint8)`. And back: take the first
# $4G$ bytes, make them contiguous, `.view(np.float16)`.
#
# <details><summary>Hint 3: two in a byte</summary>
#
# `q[:, 0::2]` are the even numbers, `q[:, 1::2]` the odd ones. `<< 4` moves four bits up, `>> 4` down, and `& 15`
# keeps the low four.
#
# </details></details></details>

# %%
import numpy as np


def write(x, groups=1):
    """uint8 [rows, 4 * groups + 64] of float32 [rows, 128]."""
    ### BEGIN SOLUTION
    parts = x.reshape(len(x), groups, -1)
    least, most = parts.min(axis=2), parts.max(axis=2)
    head = np.stack([(most - least) / 15, least], axis=2).astype(np.float16)
    step, start = head[:, :, :1].astype(np.float32), head[:, :, 1:].astype(np.float32)
    flat = step == 0
    places = np.where(flat, 0, (parts - start) / np.where(flat, 1, step))
    q = np.clip(np.rint(places), 0, 15).astype(np.uint8).reshape(len(x), 128)
    return np.concatenate([head.reshape(len(x), -1).view(np.uint8), q[:, 0::2] | q[:, 1::2] << 4], axis=1)
    ### END SOLUTION


def read(rows, groups=1):
    """float32 [rows, 128] of what `write` gives."""
    ### BEGIN SOLUTION
    head = np.ascontiguousarray(rows[:, : 4 * groups]).view(np.float16).astype(np.float32)
    nibbles = rows[:, 4 * groups :]
    q = np.stack([nibbles & 15, nibbles >> 4], axis=2).reshape(len(rows), groups, -1)
    return (q * head[:, 0::2, None] + head[:, 1::2, None]).reshape(len(rows), 128)
    ### END SOLUTION


# %% [markdown]
# ### A test that looks for trouble
#
# Two or three examples prove little. A **property test** says what must hold for *every* row and then tries rows of all
# kinds. Here are the properties; read them, then run the cell. It tells you the first kind of row that breaks one.
#
# 1. A row has 68 or 80 bytes, and they are those of labkit's own writer.
# 2. What is read is what the bytes say: labkit's reader finds the same.
# 3. No number is off by more than half a step, and what rounding the scale and the shift to `float16` adds.

# %%
import torch

from labkit.problems import _kv_int4 as kv

KINDS = {
    "normal": lambda r: r.standard_normal((16, 128)),
    "with an outlier": lambda r: r.standard_normal((16, 128)) * np.where(np.arange(128) == 77, 50, 1),
    "constant": lambda r: np.repeat(r.standard_normal((16, 1)), 128, axis=1),
    "zeros": lambda r: np.zeros((16, 128)),
    "one that is not zero": lambda r: np.eye(128)[:16] * 3,
    "far from zero": lambda r: 300 + r.standard_normal((16, 128)),
    "tiny": lambda r: 1e-5 * r.standard_normal((16, 128)),
    "large": lambda r: 1e4 * r.standard_normal((16, 128)).clip(-3, 3),
    "one group constant": lambda r: np.where(np.arange(128) < 32, 1.25, r.standard_normal((16, 128))),
}


def broken(write, read, seeds=20):
    """The first property that does not hold, as a sentence; None where all hold."""
    for seed in range(seeds):
        for kind, make in KINDS.items():
            for groups in (1, 4):
                x = make(np.random.default_rng(seed)).astype(np.float32)
                where = f"rows of kind '{kind}', {groups} group{'s' if groups > 1 else ''}"
                rows = write(x.copy(), groups)
                if rows is None:
                    return f"{where}: write gives nothing yet"
                want = kv.quantize(torch.from_numpy(x), groups).numpy()
                if rows.shape != want.shape or rows.dtype != np.uint8:
                    return f"{where}: write gives {rows.dtype} {rows.shape}, not uint8 {want.shape}"
                head = 4 * groups
                if (rows[:, :head] != want[:, :head]).any():
                    return f"{where}: scales or shifts are not as they should be"
                if (rows != want).any():
                    row, byte = np.argwhere(rows != want)[0]
                    return f"{where}: byte {byte} of row {row} is {rows[row, byte]}, not {want[row, byte]}"
                back = read(rows.copy(), groups)
                if back is None:
                    return f"{where}: read gives nothing yet"
                exact = kv.dequantize(torch.from_numpy(rows)).numpy()
                if back.shape != x.shape or np.abs(back - exact).max() > 1e-6 * np.abs(exact).max():
                    return f"{where}: read gives other numbers than the bytes say"
                if (np.abs(exact - x) > kv.bound(torch.from_numpy(x), groups).numpy()).any():
                    return f"{where}: a number is off by more than half a step"
    return None


print(broken(write, read) or "all properties hold")

# %% solved_only=true
assert broken(write, read) is None


def clumsy(x, groups=1):
    rows = write(x, groups)
    rows[:, 4 * groups :] = rows[:, 4 * groups :] << 4 | rows[:, 4 * groups :] >> 4  # nibbles the wrong way round
    return rows


assert "byte" in broken(clumsy, read)
assert "other numbers" in broken(write, lambda rows, groups: read(rows, groups) * 1.01)
assert "nothing" in broken(lambda x, groups: None, read)
assert "scales" in broken(lambda x, groups: write(x * 1.01, groups), read)

# %% [markdown]
# ## What is lost
#
# Rounding to steps moves each number by up to half a step. How long is a step? That is for the extremes of the group to
# say: a single number can decide for all others.

# %% [markdown]
# <details><summary>Hint</summary>
#
# The scale is the distance from -3 to 60, in 15 steps.
#
# </details>

# %% question="int4_gqa/quantization/half_step" points=1
predicted_half = lk.answer("int4_gqa/quantization/half_step", 63 / 15 / 2)
predicted_half

# %% [markdown]
# Caches of real models do have such outliers, in a few of the 128 places. Here are rows of normal numbers in which one
# place is larger by a factor, and what becomes of *the other 127*: the root mean square of their error, relative to
# their own size.

# %%
rows = torch.randn(2000, 128, generator=torch.Generator().manual_seed(0))
others = [d for d in range(128) if d != 77]
factors = [1, 2, 5, 10, 20, 50, 100]
loss = {1: [], 4: []}
for factor in factors:
    x = rows.clone()
    x[:, 77] *= factor
    for groups, found in loss.items():
        off = (kv.dequantize(kv.quantize(x, groups)) - x.double())[:, others]
        found.append(float(off.square().mean().sqrt() / x[:, others].square().mean().sqrt()))

# %% jupyter={"source_hidden": true}
figure = go.Figure(
    [go.Scatter(x=factors, y=loss[groups], name=name, mode="lines+markers", line=dict(color=color))
     for groups, name, color in ((1, "row-wise, 68 bytes", "#e6550d"), (4, "4 groups, 80 bytes", "#2171b5"))]
)
figure.update_layout(
    title="Error of 127 numbers beside one outlier", template="plotly_white", height=420,
    xaxis=dict(title="factor of the outlier", type="log", tickvals=factors),
    yaxis=dict(title="error relative to their size", tickformat=".0%", rangemode="tozero"),
    legend=dict(orientation="h", y=-0.22),
)

# %% [markdown]
# Row-wise, one outlier drowns the whole row: at a factor of 50, the others' errors are larger than they are themselves.
# With 4 groups, it spoils the 31 that share its group, and spares 96. For 12 bytes more. Which of the two lines is
# better *without* outliers, and why? A group of 32 has extremes that lie closer together than those of 128.

# %%
print(f"no outlier: {loss[1][0]:.1%} row-wise, {loss[4][0]:.1%} with 4 groups")

# %% solved_only=true
assert loss[4][0] < loss[1][0] < 0.15
assert all(b < a for a, b in zip(loss[1], loss[4]))
assert loss[1][factors.index(50)] > 1 and loss[4][factors.index(50)] < 0.55
assert loss[1] == sorted(loss[1])

# %% [markdown]
# ### Constant rows
#
# They lose nothing but the rounding of the shift: with a scale of 0, every $q$ is 0 and the shift is all there is.

# %%
flat = torch.full((1, 128), 0.7)
bytes_of = kv.quantize(flat)[0]
print(f"bytes {bytes_of[:6].tolist()} ..., read back {kv.dequantize(bytes_of[None])[0, 0]:.6f}, written 0.7")

# %% solved_only=true
assert (bytes_of[4:] == 0).all() and (bytes_of[:2] == 0).all()
assert abs(float(kv.dequantize(bytes_of[None])[0, 0]) - 0.7) < 0.7 * 2**-11

# %% [markdown]
# ### And the attention?
#
# Nobody looks at the cache itself: what counts is what attention makes of it. The weights are sums of 128 products, in
# which errors cancel in part, and the output is a mean of many tokens. One sequence of 2048 tokens, by all caches,
# compared in `float64`:


# %%
def attend(q, K, V):
    return (q @ K.T / 128**0.5).softmax(-1) @ V


generator = torch.Generator().manual_seed(3)
q = torch.randn(8, 128, generator=generator).double()
plain = torch.randn(2, 2048, 128, generator=generator)
spiky = plain.clone()
spiky[0, :, 77] *= 20  # in K, place 77 of every token is an outlier
table = {}
for name, (K, V) in {"normal": plain, "K with an outlier x 20": spiky}.items():
    exact = attend(q, K.double(), V.double())
    caches = {"bfloat16": lambda x: x.bfloat16().double()}
    caches |= {f"INT4, {g} group{'s' * (g > 1)}": lambda x, g=g: kv.dequantize(kv.quantize(x, g)) for g in (1, 4)}
    table[name] = {cache: float((attend(q, f(K), f(V)) - exact).norm() / exact.norm()) for cache, f in caches.items()}

# %% jupyter={"source_hidden": true}
import pandas as pd

pd.DataFrame(table).style.format("{:.2%}").set_caption("error of the output, relative to its norm")

# %% solved_only=true
for errors in table.values():
    assert errors["bfloat16"] < errors["INT4, 4 groups"] < errors["INT4, 1 group"]
assert table["K with an outlier x 20"]["INT4, 1 group"] > 2 * table["normal"]["INT4, 1 group"]

# %% [markdown]
# (These numbers are random, so there is nothing that attention could look for: every token has about the same weight,
# the output is a small mean, and errors look large beside it. In a trained model a few tokens matter. The document
# reports that INT4 with groups was as accurate as bfloat16 for Llama 2. What you see here is the *order* of the
# three.)
#
# ### Explain
#
# 4 groups cost 12 bytes a row. For which caches would you pay them? And why not 16 groups?

# %% [markdown] explain="int4_gqa/groups" points=2
# ### BEGIN SOLUTION
# Where rows have outliers: one large number then spoils its own 32 and no longer all 128. For numbers without outliers
# the gain is small. Each group costs 4 bytes: 16 groups would be 128 bytes a row, twice as many as the numbers
# themselves, and reading takes as long as there are bytes. 4 groups also make rows of 80 bytes, which begin on 16
# bytes, so that wide loads are possible; rows of 68 begin on 4.
# ### END SOLUTION

# %% [markdown]
# ## In a kernel
#
# Now the reader runs on a GPU, inside attention. `cuda_core` is the simplest kernel: a block has one head of a sequence
# and one of `split_k` pieces of its tokens; its 4 warps take turns at the tokens. A lane has 4 of the 128 numbers,
# which are 2 bytes of a row. The row comes twice, as `float16` for scale and shift, and as `int16` for the nibbles: two
# of those at the beginning are the header.
#
# The softmax is kept **online**: the loop knows the largest score so far, `best`, and sums relative to it. When a
# larger one comes, all sums so far shrink by $2^{(\text{best} - \text{top}) \cdot \text{SCALE}}$.
#
# ### Predict

# %% question="int4_gqa/cuda_core/reads" points=1
predicted_reads = lk.answer("int4_gqa/cuda_core/reads", 8)
predicted_reads

# %% [markdown]
# ### Write
#
# <details><summary>Hint 1: the score</summary>
#
# Unpack the 4 numbers of this lane, multiply them with `q0` to `q3`, and add up over the lanes with five
# `cuda.shfl_xor_sync(0xFFFFFFFF, score, far)`: all of them know the score then.
#
# <details><summary>Hint 2: which bytes</summary>
#
# In `K_halves[b, t, ...]`, elements 0 and 1 are scale and shift. In `K_pairs[b, t, ...]`, the nibbles of lane `lane`
# are element `2 + lane`; number $i$ of them stands $4 i$ bits up.
#
# <details><summary>Hint 3: a token, step by step</summary>
#
# `top` is the larger of `best` and the score; `old` and `p` are powers of 2 by `libdevice.exp2f`, of
# `(best - top) * SCALE` and `(score - top) * SCALE`. Then each `o` becomes `o * old + p * v`, `total` likewise with
# `p` alone, and `best` becomes `top`.
#
# </details></details></details>

# %% kernel="int4_gqa/cuda_core"

# %% check="int4_gqa/cuda_core" points=4
cuda_core = int4_gqa["cuda_core"]
cuda_core.check()

# %% [markdown]
# ### Profile

# %%
INSTRUCTIONS = "smsp__inst_executed.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"

shape = dict(B=1, T=256, HQ=8, split_k=1)
p = cuda_core.profile(**shape)
numbers = 2 * shape["T"] * 128  # of K and V
print(f"{32 * p[INSTRUCTIONS] / numbers:.0f} instructions of a thread for each number of the cache ({p.origin})")
print(f"{p[REQUESTS]:.0f} load requests, {p[TENSOR]:.0f} operations of tensor cores")

# %%
nibbles = next((a.line for a in p.accesses if a.array == "K" and len(set(a.addresses)) > 1), None)
lk.plots.access_map(p, "K", line=nibbles)

# %% [markdown]
# One token of $K$: 64 bytes side by side, perfectly coalesced, and still only 2 bytes a lane. The budget that you
# computed was about 4 instructions for each number. This kernel is more than twenty times over it: every head reads and
# unpacks all of the cache for itself, and nothing is left to tensor cores.

# %% solved_only=true
assert 32 * p[INSTRUCTIONS] / numbers > 80 and p[TENSOR] == 0
k_read = next(a for a in p.accesses if a.array == "K" and len(set(a.addresses)) > 1)
assert k_read.width == 2 and max(k_read.addresses) - min(k_read.addresses) == 62

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="int4_gqa/cuda_core" language="cuda"

# %% check="int4_gqa/cuda_core" language="cuda"
int4_gqa["cuda_core", "cuda"].check()

# %% [markdown]
# ## Magic numbers
#
# To convert an integer to a `float`, the GPU has an instruction, `I2F`, and starts fewer of them per clock than
# additions. Here is a way without. A floating-point number has an exponent and a mantissa. Choose the exponent so that
# the last bit of the mantissa is worth exactly 1. Then whatever stands in the low bits is a whole number that has
# *already* been added. A `bfloat16` has 1 bit for the sign, 8 for the exponent, 7 for the mantissa; 0x4300 is 128.

# %% question="int4_gqa/quantization/magic" points=1
predicted_magic = lk.answer("int4_gqa/quantization/magic", 137)
predicted_magic

# %%
patterns = torch.tensor([0x4300 | n for n in range(16)], dtype=torch.int16)
print("0x4300 | n, read as bfloat16:", patterns.view(torch.bfloat16).tolist())

# %% [markdown]
# So $128 + q$ costs no conversion: mask the nibble out, set the bits of 128 around it. A word holds two such numbers at
# once, one in either half; and the instruction `LOP3`, which computes any function of three words bit by bit, does the
# mask *and* the bits in one go. (In `float16` the same works with 0x6400, which is 1024.)
#
# Two kernels unpack words into pairs of 16-bit numbers. Here is the plain one and the magic one, in CUDA C++, and what
# each costs:

# %%
PLAIN = """
#include <cuda_bf16.h>
extern "C" __global__ void plain(unsigned *out, const unsigned *words)
{
    unsigned word = words[threadIdx.x];
    for (int i = 0; i < 4; ++i) {  // numbers i and i + 4 of the word
        __nv_bfloat162 two = __floats2bfloat162_rn(word >> 4 * i & 15, word >> (4 * i + 16) & 15);
        out[4 * threadIdx.x + i] = *(unsigned *)&two;
    }
}
"""
MAGIC = """
extern "C" __global__ void magic(unsigned *out, const unsigned *words)
{
    unsigned word = words[threadIdx.x];
    for (int i = 0; i < 4; ++i) {  // (word >> 4 i & 0x000f000f) | 0x43004300, the same pair with 128 on top
        unsigned two;
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(two) : "r"(word >> 4 * i), "r"(0x000f000f), "r"(0x43004300));
        out[4 * threadIdx.x + i] = two;
    }
}
"""
words = np.random.default_rng(0).integers(0, 2**32, 32, dtype=np.uint32)
counts = {}
for name, source in (("plain", PLAIN), ("magic", MAGIC)):
    out = np.zeros(128, np.uint32)
    counts[name] = lk.emulate(lk.cuda_kernel(source, name), 1, 32, [out, words])[INSTRUCTIONS]
    numbers = torch.from_numpy(out.view(np.int16).copy()).view(torch.bfloat16).float().reshape(32, 4, 2)
    print(f"{name}: {counts[name]:.0f} instructions for 8 numbers a lane, loads and stores included; "
          f"the first four of lane 0: {numbers[0, :, 0].tolist()}")

# %% [markdown]
# The 128 is too much, and one does not take it off again: it goes where the shift is.
#
# $$q \cdot \text{scale} + \text{shift} = (128 + q) \cdot \text{scale} + (\text{shift} - 128 \cdot \text{scale})$$
#
# And here is a trap. In `float32` both sides are the same but for a last digit. In `bfloat16`, the second side is a
# large number less a large number. What happens to the result, for a scale of 0.1 and a shift of -0.75?

# %%
scale, shift = torch.tensor(0.1), torch.tensor(-0.75)
n = torch.arange(16.0)
for dtype in (torch.float32, torch.bfloat16):
    s, b, x = scale.to(dtype), shift.to(dtype), (128 + n).to(dtype)
    folded = x * s + (b - 128 * s)
    off = (folded.float() - (n * s.float() + b.float())).abs().max()
    print(f"{dtype}: off by up to {float(off):.2g}, and a step is {float(scale):.2g}")

# %% [markdown]
# A quarter of a step, on top of the half that quantizing costs. So the fastest kernel of this lab keeps $128 + q$ as it
# is, exactly, in the product on the tensor cores, and takes care of scales and shifts *outside* of it, in `float32`.
# How, you will see in the last notebook.

# %% solved_only=true
assert counts["magic"] < 0.7 * counts["plain"]
assert predicted_magic.value == patterns.view(torch.bfloat16)[9]
low = (torch.from_numpy(words.astype(np.int64))[:1, None] >> 4 * torch.arange(4)) & 15
assert (numbers[0, :, 0] == 128 + low[0]).all()
assert 0.2 * float(scale) < float(off) < 0.5 * float(scale)

# %% [markdown]
# ### Explain
#
# Why 0x4300, and not 0x3f80 (which is 1) or 0x4400 (512)?

# %% [markdown] explain="int4_gqa/magic" points=1
# ### BEGIN SOLUTION
# A bfloat16 keeps 7 bits after the leading one. From 128 = 2^7 to 255 the last of them is worth 1: so n in the low
# four bits is n. At 1 it is worth 2^-7, and n would be n / 128 (which would do as well, with another scale); at 512 it
# is worth 4, and n would be 4 n: also exact. What matters is that all of the nibble lies in the mantissa; with 128 the
# number is n itself, and no factor has to be taken along.
# ### END SOLUTION

# %% [markdown]
# Next: [the document's first kernel, and the first clues](03a_first_clues.ipynb).
