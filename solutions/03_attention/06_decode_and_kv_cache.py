# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One token at a time: the KV cache and decode attention
#
# A model that reads your prompt has thousands of queries for its keys: attention is matrix products, and the last
# notebooks made them fast. Then it answers, one token after the other, and each time there is **one** query. Keys and
# values of all tokens before are kept in a **cache**, so that nothing is computed twice. What is left to do for a token
# is to read that cache.
#
# You will fill a cache, see why nothing but memory can be the limit here, and take apart three answers to the same
# question: the five kernels of *llama.cpp*; the ladder on which *yalm* climbed, from a kernel that kept neither memory
# nor arithmetic busy; and flash-decoding, which cuts one sequence into pieces for a whole GPU.
#
# Counts come from your own kernels, from the emulator where there is no GPU; times are *modeled*, and say so, and at
# the end *recorded* on an H200. Figures of llama.cpp's and yalm's authors are called published.

# %%
import math

import pandas as pd
import torch

import labkit as lk
from labkit.models.decode import FP32, LLAMA_2_7B, MISTRAL_7B, speed

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
STORED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
ATOMICS = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
DRAM = "dram__bytes_read.sum"
TENSOR = "sm__ops_path_tensor_src_fp16.sum"
BLOCKS = "launch__grid_size"

# %% [markdown]
# ## How large is a cache?
#
# Per token, each layer keeps a key and a value for each of its heads. In float16 a number takes 2 bytes.

# %% question="kv_append/per_token" points=1
lk.answer("kv_append/per_token", 128 << 10)

# %% [markdown]
# In Llama 2 7B no query heads share a head of the cache:

# %% question="kv_append/llama_per_token" points=1
lk.answer("kv_append/llama_per_token", 524288)

# %% [markdown]
# llama.cpp makes room for a whole context before it begins. Its walk-through takes 512 tokens of Llama 2 7B:

# %% question="kv_append/room" points=1
lk.answer("kv_append/room", 256)

# %% question="kv_append/longest" points=1
lk.answer("kv_append/longest", 72479)

# %% [markdown]
# Now let the context grow. The cache is read once for each new token, as the weights are:

# %%
rows = []
for model in (MISTRAL_7B, LLAMA_2_7B):
    for context in (512, 4096, 32768, 131072):
        parts = model.bytes_per_token(context)
        cache = parts["key-value cache"]
        rows.append((model.name, context, cache / 2**30, 100 * cache / sum(parts.values())))
pd.DataFrame(rows, columns=["model", "context", "cache, GiB", "% of a token's bytes"]).style.format(precision=2).hide()

# %% [markdown]
# At 4096 tokens the cache of Mistral-7B is 3.6% of what a token reads; at 131,072 it is more than half. That is one
# user. A batch of users shares the weights, but nobody shares a cache. yalm's author had a context of 4096 in mind
# when he expected little of a cache in float16: his published figures are 15.5 GB per token with float32 and 15.0 GB
# with float16.

# %%
half, single = (
    sum(MISTRAL_7B.bytes_per_token(4096, cache=bytes_, classifier=FP32).values()) for bytes_ in (2.0, 4.0)
)
print(f"{single / 1e9:.2f} GB with a cache in float32, {half / 1e9:.2f} GB in float16: {single / half - 1:.1%} more")
for context in (4096, 131072):
    print(speed(MISTRAL_7B.bytes_per_token(context), "NVIDIA H200"))

# %% solved_only=true
assert half == 15_020_875_776 and 0.03 < single / half - 1 < 0.04
assert 3.5 < rows[1][3] < 3.7 and rows[3][3] > 50

# %% [markdown]
# ## Fill it: kv_append
#
# The projections leave a key and a value for each new token, in float32. Before a key is kept, it is turned by its
# position (RoPE; you may know the problem `rope`), and both are rounded to float16. Sequences of a batch are of
# different length, so each has its own position.

# %%
kv_append = lk.problem("kv_append")
kv_append

# %% [markdown]
# Cosines and sines depend on the position and the pair alone, so engines compute them once and keep a table, `turn`.
# The first rung does what llama.cpp does, one kernel per operator. It is given:

# %% kernel="kv_append/three_kernels" given=true

# %% check="kv_append/three_kernels"
three_kernels = kv_append["three_kernels"]
three_kernels.check()

# %% question="kv_append/three_kernels/between" points=1
lk.answer("kv_append/three_kernels/between", 8)

# %% [markdown]
# ### Write: fused
#
# One thread takes a pair of `k` and the same pair of `v`.
#
# <details><summary>Hint 1: where it goes</summary>
#
# Token `token` is number `token % N` of sequence `token // N`. Its row in the cache is its position, not `n`.
#
# <details><summary>Hint 2: which angle</summary>
#
# `turn[t, p]`, with `p` the number of the pair within its head, and a row of `k` has several heads.
#
# </details></details>

# %% kernel="kv_append/fused"

# %% check="kv_append/fused" points=3
fused_append = kv_append["fused"]
fused_append.check()

# %%
p_three, p_append = three_kernels.profile(), fused_append.profile()
p_append.diff(p_three)

# %% solved_only=true
assert p_append[SECTORS] < p_three[SECTORS] and p_append[STORED_SECTORS] < p_three[STORED_SECTORS]

# %% [markdown]
# When a batch of 512 sequences generates a token, this is little work, and launching a kernel takes about as long as
# the bytes do. For a prompt the bytes count:

# %%
from labkit.models.bound import bound

heads = dict(HKV=8, D=128)
print("512 new tokens:   ", bound(kv_append.problem, dict(B=512, N=1, T=2048, **heads)))
print("4 prompts of 8192:", bound(kv_append.problem, dict(B=4, N=8192, T=8192, **heads)))

# %% [markdown]
# So there is a third rung, with 16 bytes per access. It is given:

# %% kernel="kv_append/vectorized" given=true

# %% check="kv_append/vectorized"
kv_append["vectorized"].check()

# %%
kv_append["vectorized"].profile().diff(p_append)

# %% [markdown]
# ## One query is a matter of memory
#
# How much work is there per byte, once the cache is filled?

# %%
decode_attention = lk.problem("decode_attention")
decode_attention

# %% question="decode_attention/intensity" points=1
lk.answer("decode_attention/intensity", 1)

# %% [markdown]
# With $N$ queries, as in a prompt, every byte serves all of them. And what can an H200 do in the time of one byte?

# %%
from labkit import recorded

ceilings = recorded.ceilings("NVIDIA H200")
ridges = {unit: 1e3 * ceilings[unit] / ceilings["read_gbps"] for unit in ("fp32_tflops", "bf16_tflops")}
for unit, ridge in ridges.items():
    print(f"{unit:12} {ridge:6.1f} FLOP in the time of a byte (recorded)")
for queries in (1, 8, 64, 512):
    print(f"{queries:4} queries that share K and V: {queries} FLOP per byte")

# %% solved_only=true
assert 8 < ridges["fp32_tflops"] < 20 and 64 < ridges["bf16_tflops"] < 512

# %% [markdown]
# One query is more than ten times below what even the ordinary units could do; 8 queries that share a head, as in
# grouped-query attention, come near *their* limit, and are far below that of the tensor cores. So the time of decode
# attention is the time in which the cache comes by once, and there are just two mistakes to make: to read something
# twice, and to have too little in flight.
#
# ## llama.cpp: five kernels
#
# llama.cpp keeps keys token by token, `K[t, head, d]`, and values turned round, `V[head, d, t]`, with room for `C`
# tokens of which `T` are there: rows of `V` lie `C` apart. (ggml calls that not contiguous: `nb[2]` is not `nb[1]`
# times the length.) Then it launches a kernel for the scores, one for the scale, one for the mask, one for the softmax,
# one for the values. In both products a warp's lanes read neighbors. The mask masks nothing: the new token is the
# last.

# %% kernel="decode_attention/five_kernels" given=true

# %% check="decode_attention/five_kernels"
five_kernels = decode_attention["five_kernels"]
five_kernels.check()

# %% question="decode_attention/five_kernels/blocks" points=1
lk.answer("decode_attention/five_kernels/blocks", 16352)

# %% question="decode_attention/five_kernels/score_bytes" points=1
lk.answer("decode_attention/five_kernels/score_bytes", 523264)

# %% [markdown]
# ### Write: fused
#
# One block per head, 512 tokens at a time: scores into shared memory, the softmax online, then the values. You know
# every part of it.
#
# <details><summary>Hint 1: four steps</summary>
#
# Scores, a warp per token; barrier. The largest, over all warps, and weights, a thread per token; barrier. Sums, a warp
# per number of `o`; barrier. Why the last one?
#
# <details><summary>Hint 2: shrinking</summary>
#
# `shrink = exp(most - top)`: `total` and every `o[d]` are multiplied by it before this chunk's share is added. Every
# thread can compute it for itself, if all know all of `tops`.
#
# <details><summary>Hint 3: the last chunk</summary>
#
# It has `n` tokens; of `s`, only so many were written.
#
# </details></details></details>

# %% kernel="decode_attention/fused"

# %% check="decode_attention/fused" points=4
fused = decode_attention["fused"]
fused.check()

# %%
p_five, p_fused = five_kernels.profile(), fused.profile()
p_fused.diff(p_five)

# %% solved_only=true
dims = p_fused.shape
assert p_fused[STORED_SECTORS] == dims["HQ"] * dims["D"] * 4 / 32  # O and nothing else
assert p_fused[STORED_SECTORS] * 30 < p_five[STORED_SECTORS]

# %% [markdown]
# Stores fall to those of O, and five launches to one. But look at the number of blocks:

# %% question="decode_attention/fused/blocks" points=1
lk.answer("decode_attention/fused/blocks", 100)

# %% [markdown]
# Keep that in mind; yalm ran into the same wall.
#
# ## yalm: how to mix values
#
# yalm has attention in two kernels: scores and softmax, then $out_h = \sum_t att_{h,t} \, v_t$. When its author
# lengthened the context, the second one, `att_mix`, took most of the time, and this is what Nsight Compute said of it
# (published, 32 heads of 128 numbers, one block of one warp for each number of `out`):
#
# | | |
# |---|---|
# | Compute (SM) throughput | 0.47% |
# | DRAM throughput | 1.68% |
# | L2 cache throughput | 8.81% |
# | L1/TEX cache throughput | 5.17% |
# | Duration | 4.35 ms |
#
# Nothing is busy, so everything waits, and what it waits for is *latency*: too little is asked for at a time, or most
# of what comes is thrown away. Here is that kernel:

# %%
att_mix = lk.problem("att_mix")
att_mix

# %% kernel="att_mix/warp_per_output" given=true

# %% check="att_mix/warp_per_output"
warp_per_output = att_mix["warp_per_output"]
warp_per_output.check()

# %% question="att_mix/warp_per_output/sectors" points=1
lk.answer("att_mix/warp_per_output/sectors", 32)

# %% question="att_mix/warp_per_output/used" points=1
lk.answer("att_mix/warp_per_output/used", 12.5)

# %%
p_warp = warp_per_output.profile()
lk.plots.access_map(p_warp, "v")

# %% solved_only=true
assert p_warp[PER_REQUEST] == (32 + 4) / 2  # of v and of att, in turn

# %% [markdown]
# The sum over tokens makes it natural to give lanes tokens. And that is the mistake: what lies side by side are the
# numbers of *one* token.
#
# ### Write: global_atomics
#
# Turn it round: lanes go across a row of `v`. Now a lane has a number of `out` to itself, and needs no shuffle. For
# enough blocks, cut the tokens into chunks of 256; blocks of the same head add up with `cuda.atomic.add`.

# %% question="att_mix/global_atomics/sectors" points=1
lk.answer("att_mix/global_atomics/sectors", 4)

# %% question="att_mix/global_atomics/additions" points=1
lk.answer("att_mix/global_atomics/additions", 64)

# %% kernel="att_mix/global_atomics"

# %% check="att_mix/global_atomics" points=2
global_atomics = att_mix["global_atomics"]
global_atomics.check()

# %%
p_global = global_atomics.profile()
p_global.diff(p_warp)

# %% [markdown]
# The same requests, and a seventh of the sectors. (yalm's kernel as it was printed computes `seq_len / gridDim.y`
# tokens per block, rounded down: of 257 tokens it leaves out the last. Your check has such lengths.)

# %% solved_only=true
assert p_global[PER_REQUEST] == (4 + 1) / 2
assert p_global[REQUESTS] == p_warp[REQUESTS] and p_global[SECTORS] * 7 < p_warp[SECTORS]
assert p_global[ATOMICS] == 4 * 2 * 2 * 4  # heads, chunks, halves of a row, sectors

# %% [markdown]
# ### Write: shared_atomics
#
# Atomics in memory need zeros to begin with, another launch, and blocks wait for each other's lines. Let the pieces of
# a head be the 32 warps of one block, and add up in shared memory.

# %% kernel="att_mix/shared_atomics"

# %% check="att_mix/shared_atomics" points=2
shared_atomics = att_mix["shared_atomics"]
shared_atomics.check()

# %%
p_shared = shared_atomics.profile()
p_shared.diff(p_global)

# %% solved_only=true
assert p_shared[ATOMICS] == 0 and p_shared[SECTORS] == p_global[SECTORS]

# %% question="att_mix/shared_atomics/blocks" points=1
lk.answer("att_mix/shared_atomics/blocks", 24.2)

# %% [markdown]
# On yalm's RTX 4090 these three steps took the whole model, with its context of 4096, from 56.1 to 63.7 tokens/s
# (published).
#
# ### fp16, half2, prefetch
#
# Half the bytes: the cache in float16. The change is one conversion, and the kernel is given.

# %% question="att_mix/fp16/sectors" points=1
lk.answer("att_mix/fp16/sectors", 2)

# %% kernel="att_mix/fp16" given=true

# %% check="att_mix/fp16"
fp16 = att_mix["fp16"]
fp16.check()

# %% [markdown]
# A request of 64 bytes is a small one: a lane could take more than one number. Let it take two. `lk.cuda.load2(v, i)`
# reads the float16 numbers `i` and `i + 1` of a flat array with one access; `i` must be even.

# %% question="att_mix/half2/requests" points=1
lk.answer("att_mix/half2/requests", 2)

# %% kernel="att_mix/half2"

# %% check="att_mix/half2" points=2
half2 = att_mix["half2"]
half2.check()

# %%
p_fp16, p_half2 = fp16.profile(), half2.profile()
counts = {"shared_atomics": p_shared, "fp16": p_fp16, "half2": p_half2}
columns = {"requests": REQUESTS, "sectors": SECTORS, "sectors per request": PER_REQUEST, "bytes from DRAM": DRAM}
pd.DataFrame({name: {c: p[m] for c, m in columns.items()} for name, p in counts.items()}).T.style.format("{:,.1f}")

# %% solved_only=true
assert p_fp16[PER_REQUEST] == (2 + 1) / 2 and p_half2[PER_REQUEST] == (4 + 1) / 2
assert p_half2[REQUESTS] * 2 == p_fp16[REQUESTS] == p_shared[REQUESTS]
assert 0.45 < p_fp16[DRAM] / p_shared[DRAM] < 0.6

# %% [markdown]
# Now a lane has one load of `v` on its way, uses it, and asks for the next. Little's law says what that is worth: in
# flight = bandwidth x latency. For the 4.8 TB/s of an H200 and some 700 ns, 3.4 MB must be on their way at any time,
# 26 KB for each multiprocessor.

# %% question="att_mix/prefetch/in_flight" points=1
lk.answer("att_mix/prefetch/in_flight", 65536)

# %% [markdown]
# ### Write: prefetch
#
# 16 tokens at a time: all loads first, into `values` and `weights`, then all sums.
#
# <details><summary>Hint 1: when to stop</summary>
#
# A turn takes the tokens `t`, `t + warps` ... `t + 15 * warps`. The last of them must exist. The others go one by one.
#
# <details><summary>Hint 2: where the next token lies</summary>
#
# `warps * HKV * D` elements further: compute that once.
#
# </details></details>

# %% kernel="att_mix/prefetch"

# %% check="att_mix/prefetch" points=3
prefetch = att_mix["prefetch"]
prefetch.check()

# %% [markdown]
# No counter of the memory moves: the same requests for the same sectors. What moves is waiting. The speed-of-light
# model follows the longest chain of instructions that wait for one another in a block (yalm's shape, modeled on an
# H200):

# %%
yalm = dict(T=4096, H=32, HKV=8, D=128)
t_half2, t_prefetch = (lk.predict(rung, **yalm) for rung in (half2, prefetch))
for name, t in (("half2", t_half2), ("prefetch", t_prefetch)):
    print(f"{name:9} {1e3 * t.ms:5.1f} us; waiting alone would take {1e3 * t.terms['latency']:5.1f} ({t.origin})")

# %% [markdown]
# The whole ladder in counters, at 512 tokens, 4 query heads, and 2 heads of the cache with 64 numbers each:

# %%
p_prefetch = prefetch.profile()
counts = {
    "warp_per_output": p_warp, "global_atomics": p_global, "shared_atomics": p_shared,
    "fp16": p_fp16, "half2": p_half2, "prefetch": p_prefetch,
}
columns = {"requests": REQUESTS, "sectors": SECTORS, "sectors per request": PER_REQUEST,
           "sectors of atomics": ATOMICS, "bytes from DRAM": DRAM}
table = pd.DataFrame({name: {c: p[m] for c, m in columns.items()} for name, p in counts.items()}).T
table.style.format("{:,.1f}")

# %% solved_only=true
assert table["requests"].tolist() == [8192, 8192, 8192, 8192, 4096, 4096]
assert table["sectors"].tolist() == [147456, 20480, 20480, 12288, 10240, 10240]
assert table["sectors of atomics"].tolist() == [0, 64, 0, 0, 0, 0]
assert p_prefetch[REQUESTS] == p_half2[REQUESTS]
assert t_prefetch.terms["latency"] < t_half2.terms["latency"] / 2 and t_prefetch.ms < t_half2.ms

# %% [markdown]
# ### Optional: the compiler's trap
#
# yalm's author found that his kernel did *not* become faster with float16, and looked at the machine code. In float32
# the compiler unrolls the loop over tokens by itself and so has several loads in flight. In float16 it does not:
# `__half2float` is a line of inline assembly, and the compiler leaves the loop as it stands. You can see it without
# machine code. Both loops do the same loads; which has more instructions?

# %% kernel="att_mix/shared_atomics" language="cuda" given=true

# %% kernel="att_mix/fp16" language="cuda" given=true

# %%
c_shared, c_fp16 = (att_mix[rung, "cuda"].profile() for rung in ("shared_atomics", "fp16"))
for name, p in (("shared_atomics", c_shared), ("fp16", c_fp16)):
    print(f"{name:15} {p[REQUESTS]:,.0f} load requests, {p[INSTRUCTIONS]:,.0f} instructions ({p.origin})")

# %% [markdown]
# A loop that is not unrolled counts, compares and branches for each token. That is the visible part; that every token
# waits for the one before is what it costs. `prefetch` unrolls by hand. It needs a second thing, registers for 16 pairs
# and 16 weights: with 1024 threads in a block the compiler would leave 32 per thread and put the loads back to where
# they are used. `launch_bounds=(1024, 1)` says that one block per multiprocessor is enough.
#
# For the whole model, float16 and prefetching were worth little at yalm's context: 63.7 to 63.8 tokens/s (published).

# %% solved_only=true
assert c_shared[REQUESTS] == c_fp16[REQUESTS] and c_fp16[INSTRUCTIONS] > 1.3 * c_shared[INSTRUCTIONS]
assert p_prefetch["launch__registers_per_thread"] > 32

# %% [markdown]
# ### Explain
#
# The ladder ends with 32 blocks of 32 warps. Which limit is left on an H200, and why did it matter less on a model
# whose time is mostly in its weights?

# %% [markdown] explain="att_mix/prefetch" points=2
# ### BEGIN SOLUTION
# 32 blocks are on 32 of 132 multiprocessors, so at most a quarter of the GPU can ask for memory. A long sequence must
# be cut into pieces that different blocks take. At a context of 4096 the cache is 3.6% of what a token of Mistral-7B
# reads, so that even a kernel at a quarter of the bandwidth costs little of the token's time.
# ### END SOLUTION

# %% [markdown]
# ## Flash-decoding: cut the sequence
#
# What do two pieces of a sequence need to tell each other? Each has its largest score $m$, the sum $l$ of its weights
# $e^{s - m}$, and the sum $o$ of its weighted values. To put them together, shrink both to the larger maximum:
#
# $$m = \max(m_1, m_2), \quad l = l_1 e^{m_1 - m} + l_2 e^{m_2 - m}, \quad o = o_1 e^{m_1 - m} + o_2 e^{m_2 - m}$$
#
# and $o / l$ is the result. It does not matter in which order, nor whether a piece is empty:

# %%
generator = torch.Generator().manual_seed(0)
s = 30 * torch.randn(1000, generator=generator, dtype=torch.float64)
v = torch.randn(1000, 4, generator=generator, dtype=torch.float64)
LOWEST = -1e30  # and not -inf: -inf - -inf is NaN


def piece(first, last):
    """(m, l, o) of some tokens."""
    m = s[first:last].max() if last > first else torch.tensor(LOWEST)
    p = (s[first:last] - m).exp()
    return m, p.sum(), p @ v[first:last]


def merged(a, b):
    m = torch.maximum(a[0], b[0])
    shrink = [(part[0] - m).exp() for part in (a, b)]
    return (m, *(a[i] * shrink[0] + b[i] * shrink[1] for i in (1, 2)))


whole = s.softmax(0) @ v
for cuts in ([0, 500, 1000], [0, 1, 2, 999, 1000], [0, 0, 17, 1000, 1000]):
    parts = [piece(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    result = parts[-1]
    for part in parts[-2::-1]:
        result = merged(result, part)
    error = (result[2] / result[1] - whole).abs().max()
    print(f"cut at {cuts}: off by {error:.1e}")
    assert error < 1e-12

# %% [markdown]
# ### The rung below: one_block
#
# The problem `decode_attention_f16` is what an engine has to do today: a batch of sequences of different length, the
# cache in float16 as `[B, T, HKV, D]`, several query heads for each head of the cache. `one_block` is `fused` on that:
# a block per sequence and query head, with 16 bytes per load. It is given.

# %%
decode_attention_f16 = lk.problem("decode_attention_f16")
decode_attention_f16

# %% kernel="decode_attention_f16/one_block" given=true

# %% check="decode_attention_f16/one_block"
one_block = decode_attention_f16["one_block"]
one_block.check()

# %% question="decode_attention_f16/one_block/blocks" points=1
lk.answer("decode_attention_f16/one_block/blocks", 8)

# %% [markdown]
# ### How many pieces?
#
# Enough that every multiprocessor has as many blocks as it needs for its 26 KB in flight, and no more: each piece costs
# an `o`, an `m` and an `l` that are written and read again, and its own start. And never pieces of a few tokens.

# %% question="decode_attention_f16/split_kv/splits" points=1
lk.answer("decode_attention_f16/split_kv/splits", 132)

# %% question="decode_attention_f16/split_kv/batch" points=1
lk.answer("decode_attention_f16/split_kv/batch", 1)

# %% question="decode_attention_f16/split_kv/parts" points=1
lk.answer("decode_attention_f16/split_kv/parts", 0.102)

# %% [markdown]
# ### Write: split_kv
#
# Two kernels. The first is `one_block` for the tokens `begin` to `end`, and stores what it has in place of dividing.
# The second puts the pieces of a head together: thread `(d, y)` takes the pieces `y`, `y + ROWS` ... of number `d`.
#
# <details><summary>Hint 1: the first kernel</summary>
#
# Take your reading of `one_block` and replace 0 and `length` by `begin` and `end`.
#
# <details><summary>Hint 2: the second</summary>
#
# `merged` from above, with `o` a single number. `lk.cuda.exp2_approx` takes powers of 2, and scores were multiplied by
# `SCALE2` before: the maxima are exponents of 2 already.
#
# </details></details>

# %% kernel="decode_attention_f16/split_kv"

# %% check="decode_attention_f16/split_kv" points=4
split_kv = decode_attention_f16["split_kv"]
split_kv.check()

# %% [markdown]
# One sequence of 8192 tokens, cut into more and more pieces (modeled on an H200):

# %%
long = dict(B=1, T=8192, HQ=8, HKV=1, D=128)
curve = {}
for splits in (1, 8, 32):
    t = curve[splits] = lk.predict(split_kv, **long, splits=splits)
    print(f"{splits:3} pieces: {1e3 * t.ms:6.1f} us, bound by {t.binds} ({t.origin})")

# %% solved_only=true
assert curve[8].ms < curve[1].ms / 4 and curve[32].ms < curve[8].ms / 1.5

# %% [markdown]
# ## Read K and V once: split_kv_mma
#
# One mistake is left. 8 query heads share a head of the cache, and `split_kv` reads it for each of them. The L2 may
# answer seven times of eight, but it has its own limit. If a block took all 8 heads, it would do $8 \times 4 D$
# operations for each token: 8 rows of $Q$ times keys. That is a matrix product, a small one, and tensor cores do it.
# `mma.m16n8k16` has 16 rows, so half of them idle here; where memory is the limit, that costs nothing.
#
# What a lane holds of the scores afterwards is what it has to hold of the weights to multiply by $V$, as in
# `flash_mma`. Tiles of 16 tokens come by `cp.async`, one ahead. The kernel is given: read the loop.

# %% question="decode_attention_f16/intensity" points=1
lk.answer("decode_attention_f16/intensity", 8)

# %% kernel="decode_attention_f16/split_kv_mma" given=true

# %% check="decode_attention_f16/split_kv_mma"
split_kv_mma = decode_attention_f16["split_kv_mma"]
split_kv_mma.check()

# %% question="decode_attention_f16/split_kv_mma/reads" points=1
lk.answer("decode_attention_f16/split_kv_mma/reads", 8)

# %%
shape = dict(B=1, T=512, HQ=8, HKV=1, D=128, splits=1)
p_split, p_mma = split_kv.profile(**shape), split_kv_mma.profile(**shape)
p_mma.diff(p_split)

# %%
useful = decode_attention_f16.flops(shape)
print(f"{p_split[SECTORS] / p_mma[SECTORS]:.2f} times fewer sectors, {p_split[INSTRUCTIONS] / p_mma[INSTRUCTIONS]:.2f} "
      f"times fewer instructions; tensor operations {p_mma[TENSOR] / useful:g} times the useful ones ({p_mma.origin})")

# %% solved_only=true
assert 7 < p_split[SECTORS] / p_mma[SECTORS] <= 8.1
assert p_mma[TENSOR] == 2 * useful and p_mma[INSTRUCTIONS] < p_split[INSTRUCTIONS] / 2

# %% [markdown]
# In CUDA C++ the rung has two things more. A block may ask for 96 KiB of shared memory, and so has two tiles of every
# warp on their way:

# %% question="decode_attention_f16/split_kv_mma/in_flight" points=1
lk.answer("decode_attention_f16/split_kv_mma/in_flight", 128 << 10)

# %% [markdown]
# And it does not cut each sequence alike. Caches of a batch are of different length, and $B$ sequences rarely make
# whole waves of blocks. So the tiles of all sequences and heads stand in one line, and 264 blocks, two for each
# multiprocessor, take equal parts of it. A block may end in the middle of one sequence and go on with the next; at
# most 263 sequences are cut, however many there are, and only these need the second kernel:

# %%
def cut(lengths, workers, tile=16):
    """How many sequences are in more than one part, and the tiles of the busiest and of the idlest worker."""
    tiles = [max(1, math.ceil(n / tile)) for n in lengths]
    edges = [sum(tiles) * w // workers for w in range(workers + 1)]
    ends = [0, *torch.tensor(tiles).cumsum(0).tolist()]
    inside = {e for e in edges if e not in set(ends)}
    parts = [b - a for a, b in zip(edges, edges[1:], strict=False)]
    return sum(any(a < e < b for e in inside) for a, b in zip(ends, ends[1:], strict=False)), max(parts), min(parts)


ragged = torch.randint(1, 8193, (512,), generator=generator).tolist()
for name, lengths in (("1 x 131072", [131072]), ("512 x 8192", [8192] * 512), ("512 of 1 to 8192", ragged)):
    split, most, least = cut(lengths, 264)
    print(f"{name:17} {split:3} sequences cut; workers have {least} to {most} tiles")
    assert most - least <= 1

# %% [markdown]
# ### Explain
#
# Somebody proposes to cut every sequence into 264 pieces, whatever the batch. When is that right, and what does it cost
# when it is not?

# %% [markdown] explain="decode_attention_f16/split_kv" points=2
# ### BEGIN SOLUTION
# It is right for one long sequence, which has no other way to fill the GPU. With 512 sequences the GPU is full
# without any cut; 264 pieces of 8192 tokens are 31 tokens each, 16 KB of cache for all 8 heads, and each leaves 8 times
# 520 bytes that are written and read again, half as many bytes more. And pieces that short are over before loads ahead
# help: every piece waits for its first tile.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="kv_append/fused" language="cuda"

# %% check="kv_append/fused" language="cuda"
kv_append["fused", "cuda"].check()

# %% kernel="decode_attention/fused" language="cuda"

# %% check="decode_attention/fused" language="cuda"
decode_attention["fused", "cuda"].check()

# %% kernel="att_mix/prefetch" language="cuda"

# %% check="att_mix/prefetch" language="cuda"
att_mix["prefetch", "cuda"].check()

# %% [markdown]
# And the rung that cuts evenly, to be read; `decode_attention_f16["split_kv_mma", "cuda"].check()` checks it.

# %% kernel="decode_attention_f16/split_kv_mma" language="cuda" given=true

# %% [markdown]
# ## On an H200
#
# Your notebook counted and modeled; here are a clock's answers, and what Nsight Compute read beside them. All of it is
# recorded, of our solutions.
#
# ### Fill it
#
# Four prompts of 8192 tokens:

# %%
TIME, WRITTEN = "gpu__time_duration.sum", "dram__bytes_write.sum"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
LONG_WAIT = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
MULTIPROCESSORS = 132


def timed(problem, *rungs):
    return {(rung, language): problem[rung, language].time(recorded=True) for language in ("numba", "cuda")
            for rung in rungs}


def counters(problem, *rungs):
    return {(rung, language): problem[rung, language].recorded() for language in ("numba", "cuda") for rung in rungs}


append = "three_kernels", "fused", "vectorized"
append_times, append_read = timed(kv_append, *append), counters(kv_append, *append)
lk.plots.ladder(list(append_times.values()))

# %%
for (rung, language), p in append_read.items():
    print(f"{rung:14} {language:6} {(p[DRAM] + p[WRITTEN]) / 1e6:4.0f} MB from and to memory, "
          f"{p[INSTRUCTIONS] / 1e6:4.0f} million instructions, {p[ISSUE]:2.0f}% of the issue slots")

# %% [markdown]
# Fusing takes away what goes between the kernels. But `fused` moves no more bytes than `vectorized`, and takes longer:
# with an element per access, what is short are issue slots, and numba, with its indices of 64 bits, takes twice the
# instructions and twice the time. With 16 bytes per access there are so few instructions that memory is the limit in
# both languages.

# %% solved_only=true
append_ms = {key: t.median_ms for key, t in append_times.items()}
for language in ("numba", "cuda"):
    a, b, c = (append_read[rung, language] for rung in append)
    assert a[DRAM] + a[WRITTEN] > 1.4 * (b[DRAM] + b[WRITTEN]) and 0.95 < c[DRAM] / b[DRAM] < 1.05
    assert b[ISSUE] > 65 > 35 > c[ISSUE] and c[INSTRUCTIONS] * 5 < b[INSTRUCTIONS] < a[INSTRUCTIONS] / 2
    assert append_times["vectorized", language].of_ceiling[0] > 0.85
    slow, middle, fast = (append_ms[rung, language] for rung in append)
    assert slow > 2 * middle and middle > 1.15 * fast

# %% [markdown]
# ### Five kernels, and one
#
# 32 heads, 32768 tokens, each head with its own cache:

# %%
decode_times = timed(decode_attention, "five_kernels", "fused")
decode_read = counters(decode_attention, "five_kernels", "fused")
for key, t in decode_times.items():
    p = decode_read[key]
    print(f"{' '.join(key):19} {t.median_ms:5.2f} ms, {t.of_ceiling[0]:3.0%} of the {t.of_ceiling[1]}; "
          f"{p[BLOCKS]:9,.0f} blocks, {p[DRAM] / 1e6:.0f} MB from memory")

# %% [markdown]
# One launch in place of five, no scores in memory, and it takes several times as long! The cache is all that counts,
# and both read it once. But `fused` has a block for a head: 32 blocks, on 32 of 132 multiprocessors. And even these
# wait: among the reasons why their warps stand still, `long scoreboard` outweighs all others, since 8 warps with 64
# bytes per request are far from 26 KB in flight. Nor are `five_kernels` fast. They have the same small requests, and a
# million blocks, a warp for each score, which are over before a multiprocessor is full:

# %%
RESIDENT, AT_MOST = "sm__warps_active.avg.pct_of_peak_sustained_active", "sm__maximum_warps_per_active_cycle_pct"
p = decode_read["five_kernels", "cuda"]
print(f"five_kernels: {p[RESIDENT]:.0f}% of a multiprocessor's warps are there, where there could be {p[AT_MOST]:.0f}%")

# %% solved_only=true
others = [LONG_WAIT.replace("long_scoreboard", reason) for reason in ("short_scoreboard", "wait", "barrier")]
for language in ("numba", "cuda"):
    five, one = (decode_read[rung, language] for rung in ("five_kernels", "fused"))
    assert one[BLOCKS] == 32 < MULTIPROCESSORS < five[BLOCKS] and 0.9 < one[DRAM] / five[DRAM] < 1.1
    assert one[LONG_WAIT] > 2 * sum(one[reason] for reason in others)
    assert five[RESIDENT] < 0.5 * five[AT_MOST]
    five_time, one_time = (decode_times[rung, language] for rung in ("five_kernels", "fused"))
    assert one_time.median_ms > 3 * five_time.median_ms and five_time.of_ceiling[0] < 0.2

# %% [markdown]
# ### yalm's ladder
#
# 65536 tokens, 32 heads, 8 heads of the cache:

# %%
mix = "warp_per_output", "global_atomics", "shared_atomics", "fp16", "half2", "prefetch"
mix_times, mix_read = timed(att_mix, *mix), counters(att_mix, *mix)
table = pd.DataFrame({
    (language, rung): {
        "ms": mix_times[rung, language].median_ms,
        "million sectors": p[SECTORS] / 1e6,
        "sectors of atomics": p[ATOMICS],
        "MB from memory": p[DRAM] / 1e6,
        "blocks": p[BLOCKS],
        "million instructions": p[INSTRUCTIONS] / 1e6,
        "issue slots, %": p[ISSUE],
        "waits for memory": p[LONG_WAIT],
    }
    for (rung, language), p in mix_read.items()
}).T
table.style.format("{:,.0f}").format("{:.2f}", subset="ms").format("{:.1f}", subset="waits for memory")

# %% [markdown]
# Issue slots are those of the multiprocessors that have a block. `waits for memory` are warps per issued instruction.
# Read it for CUDA C++:
#
# * **warp_per_output** is the kernel of the report above. There nothing was busy; at this length, sectors that are
#   wanted again do not stay in the L2, so that memory delivers `v` many times over. **global_atomics** fetches it once.
# * **shared_atomics** is *slower*, by more than the four times that 32 blocks in place of thousands cost on 132
#   multiprocessors. It was to save the atomics: those are less than a hundredth of the sectors. (At yalm's 4096 tokens,
#   256 of them for a block made 512 warps, half as many as 32 blocks of 32. Here they make 8192.)
# * **fp16** halves the bytes and doubles the time. Bytes are not the limit of a warp that has one load in flight, and
#   here is the compiler's trap: twice the instructions, for the loop is not unrolled. **half2** halves the loads.
# * **prefetch** needs no fewer bytes or requests, and is several times as fast as half2: what is gone is the wait. Its
#   32 multiprocessors now work; the other 100 have nothing to do. global_atomics has work for all, and is as fast with
#   twice the bytes. What is wanted has both, and comes next.
#
# numba needs more instructions, some kernels several times as many (indices of 64 bits, and a look whether they are
# negative). That is hidden where all wait, and costs most where slots are short. Its half2 is even *faster*: its
# compiler does unroll that loop, so that several loads are in flight, and the wait goes down.

# %% solved_only=true
mix_ms = {key: t.median_ms for key, t in mix_times.items()}
first, globally, in_shared, half_, pairs, ahead = (mix_read[rung, "cuda"] for rung in mix)
assert first[DRAM] > 8 * globally[DRAM] and globally[DRAM] < 1.1 * mix_times["global_atomics", "cuda"].bytes
assert mix_ms["warp_per_output", "cuda"] > 5 * mix_ms["global_atomics", "cuda"]
assert globally[ATOMICS] * 100 < globally[SECTORS] and in_shared[ATOMICS] == 0 and in_shared[BLOCKS] == 32
assert mix_ms["shared_atomics", "cuda"] > MULTIPROCESSORS / 32 * mix_ms["global_atomics", "cuda"]
assert half_[DRAM] < 0.65 * in_shared[DRAM] and half_[INSTRUCTIONS] > 1.7 * in_shared[INSTRUCTIONS]
assert mix_ms["fp16", "cuda"] > 1.6 * mix_ms["shared_atomics", "cuda"] and pairs[REQUESTS] * 2 == half_[REQUESTS]
assert ahead[REQUESTS] == pairs[REQUESTS] and ahead[DRAM] < 1.05 * pairs[DRAM]
assert mix_ms["half2", "cuda"] > 4 * mix_ms["prefetch", "cuda"] and pairs[LONG_WAIT] > 4 * ahead[LONG_WAIT]
assert ahead[ISSUE] > 2 * pairs[ISSUE] and 0.7 < mix_ms["prefetch", "cuda"] / mix_ms["global_atomics", "cuda"] < 1.4
assert mix_read["half2", "numba"][LONG_WAIT] * 4 < pairs[LONG_WAIT]
assert mix_ms["half2", "numba"] < mix_ms["half2", "cuda"]
assert all(mix_read[rung, "numba"][INSTRUCTIONS] > 1.3 * mix_read[rung, "cuda"][INSTRUCTIONS] for rung in mix)

# %% [markdown]
# ### Flash-decoding
#
# Three batches, 8 query heads for one head of the cache. "PyTorch" is what it chooses by itself; the lines below it are
# two of its kernels by name.

# %%
from statistics import median

cases = {
    "B 1, T 131072": dict(B=1, T=131072, HQ=8, HKV=1, D=128),
    "B 8, T 16384": dict(B=8, T=16384, HQ=8, HKV=1, D=128),
    "B 512, T 8192": dict(B=512, T=8192, HQ=8, HKV=1, D=128),
}
flash_rungs = "one_block", "split_kv", "split_kv_mma"
flash_times = {
    (f"{rung} ({language})", case): decode_attention_f16[rung, language].time(recorded=True, splits=0, **dims)
    for language in ("numba", "cuda") for rung in flash_rungs for case, dims in cases.items()
}
us = {key: 1e3 * t.median_ms for key, t in flash_times.items()}
for case, dims in cases.items():
    us["PyTorch", case] = 1e3 * median(flash_times["split_kv_mma (cuda)", case].baseline_ms)
    for name in ("torch_flash", "torch_cudnn"):
        us[name, case] = 1e3 * decode_attention_f16.rival(name, splits=0, **dims).median_ms
reached = pd.Series(us).unstack(sort=False)
best = {case: decode_attention_f16.bytes(dims) / ceilings["read_gbps"] / 1e3 for case, dims in cases.items()}
share = pd.DataFrame({case: best[case] / reached[case] for case in cases})
some = flash_times["split_kv (cuda)", "B 8, T 16384"]
reached.style.format("{:,.1f} us").set_caption(f"medians, {some.origin} on {some.machine}, {some.date}")

# %%
share.style.format("{:.0%}").set_caption("of the measured read bandwidth, each byte counted once")

# %% [markdown]
# With one sequence, `one_block` has 8 blocks: pieces make it a hundred times as fast. With 512 there is nothing to be
# gained by cutting, and `split_kv` is where `one_block` is. Then Nsight Compute says what reading once is worth:

# %%
REGISTERS = "launch__registers_per_thread"
f16_read = counters(decode_attention_f16, *flash_rungs)
for (rung, language), p in f16_read.items():
    print(f"{rung:13} {language:6} {p[DRAM] / 1e9:.2f} GB from memory, {p[SECTORS] * 32 / 1e9:5.2f} GB asked for, "
          f"{p[INSTRUCTIONS] / 1e6:5,.0f} million instructions; "
          f"{p[REGISTERS]:.0f} registers, {p[RESIDENT]:.0f}% of a multiprocessor's warps")

# %% [markdown]
# Memory delivers the cache once to all of them: heads that share it run at the same time, and the L2 answers seven of
# eight. What is eight times as much is the loads, and instructions even more; tensor cores take them away, and what is
# left is memory's own time. (numba's first two kernels take twice as long as those in CUDA C++, with as many
# instructions: they keep keys and values widened to float32, in twice the registers, so that half as many warps fit.)
#
# The smaller batches have 67 MB, and nobody comes near that there, PyTorch neither. Draw a line through two batches: so
# much for each byte, and so much however few they are.

# %%
def line(name, few="B 8, T 16384", many="B 512, T 8192"):
    """(GB/s, us before the first byte) of the line through two batches."""
    more = decode_attention_f16.bytes(cases[many]) - decode_attention_f16.bytes(cases[few])
    rate = more / (us[name, many] - us[name, few])
    return rate / 1e3, us[name, few] - decode_attention_f16.bytes(cases[few]) / rate


for name in ("split_kv_mma (cuda)", "PyTorch", "torch_cudnn"):
    rate, besides = line(name)
    print(f"{name}: {rate:.0f} GB/s, and {besides:.0f} us besides")
print(f"the ceiling: {ceilings['read_gbps']:.0f} GB/s")

# %% [markdown]
# The rate is the ceiling, for ours and for cuDNN's. The rest is to start, to have the first tiles come, to let the last
# ones end, to put pieces together; 67 MB take about as long. One sequence cut into 264 parts has most to put together,
# and there cuDNN's kernel is a little ahead.

# %% solved_only=true
mma, alone, filled = "split_kv_mma (cuda)", "B 1, T 131072", "B 512, T 8192"
assert us["one_block (cuda)", alone] > 50 * us["split_kv (cuda)", alone]
assert 0.8 < us["one_block (cuda)", filled] / us["split_kv (cuda)", filled] < 1.25
assert share.loc[mma, filled] > 0.93 and abs(us[mma, filled] / us["torch_cudnn", filled] - 1) < 0.05
assert 1 < us[mma, alone] / us["torch_cudnn", alone] < 1.25 and us[mma, alone] < 0.8 * us["torch_flash", alone]
assert all(share.loc[name, case] < 0.7 for name in share.index for case in list(cases)[:2])
for language in ("numba", "cuda"):
    p_split, p_mma = (f16_read[rung, language] for rung in flash_rungs[1:])
    assert 0.97 < p_split[DRAM] / p_mma[DRAM] < 1.03 and 7 < p_split[SECTORS] / p_mma[SECTORS] < 8.2
    assert p_split[INSTRUCTIONS] > 6 * p_mma[INSTRUCTIONS]
for rung in flash_rungs[:2]:
    python, cpp = (f16_read[rung, language] for language in ("numba", "cuda"))
    assert abs(python[INSTRUCTIONS] / cpp[INSTRUCTIONS] - 1) < 0.1 and python[REGISTERS] > 1.7 * cpp[REGISTERS]
    assert python[RESIDENT] < 0.6 * cpp[RESIDENT] and python[TIME] > 1.6 * cpp[TIME]
for rate, besides in map(line, (mma, "torch_cudnn")):
    assert 0.9 < rate / ceilings["read_gbps"] < 1.1 and 5 < besides < 25

# %% [markdown]
# ## Your page
#
# What has to be read for a token's attention in one layer, the least time for it, and what the rungs ask the L1 for:

# %% jupyter={"source_hidden": true}
page = pd.DataFrame(
    {
        "MB of K and V": decode_attention_f16.bytes(dims) / 1e6,
        "at best, us": 1e3 * bound(decode_attention_f16.problem, dims).ms,
        "bound by": bound(decode_attention_f16.problem, dims).binds,
        "blocks of one_block": dims["B"] * dims["HQ"],
        "MB that split_kv loads": decode_attention_f16.bytes(dims) * 8 / 1e6,
    }
    for dims in cases.values()
)
page.index = list(cases)
page.style.format(precision=1)

# %% solved_only=true
assert (page["bound by"] == "read bandwidth").all()

# %% [markdown]
# The cache can only become faster to read by becoming smaller. That is the next lab: keys and values in 4 bits.
