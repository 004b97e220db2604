# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Memory: what you ask for, and what is sent
#
# Most kernels are limited by memory: the arithmetic takes no time at all, the bytes take the time. Here are two
# kernels without any arithmetic, a copy and a transpose. All that can be good or bad about them is how they go about
# memory.
#
# You will learn to say, from a line of code, how many bytes memory has to send for it. From [the notebook
# before](01_threads_and_latency.ipynb) you need warps, requests and Little's law. Nothing needs the parts that are
# called optional.

# %%
import numpy as np
from numba import cuda

import labkit as lk

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
PER_LOAD = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
PER_STORE = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
SHARED_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"

# %% [markdown]
# ## A copy
#
# `B[i] = A[offset + stride * i]`. With offset 0 and stride 1 that is a plain copy.

# %%
copy = lk.problem("copy")
copy

# %% [markdown]
# ## Rung 1: chunked
#
# On a processor, the first thread takes the first piece of the work, the next one the next. So does this kernel,
# with pieces of 32 numbers. It is given.

# %% kernel="copy/chunked" given=true

# %% check="copy/chunked"
chunked = lk.problem("copy")["chunked"]
chunked.check()

# %% [markdown]
# ### Predict
#
# The 32 lanes of a warp carry out a load together, and their addresses go out as one **request**. Memory
# answers in **sectors** of 32 bytes: 8 neighboring numbers, whether all of them are wanted or one. Lanes
# that want the same sector share it. So a request takes between 1 sector and 32.

# %% question="copy/chunked/sectors_per_request" points=2
lk.answer("copy/chunked/sectors_per_request", 32)

# %% [markdown]
# <details><summary>Hint 1: which elements?</summary>
#
# In its first turn, thread 0 loads element 0, thread 1 element 32, thread 2 element 64.
#
# <details><summary>Hint 2: how far apart?</summary>
#
# 32 numbers of 4 bytes are 128 bytes. Can two of these addresses lie in one sector?
#
# </details></details>

# %% [markdown]
# ### Profile

# %%
p_chunked = chunked.profile(N=4096)
lk.plots.access_map(p_chunked, "A")

# %% [markdown]
# Each box is a sector, and of its 8 numbers the warp uses one. The same lane wants the others in the next turns, and
# they may be in a cache still. But 2048 threads per multiprocessor, each with a line of its own, ask a lot of a cache;
# and every turn is another request of 32 sectors.

# %% solved_only=true
assert p_chunked[PER_LOAD] == 32 == p_chunked[PER_STORE]

# %% [markdown]
# ## Rung 2: coalesced
#
# Let neighboring *threads* take neighboring *elements*.

# %% question="copy/coalesced/sectors_per_request" points=1
lk.answer("copy/coalesced/sectors_per_request", 4)

# %% [markdown]
# <details><summary>Hint</summary>
#
# One element per thread: the body of vector_add's grid, with one array less.
#
# </details>

# %% kernel="copy/coalesced"

# %% check="copy/coalesced" points=3
coalesced = lk.problem("copy")["coalesced"]
coalesced.check()

# %%
p_coalesced = coalesced.profile(N=4096)
p_coalesced.diff(p_chunked)

# %%
lk.plots.access_map(p_coalesced, "A")

# %% [markdown]
# 4 sectors of 32 bytes for 32 numbers of 4: not a byte too many. What did that bring?


# %%
def share(t):
    """How near to what its machine can do at all, where that was measured (`labkit ceilings --record` does)."""
    return f"{t.of_ceiling[0]:.0%} of the {t.of_ceiling[1]} ceiling" if t.of_ceiling else "ceiling not measured"


t_chunked, t_coalesced = chunked.time(), coalesced.time()
print(f"chunked {t_chunked.gbps:,.0f} GB/s, coalesced {t_coalesced.gbps:,.0f} GB/s: "
      f"{t_coalesced.gbps / t_chunked.gbps:.0f} times as fast ({t_coalesced.origin}, {t_coalesced.machine})")

# %% solved_only=true
assert p_coalesced[PER_LOAD] == 4 == p_coalesced[PER_STORE]
assert t_coalesced.gbps > 8 * t_chunked.gbps

# %% [markdown]
# ## What if they are not quite neighbors?
#
# First an **offset** of 1: everybody reads one number further on. Then a **stride**: every second number.

# %% question="copy/coalesced/misaligned" points=1
lk.answer("copy/coalesced/misaligned", 5)

# %% question="copy/coalesced/stride_2" points=1
lk.answer("copy/coalesced/stride_2", 8)

# %%
lk.plots.access_map(coalesced.profile(N=4096, offset=1), "A")

# %%
lk.plots.access_map(coalesced.profile(N=4096, stride=2), "A")

# %% [markdown]
# Gray is what is sent and not used. Now the times. Useful are the bytes that the program asked for; with a stride,
# memory moves more, whole sectors.

# %% jupyter={"source_hidden": true}
import pandas as pd


def moved(stride):
    """Bytes that memory moves for an element of a copy: what is sent for the 4 that are read, and the 4 written."""
    return min(4 * stride, 32) + 4


cases = {
    "plain": dict(N=2**28), "offset 1": dict(N=2**28, offset=1),
    "stride 2": dict(N=2**27, stride=2), "stride 8": dict(N=2**25, stride=8),
}
rows = {}
for name, at in cases.items():
    small = coalesced.profile(**{**at, "N": 4096})
    t = coalesced.time(**at)
    rows[name] = {
        "sectors per load": small[PER_LOAD],
        "% of the sectors used": 100 * 4 * 32 / (32 * small[PER_LOAD]),
        "useful GB/s": t.gbps,
        "GB/s that memory moves": t.gbps * moved(at.get("stride", 1)) / 8,
        "times slower per element": (t.median_ms / at["N"]) / (t_coalesced.median_ms / 2**28),
    }
strides = pd.DataFrame(rows).T
print(f"counters {small.origin}, times {t.origin} on {t.machine}")
strides.style.format(precision=1, thousands=",")

# %% [markdown]
# **Misalignment is cheap**: the fifth sector of a warp is the first one of the next warp, on the same multiprocessor,
# and is found in the L1 cache; memory sends it once. **Strides are not**: at stride 8, every sector holds one useful
# number, and memory moves more than 4 TB/s, all that it can, to deliver less than one.
#
# One line does not fit: at stride 2, half of what is read is wasted, and hardly any time is lost. So the plain copy
# did not have memory busy. Keep that in mind until rung 3.

# %% solved_only=true
assert list(strides["sectors per load"]) == [4, 5, 8, 32]
slower = strides["times slower per element"]
assert slower["offset 1"] < 1.1 < slower["stride 2"] < 1.2 and 2 < slower["stride 8"]
assert strides["GB/s that memory moves"]["stride 8"] > 4000 > 1000 > strides["useful GB/s"]["stride 8"]

# %% [markdown]
# ### Arrays of structs
#
# Who would read every eighth number? Everybody with an **array of structs**: eight numbers for each particle, say, and
# a kernel that needs the mass only. No kernel can mend that. Another layout can: a **struct of arrays** keeps all
# masses side by side.
#
# And if all fields are needed? Then every byte that is sent is used, sooner or later. Here one warp computes the
# squared length of 32 vectors of four numbers, in three ways. How many sectors does each load request touch?


# %%
@cuda.jit
def array_of_structs(out, P):  # P[i, field]
    i = cuda.threadIdx.x
    out[i] = P[i, 0] ** 2 + P[i, 1] ** 2 + P[i, 2] ** 2 + P[i, 3] ** 2


@cuda.jit
def struct_of_arrays(out, P):  # P[field, i]
    i = cuda.threadIdx.x
    out[i] = P[0, i] ** 2 + P[1, i] ** 2 + P[2, i] ** 2 + P[3, i] ** 2


@cuda.jit
def whole_structs(out, P):  # P[4 * i + field]
    i = cuda.threadIdx.x
    v = lk.cuda.load4(P, 4 * i)  # four neighbors, 16 bytes in one access
    out[i] = v[0] ** 2 + v[1] ** 2 + v[2] ** 2 + v[3] ** 2


vectors = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
layouts = {
    "array of structs": (array_of_structs, vectors),
    "struct of arrays": (struct_of_arrays, np.ascontiguousarray(vectors.T)),
    "array of structs, 16 bytes at a time": (whole_structs, vectors.reshape(-1)),
}
results = {}
for name, (kernel, data) in layouts.items():
    lengths = np.zeros(32, np.float32)
    p = lk.emulate(kernel, 1, 32, [lengths, data])
    results[name] = lengths, p
    print(f"{name:38} {p[REQUESTS]:.0f} load requests, {p[SECTORS]:.0f} sectors, of {vectors.nbytes // 32} that exist")

# %% [markdown]
# Read field by field from structs, every request touches all 16 sectors and takes 4 bytes of each 16; a cache has to
# save the day three times. If a struct is 16 bytes, one wide load takes it whole.

# %% solved_only=true
assert [(p[REQUESTS], p[SECTORS]) for _, p in results.values()] == [(4, 64), (4, 16), (1, 16)]
assert all(np.allclose(lengths, (vectors**2).sum(1), rtol=1e-5) for lengths, _ in results.values())

# %% [markdown]
# ### Explain
#
# A colleague has an array of structs of 8 numbers and a kernel that needs two of the fields, numbers 0 and 1.
# How much faster can it become with a struct of arrays, if memory is all that counts?

# %% [markdown] explain="copy/coalesced" points=2
# ### BEGIN SOLUTION
# Four times. A struct of 32 bytes is a sector, so memory sends 32 bytes per struct for the 8 that are used;
# with the fields in arrays of their own it sends 8. (Both fields lie in the same sector, so the second load
# finds it in the cache.)
# ### END SOLUTION

# %% [markdown]
# ## Rung 3: unrolled
#
# Back to the plain copy. Its requests are perfect, and still memory is not busy:

# %%
print(f"coalesced: {t_coalesced.gbps:,.0f} GB/s, {share(t_coalesced)} ({t_coalesced.origin})")

# %% [markdown]
# Little's law again: in flight = rate x latency. A multiprocessor holds 2048 threads, each with one load of 4 bytes.

# %%
from labkit.models.latency import curves

measured = curves()
lk.plots.littles_law(measured, {"coalesced, at most": 2048 * 4})

# %% [markdown]
# Not enough bytes in flight, and no room for more threads. So let each thread start **four loads**, then store
# four numbers.

# %% question="copy/unrolled/bytes_in_flight" points=1
lk.answer("copy/unrolled/bytes_in_flight", 2048 * 4 * 4)

# %% [markdown]
# The kernel is given. Neighboring threads stay neighbors in each of the four loads: a thread's next element is
# `THREADS` further on. And no store comes in between, or the compiler could not move the next load before it: for all
# it knows, A and B might overlap.

# %% kernel="copy/unrolled" given=true

# %% check="copy/unrolled"
unrolled = lk.problem("copy")["unrolled"]
unrolled.check()

# %%
t_unrolled = unrolled.time()
print(f"{t_unrolled.gbps:,.0f} GB/s, {share(t_unrolled)} ({t_unrolled.origin})")

# %% solved_only=true
assert t_unrolled.gbps > 1.2 * t_coalesced.gbps

# %% [markdown]
# ## Rung 4: vectorized
#
# Four loads, or one that is four times as wide: `lk.cuda.load4(A, k)` reads four neighbors from index `k` on, and
# `lk.cuda.store4(B, k, values)` writes four. As many bytes are in flight, with a quarter of the instructions. The
# address has to be a multiple of 16, which `wide` makes sure of. How many sectors will a request touch?

# %% kernel="copy/vectorized"

# %% check="copy/vectorized" points=2
vectorized = lk.problem("copy")["vectorized"]
vectorized.check()

# %%
p_vectorized = vectorized.profile(N=4096)
p_vectorized.diff(p_coalesced)

# %%
t_vectorized = vectorized.time()
for name, t in {"coalesced": t_coalesced, "unrolled": t_unrolled, "vectorized": t_vectorized}.items():
    print(f"{name:10} {t.gbps:6,.0f} GB/s, {t.ratio:4.0%} of PyTorch's speed, {share(t)}")

# %% [markdown]
# 16 sectors per request are not worse than 4: they are the same bytes in fewer requests. Ask for *sectors per byte that
# you use*. What is won here is instructions, and a kernel that has more to do is glad of each that it need not issue.

# %% solved_only=true
assert p_vectorized[PER_LOAD] == 16 and p_vectorized[SECTORS] == p_coalesced[SECTORS]
assert p_coalesced[REQUESTS] == 4 * p_vectorized[REQUESTS]
assert t_vectorized.of_ceiling[0] > 0.95 and t_vectorized.ratio > 0.98

# %% [markdown]
# ### Optional: strides and offsets once more
#
# Unrolled keeps memory busy, so that with strides every wasted byte costs its time now. And wide accesses have a price:
# from an odd offset on, no address is a multiple of 16, `wide` is false, and unrolled is the faster one.

# %%
for name, at in cases.items():
    for rung in (unrolled, vectorized):
        t = rung.time(**at)
        busy = t.gbps * moved(at.get("stride", 1)) / 8
        print(f"{t.label.split()[0]:16} {name:9} useful {t.gbps:6,.0f} GB/s, moved {busy:6,.0f} GB/s ({t.origin})")

# %% solved_only=true
for at in cases.values():
    busy = unrolled.time(**at)
    assert 0.98 < busy.gbps * moved(at.get("stride", 1)) / 8 / busy.ceilings["copy_gbps"] < 1.06
assert unrolled.time(N=2**28, offset=1).gbps > 1.2 * vectorized.time(N=2**28, offset=1).gbps

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="copy/vectorized" language="cuda"

# %% check="copy/vectorized" language="cuda"
lk.problem("copy")["vectorized", "cuda"].check()

# %% [markdown]
# # A transpose
#
# $B_{ji} = A_{ij}$: rows become columns. The bytes are those of a copy, so it should be as fast as one.

# %%
transpose = lk.problem("transpose")
transpose

# %% [markdown]
# ## Rung 1: naive

# %% kernel="transpose/naive" given=true

# %% check="transpose/naive"
naive = lk.problem("transpose")["naive"]
naive.check()

# %%
small = dict(M=128, N=256)
p_naive = naive.profile(**small)
lk.plots.access_map(p_naive, "B")

# %% [markdown]
# Reads are fine; writes take 32 sectors a request. Along the rows of B, reads would. Whatever a warp does, its 32
# neighbors in A are no neighbors in B.

# %% solved_only=true
assert p_naive[PER_LOAD] == 4 and p_naive[PER_STORE] == 32

# %% [markdown]
# ## Rung 2: tiled
#
# So let a *block* do what a warp cannot. It reads a tile of 32 x 32 numbers row by row, coalesced, and keeps it in
# **shared memory**, a small fast memory inside the multiprocessor, which all threads of the block see. Then it writes
# the tile row by row *of B*: coalesced too. The turn happens in between, when a warp reads a column of the tile, and
# shared memory has no sectors.
#
# ```
#      A                                      B
#   . . . . . . . .                        . . . . . .
#   . +----+ . . .      +----+             . . +----+     rows of the tile in A
#   . | -> | . . .  ->  |tile|   ->        . . | -> |     are its columns in B
#   . +----+ . . .      +----+             . . +----+
#   . . . . . . . .   in by rows,          . . . . . .
#                     out by columns
# ```
#
# A warp's threads read what other warps have written. `cuda.syncthreads()` is a **barrier**: nobody passes
# before everybody is there. The first half is given; write the second.

# %% [markdown]
# <details><summary>Hint 1: where does the tile go?</summary>
#
# Its first row in B is `col0`, and its first column there is `row0`.
#
# <details><summary>Hint 2: who writes what?</summary>
#
# `x` must run along a row of B, as it ran along a row of A. So the thread writes row `col0 + y`, column
# `row0 + x` of B, and finds the number in column `y` of the tile.
#
# <details><summary>Hint 3: the edge</summary>
#
# B has N rows and M columns. The tests have matrices that no tile divides.
#
# </details></details></details>

# %% kernel="transpose/tiled"

# %% check="transpose/tiled" points=4
tiled = lk.problem("transpose")["tiled"]
tiled.check()

# %%
p_tiled = tiled.profile(**small)
p_tiled.diff(p_naive)

# %%
t_naive, t_tiled = naive.time(), tiled.time()
for name, t in {"naive": t_naive, "tiled": t_tiled}.items():
    print(f"{name:10} {t.gbps:6,.0f} GB/s, {share(t)} ({t.origin}, {t.machine})")

# %% solved_only=true
assert p_tiled[PER_LOAD] == 4 == p_tiled[PER_STORE]
assert t_tiled.gbps > 2 * t_naive.gbps

# %% [markdown]
# Every access to global memory is perfect now, and still more than half of the time is lost. Something else binds.
#
# ## Rung 3: padded
#
# Shared memory is made of 32 **banks**, side by side, 4 bytes wide: word `k` lies in bank `k % 32`. In one pass, a
# **wavefront**, each bank hands out one word. A warp that reads 32 neighboring words needs one wavefront. And
# one that reads a column of the tile?

# %% question="transpose/tiled/column_wavefronts" points=2
lk.answer("transpose/tiled/column_wavefronts", 32)

# %%
lk.plots.access_map(p_tiled, "tile")

# %% [markdown]
# All 32 lanes queue for a single bank, and 31 stand idle. This is a **bank conflict**, as bad as they come.
#
# Now let rows of the tile be 33 words apart. Nobody uses the 33rd: 128 bytes of a tile are wasted.

# %% question="transpose/padded/column_wavefronts" points=1
lk.answer("transpose/padded/column_wavefronts", 1)

# %% [markdown]
# ### Write
#
# Copy your kernel of tiled. Only the declaration is new: `cuda.shared.array((rows, columns), float32)`.

# %% kernel="transpose/padded"

# %% check="transpose/padded" points=3
padded = lk.problem("transpose")["padded"]
padded.check()

# %%
p_padded = padded.profile(**small)
lk.plots.access_map(p_padded, "tile")

# %% [markdown]
# What binds the two, before and after, says Nsight Compute, recorded at 8192 x 4096.

# %%
t_padded = padded.time()
print(f"tiled {t_tiled.gbps:,.0f} GB/s, padded {t_padded.gbps:,.0f} GB/s ({t_padded.origin}, {t_padded.machine})")
for rung in ("tiled", "padded"):
    print(transpose[rung].recorded(M=8192, N=4096).explain().sentences[0])

# %% solved_only=true
assert p_tiled[SHARED_LOADS] == 32 * p_padded[SHARED_LOADS]
assert t_padded.gbps > t_tiled.gbps
bound = [transpose[rung].recorded(M=8192, N=4096).explain().binds for rung in ("tiled", "padded")]
assert bound[0] == "shared" != bound[1]

# %% [markdown]
# ## Rung 4: swizzled
#
# Padding costs shared memory, and rows start at odd addresses, which wide accesses do not like. There is a way without:
# keep rows 32 words apart, but shuffle each in a different way. Element (row, column) goes to place `column ^ row` of
# its row, where `^` is the exclusive or of the bits. Along a row, different columns go to different places; along a
# column, different rows go to different banks. The fastest matrix products use such a **swizzle**.

# %% question="transpose/swizzled/place" points=1
lk.answer("transpose/swizzled/place", 5 * 32 + 6)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the kernel of tiled. Wherever it says `tile[r, c]`, the element now stands at `tile[r, c ^ r]`, when
# it is written and when it is read.
#
# </details>

# %% kernel="transpose/swizzled"

# %% check="transpose/swizzled" points=3
swizzled = lk.problem("transpose")["swizzled"]
swizzled.check()

# %%
p_swizzled = swizzled.profile(**small)
lk.plots.access_map(p_swizzled, "tile")

# %%
BYTES = "launch__shared_mem_per_block_static"
for name, p in {"tiled": p_tiled, "padded": p_padded, "swizzled": p_swizzled}.items():
    print(f"{name:9} {p[SHARED_LOADS]:6,.0f} wavefronts of shared loads, {p[SHARED_STORES]:6,.0f} of stores, "
          f"{p[BYTES]:,.0f} bytes of shared memory per block")

# %% solved_only=true
assert p_swizzled[SHARED_LOADS] == p_padded[SHARED_LOADS] and p_swizzled[SHARED_STORES] == p_padded[SHARED_STORES]
assert p_swizzled[BYTES] == p_tiled[BYTES] == 4096 and p_padded[BYTES] == 4096 + 128

# %% [markdown]
# ### Explain
#
# Is swizzled faster than padded? Look at the times below and at the table above: why would one want it all the same?

# %%
t_swizzled = swizzled.time()
print(f"padded {t_padded.gbps:,.0f} GB/s, swizzled {t_swizzled.gbps:,.0f} GB/s ({t_padded.origin}, {t_padded.machine})")

# %% [markdown] explain="transpose/swizzled" points=2
# ### BEGIN SOLUTION
# No, they are about equally fast, for both have no conflicts and make the same requests; the exclusive or even
# costs an instruction. But no word is wasted, and rows start on multiples of 128 bytes, so that 16-byte
# accesses to the tile are possible.
# ### END SOLUTION

# %% solved_only=true
assert 0.85 < t_swizzled.gbps / t_padded.gbps < 1.1

# %% [markdown]
# ## Optional: rung 5, vectorized
#
# This is the hardest kernel of the notebook: take half an hour for it, or go on to the ladder, where its time stands.
# What is left is Little's law, once more, and the number of instructions. Copy went from four bytes per access
# to sixteen, and so can the transpose. But what does it mean to read 16 bytes of a *column*?
#
# Here is the plan, for tiles of 64 x 64 and blocks of 16 x 16 threads:
#
# 1. each thread loads a **square of 4 x 4** numbers: four rows, four neighbors in each, with four `load4`;
# 2. it turns the square round **in registers**, which costs nothing: it is a matter of names;
# 3. it writes four rows of the turned square to the tile, with four `store4` of 16 bytes. The tile holds
#    rows of B, of 64 numbers, that is 16 *pieces* of 16 bytes each;
# 4. after the barrier, the threads read whole rows of the tile, piece by piece, and store them to B.
#
# In step 3, neighboring lanes write rows that are 4 apart: always the same banks. So the *pieces* of a row are
# swizzled: piece `p` of row `r` stands in place `p ^ (r // 4)`.

# %% [markdown]
# <details><summary>Hint 1: steps 1 to 3</summary>
#
# Thread (x, y) has the square with its upper left corner at (`row0 + 4 y`, `col0 + 4 x`) of A. Number `j` of each of
# its four rows belongs to row `4 x + j` of the tile, and there to piece `y`.
#
# <details><summary>Hint 2: the swizzle there</summary>
#
# The row is `4 x + j`, with `j` below 4, so that `r // 4` is just `x`: piece `y` stands in place `y ^ x`.
#
# <details><summary>Hint 3: step 4</summary>
#
# Four turns; in turn `i`, thread (x, y) has row `y + 16 i` of the tile, and piece `x` of it. It belongs to row
# `col0 + y + 16 i` of B, and begins there in column `row0 + 4 x`. `load_row4` and `store_row4` are given: they take
# how many of the four numbers exist (0 or less: none), and whether the address is aligned.
#
# </details></details></details>

# %% question="transpose/vectorized/requests_ratio"
lk.answer("transpose/vectorized/requests_ratio", 4)

# %% kernel="transpose/vectorized"

# %% check="transpose/vectorized"
fast = lk.problem("transpose")["vectorized"]
fast.check()

# %%
p_fast = fast.profile(**small)
p_fast.diff(p_swizzled)

# %%
lk.plots.access_map(p_fast, "tile")

# %% solved_only=true
assert p_naive[REQUESTS] == 4 * p_fast[REQUESTS]
assert p_fast["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"] == 0
assert p_fast["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 0

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="transpose/vectorized" language="cuda"

# %% check="transpose/vectorized" language="cuda"
lk.problem("transpose")["vectorized", "cuda"].check()

# %% [markdown]
# ## The ladder
#
# All rungs, in both languages, timed in one run: a matrix of 65536 x 4096, 1 GiB to read and 1 GiB to write.

# %%
from labkit.bench import show_recorded

ladder = [t for t in show_recorded("transpose").timings if t.shape == transpose.bench_shape]
lk.plots.ladder(ladder)

# %%
top = {t.label: t for t in ladder if "vectorized" in t.label}
for t in top.values():
    print(f"{t.label}: {t.gbps:,.0f} GB/s, {t.of_ceiling[0]:.0%} of the measured copy ceiling, {t.ratio:.1f} times as "
          "fast as PyTorch")

# %% solved_only=true
assert all(t.of_ceiling[0] > 0.9 and t.ratio > 1 for t in top.values())

# %% [markdown]
# And PyTorch? `A.T` alone moves nothing: it is the same memory with its strides exchanged. `A.T.contiguous()` has to
# move, by a general kernel that copies between any strides. It cannot have tiles for every case, and that is why people
# still write their own.
#
# ## What to take with you
#
# - Memory sends sectors of 32 bytes. Count sectors per byte that you use; neighboring lanes, neighboring data.
# - A layout can waste what no kernel can win back.
# - Enough bytes in flight: several loads per thread, or wide ones.
# - Shared memory turns data round. It has banks; padding or a swizzle keeps columns out of each other's way.
#
# Next: [Reading a profiler's report](profiling.ipynb), to find out what is wrong with kernels that are not yours.
