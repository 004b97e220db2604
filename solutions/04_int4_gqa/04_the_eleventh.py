# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The eleventh step
#
# The document ends after ten steps, at 1.8 times its baseline, and says itself that INT4 is still less efficient than
# 16 bits. There is more to get. This notebook is an open challenge: make it faster, any way you like. A leaderboard in
# your lab's folder keeps what you reached. After that, one way is explained piece by piece, and you can write its heart
# yourself.
#
# You need your `opt10_pad_dequant`.

# %%
import linecache

import labkit as lk
from labkit import leaderboard

int4_gqa = lk.problem("int4_gqa")
opt10 = int4_gqa["opt10_pad_dequant", "cuda"]

INSTRUCTIONS = "smsp__inst_executed.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
REGISTERS = "launch__registers_per_thread"
shape = dict(B=1, T=256, HQ=8, split_k=1)

# %% [markdown]
# ## The board
#
# One call checks a kernel, measures it, and enters it. On a GPU it is timed at the large shape. Without one, the
# emulator runs a few blocks of 32 sequences of 8192 tokens and counts, for each number of the cache, the instructions
# of a thread, the wavefronts of shared memory, and the bytes loaded. Such figures are labeled *emulated*, and stand in
# a table of their own: fewer instructions are not yet less time.

# %%
leaderboard.enter(opt10, "the tenth step")

# %% [markdown]
# The budget, from the first notebook: about 4 instructions for each number, if memory shall be the limit.
#
# ### Your own
#
# A kernel on the board can be any file. This makes one of your tenth, for you to change; run it once, and open
# `mine.cu` in the editor. Its name stands in the launch line and at `__global__`.

# %%
mine_path = leaderboard.path().parent / "int4_gqa" / "mine.cu"
if not mine_path.exists():
    mine_path.write_text(opt10.source.replace("opt10_pad_dequant", "mine"))
mine = int4_gqa["opt10_pad_dequant", "cuda"].load(mine_path)
mine.check(shapes=[dict(B=2, T=33, HQ=8, split_k=2)])

# %% [markdown]
# When you have changed it: `leaderboard.enter(mine, "your name")`. And `int4_gqa_4group` has a board of its own.
#
# ### Where to look
#
# What do the instructions of the tenth go into? By lines of the source:

# %% jupyter={"source_hidden": true}
import pandas as pd

p_10 = opt10.profile(**shape)
rows = {}
for line in p_10.line_counts:
    if line["file"] and line.get(INSTRUCTIONS):
        text = linecache.getline(line["file"], line["line"]).strip()
        rows[text] = rows.get(text, 0) + line[INSTRUCTIONS]
top = pd.Series(rows).sort_values(ascending=False).head(8)
share = top / p_10[INSTRUCTIONS]
pd.DataFrame({"warp instructions": top, "of all": share}).style.format(
    {"warp instructions": "{:,.0f}", "of all": "{:.0%}"}
).set_caption(f"the tenth kernel, 256 tokens ({p_10.origin})")

# %% [markdown]
# <details><summary>Direction 1: convert less</summary>
#
# The four lines with `dequantize` are half of everything: masks, conversions, a multiply-add for each number, rounding,
# stores. You know a way to make a `bfloat16` of a nibble without converting it.
#
# <details><summary>Direction 2: scale later</summary>
#
# Scale and shift are the same for all numbers of a row (or group). What is the same for all terms of a sum can be
# taken out of it.
#
# <details><summary>Direction 3: no detour</summary>
#
# A number is unpacked by one lane, goes through shared memory, and comes back to another lane, because `wmma` wants it
# there. Which lane *wants* a number is for the fragment to say; which lane *unpacks* it is for you to say.
#
# <details><summary>Direction 4: never wait</summary>
#
# Three barriers separate the parts of the kernel, and in each part either memory rests or the tensor cores do. With an
# online softmax, a warp can go over its tokens once, tile after tile, while copies of the next tiles are on their way.
#
# </details></details></details></details>

# %% solved_only=true
assert sum(count for text, count in rows.items() if text.startswith("dequantize(")) > 0.4 * p_10[INSTRUCTIONS]

# %% [markdown]
# ## One way: opt11_direct_mma
#
# What follows is a solution. Stop here if you want to find your own.
#
# ### Piece 1: scales outside
#
# Write a row of $K$ as whole numbers $n$ from 0 to 15, and put 128 on top, as the magic numbers do. The score of a
# token is then
#
# $$q \cdot k = \sum_d q_d\,(n_d \cdot \text{scale} + \text{shift})
#            = \text{scale} \sum_d q_d\,(128 + n_d) + (\text{shift} - 128\,\text{scale}) \sum_d q_d .$$
#
# The sum on the left is for the tensor core: its operands are exact. $\sum_d q_d$ is the same for all tokens, and is
# added up once. Two multiply-adds for each *score* are left, where there was one for each *number*.

# %%
import torch

torch.manual_seed(0)
q = torch.randn(128).bfloat16().double()
n = torch.randint(0, 16, (128,)).double()
scale, shift = 0.11, -0.83
plain = q @ (n * scale + shift)
folded = scale * (q @ (128 + n)) + (shift - 128 * scale) * q.sum()
print(f"{plain:.12f}\n{folded:.12f}")

# %% [markdown]
# For $V$ each token has its own scale, and the sum goes over tokens. So it goes to the other factor, $p' = p \cdot
# \text{scale}$, which is rounded to `bfloat16`:
#
# $$\sum_t p_t\,(n_t\,\text{scale}_t + \text{shift}_t) \approx \sum_t p'_t\,(128 + n_t) - 136 \sum_t p'_t
#   + \sum_t p_t\,(\text{shift}_t + 8\,\text{scale}_t) .$$
#
# Why 136, and not 128? Because $p'$ is rounded, and its error is multiplied with what is left: $n - 8$, which is
# smaller than $n$. The last sum is in `float32`, and exact enough.

# %%
T = 512
p = torch.rand(T).double()
scales, shifts = 0.1 + 0.02 * torch.rand(T).double(), -0.8 + 0.1 * torch.rand(T).double()
n = torch.randint(0, 16, (T, 128)).double()
exact = p @ (n * scales[:, None] + shifts[:, None])
rounded = (p * scales).bfloat16().double()
off = {}
for base in (128, 136):
    middle = base - 128
    o = rounded @ (128 + n) - base * rounded.sum() + (p * (shifts + middle * scales)).sum()
    off[base] = float((o - exact).norm())
    print(f"with {base}: off by {off[base]:.4f} (norm of 128 numbers)")

# %% solved_only=true
assert abs(plain - folded) < 1e-9
assert off[136] < 0.7 * off[128]

# %% [markdown]
# ### Piece 2: any order will do
#
# `mma.m16n8k16` multiplies 16 x 16 by 16 x 8, with a layout that the manual defines: lane $4g + q$ holds of the first
# operand rows $g$ and $g + 8$, and numbers $2q$, $2q + 1$, $2q + 8$, $2q + 9$ of each. Tokens shall be the rows, so the
# 8 heads are the columns.
#
# Now the trick. The product sums over 16 numbers, and a sum has no order. *Which* of the 128 numbers a fragment calls
# its number $2q$ is free, as long as **both** operands mean the same one. So let each lane take what it has: word $q$
# of row $g$, with 8 numbers in it. Shifted by $4i$ bits and masked with 0x000f000f, a word holds numbers $i$ and
# $i + 4$. Those become a register of the fragment, right where they are. And $Q$ is sorted accordingly, once.
#
# Here is a tile of 16 tokens, by that rule, against the plain product:

# %%
from labkit.emulator.tensor import mma_layout

layout = {name: mma_layout(name, 16, 8, 16, "bf16") for name in "ab"}
K = torch.randint(0, 16, (16, 128))  # nibbles of 16 tokens
Q = torch.randn(8, 128)
scores = torch.zeros(16, 8)
for j in range(4):  # words q + 4 j of each row
    for half in range(2):  # registers hold numbers 2 half and 2 half + 1 of the word, and those 4 further
        a, b = torch.zeros(16, 16), torch.zeros(16, 8)
        for lane in range(32):
            g, q = lane // 4, lane % 4
            word = 8 * (q + 4 * j)  # its first number
            mine_numbers = [word + i + 4 * e for i in (2 * half, 2 * half + 1) for e in (0, 1)]
            # places of a: (row g, k pair), (row g + 8, k pair), then the same 8 numbers further on
            for place, element in enumerate(layout["a"][lane]):
                row = g + 8 * (place // 2 % 2)
                a.view(-1)[int(element)] = K[row, mine_numbers[2 * (place // 4) + place % 2]]
            for place, element in enumerate(layout["b"][lane]):
                b.view(-1)[int(element)] = Q[g, mine_numbers[place]]
        scores += a @ b
print(f"largest difference to K Q^T: {float((scores - K.float() @ Q.T).abs().max()):.1e}")

# %% question="int4_gqa/opt11_direct_mma/numbers_per_lop3" points=1
lk.answer("int4_gqa/opt11_direct_mma/numbers_per_lop3", 2)

# %% question="int4_gqa/opt11_direct_mma/multiplications_per_tile" points=2
lk.answer("int4_gqa/opt11_direct_mma/multiplications_per_tile", 32)

# %% solved_only=true
assert (scores - K.float() @ Q.T).abs().max() < 1e-3

# %% [markdown]
# ### Piece 3: V
#
# In the second product the sum goes over *tokens*, so a register of the fragment must hold the same number of two
# neighboring tokens. But a word holds 8 numbers of one. So two words are mixed first, by one instruction for both
# (`__byte_perm`: any 4 of 8 bytes): the low halves of the words of two tokens in one register, the high halves in
# another. Then the same mask gives pairs of tokens. Numbers are the 16 rows of the product, heads are the 8 columns.
#
# The weights $p'$ come from the first product's accumulator: lane $4g + q$ has them for heads $2q$, $2q + 1$ and token
# $g$, and the second product wants them the other way round. `movmatrix` turns an 8 x 8 matrix of 16-bit numbers
# around, across the lanes, in one instruction.
#
# ### Piece 4: always something on its way
#
# Each warp has tiles of 32 tokens of its own in shared memory, *packed*, as they come: `cp.async` copies the next ones
# while it works on this one, and needs no registers. The softmax is online, so no warp waits for another until a
# sequence ends. And the tokens of all sequences are cut evenly among as many blocks as fit on the GPU, wherever one
# sequence ends and the next begins: `split_k` is not needed any more.
#
# ### Optional: write its heart
#
# Two regions, the two products. Helpers are there: `pair(word, i)`, `mma`, `header` (scales and shifts of a row),
# `transpose`. `fragment[j][...]` has $Q$, sorted; `sum_q` its sums; `s[m][h]` shall get the scores of row `g` of
# matrix `m`, and `o[i]` and `ones` the second product. Write it for `GROUPS == 1` first.
#
# <details><summary>Hint 1: the first product</summary>
#
# Two matrices of 8 rows at a time, `m` and `m + 1`: their rows are rows $g$ and $g + 8$ of the fragment. For each `j`
# two words and two `mma`, with `fragment[j][0]` and `[1]`, then `[2]` and `[3]`. At the end of a group, scale and
# shift.
#
# <details><summary>Hint 2: where a row is</summary>
#
# Row `r` of matrix `m` is token `R_STEP * r + M_STEP * m` of the tile: `k + (...) * WORDS`. Its header is `GROUPS`
# words long. The rows are dealt out like that so that the lanes find 32 banks.
#
# <details><summary>Hint 3: the second product</summary>
#
# For matrices `m` and `m + 1`: `ones`, with 0x3f803f80, which is 1 twice, gives the sums of $p'$. Then words `g` and
# `g + 8` of rows $2q$ and $2q + 1$ of both matrices, mixed by `__byte_perm` with 0x5410 and 0x7632, and four `mma` for
# each half.
#
# </details></details></details>

# %% kernel="int4_gqa/opt11_direct_mma" language="cuda"

# %% check="int4_gqa/opt11_direct_mma" language="cuda"
opt11 = int4_gqa["opt11_direct_mma", "cuda"]
opt11.check()

# %% [markdown]
# ### The proof

# %%
p_11 = opt11.profile(**shape)
p_11.diff(p_10)

# %%
leaderboard.enter(opt11, "the eleventh step")

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

from labkit.models import devices
from labkit.models.roofline import roofs

h200 = devices.find("NVIDIA H200")
per_clock = roofs("NVIDIA H200").memory["DRAM"] * 1e9 / (h200.sms * h200.clock_mhz * 1e6)  # bytes, of a multiprocessor
board = leaderboard.show().entries
# Where a GPU has timed them, their counts are those of the small profile.
counts = {
    name: next(((e.instructions, e.wavefronts) for e in board if e.name == name and e.origin == "emulated"), None)
    or (32 * p[INSTRUCTIONS] / 65536, sum(p[SHARED.format(k)] for k in ("ld", "st")) / 65536)
    for name, p in (("the tenth step", p_10), ("the eleventh step", p_11))
}
clocks = {  # for 1000 numbers
    "instructions": [1000 * instructions / 32 / h200.limits.parts for instructions, _ in counts.values()],
    "shared memory": [1000 * wavefronts for _, wavefronts in counts.values()],
}
memory = 1000 * 68 / 128 / per_clock
figure = go.Figure([go.Bar(x=list(counts), y=y, name=name, marker_color=color, texttemplate="%{y:.1f}")
                    for (name, y), color in zip(clocks.items(), ("#2171b5", "#e6550d"))])  # fmt: skip
figure.add_hline(y=memory, line=dict(color="#202124", width=2), annotation_text=f"memory: {memory:.1f}",
                 annotation_position="top right")  # fmt: skip
figure.update_layout(title="Clocks of a multiprocessor for 1000 numbers, at least (modeled, H200)", barmode="group",
                     template="plotly_white", height=420, yaxis_title="clocks", legend=dict(orientation="h", y=-0.15))

# %% [markdown]
# The tenth kernel would need more than twice the time of the memory for its instructions alone, however well
# everything overlapped. The eleventh is at the line: its instructions and the memory take about the same time, and
# shared memory half of that. (*Modeled*, from below: waiting is left out, and no kernel overlaps perfectly.)

# %% solved_only=true
assert p_11[CONFLICTS.format("ld")] == 0
tenth, eleventh = counts.values()
assert tenth[0] > 2 * 3.9 and eleventh[0] < 4.5 and eleventh[1] < tenth[1] / 3
assert clocks["instructions"][0] > 2 * memory and clocks["instructions"][1] < 1.2 * memory
assert clocks["shared memory"][1] < 0.6 * memory

# %% [markdown]
# ### Explain
#
# The eleventh kernel has no better operations than the tenth: the same tensor cores do the same products. What has it
# *not* done that the tenth does? Name three things, and for each the counter that shows it.

# %% [markdown] explain="int4_gqa/opt11_direct_mma" language="cuda" points=3
# ### BEGIN SOLUTION
# It does not convert numbers one by one, nor scale each of them: instructions per number fall by half. It does not put
# dequantized numbers into shared memory and take them out again: wavefronts fall to a fraction, and conflicts of loads
# to none. It does not meet at barriers between score, softmax and output (the phases of a block, barriers), and
# it does not keep all scores of its tokens in shared memory at once. Nor does it load packed words by lanes in rows of
# their own: copies of 16 bytes take whole tiles, so that far fewer sectors are asked for twice (load sectors).
# ### END SOLUTION

# %% [markdown]
# ## On an H200
#
# How far is it from the model to a clock? Our tenth and eleventh kernel, the **published kernel itself** (from FBGEMM's
# package), and for `bfloat16` PyTorch's attention, all recorded in the same process, 8192 tokens per sequence, with an
# L2 that holds nothing of the cache. Below everything, the time in which the cache can just be read:

# %% jupyter={"source_hidden": true}
from plotly.subplots import make_subplots

from labkit import recorded, reproduce
from labkit.problems.int4_gqa import effective_bytes

ours = reproduce.find_recorded()
BATCHES = 32, 64, 128, 256, 512
LAYOUTS = {"row-wise": "int4_gqa", "4 groups": "int4_gqa_4group", "bfloat16": "gqa_bf16"}
read_gbps = recorded.ceilings(ours.data["machine"])["read_gbps"]
us, spread = {}, {}  # by layout and kernel, then by batch size
for layout, problem in LAYOUTS.items():
    for who, kernel in (("after ten steps", reproduce.LAST[problem]), ("published kernel", reproduce.ORIGINAL),
                        ("PyTorch", reproduce.TORCH), ("direct mma", reproduce.BEYOND[problem])):  # fmt: skip
        if ours.best(problem, kernel, 512):
            us[layout, who] = {B: ours.best(problem, kernel, B).us for B in BATCHES}
            spread[layout, who] = [ours.best(problem, kernel, B).spread / 2 for B in BATCHES]
    bytes_of = {B: effective_bytes(B, 8192, reproduce.ROW_BYTES[problem]) for B in BATCHES}
    us[layout, "at the read ceiling"] = {B: bytes_of[B] / read_gbps / 1e3 for B in BATCHES}
us = pd.DataFrame(us).T
colors = {"after ten steps": "#9ecae1", "published kernel": "#31a354", "PyTorch": "#d94801", "direct mma": "#08519c",
          "at the read ceiling": "#202124"}  # fmt: skip
figure = make_subplots(1, 3, subplot_titles=list(LAYOUTS), shared_yaxes=True, horizontal_spacing=0.03)
for (layout, who), times in us.iterrows():
    figure.add_scatter(
        x=list(BATCHES), y=times, name=who, legendgroup=who, showlegend=layout == "bfloat16", row=1,
        col=1 + list(LAYOUTS).index(layout), mode="lines+markers",
        error_y=dict(array=spread.get((layout, who)), thickness=1, width=3),
        line=dict(color=colors[who], width=2, dash="dot" if who == "at the read ceiling" else "solid"),
    )  # fmt: skip
figure.update_xaxes(type="log", tickvals=list(BATCHES), title="sequences")
figure.update_yaxes(type="log", tickvals=[10, 30, 100, 300, 1000])
figure.update_yaxes(title="microseconds", col=1)
figure.update_layout(title=f"Decoding on the {ours.label}", template="plotly_white", height=460,
                     legend=dict(orientation="h", y=-0.2))  # fmt: skip

# %%
times = us.div(us.xs("direct mma", level=1), level=0).drop("direct mma", level=1)
times.style.format("{:.2f}").set_caption("time over that of our direct mma, by sequences; above 1, ours is faster")

# %% [markdown]
# With 4 bits, the eleventh kernel is much faster than the tenth, and the more so the more there is to do. It is well
# ahead of the published kernel in both layouts. (Our *tenth* is not: it takes longer than the kernel that it teaches.)
# The same idea in `bfloat16` is ahead of the published kernel too, and **not of PyTorch**, which is faster at every
# batch size, by a tenth at the smallest.
#
# So what are 4 bits worth, against the best with 16? With 512 sequences, ours takes less than half of PyTorch's time;
# with 32, a little less than PyTorch. The document ended at 1.7, on an H100, and the bytes would allow 3.8.
#
# ### Two parts
#
# With few sequences even the eleventh takes several times as long as the reading. With twice the sequences, it does not
# take twice the time. So take it apart: a time *per sequence*, by what 256 more of them cost, and what is left over.

# %%
slope = (us[512] - us[256]) / 256
parts = pd.DataFrame({"us per sequence": slope, "left over, us": us[32] - 32 * slope})
parts["of the read ceiling"] = slope.index.map(lambda key: slope[key[0], "at the read ceiling"] / slope[key])
parts["at 128 sequences, by this"] = parts["left over, us"] + 128 * slope
parts["and measured, us"] = us[128]
parts.style.format("{:.1f}").format("{:.3f}", subset="us per sequence").format("{:.0%}", subset="of the read ceiling")

# %% [markdown]
# **Left over** is roughly the same for all batch sizes, so it is what hurts the small ones: of the time for 32
# sequences, the eleventh spends most on it. No kernel is without: kernels are launched, and before the first tile and
# after the last there is nothing to hide behind. In the eleventh, a block first looks for its sequences, loads $Q$ and
# waits for its first tiles; at the end 4 warps put their parts together, and a second kernel those of all blocks. In
# between, a warp has just this many tiles:

# %%
BLOCKS = "launch__grid_size"
p_large = opt11.recorded()
workers = p_large[BLOCKS] - 8 * 512  # without those of the second kernel, one for each head of each sequence
for B in (32, 512):
    print(f"{B} sequences: {B * 8192 / 32 / workers / 4:.0f} tiles of 32 tokens for each of {workers:,.0f} x 4 warps")

# %% [markdown]
# Which of those takes how long is not known: counters were recorded with 512 sequences alone. Of these, what about the
# part *per sequence*?

# %% jupyter={"source_hidden": true}
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ALU = "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"
profiles = {
    "tenth, row-wise": opt10.recorded(),
    "eleventh, row-wise": p_large,
    "eleventh, 4 groups": lk.problem("int4_gqa_4group")["opt11_direct_mma", "cuda"].recorded(),
    "direct mma, bfloat16": lk.problem("gqa_bf16")["direct_mma", "cuda"].recorded(),
}
counted = {}
for name, p in profiles.items():
    stalls = {key: p[key] for key in p.metrics if "issue_stalled" in key}
    counted[name] = {
        "memory, of the read ceiling": p["dram__bytes_read.sum"] / p["gpu__time_duration.sum"] / read_gbps,
        "issue slots used": p[ISSUE] / 100,
        "pipe of whole numbers and logic used": p[ALU] / 100,
        "instructions per number": 32 * p[INSTRUCTIONS] / (2 * 512 * 8192 * 128),
        "shared wavefronts, in millions": sum(p[SHARED.format(kind)] for kind in ("ld", "st")) / 1e6,
        "blocks per SM": min(p[f"launch__occupancy_limit_{what}"] for what in ("registers", "shared_mem")),
    } | {
        f"waits: {reason}": p[STALLED.format(reason)] / (1 + sum(stalls.values()))
        for reason in ("long_scoreboard", "mio_throttle", "wait", "not_selected", "math_pipe_throttle")
    }
counted = pd.DataFrame(counted)
counted.style.format("{:.0%}").format("{:.1f}", subset=(list(counted.index)[3:6], slice(None))).set_caption(
    f"512 sequences, {ours.label}; waits: of the time of warps")  # fmt: skip

# %% [markdown]
# * The **tenth** waits for memory, and memory is at rest most of the time: words are asked for, waited for, converted
#   and multiplied one after the other, with three times the instructions.
# * The **eleventh** has less than a third of these, and less than a tenth of the wavefronts. Nothing is at its limit
#   now: not memory, not the issue slots, not the pipe that masks nibbles. Warps wait for memory less than for `wait`,
#   the fixed time after an instruction, and for their turn (`not_selected`). Copies and work overlap, and not
#   perfectly: per sequence, the kernel is at about five sixths of the ceiling. No counter names one culprit.
# * With **4 groups**, each number takes half as many instructions again, for a scale of every 32 numbers, and the
#   registers leave room for fewer blocks. More issue slots are used, and less of the ceiling is reached.
# * In **bfloat16** there is nothing to unpack: warps wait for memory, and memory is busy. Per sequence, PyTorch and we
#   are both at the ceiling; what it has ahead with few sequences is mostly that less is left over.

# %% solved_only=true
assert set(us.columns) == set(BATCHES) and (us.columns == sorted(BATCHES)).all()
for layout in ("row-wise", "4 groups"):
    ahead = us.loc[layout, "after ten steps"] / us.loc[layout, "direct mma"]
    assert ahead.is_monotonic_increasing and ahead.min() > 1.5 and 2.4 < ahead[512] < 4.5
    assert (us.loc[layout, "published kernel"] > 1.3 * us.loc[layout, "direct mma"]).all()
    assert (us.loc[layout, "after ten steps"] > 1.05 * us.loc[layout, "published kernel"]).all()
in_torch = us.loc["bfloat16", "PyTorch"] / us.loc["bfloat16", "direct mma"]
assert in_torch.between(0.84, 0.99).all() and in_torch.idxmin() == 32 and in_torch[32] < 0.94
assert (us.loc["bfloat16", "published kernel"] > 1.3 * us.loc["bfloat16", "direct mma"]).all()
worth = us.loc["bfloat16", "PyTorch"] / us.loc["row-wise", "direct mma"]
assert 2.2 < worth[512] < 3.2 and 1.05 < worth[32] < 1.5
assert us.loc["row-wise", "direct mma"][32] > 3 * us.loc["row-wise", "at the read ceiling"][32]
left = parts["left over, us"]
assert (left[[key for key in left.index if key[1] != "at the read ceiling"]] > 8).all()
assert left["row-wise", "direct mma"] > 0.55 * us.loc["row-wise", "direct mma"][32]
by_line = parts["at 128 sequences, by this"] / parts["and measured, us"]
assert by_line.between(0.85, 1.1).all() and abs(by_line["row-wise", "direct mma"] - 1) < 0.08
reached = parts["of the read ceiling"]
assert 0.76 < reached["row-wise", "direct mma"] < 0.9 and reached["bfloat16", "direct mma"] > 0.94
assert reached["4 groups", "direct mma"] < reached["row-wise", "direct mma"] - 0.03
assert left["bfloat16", "PyTorch"] < left["bfloat16", "direct mma"] - 2 and reached["bfloat16", "PyTorch"] > 0.94
assert workers == 4 * h200.sms and 3 < 32 * 8192 / 32 / workers / 4 < 5
table = counted.T
first, second, groups, plain_ = (table.iloc[n] for n in range(4))
assert first["waits: long_scoreboard"] > 0.3 > first.iloc[0] and first.iloc[1] < 0.6
assert second.iloc[3] < first.iloc[3] / 3 and second.iloc[4] < first.iloc[4] / 10
assert 0.6 < second.iloc[0] < 0.85 and second.iloc[1] < 0.7 and second.iloc[2] < 0.7
waiting = second[[name for name in table if name.startswith("waits")]].sort_values()
assert list(waiting.index[-2:]) == ["waits: not_selected", "waits: wait"] and second["blocks per SM"] == 4
assert 1.3 < groups.iloc[3] / second.iloc[3] < 1.65 and groups["blocks per SM"] < 4 and groups.iloc[1] > second.iloc[1]
assert plain_.iloc[0] > 0.9 and plain_["waits: long_scoreboard"] > 0.5

# %% [markdown]
# ## And now you
#
# `leaderboard.show()` is the state of things. Some questions that nobody has answered here:
#
# - One LOP3 makes two numbers. Is there an encoding of the cache with which one instruction makes four?
# - With one sequence of 131072 tokens, do all blocks have something to do? With 4096 sequences of 100 tokens?
# - What is left over with few sequences: which part of it goes where? Could the second kernel begin before the first
#   has ended?
# - The scores of 32 tokens are multiplied by the same two constants again and again. Which multiplications can be
#   left to $Q$, once per sequence?
# - Hopper has wgmma, which reads its second operand from shared memory. What would it cost to get a packed cache there?

# %%
leaderboard.show()
