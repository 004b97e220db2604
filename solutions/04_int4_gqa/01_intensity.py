# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A cache in 4 bits: what it could be worth
#
# A language model writes one token at a time, and for each one it reads all that it remembers of the tokens before:
# their keys and values, the **KV cache**. With long contexts that is most of what it reads. So people store the cache
# in 4 bits a number. A quarter of the bytes: four times as fast?
#
# In 2024 the PyTorch team tried, in *INT4 Decoding GQA CUDA Optimizations for LLM Inference*, "the document" from here
# on. Their first 4-bit kernel was no faster than 16 bits. In ten steps they made it 1.8 times as fast; this lab goes
# the same way, with their figures beside yours, and then one step further.
#
# This first notebook needs a pencil. You compute what a cache in 4 bits can be worth at most, find a mistake in the
# document, and see what will be in the way. No kernel is written yet.

# %%
import labkit as lk

gqa_bf16, int4_gqa = lk.problem("gqa_bf16"), lk.problem("int4_gqa")
int4_gqa_4group = lk.problem("int4_gqa_4group")
gqa_bf16

# %% [markdown]
# ## One step of decoding
#
# A sequence has $T$ tokens so far. For the next one, each of 8 query heads brings a vector $q$ of $D = 128$ numbers and
# asks: which of the tokens before matter? It compares $q$ with the key of each, makes weights of the scores, and adds
# up the values with these weights:
#
# $$o_h = \mathrm{softmax}\!\left(\frac{q_h K^T}{\sqrt{D}}\right) V .$$
#
# In **grouped-query attention** (GQA) several query heads share one head of $K$ and $V$. Here it is 8, as on one of
# eight GPUs that hold a Llama 2 70B together. In PyTorch, for one sequence, in three lines:

# %%
import torch

T, heads, D = 1024, 8, 128
torch.manual_seed(0)
q, K, V = torch.randn(heads, D), torch.randn(T, D), torch.randn(T, D)
scores = q @ K.T / D**0.5  # [8, T]: T * 8 * 128 multiply-adds
weights = scores.softmax(-1)
o = weights @ V  # [8, 128]: as many again
print(f"o is {tuple(o.shape)}; K and V together have {K.numel() + V.numel():,} numbers")

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go


def boxes(parts, title, height=360):
    """Rectangles with words. parts: (x0, x1, y0, y1, color, text)."""
    figure = go.Figure()
    for x0, x1, y0, y1, color, text in parts:
        figure.add_shape(type="rect", x0=x0, x1=x1, y0=y0, y1=y1, fillcolor=color, line=dict(color="#5f6368", width=1))
        figure.add_annotation(x=(x0 + x1) / 2, y=(y0 + y1) / 2, text=text, showarrow=False, font=dict(size=13))
    figure.update_xaxes(visible=False, range=[-0.2, 17.4])
    figure.update_yaxes(visible=False, range=[-0.3, 10])
    figure.update_layout(title=title, template="plotly_white", height=height, margin=dict(t=60, b=10, l=10, r=10))
    return figure


boxes(
    [
        (0, 2.6, 6.2, 8.8, "#fde0c5", "q<br>8 x 128"), (3.4, 10.4, 5.4, 9.6, "#c6dbef", "K: T x 128<br>read once"),
        (11.2, 14.2, 6.2, 8.8, "#e5f5e0", "scores, weights<br>8 x T"), (15, 17, 6.2, 8.8, "#fde0c5", "o<br>8 x 128"),
        (3.4, 10.4, 0.4, 4.6, "#c6dbef", "V: T x 128<br>read once"),
        (11.2, 17, 1.2, 3.8, "#ffffff", "T is thousands, 8 is 8:<br>nearly all bytes are K and V"),
    ],
    "One step of decoding, for one sequence",
)

# %% [markdown]
# ## Intensity, by hand
#
# How many operations does a byte of the cache pay for? That is **arithmetic intensity**, in FLOP per byte. Count a
# multiplication and an addition as two; leave out the softmax, $q$ and $o$: they are little beside the rest.

# %% [markdown]
# <details><summary>Hint 1: follow one number</summary>
#
# Take one number of $K$. With how many numbers of $q$ is it multiplied?
#
# <details><summary>Hint 2: then divide</summary>
#
# One for each head that shares it. Each time it is a multiplication and an addition. And how many bytes is a number?
#
# </details></details>

# %% question="gqa_bf16/intensity" points=1
in_bf16 = lk.answer("gqa_bf16/intensity", 8)
in_bf16

# %% question="int4_gqa/intensity" points=1
in_int4 = lk.answer("int4_gqa/intensity", 32)
in_int4

# %% question="gqa_bf16/intensity_alone" points=1
alone = lk.answer("gqa_bf16/intensity_alone", 1)
alone

# %% [markdown]
# The document leaves something out: 4 bits alone do not say what a number is. Each row of 128 numbers begins with a
# **scale** and a **shift** in `float16`, 4 bytes, which turn its whole numbers from 0 to 15 back into real ones. So a
# row is not 64 bytes but 68. In its second layout, a row has 4 groups of 32 numbers with a scale and a shift each, and
# 80 bytes.

# %% question="int4_gqa/intensity_row_wise" points=1
row_wise = lk.answer("int4_gqa/intensity_row_wise", 16 * 128 / 68)
row_wise

# %% [markdown]
# labkit counts $q$, $o$ and the lengths too. That hardly changes it:

# %%
for problem in (gqa_bf16, int4_gqa, int4_gqa_4group):
    large = problem.dims_of(problem.bench_shape)
    print(f"{problem.name:16} {problem.flops(large) / problem.bytes(large):6.2f} FLOP per byte at {large}")

# %% solved_only=true
intensity = {p.name: p.flops(p.dims_of(p.bench_shape)) / p.bytes(p.dims_of(p.bench_shape))
             for p in (gqa_bf16, int4_gqa, int4_gqa_4group)}  # fmt: skip
assert intensity["gqa_bf16"] < in_bf16.value < 1.01 * intensity["gqa_bf16"]
assert intensity["int4_gqa"] < row_wise.value < 1.01 * intensity["int4_gqa"] < in_int4.value
assert o.shape == (8, 128) and torch.allclose(weights.sum(-1), torch.ones(8))

# %% [markdown]
# ### What the cache weighs
#
# And why so much fuss about bytes? Because they are many, and each sequence that a GPU serves has its own.

# %% question="gqa_bf16/cache_gigabytes" points=1
weighs = lk.answer("gqa_bf16/cache_gigabytes", 80 * 8 * 8192 * 2 * 256 / 1e9)
weighs

# %% [markdown]
# The weights of a Llama 2 70B are 140 GB in bfloat16, on 8 GPUs; 64 such sequences need more than that.
#
# ## The ridge, and a mistake
#
# A GPU has two rates: of arithmetic and of memory. Divided, they give the intensity at which both take the same time,
# the **ridge**. Left of it a kernel waits for memory, right of it for arithmetic. The document gives two ridges:
#
# | GPU | tensor cores, bfloat16 | memory | ridge in the document |
# |---|---|---|---|
# | A100 | 312 TFLOP/s | 2 TB/s | 141 FLOP/byte |
# | H100 | 990 TFLOP/s | 3.35 TB/s | 269 FLOP/byte |
#
# Check it.

# %% question="int4_gqa/ridge" points=1
ridge_a100 = lk.answer("int4_gqa/ridge", 156)
ridge_a100

# %% [markdown]
# Two ridges, and both are too low. A slip of the finger would spoil one. So somebody's *TB* was another than ours: try
# to find out which.
#
# <details><summary>Hint 1: the same factor?</summary>
#
# Divide the right ridge by the document's, for both GPUs.
#
# <details><summary>Hint 2: where have you seen 1.10?</summary>
#
# A kilobyte is 1000 bytes for some and 1024 for others: a factor of 1.024. How does it go on to megabytes, gigabytes
# and terabytes?
#
# </details></details>

# %% question="int4_gqa/unit" points=2
unit = lk.answer("int4_gqa/unit", 1024 * 1024 * 1024 * 1024)
unit

# %% solved_only=true
for tflops, tbps, published in ((312, 2, 141), (990, 3.35, 269)):
    assert int(tflops * 1e12 / (tbps * unit.value)) in (published, published - 1)
    assert round(tflops / tbps) > published
assert ridge_a100.value == 312 / 2

# %% [markdown]
# It changes nothing in the document's conclusion, for 8 and 32 are far below either. But you would have believed it.
#
# ## The roofline, with measured ceilings
#
# Datasheets give peaks. `labkit ceilings` measured what an H200 really reaches, and the result is recorded:

# %%
from labkit.models.roofline import roofs

measured, datasheet = roofs("NVIDIA H200"), roofs("NVIDIA H200", datasheet=True)
for r in (datasheet, measured):
    print(f"{r.origin:9}: {r.memory['DRAM']:,.0f} GB/s, {r.compute['tensor']:,.0f} TFLOP/s, "
          f"ridge {r.ridges['tensor', 'DRAM']:.0f} FLOP/byte")

# %% jupyter={"source_hidden": true}
import numpy as np

points = {  # FLOP per byte of the cache: 2 * heads FLOP for each number, over the bytes of a number
    "one head, bfloat16": (1, "#80868b"),
    "8 heads, bfloat16": (8, "#2171b5"),
    "8 heads, 4 groups (80 bytes)": (16 * 128 / 80, "#74c476"),
    "8 heads, row-wise (68 bytes)": (2048 / 68, "#e6550d"),
}
x = np.logspace(-0.5, 3.3, 200)
peak, bandwidth = measured.compute["tensor"], measured.memory["DRAM"]
figure = go.Figure(go.Scatter(x=x, y=np.minimum(peak, x * bandwidth / 1e3), mode="lines", name="roof of an H200",
                              line=dict(color="#202124", width=2)))  # fmt: skip
for name, (at, color) in points.items():
    figure.add_scatter(x=[at, at], y=[0.5, at * bandwidth / 1e3], mode="lines+markers", name=name,
                       line=dict(color=color, width=2, dash="dot"), marker=dict(size=[1, 11]))  # fmt: skip
figure.add_vline(x=measured.ridges["tensor", "DRAM"], line=dict(color="#202124", dash="dash", width=1))
figure.add_annotation(x=np.log10(measured.ridges["tensor", "DRAM"]), y=0.1, text="ridge", showarrow=False,
                      xanchor="left", xshift=6)  # fmt: skip
figure.update_xaxes(type="log", title="FLOP per byte of the cache", dtick=1)
figure.update_yaxes(type="log", title="TFLOP/s at most", dtick=1, range=[-0.3, 3.2])
figure.update_layout(title="Where decoding stands under the measured ceilings of an H200", template="plotly_white",
                     height=460, legend=dict(orientation="h", y=-0.2))  # fmt: skip

# %% [markdown]
# Everything is far left of the ridge: memory decides. Each point is as high as it can get, on the roof. A cache of
# fewer bytes moves the point to the right, *and up along the slope*, and that is the whole gain.
#
# What do the 8 heads buy? In `bfloat16`, FLOP per byte are as many as heads that share. So how many could share before
# arithmetic took longer than reading?

# %% question="gqa_bf16/heads_to_ridge" points=1
shared_by = lk.answer("gqa_bf16/heads_to_ridge", 177)
shared_by

# %% [markdown]
# So up to that many heads, sharing is nearly free: 8 heads take as long as one, if everything else is done well.
#
# ## What 4 bits can be worth
#
# If reading the cache is all that takes time, times are as bytes. How much faster can it be, at most?

# %% question="int4_gqa/ceiling" points=1
ceiling = lk.answer("int4_gqa/ceiling", 256 / 68)
ceiling

# %% question="int4_gqa_4group/ceiling" points=1
ceiling_4 = lk.answer("int4_gqa_4group/ceiling", 256 / 80)
ceiling_4

# %% [markdown]
# In microseconds, with 512 sequences of 8192 tokens, as *modeled* from the measured ceilings of an H200. No kernel is
# faster than that:

# %%
from labkit.models.bound import bound

least = {p.name: bound(p.problem, p.bench_shape) for p in (gqa_bf16, int4_gqa, int4_gqa_4group)}
for name, time in least.items():
    print(f"{name:16} {1e3 * time.bytes_ms:6.1f} us to read, {1e3 * time.flops_ms:5.1f} us to multiply")

# %% solved_only=true
assert all(time.binds == "read bandwidth" for time in least.values())
for problem, times in (("int4_gqa", ceiling), ("int4_gqa_4group", ceiling_4)):
    assert abs(least["gqa_bf16"].ms / least[problem].ms / times.value - 1) < 0.01
assert measured.ridges["tensor", "DRAM"] > 5 * in_int4.value

# %% [markdown]
# ## What was found instead
#
# The document's first measurements, for 512 sequences of 8192 tokens (*published*, its Table 2): Flash-Decoding in
# Triton (FD), FlashAttention-2 (FA), and their own CUDA kernel (CU), from which the ten steps start.

# %%
import pandas as pd

published = pd.DataFrame(
    {
        "A100, bfloat16": {"FD": 1607, "FA": 1670, "CU": 2194},
        "A100, INT4": {"FD": 1581, "CU": 1659},
        "H100, bfloat16": {"FD": 1000, "FA": 1011, "CU": 1260},
        "H100, INT4": {"FD": 756, "CU": 1066},
    }
)
published.style.format("{:.0f} us", na_rep="not supported").set_caption("published")

# %% [markdown]
# A quarter of the bytes, and on the A100 the same time. What bandwidth is that? Count the bytes that must be read and
# written, and divide. The document counts $K$, $V$, $Q$ and $O$, so:

# %%
from labkit.problems.int4_gqa import effective_bytes

rates = {"A100": 2000, "H100": 3350}  # GB/s, as the document has them
for column in published:
    gpu, cache = column.split(", ")
    row = 68 if cache == "INT4" else 256
    for kernel, us in published[column].dropna().items():
        gbps = effective_bytes(512, 8192, row) / us / 1e3
        print(f"{column:15} {kernel}: {gbps:5.0f} GB/s, {gbps / rates[gpu]:4.0%} of the datasheet's")

# %% solved_only=true
for (column, kernel), says in {
    ("A100, bfloat16", "FD"): 1338, ("A100, INT4", "FD"): 362, ("A100, INT4", "CU"): 345, ("H100, INT4", "CU"): 537,
    ("H100, bfloat16", "CU"): 1706,
}.items():  # fmt: skip
    row = 68 if "INT4" in column else 256
    assert abs(effective_bytes(512, 8192, row) / published[column][kernel] / 1e3 / says - 1) < 0.005
assert abs(published["A100, INT4"]["FD"] / published["A100, bfloat16"]["FD"] - 1) < 0.02

# %% [markdown]
# (The document's own bandwidths agree with these to half a percent, with 68 bytes a row. So it did count the scales
# here.) In 16 bits, two thirds of what memory can do; in 4 bits, less than a quarter. The kernel has become slow
# at something else, just as slow as memory was before.
#
# ## Where the time goes: a budget
#
# Bytes are not the only thing that a kernel needs. Each number in 4 bits must be taken out of its word, turned into
# something that can be multiplied, scaled, shifted, and passed to the right place. Those are instructions, and a GPU
# starts a fixed number of them per clock. So memory sets a **budget**: while the bytes of one number come in at full
# bandwidth, how many instructions can be done for it?

# %% [markdown]
# <details><summary>Hint 1: numbers per second</summary>
#
# At 4514 GB/s and 68 bytes for 128 numbers.
#
# <details><summary>Hint 2: instructions per second</summary>
#
# 132 multiprocessors, 4 schedulers each, one warp instruction per clock, and each is done by 32 threads.
#
# </details></details>

# %% question="int4_gqa/instruction_budget" points=2
budget = lk.answer("int4_gqa/instruction_budget", 132 * 4 * 1.98e9 * 32 / (4514e9 / 68 * 128))
budget

# %% jupyter={"source_hidden": true}
per_number = {"bfloat16": 2, "4 groups": 80 / 128, "row-wise": 68 / 128}
rate = 132 * 4 * 1.98e9 * 32  # instructions of threads in a second
budgets = {name: rate * size / (measured.memory["DRAM"] * 1e9) for name, size in per_number.items()}
lk.plots.bars(budgets, "Instructions of a thread that each number may take (modeled, H200)", unit="instructions")

# %% [markdown]
# In `bfloat16` there is room for many: a number arrives ready for the tensor core, and is used. In 4 bits there is room
# for a quarter of that, and more to do. **That is the riddle of this lab**: not to read less, but to do next to nothing
# per number.
#
# And that is if everything overlaps perfectly: while one warp waits for memory, others must have something to do. The
# document's kernel waits at many places, and each of its ten steps removes one.

# %% solved_only=true
assert 3.5 < budget.value < 4.5
assert budgets["bfloat16"] > 3.5 * budgets["row-wise"]

# %% [markdown]
# ### Explain
#
# A colleague says: "Decoding is bound by memory, at 30 FLOP per byte, six times below the ridge. So instructions do not
# matter, and 4 bits will be four times as fast." Where is the mistake?

# %% [markdown] explain="int4_gqa/budget" points=2
# ### BEGIN SOLUTION
# The roofline compares bytes with multiplications of tensor cores only. Unpacking, scaling and moving numbers are no
# FLOP of tensor cores: they are ordinary instructions, and they go through another unit with a rate of its own. In 4
# bits each number comes four times as fast and takes more of them, so the rate at which instructions are started
# becomes the limit long before the tensor cores do. A roofline needs a roof for everything that a kernel uses.
# ### END SOLUTION

# %% [markdown]
# Next: [how numbers become 4 bits, and what that costs](02_quantization.ipynb).
