# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix times vector, and weights in 8 bits
#
# A language model that answers you makes one token after the other, and for each it multiplies every one of its
# matrices with a vector. This notebook is about that one operation. First you compute, with pencil and paper, how
# fast a given model can be on a given GPU; then you climb a ladder of kernels that gets there, as the inference
# engine *yalm* does; and then you halve the work by storing weights in 8 bits, as *llama.cpp* does.
#
# Counts come from your own kernels, from the emulator where there is no GPU. Times are those of our kernels in CUDA
# C++, *recorded* on an NVIDIA H200; `matvec["vectorized"].time()` measures yours on a GPU. You need Little's law from
# [the first notebook](01_threads_and_latency.ipynb) and shuffles from [the one before
# this](05_reductions_and_norms.ipynb). Nothing needs the parts that are called optional.

# %%
import labkit as lk


def ours(problem, rung):
    """The time of our kernel in CUDA C++, as recorded."""
    return problem[rung, "cuda"].time(recorded=True)


matvec = lk.problem("matvec")
matvec

# %% [markdown]
# ## How fast can a model answer?
#
# $y = W x$: each weight of $W$ is multiplied with one number of $x$ and added to a sum, two operations, and is then
# of no more use for this token. $x$ and $y$ are thousands of times smaller than $W$. How many operations per byte?

# %% question="matvec/intensity" points=1
lk.answer("matvec/intensity", 1)

# %% [markdown]
# And how many could a GPU do in the time in which one byte comes from memory? Divide its ceilings:

# %%
from labkit import recorded

ceilings = recorded.ceilings("NVIDIA H200")
ridge = ceilings["fp32_tflops"] * 1e12 / (ceilings["read_gbps"] * 1e9)
print(f"FP32: {ceilings['fp32_tflops']:.1f} TFLOP/s, reading: {ceilings['read_gbps']:.0f} GB/s (recorded on an H200)")
print(f"so {ridge:.1f} FLOP can be done in the time of one byte; a matvec needs 1")

# %% solved_only=true
assert ridge > 10

# %% [markdown]
# Arithmetic is waiting for memory, by far. So the time of a token is the time in which all the weights come by once,
# and with them the keys and values of all tokens before:
#
# $$\text{tokens per second} = \frac{\text{bandwidth}}{\text{bytes per token}}$$
#
# Here are the bytes of Mistral-7B, in float16, with a context of 4096 tokens, derived from the sizes of its matrices:

# %%
import pandas as pd

from labkit.models.decode import FP16, FP32, MISTRAL_7B, Q8_0, speed

parts = MISTRAL_7B.bytes_per_token(4096)
yalm = MISTRAL_7B.bytes_per_token(4096, classifier=FP32)
pd.DataFrame({"bytes per token": parts, "as yalm counts": yalm}).style.format("{:,}")

# %%
print(f"{sum(parts.values()):,} bytes, and {sum(yalm.values()):,} as yalm counts")

# %% [markdown]
# yalm's published figure is the second: it keeps the last matrix, the classifier, in float16, and counts it with 4
# bytes per weight. The difference is 1.8%; a figure is worth checking even where it hardly matters.

# %% solved_only=true
assert sum(yalm.values()) == 15_020_875_776
assert 0.017 < sum(yalm.values()) / sum(parts.values()) - 1 < 0.019

# %% question="matvec/tokens_per_second" points=1
lk.answer("matvec/tokens_per_second", 67.1)

# %% [markdown]
# yalm reached 63.8 tokens/s on that card. And elsewhere? Bandwidth is the one that was measured, where somebody
# measured it, and the datasheet's otherwise. (With a GPU of your own, `speed(parts)` takes that.)

# %%
for machine in ("NVIDIA L4", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB", "NVIDIA H200"):
    print(speed(parts, machine))

# %%
try:
    print(speed(parts))
except lk.LabkitError as error:
    print(error)

# %% [markdown]
# These are the speeds if every matvec runs at full bandwidth. The rest of the notebook is about getting there.
#
# ## Rung 1: thread_per_row
#
# One thread per row of $W$: it goes along its row, multiplies and adds. The kernel is given. Weights are float16 and
# are widened to float32 when they are read; everything else is float32.

# %% kernel="matvec/thread_per_row" given=true

# %% check="matvec/thread_per_row"
thread_per_row = matvec["thread_per_row"]
thread_per_row.check()

# %% [markdown]
# ### Predict
#
# For one `k`, the 32 lanes of a warp read 32 different rows: a request takes 32 sectors. And how much of the GPU is at
# work? Every row is one thread.

# %% question="matvec/thread_per_row/resident_threads" points=1
lk.answer("matvec/thread_per_row/resident_threads", 1.515)

# %% [markdown]
# ### Profile

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
STORED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"

shape = dict(M=64, K=512)
p_thread = thread_per_row.profile(**shape)
lk.plots.access_map(p_thread, "W")

# %% [markdown]
# Every lane is alone in its sector, and of 32 bytes it uses 2 now. The other 30 may still be in the L1 cache when their
# turn comes, or they may not. The load of `x[k]` is the other extreme: all lanes want the same number, one sector.

# %%
print(f"{p_thread[PER_REQUEST]} sectors per request, over both loads ({p_thread.origin})")

# %% solved_only=true
assert p_thread[PER_REQUEST] == (32 + 1) / 2

# %% [markdown]
# ## Rung 2: warp_per_row
#
# Let a whole warp share a row: lane $n$ takes columns $n$, $n + 32$, $n + 64$ and so on. Neighbors read neighbors,
# and there are 32 times as many threads. In the end each lane holds a part of the sum, and the parts have to come
# together: by the five shuffles of the reductions, which the stub has as `warp_sum`; lane 0 then has the sum.
#
# ### Predict

# %% question="matvec/warp_per_row/sectors_per_request" points=1
lk.answer("matvec/warp_per_row/sectors_per_request", 2)

# %% [markdown]
# ### Write
#
# <details><summary>Hint 1: the loop</summary>
#
# Every lane starts at its own number and goes on by 32. What if $K$ is no multiple of 32?
#
# <details><summary>Hint 2: who stores?</summary>
#
# All 32 lanes take part in `warp_sum`, also those that had nothing to add; just one of them has the whole sum
# afterwards.
#
# </details></details>

# %% kernel="matvec/warp_per_row"

# %% check="matvec/warp_per_row" points=3
warp_per_row = matvec["warp_per_row"]
warp_per_row.check()

# %%
p_warp = warp_per_row.profile(**shape)
p_warp.diff(p_thread)

# %%
lk.plots.access_map(p_warp, "W")

# %% solved_only=true
assert p_warp[REQUESTS] == p_thread[REQUESTS]
assert p_warp[PER_REQUEST] == 3  # 2 of W and 4 of x, in turn
assert p_warp[SECTORS] < p_thread[SECTORS] / 5

# %% [markdown]
# ### Explain
#
# A request takes 3 sectors on average, though the load of `W` takes 2. Where does the rest come from?

# %% [markdown] explain="matvec/warp_per_row" points=1
# ### BEGIN SOLUTION
# Half of the requests are for x. Its numbers are float32: 32 neighbors are 128 bytes, 4 sectors. The mean of 2 and 4
# is 3. x is small and read by every warp, so that it comes from the caches.
# ### END SOLUTION

# %% [markdown]
# ## Optional: rung 3, block_transpose
#
# When yalm's author looked at this kernel with Nsight Compute, it complained about stores: every warp stores one
# number, 4 bytes of a sector of 32. His remedy: put 32 warps in a block, let each leave its sum in shared memory, and
# let one warp store all 32 side by side. Lane 0 of 32 warps becomes 32 lanes of one warp, hence the name.
#
# ### Predict

# %% question="matvec/block_transpose/store_requests"
lk.answer("matvec/block_transpose/store_requests", 32)

# %% [markdown]
# ### Write
#
# <details><summary>Hint 1: the order of things</summary>
#
# Sum as before; lane 0 of each warp leaves the result in `sums[warp]`; barrier; the first warp stores.
#
# <details><summary>Hint 2: the last block</summary>
#
# It may have fewer than 32 rows. Its other warps have no row, but they must come to the barrier: guard the loads and
# the stores, and return nowhere.
#
# </details></details>

# %% kernel="matvec/block_transpose"

# %% check="matvec/block_transpose"
block_transpose = matvec["block_transpose"]
block_transpose.check()

# %%
p_block = block_transpose.profile(**shape)
p_block.diff(p_warp)

# %% solved_only=true
assert p_block[STORES] * 32 == p_warp[STORES]
assert p_block[STORED_SECTORS] * 8 == p_warp[STORED_SECTORS]
assert p_block[REQUESTS] == p_warp[REQUESTS]

# %% [markdown]
# The stores are perfect now. But how much of all traffic are they? Before you look at the times, compute it: a row of
# 8192 weights is 16384 bytes, and its result 4.

# %%
t_warp, t_block = ours(matvec, "warp_per_row"), ours(matvec, "block_transpose")
print(t_warp)
print(t_block)

# %%
ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
DRAM_WRITTEN, DRAM_READ = "dram__bytes_write.sum", "dram__bytes_read.sum"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

on_h200 = {rung: matvec[rung, "cuda"].recorded() for rung in ("warp_per_row", "block_transpose")}
for rung, p in on_h200.items():
    queue, barrier = p[STALL.format("lg_throttle")], p[STALL.format("barrier")]
    print(f"{rung:15} {p[STORES]:6,.0f} stores, {p[DRAM_READ] / 1e6:.0f} MB read, {p[DRAM_WRITTEN] / 1e6:.0f} MB "
          f"written, {p[ACTIVE]:.0f}% of the warps that fit")
    print(f"{'':15} warps that wait, per instruction: {queue:.1f} in the queue to L1, {barrier:.1f} at a barrier")

# %% [markdown]
# On the H200 this rung is slower, by a little. Of the stores a 32nd is left, and next to what is read they were nothing
# from the start. Blocks of one warp fill half of the places for warps, for a multiprocessor takes 32 blocks at most;
# now nearly all are taken, and that does not help either. The additional warps stand in the queue to L1
# (`lg_throttle`), and at the new barrier. On yalm's RTX 4090, with a smaller model, the whole engine went from 54.1 to
# 56.1 tokens/s. A profiler's warning says that something is not ideal, not that it matters.

# %% solved_only=true
assert 1 < t_block.median_ms / t_warp.median_ms < 1.15
p_warps, p_blocks = on_h200.values()
assert p_warps[STORES] == 32 * p_blocks[STORES] and p_warps[DRAM_WRITTEN] < 0.01 * p_warps[DRAM_READ]
assert abs(p_blocks[DRAM_READ] / p_warps[DRAM_READ] - 1) < 0.01
assert p_warps[ACTIVE] <= 50 and p_blocks[ACTIVE] > 85
assert p_blocks[STALL.format("lg_throttle")] > 5 * p_warps[STALL.format("lg_throttle")]
assert p_blocks[STALL.format("barrier")] > 1 and p_warps[STALL.format("barrier")] < 0.1

# %% [markdown]
# ## Rung 4: vectorized
#
# What limits the kernel is Little's law: a lane that asks for 2 bytes and waits has 2 bytes in flight. Ask for 16 bytes
# at once, of two rows, and do not wait for one before you ask for the next.
#
# `lk.cuda.load8(W, i)` reads 8 float16 from element `i` on in one access, as a tuple of 8 float32; `lk.cuda.load4(x,
# i)` reads 4 float32. The index must be a multiple of 8 or 4. The stub has the way for rows that are not so kind, and
# `dot8`, which multiplies 8 weights with 8 numbers.
#
# ### Predict

# %% question="matvec/vectorized/requests_per_row" points=1
lk.answer("matvec/vectorized/requests_per_row", 8)

# %% [markdown]
# ### Write
#
# <details><summary>Hint 1: who reads what</summary>
#
# Lane $n$ reads columns $8n$ to $8n + 7$, then the same 256 columns further on. Row `row` begins at element `row * K`.
#
# <details><summary>Hint 2: two rows</summary>
#
# Read 8 weights of either row, then 8 numbers of `x`, and use these for both sums, `first` and `second`.
#
# <details><summary>Hint 3: more in flight</summary>
#
# First make it right with one step at a time. Then do four steps (1024 columns) in one pass of the loop, with all eight
# loads of `W` before the first product, and go on one step at a time where fewer are left.
#
# </details></details></details>

# %% kernel="matvec/vectorized"

# %% check="matvec/vectorized" points=4
vectorized = matvec["vectorized"]
vectorized.check()

# %%
p_vectorized = vectorized.profile(**shape)
p_vectorized.diff(p_warp)

# %%
lk.plots.access_map(p_vectorized, "W")

# %% [markdown]
# Look at the theoretical occupancy in the table above: a multiprocessor can hold fewer warps of this kernel, for
# each needs more registers. They are kept for the numbers that loads in flight will bring. `launch_bounds=(THREADS, 1)`
# allows it: the compiler may give a thread as many registers as it likes, as long as one block fits. What counts is
# bytes in flight, not warps: many warps with 2 bytes per lane, or half of them with 128.

# %% solved_only=true
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
assert p_vectorized[OCCUPANCY] <= p_warp[OCCUPANCY] / 2 <= p_block[OCCUPANCY] / 4
assert p_vectorized[REQUESTS] * 8 == p_warp[REQUESTS]
assert p_vectorized[INSTRUCTIONS] < p_warp[INSTRUCTIONS] / 3

# %% [markdown]
# ### What it is worth
#
# 28672 rows of 8192 weights, 470 MB, a matrix of Llama 2 70B. PyTorch cannot multiply float16 with float32. What people
# call there, `torch_fp16`, rounds $x$ to float16, multiplies in float16, and widens $y$ again: three launches.

# %%
from labkit.bench import show_recorded

timings = [t for t in show_recorded("matvec").timings if t.shape == matvec.bench_shape]
lk.plots.ladder([t for t in timings if "torch" not in t.label])

# %%
torch_fp16 = next(t for t in timings if t.label == "matvec/torch_fp16")
top = ours(matvec, "vectorized")
for t in (torch_fp16, matvec["vectorized"].time(), top):
    print(t)

# %% solved_only=true
assert top.median_ms < torch_fp16.median_ms
assert top.gbps > 4250

# %% [markdown]
# The same ladder in Python and in C++ differs most in the middle. Count instructions: in `warp_per_row`, numba
# computes the place of `W[row, k]` anew for each weight, in 64 bits, and the warps are busy with that.

# %%
for rung in ("warp_per_row", "vectorized"):
    python, cpp = (matvec[rung, language].time(recorded=True) for language in ("numba", "cuda"))
    counted = [matvec[rung, language].recorded() for language in ("numba", "cuda")]
    spent = [32 * p[INSTRUCTIONS] / (28672 * 8192) for p in counted]
    print(f"{rung:14} {python.gbps:6.0f} GB/s in Python, {cpp.gbps:6.0f} GB/s in C++; instructions per weight: "
          f"{spent[0]:.1f} and {spent[1]:.1f} ({python.origin})")

# %% solved_only=true
assert matvec["warp_per_row"].recorded().explain().binds == "integer" and counted[0].explain().binds == "DRAM"
slow, quick = (matvec["warp_per_row", language].recorded()[INSTRUCTIONS] for language in ("numba", "cuda"))
assert slow > 4 * quick and counted[0][INSTRUCTIONS] < 1.2 * counted[1][INSTRUCTIONS]

# %% [markdown]
# ### Explain
#
# Every kernel from `warp_per_row` on reads the same bytes once, neatly. Why is `vectorized` faster nevertheless?

# %% [markdown] explain="matvec/vectorized" points=2
# ### BEGIN SOLUTION
# Bandwidth is what is in flight over the latency. A lane of warp_per_row has one load of 2 bytes in flight, or a few
# where the compiler unrolls the loop; a lane of vectorized has eight of 16 bytes. And it spends an eighth of the load
# instructions, and far fewer instructions for addresses, on the same weights.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="matvec/thread_per_row" language="cuda" given=true

# %% check="matvec/thread_per_row" language="cuda"
matvec["thread_per_row", "cuda"].check()

# %% kernel="matvec/warp_per_row" language="cuda"

# %% check="matvec/warp_per_row" language="cuda"
matvec["warp_per_row", "cuda"].check()

# %% kernel="matvec/block_transpose" language="cuda"

# %% check="matvec/block_transpose" language="cuda"
matvec["block_transpose", "cuda"].check()

# %% kernel="matvec/vectorized" language="cuda"

# %% check="matvec/vectorized" language="cuda"
matvec["vectorized", "cuda"].check()

# %% [markdown]
# ## Optional: two matrices at once, the feed-forward network
#
# Llama's feed-forward network begins with $h = \mathrm{silu}(W_1 x) \cdot (W_3 x)$, number by number, where
# $\mathrm{silu}(z) = z / (1 + e^{-z})$. yalm first did that with three launches. Two are matvecs; write the third.

# %%
ffn_glu = lk.problem("ffn_glu")
ffn_glu

# %% kernel="ffn_glu/three_kernels"

# %% check="ffn_glu/three_kernels"
three_kernels = ffn_glu["three_kernels"]
three_kernels.check()

# %% [markdown]
# Each launch begins when the one before has ended, to the last block: three times, the GPU runs empty and fills up
# again. And what the matvecs found out goes to memory and comes back:

# %% question="ffn_glu/fused_glu/bytes_saved"
lk.answer("ffn_glu/fused_glu/bytes_saved", 16 * 14336)

# %% [markdown]
# Little beside the 235 MB of weights. So it must be the launches that count, if anything does. Write it as one
# kernel: a warp goes along row `row` of both matrices and keeps two sums, `gate` of $W_1$ and `up` of $W_3$.
#
# <details><summary>Hint</summary>
#
# It is `vectorized` again, with its two rows from two matrices. Where rows are not aligned, go number by number, as the
# matvec of `three_kernels` does.
#
# </details>

# %% kernel="ffn_glu/fused_glu"

# %% check="ffn_glu/fused_glu"
fused_glu = ffn_glu["fused_glu"]
fused_glu.check()

# %%
fused_glu.profile().diff(three_kernels.profile())

# %%
for rung in ("three_kernels", "fused_glu"):
    print(ours(ffn_glu, rung))

# %% solved_only=true
assert ours(ffn_glu, "fused_glu").median_ms < ours(ffn_glu, "three_kernels").median_ms

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="ffn_glu/three_kernels" language="cuda"

# %% check="ffn_glu/three_kernels" language="cuda"
ffn_glu["three_kernels", "cuda"].check()

# %% kernel="ffn_glu/fused_glu" language="cuda"

# %% check="ffn_glu/fused_glu" language="cuda"
ffn_glu["fused_glu", "cuda"].check()

# %% [markdown]
# ## Weights in 8 bits
#
# At full bandwidth, only one thing makes a matvec faster: fewer bytes. llama.cpp's format `q8_0` cuts a row of
# weights into blocks of 32. A block stores one float16 scale $d$ and 32 signed bytes $q_i$, and weight $i$ is $d
# \cdot q_i$. (Such a block of weights has nothing to do with a block of threads.)
#
# ```
# byte   0    1    2    3    4   ...   33 | 34   35   36  ...
#      +---------+----+----+----+-----+----+---------+----
#      | d (f16) | q0 | q1 | q2 | ... | q31| d (f16) | q0 ...      the next block
#      +---------+----+----+----+-----+----+---------+----
# ```

# %%
matvec_q8_0 = lk.problem("matvec_q8_0")
inputs = matvec_q8_0.make_inputs(dict(M=1, K=64))
W = inputs["W"]
block = bytes(W[0, :34].tolist())
print(W.shape, W.dtype)
print(block.hex(" "))

# %%
import struct

d, *q = struct.unpack("<e32b", block)  # a float16, then 32 signed bytes
print(f"d = {d}, q = {q[:4]} ..., weights {[round(d * v, 4) for v in q[:4]]} ...")

# %% question="matvec_q8_0/bits_per_weight" points=1
lk.answer("matvec_q8_0/bits_per_weight", 34 / 4)

# %% question="matvec_q8_0/speedup" points=1
lk.answer("matvec_q8_0/speedup", 1.88)

# %% [markdown]
# ## Rung 1: dequantize
#
# The plain way: turn weights into float32 when they are read, scale times quant, and go on as before. A warp takes a
# row; a lane takes two neighboring weights at a time, the warp 64.
#
# `bytes_of` are the bytes of `W` with a sign, 34 to a block; `halves_of` are the same bytes read as float16, 17 to a
# block, of which the first is a scale and the rest is nonsense. (`matvec_q8_0` also has the arguments `Q` and `D`.
# They are for the last rung.)
#
# The kernel is given. Before you read it: weight `k` lies in block `k // 32`; where does its scale stand in
# `halves_of`, and where its quant in `bytes_of`?

# %% kernel="matvec_q8_0/dequantize" given=true

# %% check="matvec_q8_0/dequantize"
dequantize = matvec_q8_0["dequantize"]
dequantize.check()

# %%
small = dict(M=32, K=512)
p_dequantize = dequantize.profile(**small)
weights = small["M"] * small["K"]
print(f"{32 * p_dequantize[INSTRUCTIONS] / weights:.1f} thread instructions per weight ({p_dequantize.origin})")

# %%
print(ours(matvec_q8_0, "dequantize"))
print(ours(matvec, "vectorized"))

# %% [markdown]
# The first has 8192 rows of 28672 weights, the second 28672 rows of 8192: as many weights, and little more than half
# the bytes. Yet it takes longer. Bytes are not the limit here. This is one load of a warp, of its scales:

# %%
lk.plots.access_map(p_dequantize, "W")

# %% [markdown]
# A whole request for two numbers. The quants come in requests of their own, a byte per lane in each, and every weight
# costs several instructions besides. Count both, requests and instructions, from here on.

# %% solved_only=true
assert matvec_q8_0.bench_shape["M"] * matvec_q8_0.bench_shape["K"] == matvec.bench_shape["M"] * matvec.bench_shape["K"]
assert ours(matvec_q8_0, "dequantize").median_ms > ours(matvec, "vectorized").median_ms

# %% [markdown]
# ## Rung 2: dp4a
#
# One instruction, `dp4a`, takes two words of four signed bytes each, multiplies them in pairs, and adds the four
# products to an int32, exactly. For that, $x$ must be in 8 bits too. So a first kernel rounds it to blocks, `q8_1` in
# llama.cpp:
#
# ```
# byte   0    1    2    3    4    5   ...   35 | 36 ...
#      +---------+---------+----+----+-----+----+----
#      | d (f16) | s (f16) | q0 | q1 | ... | q31| d ...
#      +---------+---------+----+----+-----+----+----
# ```
#
# with $d = \max|x_i| / 127$ over the block, $q_i = x_i / d$ rounded to the nearest, and $s$, the sum of the block,
# which other formats need. Then the product of two blocks is $d_W \, d_x \sum q_W q_x$.
#
# ### Predict

# %% question="matvec_q8_0/dp4a/instructions_per_block" points=1
lk.answer("matvec_q8_0/dp4a/instructions_per_block", 8)

# %% [markdown]
# Words of 4 bytes must lie on addresses that are multiples of 4. Do they?

# %% question="matvec_q8_0/dp4a/alignment" points=1
lk.answer("matvec_q8_0/dp4a/alignment", 4)

# %% [markdown]
# ### Write
#
# Both kernels. `lk.cuda.dp4a(a, b, c)` is the instruction; all three are int32. A block of W is 17 int16 (`W_pairs`),
# so that four quants come as two of them, the first in the low half. A block of x is 9 int32 (`xq_words`), of which
# the first is `d` and `s`.
#
# <details><summary>Hint 1: the largest of a block</summary>
#
# 32 numbers are a warp. `cuda.shfl_xor_sync(mask, v, far)` gives the `v` of the lane whose number differs in one bit;
# after five steps all lanes have the largest.
#
# <details><summary>Hint 2: a block of zeros</summary>
#
# Its scale is 0. What would `x / d` be?
#
# <details><summary>Hint 3: who multiplies what</summary>
#
# As llama.cpp does it: 4 lanes share a block, each takes 8 quants, two words; a warp takes 8 blocks at a time.
#
# <details><summary>Hint 4: two halves to a word</summary>
#
# An int16 that becomes an int32 keeps its sign. Of the low half, clear what that fills in above (`& 0xFFFF`); the
# high half goes up by 16 bits.
#
# </details></details></details></details>

# %% kernel="matvec_q8_0/dp4a"

# %% check="matvec_q8_0/dp4a" points=5
dp4a = matvec_q8_0["dp4a"]
dp4a.check()

# %%
p_dp4a = dp4a.profile(**small)
p_dp4a.diff(p_dequantize)

# %% solved_only=true
assert p_dp4a[INSTRUCTIONS] < p_dequantize[INSTRUCTIONS]
assert p_dp4a[REQUESTS] < p_dequantize[REQUESTS]

# %% [markdown]
# ### Optional: how wrong may it be?
#
# Rounding $x$ is an error, of course, and the check must grant it without letting a wrong kernel through. A number is
# off by at most $d/2$, and all errors between $-d/2$ and $d/2$ are as likely: a variance of $d^2/12$. A sum of
# independent errors has the sum of their variances:
#
# $$\sigma^2 = \sum_b \frac{d_b^2}{12} \sum_{i \in b} w_i^2$$
#
# and a little more for rounding $d_b$ to float16.
#
# The check allows $8\sigma$. Does it hold? 2000 rows, with $x$ rounded in exact arithmetic:

# %%
import torch

from labkit.problems import _q8

many = matvec_q8_0.make_inputs(dict(M=2000, K=1024), seed=5)
exact = _q8.product(many["W"], many["x"])
blocks = many["x"].double().reshape(-1, 32)
scale = blocks.abs().amax(1, keepdim=True) / 127
rounded = torch.where(scale > 0, (blocks / scale).round() * scale.half().double(), 0)
off = (_q8.product(many["W"], rounded.flatten()) - exact) / (_q8.magnitude(many["W"], many["x"]) * _q8.U32)
worst_case = (_q8.weights(many["W"]).abs() * (scale / 2)).sum((1, 2)).mean()
print(f"errors in sigma: standard deviation {off.std():.2f}, largest {off.abs().max():.2f}; allowed 8")
print(f"if all errors pointed one way: {worst_case / (_q8.magnitude(many['W'], many['x']) * _q8.U32).mean():.0f} sigma")

# %% solved_only=true
assert 0.7 < off.std() < 1.1 and off.abs().max() < 6
assert 4 < worst_case / (8 * _q8.magnitude(many["W"], many["x"]) * _q8.U32).mean() < 7

# %% [markdown]
# So $8\sigma$ is honest. A bound for the worst case, all errors in one direction, would have to be five times wider
# for rows of 1024, and wider still for longer ones, as the square root of their length: a kernel that leaves out a
# weight or two would pass. In the result, the rounding of $x$ is a fraction of a percent:

# %%
print(f"relative error of y: {((_q8.product(many['W'], rounded.flatten()) - exact).norm() / exact.norm()):.2%}")

# %% [markdown]
# ## Optional: rung 3, repacked
#
# 34 is an awkward number. Blocks of 34 bytes never let 16-byte loads be aligned, and a scale sits between every 32
# quants. So take them apart: `Q`, int8 `[M, K]`, holds the quants of all blocks side by side, and `D`, float16 `[M, K
# / 32]`, their scales. The same bytes, in another order; an engine does that once, when it loads the file. Your
# kernel is given both as arguments.
#
# ### Predict

# %% question="matvec_q8_0/repacked/load_instructions"
lk.answer("matvec_q8_0/repacked/load_instructions", 8)

# %% [markdown]
# ### Write
#
# `lk.cuda.load16(Q, i)` reads 16 signed bytes in one access, as 4 words. The stub rounds `x`, has `dot16` for the
# product of 16 quants with 16, and gives each warp two rows, `row` and `next_row`.
#
# <details><summary>Hint 1: who reads what</summary>
#
# Lane $n$ takes quants $16 n$ to $16 n + 15$, half a block, then the same 512 further on. Quant `k` belongs to scale
# `k // 32`.
#
# <details><summary>Hint 2: more in flight</summary>
#
# As before: first one step at a time; then two, with all loads of `Q` and `D` before the first product.
#
# </details></details>

# %% kernel="matvec_q8_0/repacked"

# %% check="matvec_q8_0/repacked"
repacked = matvec_q8_0["repacked"]
repacked.check()

# %%
p_repacked = repacked.profile(**small)
p_repacked.diff(p_dp4a)

# %%
lk.plots.access_map(p_repacked, "Q")

# %% solved_only=true
assert p_repacked[REQUESTS] * 3 < p_dp4a[REQUESTS]
assert p_repacked[INSTRUCTIONS] < p_dp4a[INSTRUCTIONS]

# %% [markdown]
# ## What it is worth: 8 bits
#
# `repacked` has scales and quants apart, so that a lane reads 16 quants at once, of two rows.

# %%
q8_timings = show_recorded("matvec_q8_0").timings
lk.plots.ladder([t for t in q8_timings if t.shape == matvec_q8_0.bench_shape])

# %%
q8 = ours(matvec_q8_0, "repacked")
half = ours(matvec, "vectorized")
print(q8)
print(f"{half.median_ms / q8.median_ms:.2f} times as fast as float16, with as many weights; 16 / 8.5 = {16 / 8.5:.2f}")

# %% solved_only=true
assert q8.gbps > 0.85 * ceilings["read_gbps"]
assert 1.5 < half.median_ms / q8.median_ms < 16 / 8.5

# %% [markdown]
# `dequantize` and `repacked` read as many bytes from memory. The difference is in load requests and instructions, of
# which `repacked` needs less than an eighth: 16 quants with one load, 4 with one dp4a. So its warps wait for memory, as
# they should, and those of `dequantize` are busy with instructions.

# %% solved_only=true
unpacked, packed = (matvec_q8_0[rung, "cuda"].recorded() for rung in ("dequantize", "repacked"))
assert abs(unpacked[DRAM_READ] / packed[DRAM_READ] - 1) < 0.02
assert unpacked[REQUESTS] > 8 * packed[REQUESTS] and unpacked[INSTRUCTIONS] > 8 * packed[INSTRUCTIONS]
assert packed.explain().binds == "DRAM" != unpacked.explain().binds

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="matvec_q8_0/dequantize" language="cuda" given=true

# %% check="matvec_q8_0/dequantize" language="cuda"
matvec_q8_0["dequantize", "cuda"].check()

# %% kernel="matvec_q8_0/dp4a" language="cuda"

# %% check="matvec_q8_0/dp4a" language="cuda"
matvec_q8_0["dp4a", "cuda"].check()

# %% kernel="matvec_q8_0/repacked" language="cuda"

# %% check="matvec_q8_0/repacked" language="cuda"
matvec_q8_0["repacked", "cuda"].check()

# %% [markdown]
# ## Your page
#
# Back to the first question. How many tokens per second can Mistral-7B generate, in float16 and with weights in q8_0,
# and how close do the kernels come? The bound takes the read bandwidth; the kernels' rates are those of the matvecs
# alone.

# %% jupyter={"source_hidden": true}
machine = half.machine
page = pd.DataFrame(
    {
        "GB per token": sum(bytes_.values()) / 1e9,
        "tokens/s at most": speed(bytes_, machine).tokens_per_s,
        "tokens/s at this kernel's rate": timing.gbps * 1e9 / sum(bytes_.values()),
    }
    for bytes_, timing in (
        (MISTRAL_7B.bytes_per_token(4096, weight=FP16), half),
        (MISTRAL_7B.bytes_per_token(4096, weight=Q8_0), q8),
    )
)
page.index = ["float16", "q8_0"]
print(f"{half.origin} on {machine}")
page.style.format(precision=1)

# %% solved_only=true
assert (page["tokens/s at this kernel's rate"] > 0.85 * page["tokens/s at most"]).all()

# %% [markdown]
# The key-value cache is still in float16 and is now a larger part of what a token reads. Its turn comes in the labs on
# attention.
#
# Next: [Practice](07_small_operators.ipynb), the small operators between the matrices; or go on to
# [the matrix product](../02_gemm/01_naive_to_tiled.ipynb).
