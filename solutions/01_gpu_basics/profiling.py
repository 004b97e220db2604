# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading a profiler's report
#
# A kernel is slow. Why? You could stare at its code and guess; most guesses are wrong. A profiler has
# counted what the hardware did, and the counts say where the time went, if you know in which order to
# read them. In this notebook you learn that order on two kernels that you can look up. Then you get three
# reports of kernels that you have **not** seen: you say what is wrong with each, and only then you look.
#
# The reports were written by Nsight Compute, NVIDIA's profiler, on an H200, and are marked *recorded*. You
# need no GPU. Run a cell with Shift+Enter.

# %%
import labkit as lk

# %% [markdown]
# ## A report has an order
#
# Here is one of a matrix multiplication at 4096 x 4096, as simple as it gets: one thread per element of
# the result, which reads a row of $A$ and a column of $B$ from memory. `lk.report` shows it a page at a
# time; Nsight Compute has the same pages.
#
# ### 1. How close is it to what the machine can do?

# %%
naive = lk.problem("gemm")["naive", "cuda"].recorded()
lk.report(naive, "speed of light")

# %% [markdown]
# The first line is the time. The others are resources, each in percent of what this machine can do at
# most, the busiest one first. Read it like this:
#
# - **One line near 100%**: you have found it. That resource *binds*. The kernel gets faster only by asking
#   less of it.
# - **Nothing above 60%**: no resource is the limit. Then warps wait for something, and you have to find
#   out for what.
#
# Here the busiest line does not reach a tenth, and the time is terrible. So go on. A page about *warps*
# comes next: what did they wait for, when they could not issue an instruction?
#
# ### 2. What do warps wait for?

# %%
lk.report(naive, "stalls")

# %% [markdown]
# The names are the hardware's, and worth knowing:
#
# | stall | a warp waits for |
# |---|---|
# | `long_scoreboard` | data from global memory that it has asked for |
# | `lg_throttle` | a place in the queue to L1: it cannot even ask, so many ask already |
# | `short_scoreboard` | data from shared memory |
# | `barrier` | the other warps of its block |
# | `math_pipe_throttle` | a free arithmetic pipe |
# | `wait` | the result of its own last instruction, a few cycles |
# | `not_selected` | nothing! It could go, and another warp went |
#
# `lg_throttle` and `long_scoreboard` together: this kernel drowns L1, the first cache, in requests. Why
# does L1 take so long over them?
#
# ### 3. What do the requests look like?

# %%
lk.report(naive, "memory")

# %% [markdown]
# A **request** is one load or store of a warp, and a **sector** is a piece of 32 bytes. 32 lanes that read
# 32 neighboring floats touch 4 sectors. This kernel's loads touch 8.5 on average: its lanes lie far apart, and L1
# has to fetch a different line for each. That is the whole story, told by three pages.
#
# `explain()` reads the pages in the same order and says it in three sentences. Use it to check
# yourself, not to be spared the reading.

# %%
naive.explain()

# %% solved_only=true
PER_LOAD = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
assert naive[PER_LOAD] == 8.5 and naive.explain().binds == "L1"
assert max(naive.explain().uses.values()) < 0.1

# %% [markdown]
# ## Before and after
#
# The same product with tiles in shared memory (you will write it in the next lab). The same page again:

# %%
tiled = lk.problem("gemm")["smem_tile", "cuda"].recorded()
lk.report(tiled, "speed of light")

# %% [markdown]
# Now one line stands out. When one resource binds, `diff` tells what another version asks of it:

# %%
tiled.diff(naive)

# %% solved_only=true
assert tiled.explain().binds == "shared"

# %% [markdown]
# ## How many warps fit?
#
# One more page: the launch. It says how many warps a multiprocessor had to choose from, and that is what
# hides waiting.

# %%
lk.report(tiled, "launch")

# %% [markdown]
# A multiprocessor of an H200 holds 64 warps at most, and fewer if their blocks need many registers or
# much shared memory. Move the sliders (or change the numbers and run the cell again): which of the three
# runs out first?

# %%
lk.occupancy_widget(threads=256, registers=64, shared=16384)

# %% [markdown]
# The curves show all values at once. The dot is this kernel, and a step down means that one block fewer fits.

# %%
lk.plots.occupancy(threads=256, registers=64, shared=16384)

# %% [markdown]
# **Little's law** says how many are enough: in flight = rate x latency. A memory that answers after 350 ns and
# delivers 4.5 TB/s has 1.6 MB in flight at any moment. If your warps have asked for less, you get less.

# %% [markdown]
# ## Case 1
#
# You know neither name nor code of the next kernel. It reads a large matrix once. A colleague has seen one
# line of its report, "stores: 1.0 sectors per request, where 4 would be used", and wants to rewrite the
# store. Should he?

# %%
first = lk.detective("first")
lk.report(first.report, "memory")

# %% question="detective/first/useful_sectors" points=1
lk.answer("detective/first/useful_sectors", 1)

# %% [markdown]
# So the line is true. But how much does it weigh?

# %% question="detective/first/stores" points=1
lk.answer("detective/first/stores", 16384 / (16384 + 16777216))

# %% [markdown]
# Now the other pages.

# %%
lk.report(first.report, "speed of light")

# %%
lk.report(first.report, "stalls")

# %% [markdown]
# What binds it? Answer with one word in quotes.

# %% [markdown]
# <details><summary>Hint 1: where to look</summary>
#
# Which line of the first page is nearest to 100%?
#
# <details><summary>Hint 2: does it fit?</summary>
#
# A warp in `math_pipe_throttle` has all of its data, and waits for a free arithmetic pipe.
#
# </details></details>

# %% question="detective/first/binds" points=2
lk.answer("detective/first/binds", "integer")

# %% [markdown]
# Look at the kernel when you have answered.

# %%
first.kernel

# %% [markdown]
# ### Explain
#
# Where does the kernel compute with integers at all? And what would you tell your colleague? Two
# sentences.

# %% [markdown] explain="detective/first" points=2
# ### BEGIN SOLUTION
# Every `A[row, c]` and `x[c]` is an address: numba computes it with 64-bit integers, and checks for negative indices,
# so that a dozen integer instructions stand beside each multiply-add. The store is wasteful and happens once in a
# thousand sectors: mending it would change nothing; fewer addresses per number (several numbers per load, or an
# index that is carried along) would.
# ### END SOLUTION

# %% [markdown]
# The same function in CUDA C++, with its 32-bit indices, was recorded too. Now the memory is the limit, as it should
# be for a matrix that is read once, and its store has 1.0 sectors per request as before:

# %%
from labkit.profiling import speed

plain = speed.profile("matvec of 256 MiB")
lk.report(plain, "speed of light")

# %% solved_only=true
PER_STORE = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
assert plain[PER_STORE] == first.report[PER_STORE] == 1
assert plain.explain().binds == "DRAM"
assert plain["gpu__time_duration.sum"] < 0.7 * first.report["gpu__time_duration.sum"]

# %% [markdown]
# ## Case 2
#
# This one reads 128 MiB and writes as much, in neat requests of 4 sectors. At 4.5 TB/s that should take 60 us.

# %%
second = lk.detective("second")
lk.report(second.report, "speed of light")

# %%
lk.report(second.report, "memory")

# %%
lk.report(second.report, "shared")

# %%
lk.report(second.report, "stalls")

# %% [markdown]
# Shared memory has 32 banks. A **wavefront** serves one word from each; lanes that want different words of
# one bank take turns, and each turn more is a **bank conflict**.

# %% [markdown]
# <details><summary>Hint: which lines?</summary>
#
# Conflicts of loads and stores together, over wavefronts of loads and stores together.
#
# </details>

# %% question="detective/second/conflicts" points=1
lk.answer("detective/second/conflicts", (40.01 + 32.55) / (43.16 + 34.65))

# %% question="detective/second/binds" points=2
lk.answer("detective/second/binds", "shared")

# %%
second.kernel

# %% [markdown]
# ### Explain
#
# `tile` has rows of 64 floats. In which bank does each row begin? Which lanes meet? And what is the smallest
# change that mends it?

# %% [markdown] explain="detective/second" points=2
# ### BEGIN SOLUTION
# 64 words are twice around the 32 banks, so that every row begins in bank 0: when thread t reads tile[t, c], all 32
# lanes of a warp want different words of one bank, 32 wavefronts instead of one. A row of 65 floats moves each row
# one bank further, and the lanes fall into 32 different ones.
# ### END SOLUTION

# %% [markdown]
# ### What would it be worth?
#
# Before anyone rewrites a kernel it is good to know what there is to win. `lk.predict` has a model of the
# machine: it runs a few blocks of a launch on the emulator, counts what they ask of every resource, and says
# how long that takes an H200. It is a model, right to 20% as a rule and wrong by more now and then (by a third
# here); it is labeled *modeled*.

# %%
import torch


def launch(source, rows=2**19):
    """A function that launches center_rows, as `source` has it, on `rows` rows."""
    module = {}
    exec(source, module)
    A, B = torch.empty(rows, 64), torch.empty(rows, 64)
    return lambda: module["launch"](B, A)


as_it_is = lk.predict(launch(second.kernel.text))
as_it_is

# %% [markdown]
# And with one column more in the tile, which nobody uses:

# %%
mended = lk.predict(launch(second.kernel.text.replace("((ROWS, COLUMNS), float32)", "((ROWS, 65), float32)")))
mended

# %% [markdown]
# One number, and another resource leads.

# %% solved_only=true
assert as_it_is.binds == "shared" != mended.binds
assert mended.ms < 0.6 * as_it_is.ms
assert abs(as_it_is.ms - second.report["gpu__time_duration.sum"] / 1e6) < 0.5 * as_it_is.ms

# %% [markdown]
# ## Case 3
#
# The last one comes from attention, the heart of a language model: it reads 128 MiB too, and it takes a hundred times
# as long as that should.

# %%
third = lk.detective("third")
lk.report(third.report, "speed of light")

# %%
lk.report(third.report, "stalls")

# %%
lk.report(third.report, "launch")

# %% [markdown]
# No line of the first page reaches even ten percent. The machine is idle, and the kernel is slow. Use Little's law,
# with the latency that `lk.predict` reckons with, a little below what the walk of the first notebook measured:

# %%
from labkit import recorded
from labkit.models.speed import figures, latencies

read_gbps = recorded.ceilings("NVIDIA H200")["read_gbps"]
wait_ns = latencies()["DRAM"] / figures().clock  # cycles, at so many per ns
print(f"read_gbps = {read_gbps:,.0f} GB/s at most, wait_ns = {wait_ns:,.0f} ns for one load")
lk.report(third.report, "memory")

# %% question="detective/third/needed" points=1
lk.answer("detective/third/needed", read_gbps * wait_ns / 1e3)

# %% [markdown]
# <details><summary>Hint: rate x latency</summary>
#
# The rate is DRAM bytes read over the time of the kernel: bytes per ns are GB/s.
#
# </details>

# %% question="detective/third/flying" points=1
lk.answer("detective/third/flying", 135397120 / 3209.8e3 * wait_ns / 1e3)

# %% question="detective/third/binds" points=2
lk.answer("detective/third/binds", "latency")

# %%
third.kernel

# %% [markdown]
# ### Explain
#
# How many warps does the launch have, and how many does an H200 hold? Which loop keeps the loads from being in flight
# together? What would you change first?

# %% [markdown] explain="detective/third" points=2
# ### BEGIN SOLUTION
# 128 warps on 132 multiprocessors that hold 64 each: there is 1.5% of the warps that could hide the waiting. Each of
# them walks through all times alone, with a few loads in flight. Divide the times over blocks (or over the warps of a
# block), each with a partial sum, and add these up at the end: a hundred times as many loads are then in flight.
# ### END SOLUTION

# %% solved_only=true
found = third.report.explain()
assert found.binds == "latency" and max(found.uses.values()) < 0.1
assert third.report["launch__thread_count"] / 32 == 128

from labkit.models.latency import curves

assert 0.8 < wait_ns / curves().dram.median_ns < 1

# %% [markdown]
# ## The order, once more
#
# 1. **Speed of light**: is one resource near its ceiling? Then ask less of it.
# 2. If none is: **stalls**. What do warps wait for?
# 3. **Memory** and **shared**: what do the accesses look like? Weigh each oddity by its share before you mend it.
# 4. **Launch**: do the warps suffice to hide the waiting? Little's law gives the number.
#
# `profile.explain()` does the same, and names the counters that it has gone by. In a terminal, `labkit profile
# script.py` writes such a report of every kernel of a program, and `labkit trace script.py` draws them over time.
#
# Next: [Divergence and precision](03_divergence_and_precision.ipynb).
