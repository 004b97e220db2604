# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Divergence and precision
#
# Two lessons. The first: a warp has 32 lanes and **one** instruction at a time. When lanes disagree about what comes
# next, some of them wait. The second: a number takes as many bytes as you give it, and where memory is the bottleneck,
# half the bytes is twice the speed, if you know where not to save.
#
# The rungs go as always: **predict**, **write**, **check**, **profile**, **explain**. You need no GPU, and nothing
# needs the parts that are called optional.

# %%
import numpy as np
from numba import cuda

import labkit as lk

# %% [markdown]
# ## The branch of the lecture
#
# Stanford's CS336 explains divergence with a branch on the thread's number: some threads do `A; B`, the
# others `X; Y; Z`. Here it is, with a line of work for each letter:

# %%
@cuda.jit
def lecture(out, x):
    i = cuda.threadIdx.x
    if i < 16:
        out[i, 0] = x[i] + 1  # A
        out[i, 1] = x[i] + 2  # B
    else:
        out[i, 2] = x[i] + 3  # X
        out[i, 3] = x[i] + 4  # Y
        out[i, 4] = x[i] + 5  # Z


# %% [markdown]
# All 32 threads of this block are one warp. Count each letter as one instruction.

# %% [markdown]
# <details><summary>Hint 1: who decides?</summary>
#
# A warp has one place in the program at a time. It cannot do `A` and `X` together.
#
# <details><summary>Hint 2: then what?</summary>
#
# It does one side with the lanes of that side, and the other lanes are switched off. Then the other
# side, the other way round.
#
# </details></details>

# %% question="divergence/lecture/passes" points=1
lk.answer("divergence/lecture/passes", 5)

# %% [markdown]
# Look at it. Each column is an instruction of the real compiled code, each row a lane; gray lanes are
# switched off.

# %%
x = np.arange(32, dtype=np.float32)
p_lecture = lk.emulate(lecture, 1, 32, (np.zeros((32, 5), np.float32), x))
lk.plots.divergence(p_lecture)

# %% [markdown]
# The profiler has one number for this, which you have met with the kernel of one thread: active lanes per instruction,
# 32 when every instruction runs in all lanes.

# %%
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
print(f"{p_lecture[LANES]:.1f} of 32 lanes active per instruction ({p_lecture.origin})")

# %% [markdown]
# ### Optional: step by step
#
# With the arrow keys (or `.next()` and `.back()`) you walk through the warp; the row of dots says which lanes take
# part.

# %%
steps = lk.step(lecture, 1, 32, (np.zeros((32, 5), np.float32), x))
steps

# %% solved_only=true
masks = {moment.mask for moment in steps}
assert 0x0000FFFF in masks and 0xFFFF0000 in masks

# %% [markdown]
# ### A branch that costs nothing
#
# It is not the word `if` that costs. It is lanes of **one warp** that disagree. Here are two warps, and
# the branch asks for the number of the warp:

# %%
@cuda.jit
def by_warp(out, x):
    i = cuda.threadIdx.x
    if i // 32 == 0:
        out[i, 0] = x[i] + 1  # A
        out[i, 1] = x[i] + 2  # B
    else:
        out[i, 2] = x[i] + 3  # X
        out[i, 3] = x[i] + 4  # Y
        out[i, 4] = x[i] + 5  # Z


p_by_warp = lk.emulate(by_warp, 1, 64, (np.zeros((64, 5), np.float32), np.arange(64, dtype=np.float32)))
lk.plots.timeline(p_by_warp)

# %%
print(f"{p_by_warp[LANES]:.1f} of 32 lanes active per instruction ({p_by_warp.origin})")

# %% solved_only=true
assert p_by_warp[LANES] == 32 > p_lecture[LANES]

# %% [markdown]
# Both sides were executed, by different warps, and no lane waited. Warps do not wait for each other:
# each has its own place in the program. So the art is to give the lanes of a warp the same thing to do.

# %% [markdown]
# ## A problem with unequal work
#
# Real data is less tidy than a thread number. Each of the $N$ items below is a population, simulated for
# its own number of rounds. Kind 0 grows, `z += z / 1024`; kind 1 crowds itself out, `z -= z * z / 1024`.
# Kinds and lengths are shuffled, as they come.

# %%
divergence = lk.problem("divergence")
divergence

# %%
inputs = divergence.make_inputs({"N": 1024})
print("kind  ", *(f"{kind:3}" for kind in inputs["kind"][:16].tolist()), "...")
print("rounds", *(f"{rounds:3}" for rounds in inputs["rounds"][:16].tolist()), "...")

# %% [markdown]
# ### Rung 1: branch
#
# One thread per item, and the branch as you would write it on a CPU.

# %% kernel="divergence/branch" given=true

# %% check="divergence/branch"
branch = divergence["branch"]
branch.check()

# %% [markdown]
# ### Predict
#
# Forget the kinds for a moment, and think of a warp whose 32 lanes run one common loop of 1, 1, 2, 3, 5,
# ... 241 rounds: lane k has `1 + k * k // 4` of them. A lane that has finished is switched off. What
# fraction of the lanes is active in a round, on average? (`sum(...)` over a `range` is fine as an answer.)

# %% [markdown]
# <details><summary>Hint 1: how long?</summary>
#
# The warp goes round as often as its longest lane needs.
#
# <details><summary>Hint 2: useful</summary>
#
# Useful are the rounds of all lanes together. Possible were 32 in every round of the warp.
#
# </details></details>

# %% question="divergence/branch/loop_efficiency" points=2
predicted_efficiency = lk.answer(
    "divergence/branch/loop_efficiency", sum(1 + k * k // 4 for k in range(32)) / (32 * 241)
)
predicted_efficiency

# %% [markdown]
# And the branch comes on top: each side has a loop of its own.

# %%
shape = dict(N=1024)
p_branch = branch.profile(**shape)
lk.plots.divergence(p_branch)

# %%
print(f"{p_branch[LANES]:.1f} of 32 lanes active per instruction ({p_branch.origin})")

# %% [markdown]
# ### Explain
#
# Two things in the picture keep lanes idle. Which two, and which lines of the kernel are they?

# %% [markdown] explain="divergence/branch" points=2
# ### BEGIN SOLUTION
# First the two sides of the branch: the loop of kind 0 runs with the lanes of kind 1 switched off, and
# the other way round. Second the loops' lengths: within a side, lanes drop out as they finish, and the
# last lane runs alone. The lines are `if kind[i] == 0` and the two `for ... in range(rounds[i])`.
# ### END SOLUTION

# %% [markdown]
# ## Rung 2: select
#
# The two formulas are one, if you let their coefficients differ:
# $z + z\,(p + q z)$ with $p = 1/1024,\ q = 0$ for kind 0 and $p = 0,\ q = -1/1024$ for kind 1. A lane
# **selects** its coefficients once, before the loop. To select between two values takes an instruction,
# not a branch; compilers do the same with short branches by themselves.

# %% [markdown]
# <details><summary>Hint 1: the loop</summary>
#
# There is one loop of `rounds[i]` rounds, for both kinds. Its body is `z += z * (p + q * z)`.
#
# <details><summary>Hint 2: selecting</summary>
#
# `a if condition else b` in Python, `condition ? a : b` in C. Mind the type of the zeros:
# `float32(0)`.
#
# </details></details>

# %% kernel="divergence/select"

# %% check="divergence/select" points=3
select = divergence["select"]
select.check()

# %%
p_select = select.profile(**shape)
p_select.diff(p_branch)

# %%
lk.plots.divergence(p_select)

# %%
print(f"{p_branch[LANES] / 32:.0%} of the lanes active in branch, {p_select[LANES] / 32:.0%} in select")

# %% [markdown]
# Close to what you predicted for loops alone: the branch is gone, the lengths are left. Note the
# price: a round is now two multiply-adds for everybody, where kind 0 needed one.

# %% solved_only=true
assert p_branch[LANES] < 0.6 * p_select[LANES]
assert abs(p_select[LANES] / 32 - predicted_efficiency.value) < 0.08

# %% [markdown]
# ## Rung 3: sorted
#
# What keeps a lane waiting is a neighbor with more to do. So choose the neighbors. A block takes 1024
# items, **sorts** them by length, and gives each warp 32 neighbors of the sorted list. Who
# computes an item does not matter for its result, as long as it is stored in the item's place.
#
# ### Predict
#
# Say there are 32 items of each of the 32 lengths. Sorted, each warp's 32 lanes have one and the same
# length. How many times fewer rounds do the 32 warps execute, all together, than unsorted, when every
# warp has one item of each length?

# %% [markdown]
# <details><summary>Hint</summary>
#
# Unsorted: each of the 32 warps takes as long as its longest lane. Sorted: one warp takes 241 rounds,
# the next fewer, and so on down to 1.
#
# </details>

# %% question="divergence/sorted/rounds_ratio" points=2
predicted_ratio = lk.answer("divergence/sorted/rounds_ratio", 32 * 241 / sum(1 + k * k // 4 for k in range(32)))
predicted_ratio

# %% [markdown]
# ### Write
#
# Numbers of at most 255 are sorted without comparing any two: **count** how many items have each
# length, sum up the counts to see where each length **begins** in the sorted list, and **place** each
# item at the next free place of its length. Counting and summing are given. Yours are the placing, and
# the loop over the sorted list.
#
# `cuda.atomic.add(array, index, 1)` adds one, returns what was there before, and lets no other thread in
# between: two threads with equal lengths get different places.

# %% [markdown]
# <details><summary>Hint 1: placing</summary>
#
# The same loop over `j` as for counting. `start` holds the next free place of every length; take one
# with an atomic, and write the item's number, `first + j`, to that place of `order`.
#
# <details><summary>Hint 2: then</summary>
#
# A barrier, since others read what you placed. Then thread `t` works on places `t`, `t + THREADS`, ... of
# `order`: neighbors in the list go to neighboring lanes.
#
# <details><summary>Hint 3: the work</summary>
#
# With `i = order[place]`, the body is that of select, and the result goes to `y[i]`.
#
# </details></details></details>

# %% kernel="divergence/sorted"

# %% check="divergence/sorted" points=5
in_order = divergence["sorted"]
in_order.check()

# %%
p_sorted = in_order.profile(**shape)
p_sorted.diff(p_select)

# %%
lk.plots.divergence(p_sorted, warp=7)

# %% [markdown]
# And the block's eight warps, side by side. Long items and short ones are dealt out like cards: a warp
# takes the places `t`, `t + 256`, `t + 512` and `t + 768`, so that all have some of each.

# %%
lk.plots.timeline(p_sorted)

# %%
INSTRUCTIONS = "smsp__inst_executed.sum"
print(f"{p_sorted[LANES] / 32:.0%} of the lanes active, {p_select[LANES] / 32:.0%} in select")
print(f"{p_select[INSTRUCTIONS] / p_sorted[INSTRUCTIONS]:.2f} times fewer instructions of a warp")

# %% solved_only=true
assert p_sorted[LANES] > 0.9 * 32
assert 1.5 < p_select[INSTRUCTIONS] / p_sorted[INSTRUCTIONS] < predicted_ratio.value

# %% [markdown]
# ### What it costs
#
# Sorting is work, and the loads of `x` and `kind` now jump about in the block's 1024 items. Was it worth
# it? Times of our solutions on an H200, if you have no GPU here:

# %%
times = [rung.time() for rung in divergence]
for timing in times:
    faster = times[0].median_ms / timing.median_ms
    print(f"{timing.label:30} {timing.median_ms:.3f} ms, {faster:.2f} times as fast as branch; {timing.origin}")

# %%
lk.plots.bars({timing.rung: timing.median_ms for timing in times},
              f"divergence at N = {times[0].shape['N']:,}, {times[0].origin} on {times[0].machine}", unit="ms")

# %% solved_only=true
assert times[0].median_ms > times[1].median_ms > times[2].median_ms

# %% [markdown]
# ### Explain
#
# The sorted kernel does the same arithmetic on the same items as select. Where does its time come from?

# %% [markdown] explain="divergence/sorted" points=2
# ### BEGIN SOLUTION
# A warp's time is its longest lane's. Unsorted, nearly every warp has a lane of some 240 rounds, so all
# warps take that long; sorted, only few warps do, and the short items' warps are done early. The sort
# itself costs a fixed number of instructions per item, little against 82 rounds on average.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="divergence/select" language="cuda"

# %% check="divergence/select" language="cuda"
divergence["select", "cuda"].check()

# %% kernel="divergence/sorted" language="cuda"

# %% check="divergence/sorted" language="cuda"
divergence["sorted", "cuda"].check()

# %%
for rung in ("branch", "select", "sorted"):
    python, cpp = (divergence[rung, language].time(recorded=True) for language in ("numba", "cuda"))
    print(f"{rung:7} numba {python.median_ms:.3f} ms, CUDA C++ {cpp.median_ms:.3f} ms; {cpp.origin} on {cpp.machine}")

# %% [markdown]
# Same ladder, faster rungs. Both compilers unroll the loops, four rounds between two jumps, but numba's `range` spends
# three instructions per round on counting (compare, select, add) besides, and C++ nearly none. So the step from branch
# to select is small there: with so little around it, the second multiply-add that select needs in every round costs
# nearly what the branch did.

# %% solved_only=true
ms = {(rung.step.name, language): divergence[rung.step.name, language].time(recorded=True).median_ms
      for rung in divergence for language in ("numba", "cuda")}
assert ms["branch", "numba"] / ms["select", "numba"] > 1.4 > 1.2 > ms["branch", "cuda"] / ms["select", "cuda"] > 1
assert ms["select", "cuda"] / ms["sorted", "cuda"] > 1.5

# %% [markdown]
# ## Half the bytes
#
# Now to precision. CS336 takes ReLU, $y = \max(0, x)$: one comparison per number, and the number has to
# come from memory and go back. How many bytes is that per operation? (In `float16` it is half of that.)

# %% question="precision/fp32/bytes_per_operation" points=1
lk.answer("precision/fp32/bytes_per_operation", 8)

# %%
precision = lk.problem("precision")
precision

# %% kernel="precision/fp32" given=true

# %% check="precision/fp32"
fp32 = precision["fp32"]
fp32.check()

# %% [markdown]
# ### Predict
#
# The same kernel on `float16` numbers, one per thread. A warp still loads 32 neighbors. How many
# sectors of 32 bytes does a request touch?

# %% question="precision/fp16/sectors_per_request" points=1
lk.answer("precision/fp16/sectors_per_request", 2)

# %% [markdown]
# ### Write
#
# numba holds `float16` in arrays. In a register, make it a `float32(...)` and compare as before; storing it to `y`
# rounds it back, here without any loss. What counts is that memory carries 2 bytes.

# %% kernel="precision/fp16"

# %% check="precision/fp16" points=2
fp16 = precision["fp16"]
fp16.check()

# %%
PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"

p_fp32, p_fp16 = fp32.profile(N=8192), fp16.profile(N=8192)
p_fp16.diff(p_fp32)

# %%
lk.plots.access_map(p_fp16, "x")

# %% solved_only=true
assert (p_fp32[PER_REQUEST], p_fp16[PER_REQUEST]) == (4, 2)
assert p_fp32[REQUESTS] == p_fp16[REQUESTS] and p_fp32[SECTORS] == 2 * p_fp16[SECTORS]

# %% [markdown]
# Half the sectors, with **as many requests** as before, and no fewer instructions. If it is these that take the time,
# little is won.
#
# ### Two at a time: half2
#
# Registers are 32 bits wide, and two `float16` fit in one. The GPU has instructions that work on both
# halves at once; in CUDA C++ the pair is called `half2`, and `__hmax2` takes the larger one in each half.
# numba has no such type, so this rung, which is given, exists in CUDA C++ only. `*(const half2 *)(x + i)` reads two
# neighbors in one access of 4 bytes.

# %% kernel="precision/half2" language="cuda" given=true

# %% check="precision/half2" language="cuda"
precision["half2", "cuda"].check()

# %% [markdown]
# With 16 bytes per lane, the widest access there is, a lane gets eight `float16`. How many load requests will be left?

# %% kernel="precision/half8" language="cuda" given=true

# %% check="precision/half8" language="cuda"
precision["half8", "cuda"].check()

# %%
import pandas as pd

rungs = {"fp32": fp32, "fp16": fp16, "half2": precision["half2", "cuda"], "half8": precision["half8", "cuda"]}
p_precision = {name: rung.profile(N=8192) for name, rung in rungs.items()}
pd.DataFrame(
    {
        "load requests": int(p[REQUESTS]),
        "sectors per request": p[PER_REQUEST],
        "bytes loaded": int(32 * p[SECTORS]),
        "instructions of a warp": int(p[INSTRUCTIONS]),
    }
    for p in p_precision.values()
).set_axis(list(rungs))

# %% solved_only=true
assert [p_precision[n][REQUESTS] for n in ("fp32", "fp16", "half2", "half8")] == [256, 256, 128, 32]

# %% [markdown]
# ### On the H200
#
# Numbers per second, not bytes per second, are what ReLU is for.

# %%
times = {name: rung.time() for name, rung in rungs.items()}
pd.DataFrame(
    {
        "median ms": t.median_ms,
        "numbers per second": f"{t.shape['N'] / t.median_ms / 1e6:.0f} billion",
        "GB/s": t.gbps,
        "of the copy ceiling": t.bound.ms / t.median_ms,
        "of PyTorch's speed": t.ratio,
    }
    for t in times.values()
).set_axis(list(times)).style.format({"median ms": "{:.4f}", "GB/s": "{:,.0f}", "of the copy ceiling": "{:.0%}",
                                      "of PyTorch's speed": "{:.0%}"})

# %%
t = times["fp32"]
print(f"N = {t.shape['N']:,}, {t.origin} on {t.machine}, {t.date}")

# %% solved_only=true
assert 1.05 < times["fp32"].median_ms / times["fp16"].median_ms < 1.25
assert 1.9 < times["fp32"].median_ms / times["half2"].median_ms < 2.1
assert times["half8"].bound.ms / times["half8"].median_ms > 0.95 and times["half8"].ratio > 1
assert times["fp32"].bound.ms / times["fp32"].median_ms < 0.7

# %% [markdown]
# ### Explain
#
# Which step brought how much, fp32 to fp16, fp16 to half2, half2 to half8? And why did the first one not
# bring the whole factor of 2?

# %% [markdown] explain="precision/half8" points=2
# ### BEGIN SOLUTION
# fp16 alone brought an eighth: it has as many threads, instructions and requests as fp32, each for half the bytes, and
# these take the time, since neither kernel is at the ceiling of memory. half2 has requests as large as those of fp32,
# and half as many: half the time. half8 has requests large enough to keep memory busy, and comes to its ceiling.
# ### END SOLUTION

# %% [markdown]
# ## Where not to save
#
# Half the bytes in memory is a gift. Half the bytes in a **running sum** is a trap. A `float16` has 11 bits of
# mantissa: it holds the small whole numbers, and beyond some point only every second one. Add 1, again and again:
# where does the sum stop?

# %% [markdown]
# <details><summary>Hint</summary>
#
# After each addition the result is rounded to the nearest `float16`. When is `sum + 1` rounded back to
# `sum`? A tie goes to the neighbor whose last bit is 0.
#
# </details>

# %% question="accumulator/stagnates_at" points=1
lk.answer("accumulator/stagnates_at", 2048)

# %%
ones = np.ones(4096, np.float16)
in_half = np.add.accumulate(ones, dtype=np.float16)  # rounded after each addition
print(*(f"after {n}: {in_half[n - 1]:.0f}" for n in (2047, 2048, 2049, 4096)), sep="\n")

# %% solved_only=true
assert in_half[-1] == 2048

# %% [markdown]
# With numbers between 0 and 1 it is no better. The sum of 8192 of them, in both precisions:

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

numbers = np.random.default_rng(0).random(8192).astype(np.float16)
sums = {
    "float32 sum": np.add.accumulate(numbers, dtype=np.float32),
    "float16 sum": np.add.accumulate(numbers, dtype=np.float16).astype(np.float32),
}
go.Figure(
    [go.Scatter(x=np.arange(1, 8193)[::16], y=y[::16], name=name) for name, y in sums.items()]
).update_layout(
    title="The same float16 numbers, added up in two precisions", template="plotly_white", height=380,
    xaxis_title="numbers added", yaxis_title="sum",
)

# %% solved_only=true
assert sums["float16 sum"][-1] < 0.6 * sums["float32 sum"][-1]

# %% [markdown]
# So the rule of mixed precision, from the lecture and from every tensor core: **numbers in 16 bits, sums in
# 32.** What travels through memory is small; the accumulator sits in a register, where it costs
# nothing to be wide.

# %%
accumulator = lk.problem("accumulator")
accumulator

# %% [markdown]
# ### Write
#
# A warp per row. Each lane adds up every 32nd number of the row; the last lines, given, add the 32 lanes'
# sums together (how, is the lesson of a later notebook). Yours is the loop.

# %% [markdown]
# <details><summary>Hint</summary>
#
# `k` runs from `lane` to `K` in steps of 32, so that neighboring lanes read neighboring numbers. Turn
# each number into a `float32(...)` before you add it to `total`.
#
# </details>

# %% kernel="accumulator/scalar"

# %% check="accumulator/scalar" points=3
scalar = accumulator["scalar"]
scalar.check()

# %% [markdown]
# ### Optional: break it
#
# Round the sum to `float16` after each addition, and leave all else as it is. Does the check notice?

# %%
import tempfile
from pathlib import Path

careless = Path(tempfile.mkdtemp(), "scalar.py")
careless.write_text(
    scalar.source.replace("float32(x[r, k])", "float32(x[r, k])\n            total = float32(float16(total))")
    .replace("from numba", "from numba.cuda.types import float16\nfrom numba", 1)
)
half_sums = scalar.load(careless).check()
half_sums

# %% solved_only=true
assert not half_sums.passed and half_sums.failures[0].kind == "value"

# %% [markdown]
# Look at the numbers: how large is the error, and how much was allowed? The allowance is no guess. It is twice the
# error that PyTorch makes itself with float32 sums, and a little for adding in another order.

# %% [markdown]
# ### Optional: eight at a time, in CUDA C++
#
# As with ReLU, one `float16` per lane and load is a narrow load. `wide` reads eight, turns each into a
# `float32`, and adds. It has to mind that rows of odd length begin anywhere, and a 16-byte load only at
# multiples of 16 bytes.

# %% kernel="accumulator/wide" language="cuda" given=true

# %% check="accumulator/wide" language="cuda"
accumulator["wide", "cuda"].check()

# %%
sums_timed = [accumulator[rung, "cuda"].time(recorded=True) for rung in ("scalar", "wide")]
for timing in sums_timed:
    print(f"{timing.label}: {timing.median_ms:.3f} ms, {timing.bound.ms / timing.median_ms:.0%} of the read ceiling, "
          f"{timing.ratio:.2f} times as fast as PyTorch; {timing.origin} on {timing.machine}")

# %% solved_only=true
assert sums_timed[0].median_ms > sums_timed[1].median_ms

# %% [markdown]
# The sums are as exact as before, in float32, and the speed is that of the bytes.
#
# ### Explain
#
# A colleague stores her model in float16, to halve the memory traffic, and makes the accumulators
# float16 too, "to be consistent". What does she gain, what does she lose?

# %% [markdown] explain="accumulator/scalar" points=2
# ### BEGIN SOLUTION
# The traffic is halved by the float16 numbers in memory; accumulators live in registers and cause none,
# so making them narrow gains nothing there. She loses the sums: each addition is rounded to 11 bits, and
# once the sum is some 2000 times as large as what is added, it stops growing.
# ### END SOLUTION

# %% [markdown]
# ## Your page

# %% jupyter={"source_hidden": true}
profiles = {"branch": p_branch, "select": p_select, "sorted": p_sorted}
pd.DataFrame(
    {
        "active lanes per instruction": p[LANES],
        "of 32": f"{p[LANES] / 32:.0%}",
        "instructions of a warp": int(p[INSTRUCTIONS]),
        "origin": p.origin,
    }
    for p in profiles.values()
).set_axis(list(profiles)).style.format(precision=1, thousands=",")

# %% [markdown]
# Three things to keep: lanes of a warp should have the same to do, and if they do not, deal the work out
# differently. A narrow number is a fast number where memory is the bottleneck, if the accesses stay wide. And
# an accumulator is never narrow.
#
# Next: [Fusion and recomputation](04_fusion_and_recompute.ipynb).
