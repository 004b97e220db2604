# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ten steps: the banks
#
# Steps 9 and 10, the two largest of the last five. Both are about where numbers lie in shared memory, and both were
# found by counting **how many of the 32 banks work at the same time**. You will find the document's own numbers in
# the addresses of your own kernels. At the end, all ten steps stand side by side.
#
# You need your kernels of the three notebooks before.

# %%
import linecache

import labkit as lk

int4_gqa = lk.problem("int4_gqa")
opt08 = int4_gqa["opt08_p_into_fragment", "cuda"]
opt08.check(shapes=[dict(B=2, T=33, HQ=8, split_k=2)])

# %%
INSTRUCTIONS = "smsp__inst_executed.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
LOCAL = "smsp__sass_inst_executed_op_local_{}.sum"


def at(p, words, metric):
    """A counter of a profile, added up over the source lines that contain some words."""
    return sum(line.get(metric, 0) for line in p.line_counts
               if line["file"] and words in linecache.getline(line["file"], line["line"]))  # fmt: skip


def access(p, words, op):
    """The first traced access to shared memory on a line that contains some words."""
    for a in p.accesses:
        if a.array == "shared" and a.op == op and words in linecache.getline(a.file, a.line):
            return a
    raise lk.LabkitError(f"{p.kernel} has no such line; is it written yet?")


def banks(a, lanes=range(32)):
    """How many banks the words of some lanes fall into."""
    return len({(a.addresses[n] // 4 + w) % 32 for n in lanes for w in range(a.width // 4)})


def published(before, after, groups=""):
    print(f"published, A100, B = 512{groups}: {before} us before, {after} us after, {before / after:.2f} times as fast")


shape = dict(B=1, T=256, HQ=8, split_k=1)
p_08 = opt08.profile(**shape)

# %% [markdown]
# ## Step 9: P, tile by tile
#
# ### The clue

# %%
P_LOAD = "p.x[e]"
conflicts = at(p_08, P_LOAD, CONFLICTS.format("ld"))
print(f"{conflicts:,.0f} of {p_08[CONFLICTS.format('ld')]:,.0f} bank conflicts of loads, where P is read "
      f"({p_08.origin})")

# %% [markdown]
# Step 8 lets a lane read its part of $P$ itself: lane $4g + q$ reads tokens $2q$, $2q + 1$ and so on of head $g$. And
# rows of $S$ are as long as a block has tokens. The document's example: 8192 tokens in 32 pieces, so heads are 256
# floats apart. So they are with the shape that you profile.
#
# ### The suspect

# %% [markdown]
# <details><summary>Hint 1: the words</summary>
#
# The lane's first word is $256 g + 2 q$.
#
# <details><summary>Hint 2: the banks</summary>
#
# Modulo 32. What is 256 modulo 32?
#
# </details></details>

# %% question="int4_gqa/opt08_p_into_fragment/p_load_banks" points=2
before_9 = lk.answer("int4_gqa/opt08_p_into_fragment/p_load_banks", 4)
before_9

# %% [markdown]
# Drawn, from the addresses of your kernel:

# %%
p_read = access(p_08, P_LOAD, "ld")
lk.plots.access_map(p_08, "shared", line=p_read.line)

# %% [markdown]
# The document's remedy: a row need not be as long as there are tokens. Cut $S$ into tiles of 8 heads by 16 tokens, just
# what one fragment of $P$ holds, and put these one after the other. Rows are then 16 floats apart, *whatever* the
# number of tokens. And tokens $2q$ and $2q + 1$ are neighbors: one load of 8 bytes. Such a load goes in two halves,
# lanes 0 to 15 and 16 to 31, and each half has the 32 banks for itself.

# %% question="int4_gqa/opt09_swizzle_p/p_load_banks" points=2
after_9 = lk.answer("int4_gqa/opt09_swizzle_p/p_load_banks", 16)
after_9

# %% [markdown]
# ### The change
#
# `place(h, t, room)` says where a score lies now, and the scores are written there already. Two regions are yours: the
# softmax, in which thread `tid` has head `mine = tid / SHARE` and every 16th of its tokens, and the reading of $P$.
#
# <details><summary>Hint 1: the softmax</summary>
#
# `float &s = S[place(mine, t, room)];` is a name for the number in its place: read it, replace it by its $p$, or by 0
# where `t` is not below `n`, and add it to `sum`. Then 16 threads, of one half of a warp, put their sums together.
#
# <details><summary>Hint 2: the fragment</summary>
#
# Two `float2`: for tokens $2q$ and $2q + 1$, and for those 8 further on. Each fills two places of `p.x`.
#
# <details><summary>Hint 3: the address</summary>
#
# `(const float2 *)(S + place(...))`, of head `lane / 4` and token `t0 + lane % 4 * 2`, or 8 more.
#
# </details></details></details>

# %% kernel="int4_gqa/opt09_swizzle_p" language="cuda"

# %% check="int4_gqa/opt09_swizzle_p" language="cuda" points=3
opt09 = int4_gqa["opt09_swizzle_p", "cuda"]
opt09.check()

# %% [markdown]
# ### The proof

# %%
p_09 = opt09.profile(**shape)
p_09.diff(p_08)

# %%
new_read = next((a for a in p_09.accesses if a.array == "shared" and a.op == "ld" and a.width == 8), p_read)
half = range(32 // (new_read.width // 4))
print(f"banks at the same time: {banks(p_read)} before, {banks(new_read, half)} after")
lk.plots.access_map(p_09, "shared", line=new_read.line)

# %%
published(1143, 1060)
published(1138, 1065, ", 4 groups")

# %% [markdown]
# The document says: 4 of 32 before, 16 after. So it is, to the last digit. Half of the banks still rest: heads 0 and 2
# meet, and 1 and 3.

# %% solved_only=true
assert banks(p_read) == before_9.value and banks(new_read, range(16)) == after_9.value
assert p_09[CONFLICTS.format("ld")] < 0.65 * p_08[CONFLICTS.format("ld")]
assert p_09[SHARED.format("ld")] < 0.75 * p_08[SHARED.format("ld")]
assert conflicts > 0.4 * p_08[CONFLICTS.format("ld")]

# %% [markdown]
# ### The story
#
# Before this step, how many banks work depended on `split_k` and on the number of tokens. Give a case in which it would
# have been much better than 4. Why is the remedy better than to choose such a case?

# %% [markdown] explain="int4_gqa/opt09_swizzle_p" language="cuda" points=1
# ### BEGIN SOLUTION
# Rows that are no multiple of 32 floats: with rows of 32 k + 8, heads begin 8 banks apart, and 4 heads meet no other.
# But `room` is rounded up to whole tiles of 32 tokens, so that never happens here, and one should not have to choose
# the number of pieces for the sake of banks: it has to fit the size of the GPU and the batch. After the step it is the
# same for all shapes.
# ### END SOLUTION

# %% [markdown]
# ## Step 10: pad the tiles
#
# ### The clue
#
# The bars of the very first report had one giant, and it is still there:

# %%
DEQUANTIZE = "dequantize(tile"
for kind, words, what in (("st", DEQUANTIZE, "stores of dequantized numbers"), ("ld", "load_matrix_sync(", "loads")):
    print(f"{what}: {at(p_09, words, SHARED.format(kind)):,.0f} wavefronts, "
          f"{at(p_09, words, CONFLICTS.format(kind)):,.0f} of them bank conflicts")

# %% [markdown]
# A tile of $K$ in shared memory is 32 tokens of 16 `bfloat16`, 8 words a row. A lane has a token, and all lanes write
# the same word of their own row at the same time.

# %% question="int4_gqa/cu_baseline/k_store_banks" points=1
store_before = lk.answer("int4_gqa/cu_baseline/k_store_banks", 4)
store_before

# %% question="int4_gqa/cu_baseline/k_load_banks" points=1
load_before = lk.answer("int4_gqa/cu_baseline/k_load_banks", 16)
load_before

# %%
k_store = access(p_09, DEQUANTIZE, "st")
lk.plots.access_map(p_09, "shared", line=k_store.line)

# %% [markdown]
# ### The suspect
#
# Rows begin 8 words apart, and 8 divides 32. So make rows longer than what they hold: **padding**. The document chose 2
# `bfloat16`, one word.

# %% question="int4_gqa/opt10_pad_dequant/k_store_banks" points=1
store_after = lk.answer("int4_gqa/opt10_pad_dequant/k_store_banks", 32)
store_after

# %% question="int4_gqa/opt10_pad_dequant/k_load_banks" points=2
load_after = lk.answer("int4_gqa/opt10_pad_dequant/k_load_banks", 29)
load_after

# %% [markdown]
# Was 2 a good choice? Try them all. For each padding, the banks of a store and of a load of $K$, and the wavefronts
# that they take:

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.problems.int4_gqa import banks as banks_of
from labkit.problems.int4_gqa import k_load, passes
from labkit.problems.int4_gqa import k_store as words_stored

pads = list(range(0, 18, 2))  # bfloat16
rows = [(16 + pad) // 2 for pad in pads]  # words
curves = {"store": [words_stored(row) for row in rows], "load": [k_load(row) for row in rows]}
figure = make_subplots(1, 2, subplot_titles=["banks of 32 that work", "wavefronts"], horizontal_spacing=0.1)
for column, count in enumerate((banks_of, passes), 1):
    for (name, words), color in zip(curves.items(), ("#e6550d", "#2171b5")):
        figure.add_bar(x=[str(pad) for pad in pads], y=[count(w) for w in words], name=name, marker_color=color,
                       texttemplate="%{y}", showlegend=column == 1, row=1, col=column)  # fmt: skip
figure.update_xaxes(title="padding of a row of K, in bfloat16", type="category")
figure.update_layout(title="Rows of K, longer than what they hold", template="plotly_white", height=400,
                     legend=dict(orientation="h", y=-0.25))  # fmt: skip

# %% [markdown]
# Look at both sides. Stores take 1 wavefront in place of 8. Loads find 29 banks in place of 16, and take 2 wavefronts
# as before: three banks that are wanted twice are enough for that. How many banks work is a good clue, and what counts
# is how often the *busiest* one works. Still, together 3 wavefronts in place of 10, and no other padding does better.
# The price: `wmma::load_matrix_sync` wants a multiple of 8, so with 2, fragments must be filled by hand.
#
# What a lane must bring of a fragment of $K$ was found out on an H200, too. Lane 6, as (number, token):

# %%
from labkit.emulator.tensor import wmma_layout

held = wmma_layout("b", (8, 32, 16), "bf16")[6]
print([(int(element) // 32, int(element) % 32) for element in held])

# %% [markdown]
# ### The change
#
# The stores go to padded rows already, and so do those of $V$, whose rows get 8 more, for which `load_matrix_sync`
# still works. Yours are three regions: fill the fragment `k` by hand, and the two of step 9 again.
#
# <details><summary>Hint 1: pairs</summary>
#
# The 16 places of `k.x` come in pairs: two neighboring numbers of one token, one word. So 8 loads of 4 bytes, as
# `__nv_bfloat162`.
#
# <details><summary>Hint 2: which pair</summary>
#
# Lane $4g + q$: numbers $2q$, $2q + 1$ of token $g$; then the same 8 numbers further on; or 8 tokens; or 16. Read off
# the list above in which order.
#
# <details><summary>Hint 3: a formula</summary>
#
# For an even place `e`: token $g + 8\,(e/2 \bmod 2) + 16 \lfloor e/8 \rfloor$... and numbers, check that with the list.
#
# </details></details></details>

# %% kernel="int4_gqa/opt10_pad_dequant" language="cuda"

# %% check="int4_gqa/opt10_pad_dequant" language="cuda" points=3
opt10 = int4_gqa["opt10_pad_dequant", "cuda"]
opt10.check()

# %% [markdown]
# ### The proof

# %%
p_10 = opt10.profile(**shape)
p_10.diff(p_09)

# %%
k_padded = access(p_10, DEQUANTIZE, "st")
before, after = (sum(p[CONFLICTS.format(kind)] for kind in ("ld", "st")) for p in (p_09, p_10))
print(f"banks of a store of K: {banks(k_store)} before, {banks(k_padded)} after")
print(f"bank conflicts: {before:,.0f} before, {after:,.0f} after, {before / after:.1f} times fewer")
lk.plots.access_map(p_10, "shared", line=k_padded.line)

# %%
published(1060, 930)
published(1065, 965, ", 4 groups")

# %% [markdown]
# 4 and 16 of 32 before, 32 and 29 after: the document's own figures again. It reports 1.8 times fewer conflicts in all;
# here there are fewer still, as rows of $V$ have a padding that suits them: most of what loads have gained is there.

# %% solved_only=true
lines = {a.line for a in p_09.accesses if a.text.startswith("wmma.load.b") and ".col" in a.text}
k_read = next(a for a in p_09.accesses if a.line in lines and a.op == "ld")
assert (banks(k_store), banks(k_read)) == (store_before.value, load_before.value) == (4, 16)
by_hand = next(a for a in p_10.accesses if a.array == "shared" and a.op == "ld" and "tile + t * K_ROW"
               in linecache.getline(a.file, a.line))  # fmt: skip
assert (banks(k_padded), banks(by_hand)) == (store_after.value, load_after.value)
assert before > 1.8 * after
assert passes(k_load(8)) == passes(k_load(9)) == 2
assert min(passes(words_stored(row)) + passes(k_load(row)) for row in range(8, 40)) == 3
assert not any(passes(words_stored(row)) == passes(k_load(row)) == 1 for row in range(8, 72))

# %% [markdown]
# ### The story
#
# With 2, stores take one wavefront and loads two. With 8, loads take one and stores four. Is there a padding with which
# both take one? (A store is free of conflicts if rows are an odd number of words apart. And a load?)

# %% [markdown] explain="int4_gqa/opt10_pad_dequant" language="cuda" points=2
# ### BEGIN SOLUTION
# No. A load takes 4 neighboring words of each of 8 rows: 32 words for 32 banks, so that each row must have 4 banks for
# itself, and rows begin a multiple of 4 words apart (modulo 32). A store needs an odd distance. Nothing is both. (Other
# places than those of a padded row could do it, such as a swizzle, which exchanges words within a row.)
# ### END SOLUTION

# %% [markdown]
# ## All ten
#
# The published times for sequences of 8192 tokens on an A100 (its Tables 3 to 17), in microseconds:

# %% jupyter={"source_hidden": true}
import pandas as pd

A100 = {  # by sequences: after step 0 (the baseline) to 10, row-wise; after steps 6 to 10, with 4 groups
    32: ((143, 134, 126, 119, 118, 109, 111, 107, 101, 98, 94), (116, 111, 106, 105, 99)),
    64: ((257, 237, 221, 206, 204, 194, 192, 183, 174, 167, 151), (195, 187, 180, 174, 161)),
    128: ((455, 422, 395, 368, 364, 345, 346, 333, 317, 299, 266), (347, 333, 319, 302, 282)),
    256: ((866, 806, 749, 696, 688, 649, 642, 620, 590, 549, 489), (638, 615, 596, 560, 509)),
    512: ((1659, 1550, 1435, 1338, 1328, 1244, 1244, 1206, 1143, 1060, 930), (1225, 1184, 1138, 1065, 965)),
}
steps = ["baseline", *map(str, range(1, 11))]
table = {}
for batch, (row_wise, groups) in A100.items():
    table[f"B = {batch}", "row-wise"] = row_wise
    table[f"B = {batch}", "4 groups"] = (None,) * 6 + groups
pd.DataFrame(table, index=steps).style.format("{:.0f}", na_rep="").set_caption("published: A100, after each step")

# %% jupyter={"source_hidden": true}
figure = go.Figure()
for place, (name, color) in enumerate((("row-wise, 68 bytes", "#e6550d"), ("4 groups, 80 bytes", "#2171b5"))):
    figure.add_bar(x=steps[6 * place :], y=A100[512][place], name=name, marker_color=color, texttemplate="%{y}",
                   textposition="outside", cliponaxis=False)  # fmt: skip
for us, words in ((1581, "Flash-Decoding, INT4 row-wise"), (1607, "Flash-Decoding, bfloat16")):
    figure.add_hline(y=us, line=dict(color="#5f6368", width=1, dash="dot"), annotation_text=words,
                     annotation_position="top right" if us > 1600 else "bottom right")  # fmt: skip
figure.update_xaxes(type="category", title="after step", categoryorder="array", categoryarray=steps)
figure.update_yaxes(title="microseconds", range=[0, 1800])
figure.update_layout(title="Ten steps as published: A100, B = 512, T = 8192", template="plotly_white", height=460,
                     barmode="group", legend=dict(orientation="h", y=-0.2))  # fmt: skip

# %% [markdown]
# On an H100 they measured the first and the last only: 1066 and 575 us. The best in `bfloat16` takes 1000 us there. So
# 4 bits are 1.7 times as fast as 16 in the end, where the bytes would allow 3.8.
#
# And your own ten, in what they do:

# %% jupyter={"source_hidden": true}
names = [step.name for step in int4_gqa.ladder if step.name.startswith(("cu_", "opt0", "opt10"))]
known = {p.kernel.split()[0].split("/")[1]: p for p in (p_08, p_09, p_10)}
profiles = {name: known.get(name) or int4_gqa[name, "cuda"].profile(**shape) for name in names}
numbers = 2 * shape["T"] * 128
pd.DataFrame(
    {
        "instructions per number": {n: f"{32 * p[INSTRUCTIONS] / numbers:.1f}" for n, p in profiles.items()},
        "shared wavefronts": {n: sum(p[SHARED.format(k)] for k in ("ld", "st")) for n, p in profiles.items()},
        "of them conflicts": {n: sum(p[CONFLICTS.format(k)] for k in ("ld", "st")) for n, p in profiles.items()},
        "local loads, stores": {n: sum(p[LOCAL.format(k)] for k in ("ld", "st")) for n, p in profiles.items()},
        "barriers": {n: max(p.steps.phases) if p.steps else None for n, p in profiles.items()},
    }
).style.format(precision=0, thousands=",").set_caption(f"256 tokens ({p_10.origin})")

# %% [markdown]
# What do they mean in time? A multiprocessor does at most 4 warp instructions and one wavefront of shared memory per
# clock, and its share of the memory's bandwidth is about 17 bytes per clock. So each of these counts is a number of
# clocks, *at least*. *Modeled* for an H200, for the 256 tokens, if everything overlapped perfectly:

# %% jupyter={"source_hidden": true}
from labkit.models import devices
from labkit.models.roofline import roofs

h200 = devices.find("NVIDIA H200")
per_clock = roofs("NVIDIA H200").memory["DRAM"] * 1e9 / (h200.sms * h200.clock_mhz * 1e6)
dram = 2 * shape["T"] * 68 / per_clock
clocks = {
    "shared memory: 1 wavefront per clock": ([sum(p[SHARED.format(k)] for k in ("ld", "st"))
                                              for p in profiles.values()], "#e6550d"),
    "instructions: 4 per clock": ([p[INSTRUCTIONS] / h200.limits.parts for p in profiles.values()], "#2171b5"),
}  # fmt: skip
figure = go.Figure([go.Bar(x=list(profiles), y=y, name=name, marker_color=color, texttemplate="%{y:,.0f}", textangle=0,
                           textposition="outside", textfont=dict(size=9), cliponaxis=False)
                    for name, (y, color) in clocks.items()])  # fmt: skip
figure.add_scatter(x=list(profiles), y=[dram] * len(profiles), mode="lines", line=dict(color="#202124", width=3),
                   name=f"memory, 68 bytes a row: {dram:,.0f} clocks")  # fmt: skip
figure.update_layout(title="Clocks of one multiprocessor for 256 tokens, at least (modeled, H200)", barmode="group",
                     template="plotly_white", height=480, yaxis_title="clocks", legend=dict(orientation="h", y=-0.35))

# %% [markdown]
# That is the whole story in one picture. In the baseline, **shared memory** was the bottleneck, six times slower than
# memory, and not one of the first eight steps touched it: they made the kernel *wait* less. Steps 9 and 10 cut it down,
# until shared memory and instructions were level. And there it ends, at more than twice the line of the memory: both of
# them would have to be halved again, at once.
#
# That takes another kind of kernel: one in which numbers do not go through shared memory twice, and are not converted
# one by one.

# %% solved_only=true
first, last = profiles["cu_baseline"], profiles["opt10_pad_dequant"]
waves = {p.kernel: sum(p[SHARED.format(k)] for k in ("ld", "st")) for p in profiles.values()}
assert 6 < waves[first.kernel] / dram < 7 and 2 < waves[last.kernel] / dram < 3
assert 2 < last[INSTRUCTIONS] / 4 / dram < 3 and 0.8 < waves[last.kernel] / (last[INSTRUCTIONS] / 4) < 1.1
assert max(abs(waves[profiles[n].kernel] / waves[first.kernel] - 1) for n in names[:9]) < 0.12
assert 16.5 < per_clock < 18
assert round(1659 / 930, 2) == 1.78 and round(1000 / 575, 1) == 1.7 and round(256 / 68, 1) == 3.8
from labkit.problems.int4_gqa import effective_bytes

for batch, gbps, gbps_4 in ((32, 380, 425), (64, 475, 523), (128, 538, 598), (256, 586, 662), (512, 616, 698)):
    for row, us, says in ((68, A100[batch][0][-1], gbps), (80, A100[batch][1][-1], gbps_4)):
        assert abs(effective_bytes(batch, 8192, row) / us / 1e3 / says - 1) < 0.01

# %% [markdown]
# ## On an H200
#
# So far the document's clock has spoken, and our counters. Here is a clock of our own: our solutions of all ten steps,
# recorded on an H200 with the document's batch sizes, each with its best number of pieces. The published steps were
# timed on an A100. What each step changes, beside what was published; bars are medians over 5 batch sizes, whiskers
# reach from the least to the largest:

# %% jupyter={"source_hidden": true}
from statistics import median

from labkit import reproduce

ours = reproduce.find_recorded()
layouts = {"row-wise": ("int4_gqa", 0, 0), "4 groups": ("int4_gqa_4group", 6, 1)}  # problem, first step, place in A100


def changes(layout, n):
    """By who measured: relative changes of the time from step n - 1 to n, by batch size."""
    problem, first, place = layouts[layout]
    there = {B: times[place][n - first] / times[place][n - first - 1] - 1 for B, times in A100.items()}
    here = {B: ours.change(problem, names[n - 1], names[n], B)[0] for B in A100}
    return {"published, A100": there, f"ours, {ours.label}": here}


figure = make_subplots(1, 2, column_widths=[0.68, 0.32], subplot_titles=list(layouts), shared_yaxes=True,
                       horizontal_spacing=0.04)  # fmt: skip
for column, (layout, (_, first, _)) in enumerate(layouts.items(), 1):
    numbered = range(first + 1, 11)
    for who, color in zip(changes(layout, 10), ("#9ecae1", "#08519c")):
        found = [list(changes(layout, n)[who].values()) for n in numbered]
        middle = [median(values) for values in found]
        figure.add_bar(x=[str(n) for n in numbered], y=middle, name=who, marker_color=color, showlegend=column == 1,
                       error_y=dict(array=[max(v) - m for v, m in zip(found, middle)],
                                    arrayminus=[m - min(v) for v, m in zip(found, middle)], thickness=1, width=3),
                       row=1, col=column)  # fmt: skip
figure.update_xaxes(type="category", title="step")
figure.update_yaxes(tickformat="+.0%")
figure.update_layout(title="Change of the time, step by step (below 0 is faster)", barmode="group", height=440,
                     template="plotly_white", legend=dict(orientation="h", y=-0.2))  # fmt: skip

# %%
judged = reproduce.changes(ours)
verdicts = pd.DataFrame([{"change": c.what, "verdict": c.verdict} for c in judged])
whole = [f"B = {B}: {ours.change('int4_gqa', names[0], names[10], B)[0]:+.0%}" for B in A100]
print(f"all ten steps, row-wise, H200: {', '.join(whole)}")
print(f"as published, B = 512: A100: {930 / 1659 - 1:+.0%}, H100: {575 / 1066 - 1:+.0%}")
pd.crosstab(verdicts["change"], verdicts["verdict"]).style.set_caption("published changes of at least 2%, in sign")

# %% [markdown]
# All in all it comes to the same, and three of four signs agree. Those that differ are of step 7, which changes next to
# nothing here, and above all of **step 8**: published as a gain, it makes ours *slower*, at each batch size and with
# both layouts. And where signs agree, sizes do not. Steps 1, 2 and 5 bring less than was published, step 9 and most of
# all step 10 bring more. (Steps 3 and 4 gain together about what was published.) Why?
#
# ### The clue
#
# What Nsight Compute read of each rung, at B = 512. The last columns are for what warps wait, in % of their time: for
# global memory, for what shared memory delivers, at barriers, and for room in the queue to shared memory.

# %% jupyter={"source_hidden": true}
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REASONS = "long_scoreboard", "short_scoreboard", "barrier", "mio_throttle"
LIMITS = [f"launch__occupancy_limit_{what}" for what in ("registers", "shared_mem", "warps", "blocks")]


def shared(p):
    """Wavefronts of shared memory, loads and stores."""
    return sum(p[SHARED.format(kind)] for kind in ("ld", "st"))


def waits(p):
    """What share of their time warps wait, by reason; in the rest they issue."""
    every = {key.split("stalled_")[1].split("_per_")[0]: p[key] for key in p.metrics if "issue_stalled" in key}
    return {reason: ratio / (1 + sum(every.values())) for reason, ratio in every.items()}


read = {name: int4_gqa[name, "cuda"].recorded() for name in names}
counted = pd.DataFrame(
    {
        name: {
            "us": ours.best("int4_gqa", name, 512).us,
            "shared wavefronts": shared(p) / 1e6,
            "load conflicts": p[CONFLICTS.format("ld")] / 1e6,
            "local accesses": sum(p[LOCAL.format(kind)] for kind in ("ld", "st")) / 1e6,
            "instructions": p[INSTRUCTIONS] / 1e6,
            "blocks per SM": min(p[limit] for limit in LIMITS),
        }
        | {reason: waits(p)[reason] for reason in REASONS}
        for name, p in read.items()
    }
).T
counted.style.format("{:,.0f}").format("{:.1f}", subset=list(counted)[1:4]).format(
    "{:.0%}", subset=list(REASONS)).set_caption(f"counts in millions; row-wise, {ours.label}")  # fmt: skip

# %% [markdown]
# Each step does what it is named for. Step 1 and 5: less waiting for global memory. 2: room for more blocks. 3 and 4:
# local memory is gone. 7: less waiting for what was read from shared memory. But look where the time goes in their
# place: `mio_throttle`. Warps queue up for shared memory until, before step 9, that is what they do most.
#
# A multiprocessor can do one wavefront per clock. So the wavefronts are a time, at least; here it is beside the times,
# on the H200, and on the A100 as if the document's kernels did what ours do:

# %% jupyter={"source_hidden": true}
a100 = devices.find("NVIDIA A100-SXM4-80GB")
gpus = {"H200, ours": (h200, counted["us"], "#08519c"), "A100, published": (a100, A100[512][0], "#9ecae1")}
millions = counted["shared wavefronts"]
least = {gpu: 1e6 * millions / (device.sms * device.clock_mhz) for gpu, (device, _, _) in gpus.items()}  # us
figure = make_subplots(1, 2, subplot_titles=list(gpus), shared_yaxes=True, horizontal_spacing=0.04)
for column, (gpu, (_, times, color)) in enumerate(gpus.items(), 1):
    spread = [ours.best("int4_gqa", name, 512).spread / 2 for name in names] if column == 1 else None
    figure.add_bar(x=steps, y=times, marker_color=color, name=gpu, row=1, col=column,
                   error_y=dict(array=spread, thickness=1, width=3) if spread else None)  # fmt: skip
    figure.add_scatter(x=steps, y=least[gpu], mode="lines+markers", line=dict(color="#d94801", width=2), row=1,
                       col=column, name="at least, for our wavefronts", showlegend=column == 1)  # fmt: skip
figure.update_xaxes(type="category", title="after step")
figure.update_yaxes(title="microseconds", col=1)
figure.update_layout(title=f"B = 512, row-wise ({ours.label})", template="plotly_white", height=420,
                     legend=dict(orientation="h", y=-0.25))  # fmt: skip

# %%
pd.DataFrame(
    {
        f"step {n}": {
            "wavefronts, your kernels, 256 tokens": shared(profiles[after]) / shared(profiles[before]) - 1,
            "wavefronts, H200": shared(read[after]) / shared(read[before]) - 1,
            "instructions, H200": read[after][INSTRUCTIONS] / read[before][INSTRUCTIONS] - 1,
            "time, H200": ours.change("int4_gqa", before, after, 512)[0],
        }
        for n, (before, after) in enumerate(zip(names, names[1:]), 1)
        if n >= 5
    }
).style.format("{:+.1%}")

# %% [markdown]
# There it is. Until step 9 the H200 does a wavefront in about three of four clocks, and from step 5 on, time goes as
# the wavefronts go, whatever else a step does:
#
# * **Step 8** takes instructions and barriers away, and adds wavefronts: $P$ is read as `float32`, in twice the loads,
#   and each of them finds 4 banks. Ours is a kernel that waits for shared memory, so it becomes slower by about that
#   much. And the barriers? Their share of the waiting does not even fall: warps that queue up come late to those
#   barriers, too, that are left.
# * **Step 9** takes away more than step 8 had added, and **step 10** more than half of all.
# * **Step 7** spares loads that are hardly a hundredth of all, and **steps 5 and 6** none. (With 4 groups, the
#   compiler makes fewer instructions of step 7, and there it gains a little with large batches.)
#
# Your emulator has no clock, and it had known all the same: compare the first line with the last, for steps 8 to 10.
#
# And the A100? From step 5 to step 9 its bars end *below* the line. No A100 can do our wavefronts in the published
# time: so the published kernel needed fewer of them. (That its step 10 had less to take away fits: 1.8 times fewer
# conflicts by the document, and here far more.) It was less in the grip of shared memory, and may well have gained from
# fewer barriers. Its counters were not published, so this is as far as we can see.

# %% solved_only=true
differ = {c.what for c in judged if c.verdict == "differs"}
agree = [c.verdict for c in judged].count("agrees")
assert agree > 0.65 * len(judged) and differ <= {"opt 6 to 7", "opt 7 to 8"}
assert all(c.verdict == "differs" and c.ours > 0.03 for c in judged if c.what == "opt 7 to 8")
assert all(-0.55 < ours.change("int4_gqa", names[0], names[10], B)[0] < -0.3 for B in A100)
moved = {n: [median(v.values()) for v in changes("row-wise", n).values()] for n in range(1, 11)}
assert all(moved[n][1] > moved[n][0] + 0.02 for n in (1, 2, 5, 7, 8)) and abs(moved[7][1]) < 0.01
assert moved[9][1] < moved[9][0] and moved[10][1] < 2 * moved[10][0]
for B, (times, _) in A100.items():
    assert abs(ours.change("int4_gqa", names[2], names[4], B)[0] - (times[4] / times[2] - 1)) < 0.03
# What each step is named for.
stalls = {name: waits(p) for name, p in read.items()}
for n, reason in ((1, "long_scoreboard"), (5, "long_scoreboard"), (7, "short_scoreboard")):
    assert stalls[names[n]][reason] < 0.9 * stalls[names[n - 1]][reason]
assert counted["blocks per SM"].iloc[2] > counted["blocks per SM"].iloc[1]
local = list(counted["local accesses"])
assert local[2] > 1.9 * local[3] > 0 == local[4]
assert all(max(stalls[name], key=stalls[name].get) == "mio_throttle" for name in names[3:9])
assert stalls[names[8]]["mio_throttle"] > 0.4 > 0.2 > stalls[names[10]]["mio_throttle"]
# Time follows wavefronts.
emulated, step, took = ({n: f(names[n - 1], names[n]) for n in range(5, 11)} for f in (
    lambda before, after: shared(profiles[after]) / shared(profiles[before]) - 1,
    lambda before, after: shared(read[after]) / shared(read[before]) - 1,
    lambda before, after: ours.change("int4_gqa", before, after, 512)[0],
))  # fmt: skip
assert all(abs(step[n]) < 0.01 and abs(took[n]) < 0.02 for n in (5, 6, 7))
assert 0.05 < step[8] < 0.12 and step[9] < -0.07 and step[10] < -0.5
assert all(0.6 < took[n] / step[n] < 1.1 and abs(emulated[n] - step[n]) < 0.03 for n in (8, 9, 10))
p_7, p_8 = read[names[7]], read[names[8]]
assert p_8[INSTRUCTIONS] < p_7[INSTRUCTIONS] and stalls[names[8]]["barrier"] > 0.9 * stalls[names[7]]["barrier"]
assert p_8[CONFLICTS.format("ld")] - p_7[CONFLICTS.format("ld")] > 0.8 * (shared(p_8) - shared(p_7))
assert 0 < 1 - read[names[7]][SHARED.format("ld")] / read[names[6]][SHARED.format("ld")] < 0.03
groups_7 = [lk.problem("int4_gqa_4group")[names[n], "cuda"].recorded()[INSTRUCTIONS] for n in (6, 7)]
assert groups_7[1] < 0.99 * groups_7[0]
busy = least["H200, ours"] / counted["us"]
assert busy.iloc[:10].between(0.65, 0.85).all() and busy.iloc[10] < 0.6
assert (pd.Series(A100[512][0], index=names) < least["A100, published"]).iloc[5:10].all()
conflicts_9, conflicts_10 = (sum(read[names[n]][CONFLICTS.format(k)] for k in ("ld", "st")) for n in (9, 10))
assert conflicts_9 > 2.5 * conflicts_10

# %% [markdown]
# Next: [the eleventh step](04_the_eleventh.ipynb). It is yours.
