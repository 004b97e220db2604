# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The cliff
#
# Multiply two square matrices of N x N on a GPU, in PyTorch, for every N, and plot how many operations
# per second it does. You might expect a smooth curve that rises and levels off.
#
# Here is what comes out. The machine is an H200 of which 108 of its 132 multiprocessors (SMs) were in
# use, as many as an A100 has. Every dot is a measured median; hover over it for its numbers.

# %%
import labkit as lk
from labkit import cliff
from labkit.models import waves
from labkit.plots.waves import bands, bars, decomposition, throughput
from labkit.plots.waves import waves as draw_schedule

on_108 = cliff.find_recorded(108)
on_108

# %%
throughput(
    {"bf16": on_108.curve("torch bf16", step=1)}, f"torch.mm, N x N<br><sub>{on_108.label}</sub>", lines=False
)

# %% [markdown]
# A cloud, or several. Look closer, at a single step: from N = 1792 on. One row and one column more,
# a thousandth more work, and the same GPU runs many times slower.

# %%
for N in (1792, 1793, 1794, 1796, 1800, 1808):
    print(f"N = {N}: {on_108.tflops('torch bf16', N):6.1f} TFLOP/s")

# %%
throughput(
    {"bf16": on_108.curve("torch bf16", step=1)}, f"The same, around N = 1792<br><sub>{on_108.label}</sub>"
).update_xaxes(range=[1780, 1812])

# %% [markdown]
# By the end of this notebook you can say where such cliffs lie on any GPU, before you measure, and what
# each of them consists of. And you write a kernel that has none. No GPU is needed: the measurements
# were recorded, every figure says where and when. (With a GPU, `labkit cliff --html cliff.html` in a
# terminal measures yours, and `--sms 108` uses 108 of its SMs.)
#
# Notice in the list above that 1800 is a mystery too: it is far better than 1793, and far worse than
# 1792. Two different things happen here, and they have to be told apart.

# %% [markdown]
# ## The first effect: alignment
#
# A bf16 number has 2 bytes, so a row of N of them has 2 N. A GPU moves data in large pieces, up to 16
# bytes per thread, and a piece of 16 bytes must lie at an address that 16 divides. Matrices begin at
# such addresses. Do their rows?

# %% question="gemm/cliff/row_alignment_1794" points=1
lk.answer("gemm/cliff/row_alignment_1794", 4)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Row 1 begins one row's length after row 0. How many bytes is that?
#
# <details><summary>Hint 2</summary>
#
# Divide that by 2 as often as it goes.
#
# </details></details>

# %% [markdown]
# So sort the sizes by the largest power of two that divides them. The cloud falls apart into bands:

# %%
bands(*on_108.curve("torch bf16", step=1), f"torch.mm in bf16, by divisibility of N<br><sub>{on_108.label}</sub>")

# %% [markdown]
# Which power of two is enough? From there on, more hardly helps. Below it, the library has to take
# kernels that load in small pieces and feed the tensor cores poorly.
#
# ### Explain
#
# Why do multiples of 8 do well in bf16, and what would you expect the number to be for float32, where
# a number has 4 bytes?

# %% [markdown] explain="gemm/cliff/alignment" points=2
# ### BEGIN SOLUTION
# 8 numbers of 2 bytes are the 16 bytes of the largest access, so with N a multiple of 8 every row starts
# aligned for it. In float32, 4 numbers fill 16 bytes, and multiples of 4 would do.
# ### END SOLUTION

# %% [markdown]
# ### Padding a vocabulary
#
# GPT-2 knows 50257 tokens, and the last product of the network has a matrix with as many columns. That
# is an odd number. A well-known speed-up of a small GPT was to change it to a multiple of 64, with
# tokens that never occur.

# %% question="gemm/cliff/padded_vocabulary" points=1
lk.answer("gemm/cliff/padded_vocabulary", 50304)

# %%
import statistics

products = {
    f"{name}, {columns}": statistics.median(times)
    for name, sizes in on_108.vocabulary.items()
    for columns, times in sizes.items()
}
bars(products, f"Products with the vocabulary, 4096 tokens, bf16<br><sub>{on_108.label}</sub>", unit="microseconds")

# %% [markdown]
# More numbers, less time: padding costs a thousandth of the work, and brings back the large accesses.

# %% solved_only=true
for study in (on_108, cliff.find_recorded()):
    fast, slow = study.tflops("torch bf16", 1792), study.tflops("torch bf16", 1793)
    assert fast / slow > 4
    for sizes in study.vocabulary.values():
        assert statistics.median(sizes[50257]) / statistics.median(sizes[50304]) > 3
    best = {}
    for N, value in zip(*study.curve("torch bf16", step=1), strict=True):
        best.setdefault(waves.divisibility(N), []).append(value)
    medians = {power: statistics.median(values) for power, values in best.items()}
    assert medians[1] < medians[2] < medians[8] / 2
    assert medians[32] < 1.25 * medians[8]

# %% [markdown]
# ## The second effect: tiles and waves
#
# From now on, only multiples of 8, so that alignment is out of the way. What remains of the mystery is
# that 1800 is worse than 1792.
#
# A product is computed in **tiles** of $C$, one thread block each. Say the tile has 256 rows and 128
# columns, a common choice. When N is not a multiple of them, the last tiles hang over the edge, and
# there have to be enough tiles for the last row and column all the same.

# %% question="gemm/cliff/tiles_1792" points=1
lk.answer("gemm/cliff/tiles_1792", 7 * 14)

# %% question="gemm/cliff/tiles_1793" points=1
lk.answer("gemm/cliff/tiles_1793", 8 * 15)

# %% [markdown]
# A block with so large a tile fills an SM: its sums alone take half of the registers. So each SM works
# on one tile at a time, and takes the next when it is done. Tiles take equally long, so they run in
# **waves**.

# %% question="gemm/cliff/waves_1793" points=1
lk.answer("gemm/cliff/waves_1793", 2)

# %% question="gemm/cliff/tail_1793" points=2
lk.answer("gemm/cliff/tail_1793", (120 - 108) / 108)

# %% [markdown]
# <details><summary>Hint 1: tiles</summary>
#
# How many tiles fit side by side along one edge, and how many below each other along the other? Round up,
# then multiply.
#
# <details><summary>Hint 2: waves</summary>
#
# One wave holds as many tiles as there are SMs. The rest has to wait for the next.
#
# </details></details>

# %% [markdown]
# And what does it cost? The throughput is the useful work, $2N^3$, over the time. A tile's time is
# proportional to the length of its sums, K = N.

# %% question="gemm/cliff/drop_1800" points=2
lk.answer("gemm/cliff/drop_1800", 1 - (1800 / 1792) ** 2 / 2)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down the ratio of the work at 1800 and at 1792, and the ratio of the times: waves times N.
#
# <details><summary>Hint 2</summary>
#
# The number of tiles does not matter any more, only the number of waves. The ratio of the throughputs is
# the first ratio over the second; what is lost is 1 minus that.
#
# </details></details>

# %% [markdown]
# Here are both sizes as the model sees them, SMs from bottom to top, time from left to right. White is
# an SM without work.

# %%
draw_schedule(waves.schedule(1792, 108), 108, "N = 1792 on 108 SMs<br><sub>modeled</sub>").update_xaxes(range=[0, 2])

# %%
draw_schedule(waves.schedule(1800, 108), 108, "N = 1800 on 108 SMs<br><sub>modeled</sub>").update_xaxes(range=[0, 2])

# %% [markdown]
# ### Measure
#
# A library chooses its tile anew for each size, which blurs the picture. So here is a kernel that always
# takes the same one, 256 x 128, in float32. Read its header; the rest is a plain tiled kernel that keeps
# its sums in registers.

# %% kernel="gemm/fixed_tile" language="cuda" given=true

# %% check="gemm/fixed_tile" language="cuda"
gemm = lk.problem("gemm")
gemm["fixed_tile", "cuda"].check()

# %% [markdown]
# Before you see its measured curve: where are the next cliffs? A cliff is a size (a multiple of 8) at
# which the throughput is more than 15% lower than at the size 8 below. Work it out for the 108 SMs,
# and then for all 132 of an H200, where the picture is another one.

# %% question="gemm/cliff/next_108" points=2
lk.answer("gemm/cliff/next_108", 2568)

# %% question="gemm/cliff/first_132" points=2
lk.answer("gemm/cliff/first_132", 2056)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The number of tiles only changes just after a multiple of 128. Make a table: N = 1920, 2048, 2176 ... and
# the tiles that 8 more would need.
#
# <details><summary>Hint 2</summary>
#
# A cliff is where that number passes a multiple of the number of SMs: first 108, then 216 ...
#
# </details></details>

# %% [markdown]
# Now the measurement, with the model on top. The model knows nothing but the tile and the number of SMs;
# a single scale, for the speed of the kernel, was fitted.

# %%
throughput(
    {"fixed_tile": on_108.curve("fixed_tile")}, f"A tile that never changes<br><sub>{on_108.label}</sub>",
    predicted=on_108.scaled(), cliffs=[drop.N for drop in waves.cliffs(108)],
)

# %% jupyter={"source_hidden": true}
import pandas as pd


def side_by_side(study):
    """Predicted and measured drops at every cliff, predicted or measured."""
    rows = cliff.table(study)
    frame = pd.DataFrame(rows).set_index("N")[["predicted", "fixed_tile"]]
    return frame.rename(columns={"fixed_tile": f"measured on {study.sms} SMs"}).style.format("{:.1%}")


side_by_side(on_108)

# %% [markdown]
# The same kernel on all 132 SMs (on your GPU, if there is one here):

# %%
on_all = cliff.study()
throughput(
    {"fixed_tile": on_all.curve("fixed_tile")}, f"A tile that never changes<br><sub>{on_all.label}</sub>",
    predicted=on_all.scaled(), cliffs=[drop.N for drop in waves.cliffs(on_all.sms)],
)

# %%
side_by_side(on_all)

# %% solved_only=true
for study, expected in ((on_108, [1800, 2568, 3080, 3592, 4104]), (cliff.find_recorded(), [2056, 2824, 3592, 4104])):
    assert [drop.N for drop in waves.cliffs(study.sms)] == expected
    assert [fall.N for fall in study.cliffs("fixed_tile")] == expected  # none missed, none invented
    for drop in waves.cliffs(study.sms):
        assert abs(study.fall("fixed_tile", drop.N).drop - drop.drop) < 0.03

# %% [markdown]
# ### Explain
#
# At N = 1800 the kernel falls off a cliff on 108 SMs, and on 132 it does not. Why?

# %% [markdown] explain="gemm/cliff/waves" points=2
# ### BEGIN SOLUTION
# Both take 120 tiles. 132 SMs run them all in one wave, as they did the 98 tiles of 1792, and only SMs that
# had nothing to do before get work. With 108 SMs, 12 tiles are left for a second wave, which takes as long
# as the first while 96 SMs wait.
# ### END SOLUTION

# %% [markdown]
# Which other GPU would you like to know? Put in its number of SMs.

# %%
for drop in waves.cliffs(84):
    w = waves.waves(drop.N, 84)
    print(f"N = {drop.N}: {w.tiles} tiles, {w.waves} waves, {w.tail} in the last; {drop.drop:.0%} lost")

# %% [markdown]
# ## Taking a cliff apart
#
# At a cliff, two things are lost at once. More tiles hang over the edge, and work on what lies outside of
# $C$ is for nothing: **tile quantization**. And the tiles that are left over need a wave of their own:
# **wave quantization**. How much is which? Imagine that the work of all tiles could be divided evenly
# over the SMs, so that all end at the same time. What remains is the tiles' part.

# %% question="gemm/cliff/even_1800" points=2
lk.answer("gemm/cliff/even_1800", 1 - (1800 / 1792) ** 2 * 98 / 120)

# %% [markdown]
# A finer tile hangs over less:

# %% question="gemm/cliff/fine_1800" points=2
lk.answer("gemm/cliff/fine_1800", 1 - (1800 / 1792) ** 2 * 28**2 / 29**2)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Now the time is proportional to the number of tiles, times N.
#
# <details><summary>Hint 2</summary>
#
# Work over time: the ratio of the squares of N, times the inverse ratio of the numbers of tiles.
#
# </details></details>

# %%
predicted = waves.cliffs(108)
decomposition(
    predicted, {"fixed_tile": [on_108.fall("fixed_tile", drop.N).drop for drop in predicted]},
    f"What the cliffs consist of<br><sub>bars: modeled; dots: {on_108.label}</sub>",
)

# %% [markdown]
# The cliffs get smaller with N: one more wave matters less after four than after one, and a rim of
# overhanging tiles matters less around a large matrix.
#
# ### And the library?

# %%
throughput(
    {name: on_108.curve(name) for name in ("torch bf16", "torch fp16")},
    f"torch.mm, multiples of 8<br><sub>{on_108.label}</sub>", cliffs=[drop.N for drop in predicted],
)

# %%
for drop in predicted:
    bf16 = on_108.fall("torch bf16", drop.N).drop
    print(f"N = {drop.N}: {drop.drop:5.1%} predicted for a fixed 256 x 128 tile, {bf16:5.1%} measured with torch bf16")

# %% [markdown]
# Some cliffs are there, at the very same sizes; there the library uses a tile like ours. Others are
# milder, because it has kernels with other tiles to go to, and there are new ones where it changes from
# one kernel to another. That is why the experiment needed a kernel of our own.

# %% solved_only=true
assert on_108.fall("torch bf16", 1800).drop > 0.25 and on_108.fall("torch bf16", 2568).drop > 0.25
assert any(on_108.fall("torch bf16", drop.N).drop < drop.drop / 2 for drop in predicted)
others = {fall.N for fall in on_108.cliffs("torch bf16")} - {drop.N for drop in predicted}
assert others

# %% [markdown]
# ## The cure: divide the work, not the tiles
#
# The trouble is that a tile is too large a portion: 12 of them cannot be shared by 108 SMs. But a tile is
# a long sum, K/8 **steps** of 8 each, and a sum can be cut. Put the steps of all tiles in one row:
#
# ```
# tile 0                 tile 1                 tile 2                 tile 3
# |--.--.--.--.--.--.--| |--.--.--.--.--.--.--| |--.--.--.--.--.--.--| |--.--.--.--.--.--.--|
# |  block 0       |  block 1           |  block 2          |  block 3         |  block 4    |
# ```
#
# and cut the row into as many equal shares as blocks can run at once. This is called **stream-K**. Every
# block ends at the same time, whatever N is. The price: where a share ends amid a tile, somebody has
# to put the parts together. A block whose share ends amid a tile leaves its sums in memory and says
# so; the block that does the last step of the tile adds them to its own, and writes $C$.
#
# A block must never wait for one that has not started, or both may wait for ever. Blocks start in the
# order of their numbers, so waiting for lower numbers is safe. To wait little, a block goes through
# its share **from the end to the beginning**: then its unfinished tile, for which others wait, comes
# first.
#
# ### Write
#
# In the kernel below, what is hard on the eyes is there: computing a part of a tile (`accumulate`), leaving
# it (`leave`), adding another's (`add`), writing the tile (`write`). Write who does what. The tile here is
# 64 x 64, for the reason that you have just computed.

# %% [markdown]
# <details><summary>Hint 1: shares</summary>
#
# With `total` steps and `gridDim.x` blocks, let block b begin at step b * total / gridDim.x, and end where
# the next begins. The product is large: compute it in 64 bits.
#
# <details><summary>Hint 2: the loop</summary>
#
# While something of the share is left: which tile does its last step belong to? The part to do now begins
# where the tile begins, or where the share begins, whichever is later. After it, the share ends there.
#
# <details><summary>Hint 3: three cases</summary>
#
# ```
# the part does not reach the end of its tile:  leave it
# it is the whole tile:                         write it
# it is the end of a tile, others have begun it:
#     b = the block before this one
#     until the tile's beginning is reached:
#         if block b has any steps: add what it left
#         go on from where its share begins, with the block before it
#     write it
# ```
#
# With few steps, some blocks have none, and leave nothing to wait for.
#
# </details></details></details>

# %% kernel="gemm/stream_k" language="cuda"

# %% check="gemm/stream_k" language="cuda" points=6
gemm["stream_k", "cuda"].check()

# %% [markdown]
# Those were small products for more than a thousand blocks: most had a step, or none. The same kernel
# compiled for a GPU with a single SM has 8 blocks, whose shares are longer than a tile:

# %%
from labkit.check import check

few_blocks = cliff.load_kernel(gemm["stream_k", "cuda"].path, sms=1)
shapes = [dict(M=130, N=140, K=40), dict(M=320, N=200, K=9), dict(M=65, N=65, K=203)]
few = check(gemm.problem, few_blocks, "stream_k on one SM", shapes=shapes)
few

# %% solved_only=true
assert few.passed

# %% [markdown]
# ### Measured
#
# Ours, beside the kernel with the fixed tile, on 108 SMs:

# %%
throughput(
    {name: on_108.curve(name) for name in ("fixed_tile", "stream_k")},
    f"float32<br><sub>{on_108.label}</sub>", cliffs=[drop.N for drop in predicted],
)

# %%
for study in (on_108, on_all):
    print(study.label)
    for drop in waves.cliffs(study.sms):
        fixed, stream = (study.fall(name, drop.N).drop for name in ("fixed_tile", "stream_k"))
        print(f"  N = {drop.N}: fixed_tile loses {fixed:5.1%}, stream_k {stream:5.1%}")

# %% solved_only=true
for study in (on_108, cliff.find_recorded()):
    assert study.cliffs("stream_k") == []
    for drop in waves.cliffs(study.sms):
        assert study.fall("stream_k", drop.N).drop < 0.1
        assert study.tflops("stream_k", drop.N) > study.tflops("fixed_tile", drop.N)
    assert max(study.curve("stream_k")[1]) < max(study.curve("fixed_tile")[1])

# %% [markdown]
# ### Explain
#
# Just before a cliff the fixed tile is the faster kernel, after it the slower one. What does stream_k pay for
# having no cliffs?

# %% [markdown] explain="gemm/cliff/cure" points=2
# ### BEGIN SOLUTION
# Its tile is smaller, so each number that comes from memory is used less often: 64 x 64 instead of 256 x 128.
# And nearly every tile is cut somewhere, so partial sums go to memory and back, and a block may have to wait
# for another's. Just before a cliff the fixed tile has next to no waste that could be won back.
# ### END SOLUTION

# %% [markdown]
# ## It also depends on the numbers
#
# One more effect, which has nothing to do with N. A product of zeros does the same operations as one of
# random numbers, but fewer transistors switch, and that takes less power. Where a GPU is held back by its
# power limit, it can then run at a higher clock. So a benchmark on zeros may flatter, and one times on
# random data. Is there a difference here? Look at the spread of the samples, not only at the medians.

# %%
for study in (cliff.find_recorded(), on_108):
    print(f"torch.mm in bf16, 8192 x 8192, back to back; {study.label}")
    for name, times in study.power.items():
        low, middle, high = (2 * 8192**3 / pick(times) / 1e6 for pick in (max, statistics.median, min))
        print(f"  {name:6}: median {middle:.0f} TFLOP/s, from {low:.0f} to {high:.0f}")

# %% [markdown]
# ## Your page
#
# What happened at N = 1793, on 108 SMs, step by step:

# %%
story = {
    "1792": on_108.tflops("torch bf16", 1792),
    "1800: another wave": on_108.tflops("torch bf16", 1800),
    "1793: and no alignment": on_108.tflops("torch bf16", 1793),
}
bars(story, f"The cliff from 1792 to 1793, taken apart (bf16)<br><sub>{on_108.label}</sub>", unit="TFLOP/s")

# %% solved_only=true
assert story["1792"] > 1.4 * story["1800: another wave"] > 4 * story["1793: and no alignment"]
