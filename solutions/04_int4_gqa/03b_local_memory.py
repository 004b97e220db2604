# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ten steps: what should be in registers and is not
#
# Steps 3, 4 and 5. Two of them are about an array of 32 bytes, the most expensive array of the whole kernel. The third
# is about words that could have been ordered earlier. You need your `opt02_cast_p`.

# %%
import linecache

import labkit as lk

int4_gqa = lk.problem("int4_gqa")
opt02 = int4_gqa["opt02_cast_p", "cuda"]
opt02.check(shapes=[dict(B=2, T=33, HQ=8, split_k=2)])

# %%
INSTRUCTIONS = "smsp__inst_executed.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
LOCAL = "smsp__sass_inst_executed_op_local_{}.sum"
LOCAL_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_local_op_{}.sum"
REGISTERS = "launch__registers_per_thread"
STACK = "labkit__stack_bytes"  # the compiler's stack frame of a thread


def both(p, metric):
    """Loads and stores together."""
    return sum(p[metric.format(kind)] for kind in ("ld", "st"))


def lines_of(p, wanted):
    """The source lines at which a traced access is `wanted`, in order."""
    lines = dict.fromkeys((a.file, a.line) for a in p.accesses if wanted(a))
    return [f"{line:4}  {linecache.getline(file, line).strip()}" for file, line in lines]


def published(before, after, groups=""):
    print(f"published, A100, B = 512{groups}: {before} us before, {after} us after, {before / after:.2f} times as fast")


shape = dict(B=1, T=256, HQ=8, split_k=1)
p_02 = opt02.profile(**shape)

# %% [markdown]
# ## Step 3: the maximum in a register
#
# ### The clue

# %%
print(f"{p_02[LOCAL.format('ld')]:.0f} local loads and {p_02[LOCAL.format('st')]:.0f} local stores, "
      f"{both(p_02, LOCAL_SECTORS):,.0f} sectors ({p_02.origin})")
if STACK in p_02.metrics:  # the compiler's report; Nsight Compute has no such counter
    print(f"{p_02[STACK]:.0f} bytes of stack for each thread")

# %% [markdown]
# **Local memory** is local in name only: it belongs to one thread, and lies where global memory does. If all goes well,
# it is found in the L1 cache. No line of the source says "local". Who uses it?

# %%
print("\n".join(lines_of(p_02, lambda a: a.space == "local")))

# %% [markdown]
# Two arrays, `best` and `sum`: a float for each head, for each thread. Why not in registers? A register has no address:
# its number stands in the instruction. `best[h]` with an `h` that runs from 0 to `heads`, a number that nobody knows
# when the kernel is compiled, cannot be one. The compiler has no choice.

# %% question="int4_gqa/cu_baseline/local_bytes" points=1
frame = lk.answer("int4_gqa/cu_baseline/local_bytes", 8 * 4)
frame

# %% [markdown]
# ### The suspect
#
# How many loads do the maxima alone take, for 256 tokens?
#
# <details><summary>Hint</summary>
#
# 128 threads, 256 tokens: each thread looks at 2 tokens, of 8 heads each.
#
# </details>

# %% question="int4_gqa/cu_baseline/local_loads" points=2
local_loads = lk.answer("int4_gqa/cu_baseline/local_loads", 2 * 8 + 8)
local_loads

# %% [markdown]
# ### The change
#
# Does a thread need the maxima of *all* heads? Turn the work round: a warp looks after one head, all of its tokens, and
# then after the next that is its own. A lane then keeps one number. And the 4 warps need not put their maxima
# together any more.
#
# Write what stands between `float best = LEAST;` and the store: the lane's tokens, and then the shuffles.
#
# <details><summary>Hint 1: the tokens of a lane</summary>
#
# Neighbors read neighbors: lane, lane + 32, and so on, below `n`.
#
# <details><summary>Hint 2: the shuffles</summary>
#
# As before, with `far` = 16, 8, 4, 2, 1, and `best` in place of `best[h]`.
#
# </details></details>

# %% kernel="int4_gqa/opt03_max_registers" language="cuda"

# %% check="int4_gqa/opt03_max_registers" language="cuda" points=2
opt03 = int4_gqa["opt03_max_registers", "cuda"]
opt03.check()

# %% [markdown]
# ### The proof

# %%
p_03 = opt03.profile(**shape)
p_03.diff(p_02)

# %%
published(1435, 1338)

# %% [markdown]
# The loads that you predicted are gone, for each of 4 warps, and with them a good part of the instructions: indices,
# addresses, and shuffles, of which every warp did 40 for all heads and does 10 for its own two.

# %% solved_only=true
assert p_02[STACK] == frame.value
assert p_02[LOCAL.format("ld")] - p_03[LOCAL.format("ld")] == 4 * local_loads.value
assert p_03[INSTRUCTIONS] < 0.96 * p_02[INSTRUCTIONS]
assert len(lines_of(p_03, lambda a: a.space == "local")) == 3

# %% [markdown]
# ## Step 4: the sum in a register
#
# The document was thorough: the array `sum` is the same again, and so is the cure.
#
# ### Predict
#
# Before you write it: how many local loads and stores will be left? And what will the report say of the stack? Look at
# `lines_of(p_03, ...)` if you are not sure.

# %%
print("\n".join(lines_of(p_03, lambda a: a.space == "local")))

# %% [markdown]
# ### The change
#
# Two regions: your maxima of before, copied, and the sums. While a lane goes over the tokens of its head, it also turns
# each score into $p$ and puts it back. Tokens from `n` to `padded` are not there: their $p$ is 0.
#
# <details><summary>Hint</summary>
#
# $p = 2^{(s - \text{best}) \cdot \text{SCALE}}$, by `exp2f`. Store it where the score was, and add it to `sum`.
#
# </details>

# %% kernel="int4_gqa/opt04_sum_registers" language="cuda"

# %% check="int4_gqa/opt04_sum_registers" language="cuda" points=2
opt04 = int4_gqa["opt04_sum_registers", "cuda"]
opt04.check()

# %%
p_04 = opt04.profile(**shape)
p_04.diff(p_03)

# %%
published(1338, 1328)

# %% [markdown]
# The same cure as in step 3, the same counts gone, and the published gain is a tenth of it, within what such
# measurements scatter. A counter that goes to zero is a proof that something is gone. It is no promise of time: by now
# other lines may be what everybody waits for.

# %% solved_only=true
assert both(p_04, LOCAL) == 0 and p_04[STACK] == 0
assert p_04[INSTRUCTIONS] < p_03[INSTRUCTIONS]

# %% [markdown]
# ### The story
#
# Somebody proposes another cure for steps 3 and 4: keep the arrays, but let the loop run to `HEADS` = 8, a constant,
# with `#pragma unroll`, and test `h < heads` inside. Would that have kept them out of local memory? What speaks for the
# document's way?

# %% [markdown] explain="int4_gqa/opt04_sum_registers" language="cuda" points=2
# ### BEGIN SOLUTION
# Yes: with all indices known when it is compiled, the 8 numbers can be 8 registers. But that is 8 registers for each
# array where one is enough, and every warp still shuffles for all 8 heads, and the warps must put their results
# together in shared memory with another barrier. A warp for each head does a quarter of the shuffles, and needs none of
# that.
# ### END SOLUTION

# %% [markdown]
# ## Step 5: order V ahead
#
# ### The clue
#
# In the second product, every step of 16 tokens begins with a load of $V$ and goes on with what it brings. You know
# that picture. `V` is a load of $V$, `s` a shared store, `.` a shared load:


# %%
def story(p, array, most=60):
    """The first memory instructions of a warp, in order, from the first load of `array` on."""
    letter = {"st": "s", "ld": "."}
    signs = [array if a.array == array else letter.get(a.op, "_") if a.array == "shared" else "_" for a in p.accesses]
    if array not in signs:
        raise lk.LabkitError(f"{p.kernel} does not read {array} yet; write it, run its cell, and come back.")
    start = signs.index(array)
    return "".join(signs[start : start + most])


print(story(p_04, "V"))

# %% [markdown]
# In step 1 the remedy was to load more at once. For $V$ the document tried that too, and the compiler of its time put
# the words into local memory: out of the frying pan, into the fire. So another remedy: **prefetch**. As soon as the
# words of this step are in shared memory, their registers are free. Ask for the *next* step's words right then, and let
# them travel while the tensor cores work on this one.
#
# ### The suspect

# %% question="int4_gqa/opt05_prefetch_v/requests" points=1
moved = lk.answer("int4_gqa/opt05_prefetch_v/requests", 0)
moved

# %% [markdown]
# ### The change
#
# The maxima and the sums are yours from before. New is the loop of the second product. A function that loads the words
# of a step helps: call it once before the loop, and once in it.
#
# <details><summary>Hint 1: a function inside a function</summary>
#
# `auto fetch = [&](int t0) { ... };` sees all variables around it. Let it set `word` and `by`, which stand outside.
#
# <details><summary>Hint 2: where in the loop</summary>
#
# After the two `dequantize`, before `__syncwarp()`. Which `t0` does it get?
#
# <details><summary>Hint 3: the end</summary>
#
# The last step asks for words that are not there: `t < n` must be tested in the function, and zeros be set.
#
# </details></details></details>

# %% kernel="int4_gqa/opt05_prefetch_v" language="cuda"

# %% check="int4_gqa/opt05_prefetch_v" language="cuda" points=3
opt05 = int4_gqa["opt05_prefetch_v", "cuda"]
opt05.check()

# %% [markdown]
# ### The proof

# %%
p_05 = opt05.profile(**shape)
print("before:", story(p_04, "V"))
print("after: ", story(p_05, "V"))

# %%
p_05.diff(p_04)

# %%
published(1328, 1244)

# %% solved_only=true
assert p_05[REQUESTS] - p_04[REQUESTS] == moved.value == 0
assert both(p_05, SHARED) == both(p_04, SHARED) and both(p_05, LOCAL) == 0
assert story(p_04, "V").startswith("VVVssssssss..") and story(p_05, "V").startswith("VVVssssssssVVV..")

# %% [markdown]
# Seven hundredths of the time, and not one counter of work has moved. If you had only counts, you would not have found
# this step; if you had only stalls, you would not have known that nothing else changed.
#
# How long is the way that is hidden now? Between asking and needing, a warp does one product: two loads of fragments,
# one multiplication, two `__syncwarp()`. A few dozen cycles, of the hundreds that a load takes. The rest must be hidden
# by the other warps. The eleventh kernel of this lab orders tiles *two steps* ahead, by copies that need no registers.
#
# ### The story
#
# Step 1 loaded four times as much at once; step 5 loads as much as before, but earlier. Which of them costs registers,
# and which hides more?

# %% [markdown] explain="int4_gqa/opt05_prefetch_v" language="cuda" points=2
# ### BEGIN SOLUTION
# Unrolling needs a register for each word on its way: four times as many. The prefetch reuses the registers of the
# words that have just been stored, and needs next to none. Unrolled loads still wait for the first word, once for
# 4 products in place of 4 times, with four times the bytes on their way; the prefetch overlaps the wait with one
# product's work only, which is much shorter than the latency. Both together would hide more.
# ### END SOLUTION

# %% [markdown]
# Five steps, 1.33 times as fast on an A100, by publication. Next: [what fragments hide](03c_fragments.ipynb).
