# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reductions, softmax and RMSNorm
#
# Many numbers become one: a sum, a maximum, a norm. On a GPU, thousands of threads have to *meet* for that: in shared
# memory, in registers, across blocks. You climb three ladders:
#
# * **reduce**, the sum of a vector: the textbook ladder, each rung curing what the one before suffered from;
# * **softmax**, where two reductions of a row follow each other, and one pass over it can be saved;
# * **RMSNorm**, in every block of Llama: two kernels of llama.cpp, which you make one.
#
# All three do next to no arithmetic (a sum: a quarter of a FLOP per byte), so the most that they can reach is what
# memory delivers. Without a GPU, times are *recorded* ones, of an NVIDIA H200.
#
# You need barriers from [Memory](02_memory.ipynb), and divergence from
# [Divergence and precision](03_divergence_and_precision.ipynb). Nothing needs the parts that are called optional.

# %%
import numpy as np

import labkit as lk

reduce = lk.problem("reduce")
reduce

# %% [markdown]
# ## The sum of a vector
#
# Floating-point addition is not associative, so the *order* of the additions counts. Parallel threads add as a tree,
# which loses less than adding one by one. Every rung keeps to its order, so that a vector gives the same bits in every
# run.

# %% [markdown]
# ### Optional: three orders, three sums

# %%
numbers = np.random.default_rng(0).normal(size=65536).astype(np.float32)
one_by_one = np.float32(0)
for number in numbers:
    one_by_one += number
backwards = np.float32(0)
for number in numbers[::-1]:
    backwards += number
tree = numbers.copy()
while len(tree) > 1:
    tree = tree[0::2] + tree[1::2]
exact = numbers.sum(dtype=np.float64)
for name, value in {"one by one": one_by_one, "backwards": backwards, "as a tree": tree[0]}.items():
    print(f"{name:12} {value:.6f}   error {abs(value - exact):.1e}")

# %% solved_only=true
assert len({float(one_by_one), float(backwards), float(tree[0])}) == 3
assert abs(tree[0] - exact) < abs(one_by_one - exact)

# %% [markdown]
# ## Rung 1: interleaved
#
# A block takes 256 numbers to shared memory, one per thread, and adds them in 8 steps. The kernel, which is given, is
# launched again on the sums of the blocks until one is left.
#
# ```
# threads      0   1   2   3   4   5   6   7
#              x0  x1  x2  x3  x4  x5  x6  x7
#              | _/    | _/    | _/    | _/       s = 1: threads 0, 2, 4, 6
#              .   x   .   x   .   x   .   x
#              | _____/        | _____/           s = 2: threads 0, 4
#              .               .
#              | _____________/                   s = 4: thread 0
#              .
# ```

# %% kernel="reduce/interleaved" given=true

# %% check="reduce/interleaved"
interleaved = reduce["interleaved"]
interleaved.check()

# %% [markdown]
# ### Predict
#
# Where some lanes of a warp take a branch and others do not, the warp **diverges**: it goes through the branch with
# the others switched off. How often does that happen here?

# %% [markdown]
# <details><summary>Hint 1: the first step</summary>
#
# For `s = 1` every second lane adds. In which of the 8 warps is that so?
#
# <details><summary>Hint 2: until when?</summary>
#
# As long as `2 * s` is at most 32, each warp has at least one lane that adds, and some that do not. Which
# steps are these?
#
# <details><summary>Hint 3: the last three</summary>
#
# For `s = 32` threads 0, 64, 128 and 192 add. How many warps have one of them? A warp in which nobody adds
# does not diverge. Then `s = 64` and `s = 128`.
#
# </details></details></details>

# %% question="reduce/interleaved/divergent_branches" points=2
predicted_divergence = lk.answer("reduce/interleaved/divergent_branches", 5 * 8 + 4 + 2 + 1)
predicted_divergence

# %% [markdown]
# ### Profile
#
# One block is enough to count.

# %%
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
INSTRUCTIONS = "smsp__inst_executed.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"

from labkit.profiling.emulated import profile_emulated


def one_block(rung):
    """A profile of the emulator, with the pictures that it can draw, for one block's numbers."""
    return profile_emulated(**rung.launches(dict(N=256)))


p_interleaved = one_block(interleaved)
print(f"{p_interleaved[DIVERGENT]:.0f} divergent branches: yours, and one for `if t == 0` at the end")
print(f"{p_interleaved[LANES]:.1f} of 32 lanes active, on average over the instructions")

# %% solved_only=true
assert p_interleaved[DIVERGENT] == predicted_divergence.value + 1

# %% [markdown]
# Here is warp 0. A column is one instruction; a lane that is gray sits it out.

# %%
lk.plots.divergence(p_interleaved)

# %% [markdown]
# After the first step half of the threads are never needed again, but that does not spare half of the instructions: a
# warp executes one if a single of its lanes needs it, and up to `s = 16` every warp has such lanes.
#
# ### Optional: the same in CUDA C++

# %% kernel="reduce/interleaved" language="cuda" given=true

# %% check="reduce/interleaved" language="cuda"
reduce["interleaved", "cuda"].check()

# %% [markdown]
# ## Optional: rung 2, strided
#
# The additions are the right ones, only the wrong threads do them. Let the first 128 threads do those of the
# first step, the first 64 those of the second: whole warps work, whole warps rest. Thread `t` takes the
# `t`-th pair.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: whole warps</summary>
#
# 128 adding threads are warps 0 to 3, all of their lanes. Does any warp diverge?
#
# <details><summary>Hint 2: parts of a warp</summary>
#
# From which step on do fewer than 32 threads add? How many steps are left then, and in how many warps?
#
# <details><summary>Hint 3: banks</summary>
#
# Word `w` is in bank `w % 32`. The words 0, 4, 8 ... 124 are in the banks 0, 4, 8 ... 28, 0, 4 ... How many
# different words does one bank have to hand out, one per wavefront?
#
# </details></details></details>

# %% question="reduce/strided/divergent_branches"
predicted_strided = lk.answer("reduce/strided/divergent_branches", 5)
predicted_strided

# %% question="reduce/strided/conflicts_of_second_step"
lk.answer("reduce/strided/conflicts_of_second_step", 4)

# %% [markdown]
# ### Write

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# The loop over `s` and the barrier in it are those of interleaved. Only who adds, and what, changes.
#
# <details><summary>Hint 2: which pair?</summary>
#
# In the step `s`, pairs begin at 0, 2 s, 4 s ... The `t`-th begins at `2 * s * t`.
#
# <details><summary>Hint 3: who is left out?</summary>
#
# A thread whose pair would begin outside of the block has nothing to do. It must still come to the barrier.
#
# </details></details></details>

# %% kernel="reduce/strided"

# %% check="reduce/strided"
strided = reduce["strided"]
strided.check()

# %% [markdown]
# ### Profile

# %%
p_strided = one_block(strided)
p_strided.diff(p_interleaved)

# %% [markdown]
# Divergence is gone but for the last steps, and half of the instructions with it. But something has come: **bank
# conflicts**: a wavefront takes one word from each of the 32 banks. This is the read of `sums[j]` in the step `s = 4`,
# bank by bank:

# %%
from types import SimpleNamespace


def nth_read(p, n):
    """The `n`-th load of `sums` by warp 0, for access_map."""
    reads = [a for a in p.accesses if a.array == "sums" and a.op == "ld"]
    return SimpleNamespace(accesses=reads[n : n + 1], origin=p.origin)


lk.plots.access_map(nth_read(p_strided, 5), "sums")  # two loads per step; the second one reads sums[j]

# %% [markdown]
# Eight lanes in each of four banks: eight wavefronts for a read that could take one. Count them for the whole tree.
# (The read of `sums[j + s]` and the write have as many each.)

# %% [markdown]
# <details><summary>Hint 1: one step</summary>
#
# In the step `s` neighboring lanes are `2 * s` words apart, so 32 lanes meet `32 / (2 * s)` banks, if that
# is at least 1. Divide the lanes evenly among them; all but the first of a bank wait.
#
# <details><summary>Hint 2: how many warps?</summary>
#
# `s = 1`: 4 warps with 2 lanes in a bank. `s = 2`: 2 warps with 4. `s = 4`: 1 warp with 8.
#
# <details><summary>Hint 3: the last steps</summary>
#
# `s = 8`: 16 lanes, 16 words apart, in 2 banks. `s = 16`: 8 lanes in 1 bank. `s = 32`: 4 lanes in 1 bank.
#
# </details></details></details>

# %% question="reduce/strided/bank_conflicts"
predicted_conflicts = lk.answer("reduce/strided/bank_conflicts", 4 * 1 + 2 * 3 + 7 + 7 + 7 + 3 + 1)
predicted_conflicts

# %%
print(f"{p_strided[CONFLICTS]:.0f} bank conflicts of loads, {p_interleaved[CONFLICTS]:.0f} in interleaved")

# %% solved_only=true
assert p_strided[DIVERGENT] == predicted_strided.value + 1
assert p_strided[CONFLICTS] == 2 * predicted_conflicts.value and p_interleaved[CONFLICTS] == 0
assert p_strided[INSTRUCTIONS] < 0.6 * p_interleaved[INSTRUCTIONS]
third_step = nth_read(p_strided, 5).accesses[0].addresses
assert list(third_step[:3]) == [0, 32, 64]  # s = 4: 8 words apart

# %% [markdown]
# Interleaved had the same strides and no conflicts. Where had they gone? Its lanes were spread over all warps,
# so few of one warp asked at the same time. Nothing is free: what keeps a warp's lanes together makes them meet
# in the banks.
#
# ### The same in CUDA C++

# %% kernel="reduce/strided" language="cuda"

# %% check="reduce/strided" language="cuda"
reduce["strided", "cuda"].check()

# %% [markdown]
# ## Rung 3: sequential
#
# Let whole warps work and whole warps rest: the first `s` threads add. If each took the next pair of neighbors, their
# words would lie `2 * s` apart, in the same banks. So add the second half of the numbers to the first half, then the
# second quarter to the first, and so on: thread `t` adds `sums[t + s]` to `sums[t]`.
#
# ### Write

# %% [markdown]
# <details><summary>Hint 1: the steps</summary>
#
# `s` begins at half of the block and is halved after each step, down to 1.
#
# <details><summary>Hint 2: who adds?</summary>
#
# After a step, `s` numbers are left. So the first `s` threads add.
#
# </details></details>

# %% kernel="reduce/sequential"

# %% check="reduce/sequential" points=3
sequential = reduce["sequential"]
sequential.check()

# %% [markdown]
# ### Profile

# %%
p_sequential = one_block(sequential)
p_sequential.diff(p_interleaved)

# %% solved_only=true
assert p_sequential[CONFLICTS] == 0 and p_sequential[DIVERGENT] == p_strided[DIVERGENT]
assert p_sequential[SHARED] < 0.3 * p_strided[SHARED] and p_sequential[SHARED] < 0.3 * p_interleaved[SHARED]

# %% [markdown]
# No conflicts, and hardly any divergence. But here are the 8 warps of the block side by side, against the barriers:

# %%
lk.plots.timeline(p_sequential)

# %% [markdown]
# In the last five steps warps 1 to 7 only come to the barrier and wait: what is left to add belongs to warp 0. All wait
# for something that one warp could settle with itself.
#
# ### Optional: step through it
#
# Go through warp 0 with the arrows, or with `step.next()`, and watch `sums` from barrier to barrier. It opens at a
# moment of the step `s = 4`, on the numbers 0, 1, 2 ... 255:

# %%
import importlib.util


def kernel_of(rung, name):
    """The kernel in a rung's file, to launch it by hand."""
    spec = importlib.util.spec_from_file_location(name, rung.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


total = np.zeros(1, np.float32)
step = lk.step(kernel_of(sequential, "reduce_sequential"), 1, 256, [total, np.arange(256, dtype=np.float32)])
adding = [n for n, moment in enumerate(step) if len(moment.lanes) == 4 and moment.accesses]
step.goto(adding[0]) if adding else "sequential does not add in 4 lanes yet"

# %% solved_only=true
assert total[0] == 255 * 256 / 2 and adding
assert step.now.lanes == (0, 1, 2, 3)

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="reduce/sequential" language="cuda"

# %% check="reduce/sequential" language="cuda"
reduce["sequential", "cuda"].check()

# %% [markdown]
# ## Rung 4: shuffle
#
# Lanes of a warp can read each other's **registers**. In
#
# ```
# value += cuda.shfl_down_sync(0xFFFFFFFF, value, d)
# ```
#
# every lane gets the `value` of the lane `d` places further on. (The mask names the lanes that take part: all 32 must
# come to this line together.) For `d = 16, 8, 4, 2, 1` that is sequential's tree, without shared memory or barrier:
#
# ```
# lane      0    1   ...  15   16   17  ...  31
# d = 16   +16  +17      +31    .    .        .      lane n now holds n and n + 16
# d = 8    + 8  + 9  ...                             lane n holds n, n + 8, n + 16, n + 24
# ...
# d = 1    + 1                                       lane 0 holds the sum
# ```
#
# The dots go on adding too; what they compute is never used.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint</summary>
#
# Where does a thread read what a thread of *another* warp has written?
#
# </details>

# %% question="reduce/shuffle/barriers" points=1
predicted_barriers = lk.answer("reduce/shuffle/barriers", 1)
predicted_barriers

# %% [markdown]
# ### Write

# %% [markdown]
# <details><summary>Hint 1: a warp</summary>
#
# `warp_sum` is a loop over `d`, from 16 down to 1, with one line in it.
#
# <details><summary>Hint 2: eight warps</summary>
#
# Lane 0 of each warp has its sum, and writes it to `sums`, at the number of its warp, `t // 32`. Then all wait,
# and warp 0 takes the 8 sums into 8 of its lanes.
#
# <details><summary>Hint 3: the other lanes</summary>
#
# A shuffle wants all 32 lanes. So all of warp 0 calls `warp_sum`; lanes from 8 on bring a zero.
#
# </details></details></details>

# %% kernel="reduce/shuffle"

# %% check="reduce/shuffle" points=5
shuffle = reduce["shuffle"]
shuffle.check()

# %% [markdown]
# ### Profile

# %%
p_shuffle = one_block(shuffle)
p_shuffle.diff(p_sequential)

# %%
lk.plots.timeline(p_shuffle)

# %% solved_only=true
from labkit.emulator.steps import schedule

assert len(schedule(p_shuffle.steps)[1]) == predicted_barriers.value
assert len(schedule(p_sequential.steps)[1]) == 9
assert p_shuffle[SHARED] < p_sequential[SHARED] / 10

# %% [markdown]
# The instructions did *not* fall here: all 8 warps now add where some had rested. (On an H200, where a resting warp
# often goes through the instructions all the same, they fell, by about a fifth or more.) What has fallen is waiting.

# %% solved_only=true
for language in ("numba", "cuda"):
    on_gpu = [reduce[rung, language].recorded()[INSTRUCTIONS] for rung in ("sequential", "shuffle")]
    assert on_gpu[1] < 0.85 * on_gpu[0]

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="reduce/shuffle" language="cuda"

# %% check="reduce/shuffle" language="cuda"
reduce["shuffle", "cuda"].check()

# %% [markdown]
# ## Rung 5: vectorized
#
# Most additions need no other thread at all: let a thread first add what it meets on its own way through the vector, in
# a register. Then shuffles are needed once per thread, not once per number.
#
# And let it ask for more at a time. Where memory is nearly busy a load takes about 700 ns; by Little's law 4.5 TB/s x
# 700 ns must be in flight, 24 KB for each of 132 multiprocessors. 2048 threads with a number of 4 bytes each have a
# third of that, and nothing at all while they sum up; with 4 pieces of 16 bytes each they have 128 KB.
#
# ### Write
#
# `block_sum` is your shuffle. `lk.cuda.load4(x, i)` reads the four numbers `x[i]` to `x[i + 3]` at once, if `i` is
# a multiple of 4. The whole turns, up to `whole`, are yours; what is left, or not aligned, is added below.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# A block takes `EACH` = 4096 numbers per turn: 4 pieces of 4 numbers for each of 256 threads. Block `b` takes the
# turns `b`, `b + gridDim`, `b + 2 gridDim` ...
#
# <details><summary>Hint 2: a turn</summary>
#
# A turn begins at `i0`. Thread `t` takes the pieces at `i0 + 4 * t`, and three more, each `4 * BLOCK` further on: so
# the lanes of a warp read neighboring pieces. Load all four before you add anything.
#
# <details><summary>Hint 3: nearly the code</summary>
#
# ```
# for i from my first piece of my block's first turn, below whole, in steps of gridDim * EACH:
#     a, b, c, d = the pieces at i, i + 4 BLOCK, i + 8 BLOCK, i + 12 BLOCK
#     add their 16 numbers to value
# ```
#
# </details></details></details>

# %% kernel="reduce/vectorized"

# %% check="reduce/vectorized" points=5
vectorized = reduce["vectorized"]
vectorized.check()

# %% [markdown]
# ### Profile
#
# The rungs on 65536 numbers:

# %% jupyter={"source_hidden": true}
import pandas as pd

climbed = {"interleaved": interleaved, "sequential": sequential, "shuffle": shuffle, "vectorized": vectorized}
profiles = {name: profile_emulated(**rung.launches(dict(N=65536))) for name, rung in climbed.items()}
rows = {
    "instructions per warp of numbers": [p[INSTRUCTIONS] / (65536 / 32) for p in profiles.values()],
    "divergent branches": [p[DIVERGENT] for p in profiles.values()],
    "wavefronts of shared loads": [p[SHARED] for p in profiles.values()],
    "global load requests": [p[REQUESTS] for p in profiles.values()],
    "global load sectors": [p[LOADED] for p in profiles.values()],
}
pd.DataFrame(rows, index=list(profiles)).T.style.format("{:,.0f}").set_caption("65536 numbers, emulated")

# %% solved_only=true
assert profiles["vectorized"][INSTRUCTIONS] < profiles["shuffle"][INSTRUCTIONS] / 4
assert profiles["vectorized"][REQUESTS] < profiles["shuffle"][REQUESTS] / 3
assert profiles["vectorized"][LOADED] < 1.1 * 65536 * 4 / 32
needed = 4.5e12 * 700e-9 / 132
assert round(needed / 1000) == 24 and 0.3 < 2048 * 4 / needed < 0.4 and needed < 2048 * 4 * 16 == 2**17

from labkit.models.latency import curves

loaded = curves()  # Little's law, the other way round: how long a load takes at 16 and 32 KiB in flight
near_busy = {r.in_flight // loaded.sms: r.in_flight / r.rate for r in loaded.reads if r.width == 16 and r.each == 1}
assert 2**14 < needed < 2**15 and near_busy[2**14] < 700 < near_busy[2**15]

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="reduce/vectorized" language="cuda"

# %% check="reduce/vectorized" language="cuda"
reduce["vectorized", "cuda"].check()

# %% [markdown]
# ## Optional: rung 6, grid_wide
#
# One launch is left to save: the second one, which adds the sums of the blocks. (For a long vector that is hardly
# anything, as the times below say; for a short one it is half of the launches.) Blocks cannot wait for each other
# at a barrier, for they need not run at the same time. But the **last** block to finish could add the sums, if it
# knew that it is the last. So each block, when its sum is written, takes a ticket, `cuda.atomic.add(tickets, 0, 1)`,
# which adds 1 and returns what was there before. The block that gets the number `gridDim - 1` is the last.
#
# Two things must not go wrong:
#
# * The sum has to be seen by all *before* the ticket is. Memory gives no such promise by itself; a **fence**,
#   `cuda.threadfence()`, between the two writes does. And the last block puts one between its ticket and its reads.
# * One thread takes the ticket, but all threads of the block have to know: through shared memory, and a barrier.
#
# The first gap in the kernel is your loop of `vectorized`; the second one is new.
#
# ### Write

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# Thread 0: write, fence, ticket, leave in `last[0]` whether it is the last one. All: barrier. In the last block,
# all: fence, add up `partial` with strides of `BLOCK`, `block_sum`; thread 0 writes `y[0]`.
#
# <details><summary>Hint 2: the order</summary>
#
# The last block adds `partial[t]`, `partial[t + BLOCK]` ... in thread `t`, whichever block it is: so the order of
# the additions is the same in every run.
#
# </details></details>

# %% kernel="reduce/grid_wide"

# %% check="reduce/grid_wide"
grid_wide = reduce["grid_wide"]
grid_wide.check()

# %% [markdown]
# Now take the fence away that stands before the ticket. On a GPU the result would still be right, nearly always:

# %%
import tempfile
from pathlib import Path

broken = Path(tempfile.mkdtemp(), "grid_wide.py")
broken.write_text(grid_wide.source.replace("cuda.threadfence()", "pass", 1))
no_fence = grid_wide.load(broken).check()
no_fence

# %% solved_only=true
assert not no_fence.passed and no_fence.failures[0].kind == "race" and "fence" in no_fence.failures[0].message

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="reduce/grid_wide" language="cuda"

# %% check="reduce/grid_wide" language="cuda"
reduce["grid_wide", "cuda"].check()

# %% [markdown]
# ## What it is worth: reduce
#
# Recorded times of ours; on a GPU, `reduce["vectorized"].time()` measures yours.

# %%
from labkit.bench import show_recorded


def recorded(problem, **shape):
    """Recorded times of a ladder at a shape, lowest rung first."""
    return [t for t in show_recorded(problem).timings if shape.items() <= t.shape.items() and t.cold]


def rate(timings, name):
    """GB/s of a rung in CUDA C++."""
    return next(t.gbps for t in timings if f"/{name} (CUDA" in t.label)


long = recorded("reduce", N=2**28)
lk.plots.ladder(long)

# %% [markdown]
# A gigabyte, read once. (Why `strided` is slower than `interleaved` in CUDA C++, an optional part below says.)

# %% solved_only=true
names = [step.name for step in reduce.ladder]
rates = {name: rate(long, name) for name in names}
gains = {after: rates[after] / rates[before] for before, after in zip(names, names[1:])}
assert max(gains, key=gains.get) == "vectorized" and gains["vectorized"] > 2
assert rates["strided"] < rates["interleaved"] < rates["sequential"] < rates["shuffle"] < rates["vectorized"]
assert rates["grid_wide"] > 0.9 * long[0].ceilings["read_gbps"]
assert all(t.ratio > 1 for t in long if "grid_wide (CUDA" in t.label)

# %% [markdown]
# ### Explain
#
# From which rung to which was the largest gain, and what was it due to?

# %% [markdown] explain="reduce/ladder" points=3
# ### BEGIN SOLUTION
# The largest gain is from shuffle to vectorized, where a thread adds many numbers before it meets another one, and has
# 64 bytes in flight in place of 4. Divergence and bank conflicts matter much less: the rungs below all spend their time
# on blocks that have loaded 4 bytes per thread and then meet again and again.
# ### END SOLUTION

# %% [markdown]
# ### Optional: where one step went backwards
#
# In CUDA C++, `strided` is slower than `interleaved`. Nsight Compute was recorded at the same length, so ask it:

# %%
TIME = "gpu__time_duration.sum"

seen = {name: reduce[name, "cuda"].recorded() for name in ("interleaved", "strided", "sequential")}
pd.DataFrame(
    {
        "milliseconds": p[TIME] / 1e6,
        "divergent branches": p[DIVERGENT],
        "bank conflicts of loads": p[CONFLICTS] / (2**28 / 32),
        "wavefronts of shared loads": p[SHARED] / (2**28 / 32),
        "instructions": p[INSTRUCTIONS] / (2**28 / 32),
    }
    for p in seen.values()
).set_axis(list(seen)).style.format(precision=2).set_caption("The last three: per 32 numbers")

# %% [markdown]
# No branch diverges, in any of the three: the compiler has made the `if` of C++ a condition on each instruction, and a
# warp that does not add goes through them all the same. The conflicts of `strided` are there, but they only fill up the
# wavefronts that reading in fewer warps had saved. And a quarter of the wavefronts, in `sequential`, hardly helps. What
# the time goes with is *instructions*: `strided`, which has a place to compute in each step, and whose resting warps
# spare none, issues a quarter more of them, and takes a quarter longer.
#
# In numba it is the other way round. There the branches do diverge, and the `t % (2 * s)` of `interleaved` is a
# remainder of 64-bit integers, which takes many instructions.

# %% solved_only=true
by_numba = {t.rung: t.gbps for t in long if t.language == "numba"}
assert by_numba["interleaved"] < by_numba["strided"]
assert p_interleaved[INSTRUCTIONS] > 2 * p_strided[INSTRUCTIONS]
assert reduce["interleaved"].recorded()[DIVERGENT] > 5 * reduce["strided"].recorded()[DIVERGENT] > 0
assert all(p[DIVERGENT] == 0 and p[ISSUED] < 60 for p in seen.values())
first = seen["interleaved"]
assert seen["strided"][CONFLICTS] > 10 * first[CONFLICTS] and 0.9 < seen["strided"][SHARED] / first[SHARED] < 1.1
assert seen["sequential"][SHARED] < 0.3 * first[SHARED] and 0.9 < seen["sequential"][TIME] / first[TIME] < 1
assert 1.2 < seen["strided"][INSTRUCTIONS] / first[INSTRUCTIONS] < 1.3
for p in seen.values():  # time goes with instructions
    assert 0.95 < p[TIME] / first[TIME] / (p[INSTRUCTIONS] / first[INSTRUCTIONS]) < 1.05

# %% [markdown]
# ## Softmax
#
# $y_c = e^{x_c} / \sum_k e^{x_k}$ for each row of a matrix: the scores of attention become weights, logits become
# probabilities. As written, it fails: $e^{89}$ is more than a float32 can hold.
#
# So one subtracts the largest number of the row, $m$, from all of them. That changes nothing in the quotient, and the
# largest exponential is $e^0 = 1$. The price: $m$ has to be known before the sum can begin. Entries that shall not
# count, as those of a causal mask, are $-\infty$.

# %%
softmax = lk.problem("softmax")
softmax

# %% [markdown]
# ## Rung 1: three_pass
#
# One block per row, and one pass over the row for each part of the formula. `block_max` and `block_sum` are built like
# your `shuffle`, but with `shfl_xor_sync`: lane `n` gets the value of lane `n ^ d`, and at the end every lane has the
# result. Given: read `softmax_three_pass`, the last of the functions. How often does it load the row?

# %% kernel="softmax/three_pass" given=true

# %% check="softmax/three_pass"
three_pass = softmax["three_pass"]
three_pass.check()

# %%
p_three = three_pass.profile(rows=8, cols=2048)

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="softmax/three_pass" language="cuda" given=true

# %% check="softmax/three_pass" language="cuda"
softmax["three_pass", "cuda"].check()

# %% [markdown]
# ## Rung 2: online
#
# The sum can begin before the largest number is known, if it is corrected later on. Keep a **pair**: the largest number
# so far, $m$, and the sum of $e^{x - m}$ so far, $s$. When a larger one comes, everything that has been added is too
# large by the same factor.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint: the factor</summary>
#
# $e^{x - 5} = e^{x - 2} \cdot e^{2 - 5}$, for every $x$ in the sum. The new number itself adds $e^{5 - 5}$.
#
# </details>

# %% question="softmax/online/correction" points=2
lk.answer("softmax/online/correction", 3 * np.exp(2 - 5) + 1)

# %% question="softmax/online/load_ratio" points=1
predicted_online = lk.answer("softmax/online/load_ratio", 3 / 2)
predicted_online

# %% [markdown]
# Two pairs, of different numbers, merge in the same way: this is how lanes and warps meet, and how FlashAttention does
# without storing rows of scores.
#
# ### Write

# %% [markdown]
# <details><summary>Hint 1: merge</summary>
#
# The largest of both is known. Correct each sum by its own factor, and add.
#
# <details><summary>Hint 2: a number is a pair</summary>
#
# A single number `x` is the largest of its kind, and its sum is $e^{x - x}$.
#
# </details></details>

# %% kernel="softmax/online"

# %% check="softmax/online" points=4
online = softmax["online"]
online.check()

# %%
p_online = online.profile(rows=8, cols=2048)
p_online.diff(p_three)

# %% solved_only=true
assert p_three[LOADED] / p_online[LOADED] == predicted_online.value
assert p_online[INSTRUCTIONS] > p_three[INSTRUCTIONS]

# %% [markdown]
# Fewer loads, more instructions: two exponentials for every number in the first pass. (The next rung, and
# FlashAttention, correct once for many numbers.)
#
# ### Optional: why not begin with minus infinity?
#
# The kernel begins with the lowest finite number. Try it with $-\infty$: what does the check say?

# %%
import tempfile
from pathlib import Path

broken = Path(tempfile.mkdtemp(), "online.py")
broken.write_text(online.source.replace("np.float32(-3.4028234663852886e38)", "np.float32(-np.inf)"))
no_start = online.load(broken).check()
no_start

# %% solved_only=true
assert not no_start.passed and "got nan" in no_start.failures[0].message

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="softmax/online" language="cuda"

# %% check="softmax/online" language="cuda"
softmax["online", "cuda"].check()

# %% [markdown]
# ## Optional: rung 3, vectorized
#
# The row is still read twice, only because nobody has kept it. A row of 4096 numbers is 16 numbers for each of 256
# threads, and a thread has room for them in its registers. The kernel is given: read the two loops of
# `softmax_vectorized`, then predict.

# %% kernel="softmax/vectorized" given=true

# %% check="softmax/vectorized"
vectorized_softmax = softmax["vectorized"]
vectorized_softmax.check()

# %% [markdown]
# ### Predict

# %% [markdown]
# <details><summary>Hint</summary>
#
# A request is one instruction of a warp. How many numbers does a lane get with one? How often is the row read?
#
# </details>

# %% question="softmax/vectorized/load_request_ratio"
predicted_requests = lk.answer("softmax/vectorized/load_request_ratio", 8)
predicted_requests

# %%
p_vectorized = vectorized_softmax.profile(rows=8, cols=2048)
p_vectorized.diff(p_online)

# %% solved_only=true
assert p_online[REQUESTS] / p_vectorized[REQUESTS] == predicted_requests.value
assert p_vectorized[LOADED] * 32 == 8 * 2048 * 4

# %% [markdown]
# ## What it is worth: softmax
#
# `vectorized` keeps the row in registers, 16 numbers in each of 256 threads, and so reads it once:

# %%
on_ladder = [step.name for step in softmax.ladder]
at_4096 = recorded("softmax", rows=65536, cols=4096)
lk.plots.ladder([t for t in at_4096 if t.rung in on_ladder])

# %% [markdown]
# In CUDA C++, `online` is slower than `three_pass` here. See what Nsight Compute counted in these two:

# %%
DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def passes(p):
    """How often a matrix of 65536 x 4096 float32 went through DRAM."""
    return (p[DRAM_READ] + p[DRAM_WRITTEN]) / (65536 * 4096 * 4)


both = {name: softmax[name, "cuda"].recorded() for name in ("three_pass", "online")}
for name, p in both.items():
    print(f"{name:10} {passes(p):.2f} passes through DRAM, {p[INSTRUCTIONS] / 1e6:.0f} million instructions in "
          f"{p[ISSUED]:.0f}% of the slots there are ({p.origin})")

# %% [markdown]
# Two passes, a read and a write, have to move, and neither moves more: a row of 16 KB that a whole block reads again a
# moment later comes from a cache. What runs out is slots to issue instructions, and `online` has more of these, for
# its second exponential. Where rows are too long for a cache, saving a pass pays; keeping the row in registers always
# does.

# %% solved_only=true
assert all(1.9 < passes(p) < 2.1 and p[ISSUED] > 80 and p.explain().binds == "issue" for p in both.values())
assert 1.1 < both["online"][INSTRUCTIONS] / both["three_pass"][INSTRUCTIONS] < 1.3
assert rate(at_4096, "vectorized") > 0.9 * at_4096[0].ceilings["copy_gbps"]
assert rate(at_4096, "online") < rate(at_4096, "three_pass") < rate(at_4096, "vectorized")
assert all(t.ratio > 1 for t in at_4096 if "vectorized (CUDA" in t.label)

# %% [markdown]
# ## Optional: rung 4, long_rows
#
# What if there are few rows, and long ones, say 64 rows of 4 million logits?
#
# ### Predict

# %% question="softmax/long_rows/busy"
lk.answer("softmax/long_rows/busy", 48.5)

# %% question="softmax/long_rows/passes"
predicted_passes = lk.answer("softmax/long_rows/passes", 66.7)
predicted_passes

# %% [markdown]
# Pairs merge across blocks as well as across lanes. `long_rows` cuts each row into chunks of 4096 numbers: a first
# kernel leaves a pair per chunk, a second one merges the pairs of its row and writes.

# %% kernel="softmax/long_rows"

# %% [markdown]
# <details><summary>Hint 1: the first kernel</summary>
#
# As in `online`: each thread a pair of its numbers of the chunk, `x[begin]` to `x[end - 1]`, then `block_pair`.
#
# <details><summary>Hint 2: 16 bytes at a time</summary>
#
# Where `aligned`, take 4 numbers with `lk.cuda.load4`: the largest of `m` and the four, `s` corrected once, and four
# exponentials added.
#
# <details><summary>Hint 3: the second kernel</summary>
#
# The pairs of the row are `pairs[row * chunks]` to `pairs[(row + 1) * chunks - 1]`. Each thread merges some of them,
# `block_pair` the rest.
#
# </details></details></details>

# %% check="softmax/long_rows"
long_rows = softmax["long_rows"]
long_rows.check()

# %%
few = [t for t in recorded("softmax", rows=64, cols=2**22) if t.rung in on_ladder]
lk.plots.ladder(few)

# %% solved_only=true
ceiling = few[0].ceilings["copy_gbps"]
assert 0.9 * predicted_passes.value / 100 * ceiling < rate(few, "long_rows") < predicted_passes.value / 100 * ceiling
assert rate(few, "three_pass") < rate(few, "online") < rate(few, "vectorized") < rate(few, "long_rows")
assert all(t.ratio > 1 for t in few if "long_rows" in t.label)
assert 2.9 < passes(softmax["long_rows", "cuda"].recorded()) < 3.1  # of shorter rows, in chunks just as these

# %% [markdown]
# ### Explain
#
# The top rung stops just short of two thirds of the copy ceiling. What would have to change for it to get further?
# Think of the size of a row, of the L2 (60 MB on an H200), and of the moment at which the row is read again.

# %% [markdown] explain="softmax/long_rows"
# ### BEGIN SOLUTION
# It moves three passes through DRAM, and does that at nearly the full rate: only moving less would help. The second
# read of x would have to find the row nearer. A row of 16 MB does not fit into one multiprocessor, and the L2 has
# long forgotten it, since long_rows comes back after all 64 rows have gone through. So the row would have to be kept in
# the registers and shared memories of all multiprocessors together, or be read again while the L2 still has it.
# ### END SOLUTION

# %% [markdown]
# ## RMSNorm
#
# $y_c = x_c / \sqrt{\mathrm{mean}(x^2) + \epsilon} \cdot w_c$, twice in every layer of a Llama. llama.cpp runs two
# kernels: `rms_norm_f32`, one warp per row, and `mul_f32`, a thread per number, which multiplies by the weights.

# %%
rmsnorm = lk.problem("rmsnorm")
rmsnorm

# %% [markdown]
# ## Rung 1: two_kernels
#
# Given, with their shapes as in llama.cpp: 32 threads for a row, 256 for a block of products.

# %% kernel="rmsnorm/two_kernels" given=true

# %% check="rmsnorm/two_kernels"
two_kernels = rmsnorm["two_kernels"]
two_kernels.check()

# %% question="rmsnorm/two_kernels/bytes" points=2
predicted_two = lk.answer("rmsnorm/two_kernels/bytes", 5 * 4096 * 4)
predicted_two

# %% [markdown]
# ## Rung 2: fused
#
# A number is normalized, stored, loaded again by another kernel, multiplied, stored. Leave the middle out.
#
# ### Predict
#
# The intermediate result, far larger than the L2, comes and goes through DRAM. But the *second read* of a row of x may
# find it in the L2 still, if not too much else was touched since.

# %% [markdown]
# <details><summary>Hint 1: rows under way</summary>
#
# Each warp is somewhere in a row of its own, 16 KB. How many warps are there at a time on the whole GPU, and is the
# L2 larger than their rows?
#
# <details><summary>Hint 2: passes</summary>
#
# Count how often a matrix of x's size goes through DRAM, in two_kernels and in fused. By the hint before, the second
# read of x counts, or it does not: in both of them.
#
# </details></details>

# %% question="rmsnorm/fused/dram_ratio" points=2
predicted_ratio = lk.answer("rmsnorm/fused/dram_ratio", 5 / 3)
predicted_ratio

# %% [markdown]
# ### Write

# %% kernel="rmsnorm/fused"

# %% check="rmsnorm/fused" points=3
fused = rmsnorm["fused"]
fused.check()

# %%
p_two = two_kernels.profile(rows=8, cols=4096)
p_fused = fused.profile(rows=8, cols=4096)
p_fused.diff(p_two)

# %% solved_only=true
weights = 8 * 4096 * 4  # each row reads all of them
assert 32 * (p_two[LOADED] + p_two[STORED]) - weights == 8 * predicted_two.value
assert 32 * (p_fused[LOADED] + p_fused[STORED]) - weights == 8 * 3 * 4096 * 4

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="rmsnorm/fused" language="cuda"

# %% check="rmsnorm/fused" language="cuda"
rmsnorm["fused", "cuda"].check()

# %% [markdown]
# ## Optional: rung 3, vectorized
#
# Now on your own, with all that you have met: the row in registers, 16 bytes at a time, a block per row. The helpers
# are there; `softmax/vectorized` above has the same plan, and one reduction more.

# %% question="rmsnorm/vectorized/registers"
lk.answer("rmsnorm/vectorized/registers", 16)

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# Turns over the row, of `PIECES` pieces of 4 numbers per thread, which are kept in `v`, their squares added; `row_sum`;
# the scale; the turns once more, backwards, in which numbers are multiplied and stored.
#
# <details><summary>Hint 2: where is a piece?</summary>
#
# In turn `n`, piece `k` of this thread begins at column `c = n * turn + first + k * stride`. There `own - c` numbers of
# the row are left.
#
# <details><summary>Hint 3: backwards</summary>
#
# After the first loop `v` holds the last turn: it need not be loaded again. The turns before it do, if there are any.
# Write this loop as `while n > 0`, with `n` from `turns` down.
#
# </details></details></details>

# %% kernel="rmsnorm/vectorized"

# %% check="rmsnorm/vectorized"
vectorized_norm = rmsnorm["vectorized"]
vectorized_norm.check()

# %%
p_norm = vectorized_norm.profile(rows=8, cols=4096)
p_norm.diff(p_fused)

# %% solved_only=true
assert p_fused[LOADED] > p_norm[LOADED] and p_norm[STORED] == p_fused[STORED]
assert p_fused[REQUESTS] > 4 * p_norm[REQUESTS]

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="rmsnorm/vectorized" language="cuda"

# %% check="rmsnorm/vectorized" language="cuda"
rmsnorm["vectorized", "cuda"].check()

# %% [markdown]
# ## What it is worth: RMSNorm

# %%
norms = recorded("rmsnorm", rows=65536, cols=4096)
lk.plots.ladder(norms)

# %% [markdown]
# How many passes of the matrix through DRAM did Nsight Compute count, and by which factor did they fall?

# %%
ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
counted = {step.name: rmsnorm[step.name, "cuda"].recorded() for step in rmsnorm.ladder}
for name, p in counted.items():
    print(f"{name:12} {passes(p):.2f} passes ({p.origin})")
print(f"two_kernels / fused: {passes(counted['two_kernels']) / passes(counted['fused']):.2f}")

warps = 64 * counted["fused"][ACTIVE] / 100  # of the 64 that a multiprocessor has room for
for cols in (4096, 1024):
    print(f"{cols} columns: {warps * 132 * cols * 4 / 1e6:.0f} MB of rows under way")

# %% [markdown]
# Nearly five passes and nearly three, not four and two: the second read of a row mostly does *not* find it in the L2.
# The rows under way are more than the 60 MB of the L2, and what is written goes through it, too: when a warp comes to
# the end of its row, most of the beginning is gone. (The emulator's DRAM bytes, above, are of 8 rows, which stay.)
#
# Rows of 1024 numbers fit. No counters were recorded there, but the times tell: at `fused`'s speed a third pass would
# need more than memory can give. `vectorized` does not depend on the L2: 8 warps keep a row in their registers.

# %% solved_only=true
assert 4.5 < passes(counted["two_kernels"]) < 5 and 2.5 < passes(counted["fused"]) < 3
assert passes(counted["vectorized"]) < 2.05
for language in ("numba", "cuda"):
    two, one = (passes(rmsnorm[name, language].recorded()) for name in ("two_kernels", "fused"))
    assert abs(two / one / predicted_ratio.value - 1) < 0.03
assert 30 < warps <= 32 and 1024 * 4 * warps * 132 < 60e6 / 3 < 60e6 < 4096 * 4 * warps * 132
short = recorded("rmsnorm", cols=1024)
assert rate(short, "fused") * 3 / 2 > 1.1 * short[0].ceilings["copy_gbps"] > rate(norms, "fused") * 3 / 2
assert rate(norms, "two_kernels") < rate(norms, "fused") < rate(norms, "vectorized")

# %% [markdown]
# ## Your page
#
# The top rungs in CUDA C++ beside PyTorch's own operators, at sizes past the L2 of an H200:

# %% jupyter={"source_hidden": true}
top = {"reduce": ("grid_wide",), "softmax": ("vectorized", "long_rows"), "rmsnorm": ("vectorized",)}
page = pd.DataFrame(
    {
        "problem": problem,
        "shape": ", ".join(f"{k} = {v:,}" for k, v in t.shape.items() if k in lk.problem(problem).dims),
        "rung": t.rung,
        "GB/s": f"{t.gbps:,.0f}",
        "of the ceiling": f"{t.of_ceiling[0]:.0%} of {t.of_ceiling[1]}",
        "times PyTorch": f"{t.ratio:.2f}",
    }
    for problem, rungs in top.items()
    for t in show_recorded(problem).timings
    if any(f"/{rung} (CUDA" in t.label for rung in rungs) and t.bytes > 2**29
)
page.style.hide(axis="index")

# %% solved_only=true
for problem, at_least in (("softmax", 1.8), ("rmsnorm", 1.2)):
    t = lk.problem(problem)["vectorized", "cuda"].time(recorded=True)
    assert t.shape["cols"] == 4096 and t.of_ceiling[1].startswith("copy") and t.of_ceiling[0] > 0.93, t
    assert t.ratio > at_least, t

# %% [markdown]
# At 4096 columns, softmax and RMSNorm run at nearly the speed of a copy, and faster than PyTorch's.
#
# What you take along: lanes meet in registers, warps in shared memory, blocks in global memory. Every meeting costs
# waiting, so let threads do as much as they can alone first. And keep what has been read once, in registers; a cache
# keeps it only while all that is under way fits into it.
#
# Next: [Matrix times vector, and weights in 8 bits](06_matvec_and_quantization.ipynb).
