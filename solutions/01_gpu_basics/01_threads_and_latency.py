# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Threads, and what they are for
#
# A single thread of a GPU is slower than one of your processor, by a lot. But a GPU does a great many things at once,
# and this notebook is about how: you add two vectors, first with one thread, then with as many as there are elements;
# then you measure how long a thread waits for memory, and find the one law that says how many threads a GPU needs. That
# law will explain most of what you meet in the labs after this one.
#
# You climb ladders of kernels, and every rung goes the same way:
#
# 1. **predict** a number, with pencil and paper;
# 2. **write** the kernel;
# 3. **check** that it is right, on awkward sizes too;
# 4. **profile** it, and compare with your prediction and with the rung below;
# 5. **explain** in two sentences what happened.
#
# You need Python, and no GPU: where there is none, kernels run on an emulator that executes the real
# compiled code and counts what the hardware would count (such results are marked *emulated*), and times
# are shown as they were measured on an NVIDIA H200 (marked *recorded*). Run a cell with Shift+Enter. Nothing needs the
# parts that are called optional.

# %%
import numpy as np
from numba import cuda

import labkit as lk

# %% [markdown]
# ## The work
#
# $C_i = A_i + B_i$, in single precision: 4 bytes per number. Is that much arithmetic, for the data that
# has to move? Put a number in place of the dots (an expression such as `2 * 4` is fine), and run the cell
# again as often as you like.

# %% question="vector_add/bytes_per_flop" points=1
lk.answer("vector_add/bytes_per_flop", 3 * 4)

# %% [markdown]
# A GPU that reads 4.5 TB/s from its memory can do almost 90 additions in the time that these 12 bytes take. So
# the additions are free, and the whole notebook is about moving bytes.

# %%
vector_add = lk.problem("vector_add")
vector_add

# %% [markdown]
# ## Rung 1: one thread
#
# You write a function for **one thread**, called a kernel, and **launch** it: `kernel[blocks,
# threads](...)` runs it in so many blocks of so many threads. Here is the smallest launch there is,
# `[1, 1]`. It could be a program for a processor. Run its cell: `%%kernel` keeps it as a file of your own,
# compiles it, and puts it on the ladder under the name in the first line.

# %% kernel="vector_add/one_thread" given=true

# %% [markdown]
# Is it right? `check()` runs it at awkward lengths, compares with an exact result, and watches every
# memory access.

# %% check="vector_add/one_thread"
one_thread = lk.problem("vector_add")["one_thread"]
one_thread.check()

# %% [markdown]
# How fast is it? A rate is easier to compare than a time: bytes that must move, over the time.


# %%
def share(t):
    """How near to what its machine can do at all, where that was measured (`labkit ceilings --record` does)."""
    return f"{100 * t.of_ceiling[0]:.3g}% of the {t.of_ceiling[1]} ceiling" if t.of_ceiling else "ceiling not measured"


t_one_thread = one_thread.time()
print(f"{t_one_thread.gbps:.3f} GB/s, {share(t_one_thread)} ({t_one_thread.origin}, {t_one_thread.machine})")

# %% [markdown]
# A vanishing part of what the machine can do, and far less than one core of your processor. Something
# is badly unused. Two things, in fact.
#
# ### Thirty-two at a time
#
# The hardware never runs one thread. It runs 32, a **warp**: all 32 **lanes** of a warp carry out the
# same instruction together. A warp with one thread in it takes as long as a full one. The profiler sees
# this; the long name is that of Nsight Compute, NVIDIA's profiler.

# %%
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"

shape = dict(N=4096)
p_one_thread = one_thread.profile(**shape)
print(f"{p_one_thread[LANES]:g} of 32 lanes at work, {p_one_thread[REQUESTS]:,.0f} load requests, "
      f"{p_one_thread.origin}")

# %% [markdown]
# Here is that warp, at 8 elements. A row is a lane, a column an instruction of the compiled code; gray lanes are
# switched off.

# %%
lk.plots.divergence(one_thread.profile(N=8))

# %% [markdown]
# A **request** is what a warp sends to memory when it loads: one, however many of its lanes take part.

# %% solved_only=true
assert p_one_thread[LANES] == 1
assert p_one_thread[REQUESTS] == 2 * shape["N"]
assert t_one_thread.gbps < t_one_thread.ceilings["copy_gbps"] / 1000

# %% [markdown]
# ### Who is who
#
# Threads come in **blocks**, and blocks in a **grid**. `cuda.threadIdx.x` is a thread's place in its block,
# `cuda.blockIdx.x` its block's place in the grid, `cuda.blockDim.x` how many threads a block has. Which of
# them share a warp? Let them tell us. This kernel does nothing but write down who each thread is; the
# launch has 3 blocks of 64 threads.


# %%
@cuda.jit
def who_am_i(block, warp, lane):
    i = 64 * cuda.blockIdx.x + cuda.threadIdx.x  # my number in the whole grid, in blocks of 64
    block[i] = cuda.blockIdx.x
    warp[i] = cuda.threadIdx.x // 32  # of its block
    lane[i] = cuda.threadIdx.x % 32


block, warp, lane = (np.zeros(192, np.int32) for _ in range(3))
who_am_i[3, 64](block, warp, lane)

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

go.Figure(
    go.Heatmap(
        z=(2 * block + warp).reshape(6, 32), text=lane.reshape(6, 32), texttemplate="%{text}", showscale=False,
        x=list(range(32)), y=[f"block {b}, warp {w}" for b in range(3) for w in range(2)],
        customdata=np.arange(192).reshape(6, 32),
        hovertemplate="element %{customdata}: %{y}, lane %{text}<extra></extra>",
        xgap=2, ygap=4, colorscale=["#dbe9f6", "#6baed6"],
    )
).update_layout(
    title="192 threads: each number is a lane, each row a warp. Point at one to see its element.",
    yaxis_autorange="reversed", height=300, template="plotly_white", xaxis_visible=False,
)

# %% solved_only=true
assert (block == np.arange(192) // 64).all() and (lane == np.arange(192) % 32).all()

# %% [markdown]
# ## Rung 2: one block
#
# The largest block has 1024 threads, 32 warps. Let them share the work of a whole vector: thread `t` takes
# element `t`, then `t + 1024`, then `t + 2048`, and so on. So the lanes of a warp always take neighbors.

# %% [markdown]
# ### Write
#
# `cuda.blockDim.x` is 1024 here; do not write the number, so that other launches work too.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# The loop of one_thread, with another beginning and another step.
#
# <details><summary>Hint 2: in Python</summary>
#
# `range` takes a beginning, an end and a step.
#
# </details></details>

# %% kernel="vector_add/one_block"

# %% check="vector_add/one_block" points=2
one_block = lk.problem("vector_add")["one_block"]
one_block.check()

# %%
p_one_block = one_block.profile(**shape)
p_one_block.diff(p_one_thread)

# %%
t_one_block = one_block.time()
print(f"{t_one_block.gbps:.1f} GB/s, {t_one_block.gbps / t_one_thread.gbps:.0f} times the rate of one thread "
      f"({t_one_block.origin}, {t_one_block.machine})")

# %% solved_only=true
assert p_one_thread[REQUESTS] == 32 * p_one_block[REQUESTS]
assert p_one_block[LANES] > 31
assert 32 < t_one_block.gbps / t_one_thread.gbps

# %% [markdown]
# ### Explain
#
# 32 lanes instead of one would explain a factor of 32. Where may the rest come from? (A guess will do;
# the second half of this notebook answers it.)

# %% [markdown] explain="vector_add/one_block" points=1
# ### BEGIN SOLUTION
# There are 32 warps now, and while one of them waits for memory, others can send their requests. One thread
# alone waits most of the time, with a few loads under way.
# ### END SOLUTION

# %% [markdown]
# ## Rung 3: a grid
#
# A block runs on one **multiprocessor** (SM), and an H200 has 132 of them. The other 131 were idle. So
# launch more blocks: as many as it takes to give every element a thread of its own. They are dealt out to
# the multiprocessors as these have room.

# %% question="vector_add/grid/blocks" points=1
lk.answer("vector_add/grid/blocks", 4)

# %% [markdown]
# <details><summary>Hint: the last block</summary>
#
# Blocks come whole. Divide, and round up.
#
# </details>

# %% [markdown]
# ### Write
#
# Every thread has to find its element, and the last block has threads with none. `launch` is written
# already: look at how it rounds up.

# %% [markdown]
# <details><summary>Hint 1: which element?</summary>
#
# The kernel `who_am_i` above computes that for blocks of 64. How many threads do yours have?
#
# <details><summary>Hint 2: the end</summary>
#
# A thread whose element does not exist must touch nothing. `C.shape[0]` is the length.
#
# </details></details>

# %% kernel="vector_add/grid"

# %% check="vector_add/grid" points=3
grid = lk.problem("vector_add")["grid"]
grid.check()

# %% [markdown]
# The profiler has little to say: the same requests, the same lanes. What changed is *where* they run, and
# only time shows it.

# %%
p_grid = grid.profile(**shape)
print(f"{p_grid[LANES]:g} lanes, {p_grid[REQUESTS]:,.0f} requests; one block: "
      f"{p_one_block[LANES]:g} lanes, {p_one_block[REQUESTS]:,.0f} requests")
t_grid = grid.time()
t_grid

# %% jupyter={"source_hidden": true}
times = {"one_thread": t_one_thread, "one_block": t_one_block, "grid": t_grid}
figure = go.Figure(
    go.Bar(x=list(times), y=[t.gbps for t in times.values()], texttemplate="%{y:,.4g} GB/s", marker_color="#6baed6")
)
figure.add_hline(y=t_grid.gbps / t_grid.ratio, line_dash="dash")
figure.update_layout(
    title="vector_add on a logarithmic scale; dashed: PyTorch<br>"
          f"<sub>{t_grid.origin} on {t_grid.machine}, {t_grid.date}</sub>",
    yaxis_type="log", yaxis_title="GB/s", height=380, template="plotly_white",
)

# %% solved_only=true
assert p_grid[REQUESTS] == p_one_block[REQUESTS]
assert t_grid.gbps > 50 * t_one_block.gbps
assert 0.7 * t_grid.ceilings["copy_gbps"] < t_grid.gbps < 0.9 * t_grid.ceilings["copy_gbps"]
assert 15_000 < t_grid.gbps / t_one_thread.gbps < 25_000

# %% [markdown]
# From one thread to a grid: twenty thousand times as fast, with three lines of code.
#
# ### Optional: the same in CUDA C++
#
# Every rung also exists in CUDA C++, the language most kernels are written in. Skip these cells, or do them
# instead; the ideas are the same. The `launch` line in the header says what Python's `launch` says.

# %% kernel="vector_add/grid" language="cuda"

# %% check="vector_add/grid" language="cuda"
lk.problem("vector_add")["grid", "cuda"].check()

# %% [markdown]
# ## Optional: rung 4, a grid stride
#
# A thread per element means a million blocks for a long vector, and a launch that depends on the length. There is
# another way: a grid of fixed size, whose threads all go on by the size of the grid, as those of one_block went on by
# the size of the block. `cuda.gridDim.x` is the number of blocks.

# %% [markdown]
# <details><summary>Hint 1: how many threads?</summary>
#
# In the whole grid: blocks times threads per block.
#
# <details><summary>Hint 2: the loop</summary>
#
# It begins where a thread of grid begins.
#
# </details></details>

# %% kernel="vector_add/grid_stride"

# %% check="vector_add/grid_stride"
grid_stride = lk.problem("vector_add")["grid_stride"]
grid_stride.check()

# %%
t_grid_stride = grid_stride.time()
print(f"grid {t_grid.gbps:,.0f} GB/s, grid_stride {t_grid_stride.gbps:,.0f} GB/s ({t_grid.origin}, {t_grid.machine})")

# %% [markdown]
# Somewhat faster: what a thread computes once, before its loop, serves all its elements. But mainly it is convenient,
# for one launch serves any length. Remember the pattern; you will meet it often.

# %% solved_only=true
assert 1 < t_grid_stride.gbps / t_grid.gbps < 1.25

# %% [markdown]
# # How long is a wait?
#
# Threads are what a GPU has instead of speed. To see why, measure how long one of them waits for a number.
#
# Reading two elements one after the other would not tell: the second load is sent while the first is still
# **in flight**, on its way from memory. To measure the time of one load, the next must *need* its result. So fill
# a table such that entry `i` says which entry to read next, in random order, and **walk**: `p = table[p]`, again and
# again.

# %%
latency = lk.problem("latency")
latency

# %% kernel="latency/one_thread" given=true

# %% check="latency/one_thread"
walk = lk.problem("latency")["one_thread"]
walk.check()

# %% [markdown]
# A load from the memory of an H200 takes some 350 ns. That is a round number; the true one comes in a moment.

# %% question="latency/one_thread/microseconds" points=1
lk.answer("latency/one_thread/microseconds", 64 * 16 * 0.35)


# %%
def ns_per_hop(t):
    """The time of a run, divided by its hops."""
    return t.median_ms * 1e6 / (t.shape["W"] * t.shape["steps"])


t_walk = walk.time()
print(f"{1e3 * t_walk.median_ms:,.0f} microseconds, {ns_per_hop(t_walk):.0f} ns per hop "
      f"({t_walk.origin}, {t_walk.machine})")

# %% solved_only=true
assert 300 < ns_per_hop(t_walk) < 500

# %% [markdown]
# In the time of one such hop, a multiprocessor could do tens of thousands of additions. This is **latency**:
# not how much memory sends, but how long until the first of it is there.
#
# It depends on where the number is found. **Caches** keep copies of what was read lately: L1, one per multiprocessor,
# small and near, and L2, which all share. A table that fits into L1 is read much faster than one that needs L2, or
# **device memory**, outside of the chip. The command `labkit latency` measures this for tables of all sizes; here are
# the curves of your GPU, or those that were recorded.

# %%
from labkit.models.latency import curves

measured = curves()
measured

# %%
lk.plots.latency(measured)

# %% [markdown]
# Point at the curve: each plateau is a place where data can be, and each step the size at which it stops
# being there. Textbooks and lectures often quote about 20 cycles for what is on the multiprocessor, and 200
# to 300 for anything beyond. Compare:

# %%
for name, load in {
    "shared memory": measured.shared, "L1": measured.l1, "L2": measured.l2_hit, "device memory": measured.dram,
}.items():
    print(f"{name:14} {load.median_cycles:5.0f} cycles = {load.median_ns:4.0f} ns")

# %% [markdown]
# The first figure is about right, and so is the second for the L2 cache. Device memory is farther than that, and
# all of these are from a GPU that has nothing else to do.

# %% solved_only=true
assert 20 < measured.shared.median_cycles < measured.l1.median_cycles < 40
assert 200 < measured.l2_hit.median_cycles < 300
assert measured.dram.median_cycles > 2 * measured.l2_hit.median_cycles > 500

# %% [markdown]
# ## Little's law
#
# Here is the law. In a shop where customers stay for half an hour, and 40 come in per hour, there are 20
# inside at any time. In flight = rate x latency. That holds for shops, for highways, and for loads:
#
# $$\text{bytes in flight} = \text{bandwidth} \times \text{latency}$$
#
# Turn it round and it says how fast memory *can* be for a kernel: bytes in flight over latency. The latency is
# given. The one thing that is up to you is how much you keep in flight.

# %% question="latency/bytes_in_flight" points=2
lk.answer("latency/bytes_in_flight", 4500 * 350)

# %% question="latency/bytes_per_thread" points=1
lk.answer("latency/bytes_per_thread", 4500 * 350 / 132 / 2048)

# %% question="latency/threads_needed" points=1
lk.answer("latency/threads_needed", 4500 * 350 / 132 / 16)

# %% [markdown]
# <details><summary>Hint: the units</summary>
#
# 4500 GB/s are 4500 bytes per nanosecond.
#
# </details>
#
# About 12,000 bytes, *always*, on every multiprocessor. Does a real GPU obey? The next picture has kernels that differ
# in two things: how many warps they run, and how many loads each thread starts before it waits for the first. All of
# them read the same array. On the x axis is the product, the bytes in flight; the dotted line is the law.

# %%
lk.plots.littles_law(measured)

# %% [markdown]
# Dots of nearly all kinds fall on one curve. Memory does not know whether 16 KiB are in flight because there
# are many warps, or because each thread asked for several numbers, or for wide ones.
#
# One kind does not: 8 x 16 bytes per thread, at half the height. The source of that kernel starts eight loads
# before it adds anything. Its machine code does not: the compiler begins to add after five, and waits there. So
# these threads wait twice. What counts is what is in flight, not what the source seems to say.
#
# Two more things to see. The curve bends before it reaches the ceiling: when memory is busy, a load waits in a
# queue, and its latency grows. So take two or three times what the law asks for. And beyond that, more in
# flight brings nothing but longer queues.

# %% jupyter={"source_hidden": true}
top = max(rate.rate for rate in measured.reads)
for rate in sorted(measured.reads, key=lambda rate: rate.in_flight):
    if rate.width == 16 and rate.each in (1, 4):
        print(f"{rate.warps:2} warps x {rate.each} x 16 bytes: {rate.in_flight // measured.sms:>7,} bytes in flight, "
              f"{rate.rate:6,.0f} GB/s, {rate.rate / top:4.0%}")

# %% solved_only=true
per_sm = {(r.warps, r.each, r.width): r for r in measured.reads}
law = [r for r in measured.reads if r.in_flight / measured.sms <= 4096]
for r in law:  # while memory is far from busy, the law holds
    if r.each * r.width <= 64:
        assert 0.65 < r.rate / (r.in_flight / measured.dram.median_ns) < 1, r
assert 0.4 < per_sm[1, 8, 16].rate / per_sm[8, 1, 16].rate < 0.6  # two waits
assert per_sm[16, 4, 16].rate > 0.95 * per_sm[64, 1, 16].rate  # as many bytes in flight from a quarter of the threads
assert per_sm[64, 8, 16].rate < 1.1 * per_sm[16, 4, 16].rate  # and eight times as many bring nothing

# %% [markdown]
# ## Many walks, one thread
#
# One walk cannot be made faster: each hop waits for the one before. But there are many walks, and they do
# not depend on each other. One thread can follow eight side by side: start eight loads, then wait for the
# first of them.

# %% question="latency/interleaved/ratio" points=1
lk.answer("latency/interleaved/ratio", 8)

# %% [markdown]
# This is **instruction-level parallelism**. A thread's instructions start in order, and starting a load
# does not wait for its result; only the first instruction that *needs* the result does. In `interleaved`,
# eight places `p[0] ... p[7]` are kept at once. What is before the region is given: the places at which
# eight walks begin.

# %% [markdown]
# <details><summary>Hint 1: the order</summary>
#
# Two loops, one over the hops and one over the walks. Which one must be inside, so that eight loads in a row
# do not depend on each other?
#
# <details><summary>Hint 2: the end</summary>
#
# When W is not a multiple of 8, the last turn has walks that do not exist. They may run; they may not write.
#
# </details></details>

# %% kernel="latency/interleaved"

# %% check="latency/interleaved" points=3
interleaved = lk.problem("latency")["interleaved"]
interleaved.check()

# %%
t_interleaved = interleaved.time()
print(f"{ns_per_hop(t_interleaved):.0f} ns per hop, {ns_per_hop(t_walk) / ns_per_hop(t_interleaved):.1f} times faster "
      f"({t_interleaved.origin}, {t_interleaved.machine})")

# %% solved_only=true
assert 4 < ns_per_hop(t_walk) / ns_per_hop(t_interleaved) < 8

# %% [markdown]
# The same thread, the same loads, the same wait for each of them. Why not all of the eight? Eight loads wait as
# long as the slowest of them, and the addresses of the next eight have to be computed.
#
# ## A thread for each walk
#
# The other way is **thread-level parallelism**: a thread per walk. When a warp has to wait, its
# multiprocessor turns to another one, from one cycle to the next, at no cost. For a thread's variables live in
# **registers**, on the multiprocessor itself, and those of all its warps are there all the time; nothing has to be
# saved or fetched. That is what the thousands of threads are for.

# %% kernel="latency/many_threads"

# %% check="latency/many_threads" points=2
many_threads = lk.problem("latency")["many_threads"]
many_threads.check()

# %% [markdown]
# What does it reach, at a million walks? Each hop makes memory send a sector of 32 bytes.

# %%
t_many = many_threads.time()
for t in (t_walk, t_interleaved, t_many):
    print(f"{t.rung:13} {1e3 / ns_per_hop(t):9,.1f} million hops per second "
          f"({t.origin}, {t.machine})")

# %% solved_only=true
assert ns_per_hop(t_walk) / ns_per_hop(t_many) > 10_000

# %% [markdown]
# More than ten thousand times as many as one thread: far more loads are in flight than memory can serve, so they queue.
# How long does a load take then? Little's law, the other way round: what is in flight, over the rate. With 2048 threads
# on each multiprocessor:

# %%
resident = 2048 * measured.sms
print(f"many_threads: {resident:,} loads in flight, one done every {ns_per_hop(t_many):.3f} ns: each takes about "
      f"{resident * ns_per_hop(t_many) / 1e3:.1f} microseconds, {measured.dram.median_ns:.0f} ns of which is latency")

# %% [markdown]
# ### Explain
#
# A colleague says: "The GPU is only half full of threads with this kernel, that must be why it is slow."
# What do you ask before you believe it?

# %% [markdown] explain="latency/many_threads" points=2
# ### BEGIN SOLUTION
# How many bytes each thread keeps in flight. What hides latency is the product, threads times independent
# loads per thread times bytes per load; half of the threads with two loads each hide as much as all of
# them with one. Only if the product is too small, more threads help.
# ### END SOLUTION

# %% [markdown]
# ## Optional: both
#
# The two multiply. Let each thread follow four walks, `EACH`. How many threads are enough then?

# %% question="latency/both/threads_ratio"
lk.answer("latency/both/threads_ratio", 4)

# %% [markdown]
# <details><summary>Hint: which walks?</summary>
#
# `first` is the thread's first walk. Its next ones are `THREADS` further on each, so that neighboring threads
# have neighboring walks, and read neighbors of `start`. The rest is as in interleaved.
#
# </details>

# %% kernel="latency/both"

# %% check="latency/both"
both = lk.problem("latency")["both"]
both.check()

# %%
t_both = both.time()
print(f"many_threads {1e3 / ns_per_hop(t_many):,.0f} million hops per second, both {1e3 / ns_per_hop(t_both):,.0f} "
      f"({t_both.origin}, {t_both.machine})")

# %% [markdown]
# With a quarter of the threads it is as fast: memory is what both of them queue for.

# %% solved_only=true
assert 0.9 < ns_per_hop(t_many) / ns_per_hop(t_both) < 1.1

# %% [markdown]
# # More with fewer threads
#
# The law is not about memory. A multiply-add takes 4 cycles until its result can be used, and each of the
# 4 schedulers of a multiprocessor can start one, for a whole warp, in every cycle.

# %% question="latency/warps_for_fma" points=2
lk.answer("latency/warps_for_fma", 8)

# %% [markdown]
# <details><summary>Hint</summary>
#
# In flight = rate x latency: how many multiply-adds, of whole warps, must be in flight on a multiprocessor? Each
# warp contributes as many as it has independent ones.
#
# </details>
#
# In the next picture, every thread has 1, 2, 4 or 8 chains of multiply-adds `a = a * m + b`. Within a chain, each
# needs the result before it; chains do not need each other.

# %%
lk.plots.ilp(measured)

# %% [markdown]
# On the left, the law: twice the chains, or twice the warps, give twice the work, until the multiprocessor is
# busy. So "occupancy", the share of the places for warps that are taken, is not a goal. It is one of two ways to
# get things in flight. The other one leaves each thread more registers, which the next labs will need badly: a
# matrix product at full speed runs at an eighth of the warps that fit.
#
# <details><summary>Why do one and two chains never reach the top, however many warps there are?</summary>
#
# That is not latency any more: there are warps enough. A multiply-add reads three registers, `a * m + b`, and when
# all three have to come from the register file, it takes two cycles: half of the top. All chains share `m` and `b`.
# With several of them, the instruction before has just read the same two, and the hardware keeps them at hand (the
# compiler asks for that: the machine code says `.reuse`). With two chains that spares every second instruction
# its extra cycle, three cycles for two: two thirds of the top. Another gain from more work per thread.
#
# </details>

# %%
rate = {(r.warps, r.each): r.rate for r in measured.fmas}
for warps, chains in (64, 1), (8, 2), (8, 4):
    print(f"{warps:2} warps with {chains} chain{'s' * (chains > 1)}: {rate[warps, chains] / 1e3:.1f} TFLOP/s")

# %% solved_only=true
peak = 66.9e3  # 132 * 128 multiply-adds per cycle at 1980 MHz, counted twice
for busy in (1, 1), (2, 1), (4, 1), (1, 2), (4, 2):
    assert 0.9 < rate[busy] / (peak * busy[0] * busy[1] / 16) < 1
assert rate[8, 4] > 1.8 * rate[64, 1] and rate[8, 2] > 1.25 * rate[64, 1] and rate[8, 2] > 0.95 * rate[64, 2]
assert 0.47 < rate[64, 1] / peak < 0.51 and 0.64 < rate[64, 2] / peak < 0.68 and rate[64, 4] / peak > 0.93

# %% [markdown]
# ## Optional: rung 5, vectorized
#
# Back to the vectors, with the law in hand (the next notebook takes the same step with a copy). A thread of grid has
# two loads of 4 bytes in flight. A full multiprocessor has 2048 of them: 16 KiB at best. Find that in the picture of
# Little's law: it is where the curve bends. The widest load there is takes 16 bytes: `lk.cuda.load4(array, i)` gives
# four neighbors, and `lk.cuda.store4(array, i, (a, b, c, d))` writes four. Their address must be a multiple of 16
# bytes.

# %% question="vector_add/vectorized/request_ratio"
lk.answer("vector_add/vectorized/request_ratio", 4)

# %% [markdown]
# ### Write
#
# `i` is the first of the thread's four elements. Mind the end, and arrays that are not aligned: then go
# element by element.

# %% [markdown]
# <details><summary>Hint 1: the two cases</summary>
#
# If `aligned`, and all four elements exist: two `load4` and one `store4`. Else: a loop over those that exist.
#
# <details><summary>Hint 2: the tuple</summary>
#
# `load4` returns four numbers, `a[0]` to `a[3]`; `store4` takes a tuple of four.
#
# </details></details>

# %% kernel="vector_add/vectorized"

# %% check="vector_add/vectorized"
vectorized = lk.problem("vector_add")["vectorized"]
vectorized.check()

# %%
p_vectorized = vectorized.profile(**shape)
p_vectorized.diff(p_grid)

# %%
t_vectorized = vectorized.time()
for name, t in {"grid": t_grid, "vectorized": t_vectorized}.items():
    print(f"{name:12} {t.gbps:6,.0f} GB/s, {t.ratio:.1%} of PyTorch's speed, {share(t)}")

# %% [markdown]
# (More than the ceiling? That was measured with a copy, which writes as much as it reads. Memory reads somewhat
# faster than it writes, and here two of three bytes are read.)

# %% solved_only=true
assert t_vectorized.ceilings["copy_gbps"] < t_vectorized.gbps < t_vectorized.ceilings["read_gbps"]
assert p_grid[REQUESTS] == 4 * p_vectorized[REQUESTS]
assert t_vectorized.gbps > 0.95 * t_vectorized.ceilings["copy_gbps"] and t_vectorized.ratio > 0.98
assert t_vectorized.gbps > 1.15 * t_grid.gbps

# %% [markdown]
# ### Explain
#
# vectorized has four times as many bytes in flight as grid, and is faster, but not four times. Why not?
# (Hint: which two things bound the bandwidth?)

# %% [markdown] explain="vector_add/vectorized"
# ### BEGIN SOLUTION
# Little's law gives one bound, and what the memory can send at all is the other. With grid's bytes in flight the
# curve has already bent: it is near the ceiling. Four times as many lift it to the ceiling, where memory binds and
# more bytes in flight bring nothing.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="vector_add/vectorized" language="cuda"

# %% check="vector_add/vectorized" language="cuda"
lk.problem("vector_add")["vectorized", "cuda"].check()

# %% [markdown]
# ## What to take with you
#
# - A GPU runs warps of 32 lanes, in blocks, on multiprocessors. Fill all three.
# - A load from device memory takes hundreds of nanoseconds, whatever you do.
# - In flight = rate x latency. Enough bytes in flight, from many threads, or several loads per thread, or
#   wide loads, and the latency disappears.
#
# Next: [Memory](02_memory.ipynb) looks at the bytes themselves: which of them memory sends, and how few of them a
# careless kernel uses.
