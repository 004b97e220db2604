# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ten steps, a detective story: the first clues
#
# A kernel reads a quarter of the bytes and takes the same time. Who stole the other three quarters? The document found
# ten culprits, one after the other, each by reading a profile. You will find them the same way:
#
# 1. **the clue**: the profile of the kernel as it is,
# 2. **the suspect**: what it tells you, and a prediction with a number,
# 3. **the change**: a few lines, written by you,
# 4. **the proof**: the check, and the profile of the new kernel,
# 5. **the story**: why it helped.
#
# Two things are the same in all steps. The kernels are in CUDA C++, for the document's fragments (`wmma`) are there;
# you write small marked regions in them. And beside your counts stand the times that were *published*: on an A100, for
# 512 sequences of 8192 tokens, row-wise. Counts come from the emulator, or from Nsight Compute where it may run. What
# an emulator cannot know is how long a warp *waits*. Where the document's clue was a stall, yours is its cause.

# %%
import linecache
from types import SimpleNamespace

import labkit as lk

int4_gqa = lk.problem("int4_gqa")

INSTRUCTIONS = "smsp__inst_executed.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
LOCAL = "smsp__sass_inst_executed_op_local_{}.sum"
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block_dynamic"


def at(p, words, metric):
    """A counter of a profile, added up over the source lines that contain some words."""
    return sum(line.get(metric, 0) for line in p.line_counts
               if line["file"] and words in linecache.getline(line["file"], line["line"]))  # fmt: skip


def published(before, after, groups=""):
    print(f"published, A100, B = 512{groups}: {before} us before, {after} us after, {before / after:.2f} times as fast")


# %% [markdown]
# ## The scene: cu_baseline
#
# Last time, every head read and unpacked all of the cache for itself. Tensor cores can do 8 heads at once: $Q$ of 8
# heads is a matrix of 8 x 128, and a product with it uses each number of $K$ for all of them. So a block has 8 heads of
# one sequence and one of `split_k` pieces of its tokens, and 4 warps:

# %% jupyter={"source_hidden": true}
import plotly.graph_objects as go

figure = go.Figure()
colors = ["#c6dbef", "#fdd0a2", "#c7e9c0", "#dadaeb"]
for tile in range(8):
    figure.add_shape(type="rect", x0=0, x1=4, y0=tile, y1=tile + 0.9, fillcolor=colors[tile % 4], line=dict(width=0))
    figure.add_annotation(x=2, y=tile + 0.45, text=f"tokens {32 * tile} to {32 * tile + 31}: warp {tile % 4}",
                          showarrow=False, font=dict(size=11))  # fmt: skip
for warp in range(4):
    x0 = 10 + 1.1 * warp
    figure.add_shape(type="rect", x0=x0, x1=x0 + 1, y0=0, y1=7.9, fillcolor=colors[warp], line=dict(width=0))
    figure.add_annotation(x=x0 + 0.5, y=3.9, text=f"warp {warp}:<br>columns<br>{32 * warp} to<br>{32 * warp + 31}",
                          showarrow=False, font=dict(size=11))  # fmt: skip
figure.add_shape(type="rect", x0=5.4, x1=8.6, y0=2.4, y1=5.6, fillcolor="#f1f3f4", line=dict(color="#5f6368", width=1))
figure.add_annotation(x=7, y=4, text="S, then P<br>8 heads x all tokens<br>in shared memory", showarrow=False,
                      font=dict(size=11))  # fmt: skip
for x, ax in ((5.3, 4.1), (9.9, 8.7)):
    figure.add_annotation(x=x, y=4, ax=ax, ay=4, xref="x", yref="y", axref="x", ayref="y", arrowhead=2, showarrow=True)
for x, words in ((2, "first product: K, by tiles of tokens"), (12.2, "second product: V, by columns")):
    figure.add_annotation(x=x, y=8.3, text=words, showarrow=False, font=dict(size=13))
figure.update_xaxes(visible=False, range=[-0.2, 14.6])
figure.update_yaxes(visible=False, range=[8.8, -0.3])
figure.update_layout(title="What the 4 warps of a block do (256 tokens)", template="plotly_white", height=420,
                     margin=dict(t=60, b=10, l=10, r=10))  # fmt: skip

# %% [markdown]
# 1. $S = Q K^T$: a warp takes a tile of 32 tokens, a lane a token. Eight times, the lane loads 16 numbers, turns them
#    into `bfloat16` in shared memory, and the warp multiplies (wmma m8n32k16: 8 heads by 32 tokens by 16 numbers).
# 2. The softmax of each head, in shared memory, and a copy of $P$ in `bfloat16`.
# 3. $O = P V$: a warp has 32 of the 128 columns and goes over *all* tokens, 16 at a time.
# 4. A second kernel puts the pieces of a sequence together.
#
# This is how the document describes its first version. Read it slowly, from the launch lines at the top; it is 200
# lines, and you will know each of them.

# %% kernel="int4_gqa/cu_baseline" language="cuda" given=true

# %% check="int4_gqa/cu_baseline" language="cuda"
cu_baseline = int4_gqa["cu_baseline", "cuda"]
cu_baseline.check()

# %% [markdown]
# ### The report
#
# One sequence of 256 tokens, one piece: one block. Below is what every line costs. Do not read the code again; read the
# bars. Which lines would you ask questions?

# %%
shape = dict(B=1, T=256, HQ=8, split_k=1)
p_base = cu_baseline.profile(**shape)
lk.plots.source(p_base)

# %% [markdown]
# You should have a few suspects now. The stores of `dequantize` have more conflicts than anything else. The loads of
# the second product have some. The two loops over `best` and `sum` take more instructions than such little sums should.
# All of them will have their turn, in the document's order.

# %%
numbers = 2 * 256 * 128
print(f"{p_base[TENSOR]:,.0f} operations on tensor cores, of {int4_gqa.flops(int4_gqa.dims_of(shape)):,} useful ones")
print(f"{32 * p_base[INSTRUCTIONS] / numbers:.1f} instructions of a thread for each number of the cache")
for kind, words in (("st", "dequantize("), ("ld", "load_matrix_sync(")):
    print(f"{at(p_base, words, CONFLICTS.format(kind)):,.0f} of {p_base[CONFLICTS.format(kind)]:,.0f} bank conflicts "
          f"of {'stores' if kind == 'st' else 'loads'} at {words[:-1]}")

# %% solved_only=true
assert p_base[TENSOR] == int4_gqa.flops(int4_gqa.dims_of(shape))
assert at(p_base, "dequantize(", CONFLICTS.format("st")) > 0.9 * p_base[CONFLICTS.format("st")]
assert at(p_base, "load_matrix_sync(", CONFLICTS.format("ld")) > 0.9 * p_base[CONFLICTS.format("ld")]
assert 32 * p_base[INSTRUCTIONS] / numbers < 15

# %% [markdown]
# ## Step 1: unroll the loads of K
#
# ### The clue
#
# The document saw in Nsight Compute: at `dequantize`, after the loads of $K$, warps wait for the *long scoreboard*,
# which is global memory. Your clue is the order in which a warp meets its memory instructions, the first time that it
# gets to each. `K` is a load from $K$, `s` a store to shared memory, `.` a load from it:


# %%
def story(p, array="K", most=60):
    """The first memory instructions of a warp, in order, from the first load of `array` on."""
    letter = {"st": "s", "ld": "."}
    signs = [array if a.array == array else letter.get(a.op, "_") if a.array == "shared" else "_" for a in p.accesses]
    if array not in signs:
        raise lk.LabkitError(f"{p.kernel} does not read {array} yet; write it, run its cell, and come back.")
    start = signs.index(array)
    return "".join(signs[start : start + most])


print(story(p_base))

# %% [markdown]
# Two words and their scale are asked for; then 8 stores need them, at once. A load from DRAM takes hundreds of
# nanoseconds, and during these this warp has 8 bytes for each lane on their way, and its scale, and nothing else.
#
# ### The suspect
#
# Little's law: to keep memory busy, what is on its way must be bandwidth times latency. On an H200, by the recorded
# ceiling and latency, for each multiprocessor:

# %%
from labkit.models.roofline import roofs
from labkit.models.speed import latencies

needed = roofs("NVIDIA H200").memory["DRAM"] * latencies()["DRAM"] / 132
print(f"{needed:,.0f} bytes must be on their way to each multiprocessor ({latencies()['DRAM']:.0f} ns, recorded)")

# %% [markdown]
# The step: ask for 8 words before the first is used. How much does a warp have on its way then?

# %% question="int4_gqa/opt01_unroll_k/bytes_in_flight" points=1
in_flight = lk.answer("int4_gqa/opt01_unroll_k/bytes_in_flight", 1024)
in_flight

# %% [markdown]
# And how many warps does a multiprocessor hold? With 8192 tokens in 16 pieces, a block has 512 tokens:

# %%
from labkit.models.occupancy import occupancy

large = dict(T=8192, split_k=16)
tokens = large["T"] // large["split_k"]
base = occupancy(128, int(p_base[REGISTERS]), tokens * 48 + 6464)
print(base)
for words in (2, 8):
    print(f"{words} words a lane: {base.warps * words * 4 * 32:,} bytes on their way at most")

# %% solved_only=true
assert base.warps * 256 < needed < base.warps * in_flight.value
assert story(p_base).startswith("KKKssssssss")

# %% [markdown]
# With 2 words it cannot be enough, even if all warps always waited for memory and did nothing else.
#
# ### The change
#
# Only the loop over `d` changes. It goes in steps of `UNROLL * STEP` = 64 numbers now: first all loads of these, then,
# for each 16 of them, what the loop did before.
#
# <details><summary>Hint 1: the loads</summary>
#
# An array of `2 * UNROLL` words and one of `UNROLL` scales, filled in a loop with `word_of` and `scale_of`, where
# `t < n`. Zeros are right for tokens that are not there.
#
# <details><summary>Hint 2: the rest</summary>
#
# A loop over `i` from 0 to `UNROLL`, with `#pragma unroll` before it: an array that lies in registers needs indices
# that are known when the kernel is compiled. Inside, the body of the old loop, with `d0 + i * STEP` in place of `d`.
#
# <details><summary>Hint 3: barriers</summary>
#
# The tile in shared memory has room for 16 numbers of each token still. So both `__syncwarp()` stay, in the inner loop.
#
# </details></details></details>

# %% kernel="int4_gqa/opt01_unroll_k" language="cuda"

# %% check="int4_gqa/opt01_unroll_k" language="cuda" points=3
opt01 = int4_gqa["opt01_unroll_k", "cuda"]
opt01.check()

# %% [markdown]
# ### The proof

# %%
p_01 = opt01.profile(**shape)
print("before:", story(p_base))
print("after: ", story(p_01))
print(f"registers of a thread: {p_base[REGISTERS]:.0f} before, {p_01[REGISTERS]:.0f} after")

# %%
p_01.diff(p_base)

# %% [markdown]
# Hardly a counter has moved, and rightly so: the same work, in another order. This is the kind of step that counters of
# work cannot show, and the reason why a profiler also samples what warps wait for. (A few requests less: row-wise, the
# scale of all words is the same, and the compiler now loads it half as often.)

# %%
published(1659, 1550)

# %% solved_only=true
assert story(p_01).startswith("KKKKKKKK") and p_01[REGISTERS] >= p_base[REGISTERS]
assert p_01[SHARED.format("st")] == p_base[SHARED.format("st")] and p_01[TENSOR] == p_base[TENSOR]
assert 0.9 * p_base[REQUESTS] < p_01[REQUESTS] < p_base[REQUESTS]

# %% [markdown]
# ### The story
#
# Why not unroll twice as far, and load all 16 words of a row first?

# %% [markdown] explain="int4_gqa/opt01_unroll_k" language="cuda" points=1
# ### BEGIN SOLUTION
# Words on their way need registers to arrive in: 16 of them and their scales, beside the accumulators and addresses.
# More registers for a thread mean fewer warps on a multiprocessor, which takes away again what is on its way. And the
# document's warps are not alone: enough bytes in flight is enough; beyond that it only costs.
# ### END SOLUTION

# %% [markdown]
# ## Step 2: round P in place
#
# ### The clue
#
# Between the two products, $P$ becomes `bfloat16`: a loop copies it from one place in shared memory to another. The
# document's profile shows warps waiting for shared memory there, and the document names two suspects: indirect
# addresses, and bank conflicts, because two threads write 16 bits each to the same bank. Look at that line:

# %%
CAST = "__float2bfloat16(S["
for kind, verb in (("ld", "loads"), ("st", "stores")):
    print(f"{at(p_01, CAST, SHARED.format(kind)):.0f} wavefronts of {verb}, "
          f"{at(p_01, CAST, CONFLICTS.format(kind)):.0f} of them bank conflicts")
cast_stores = [a for a in p_01.accesses if a.op == "st" and a.width == 2 and CAST in linecache.getline(a.file, a.line)]
lk.plots.access_map(SimpleNamespace(accesses=cast_stores), "shared")

# %% [markdown]
# (Two lanes share a word here: the picture gives both their numbers.) So one of the two suspects is innocent. Two lanes
# in one *word* are no conflict, not on any GPU of today. But look how little such a wavefront carries: 32 lanes with 2
# bytes, 64 of the 128 bytes that 32 banks could take. **Half of each wavefront is empty.** And there is a third thing
# that the stall picture did not say: the copy needs room.

# %% solved_only=true
assert at(p_01, CAST, CONFLICTS.format("st")) == 0 == at(p_01, CAST, CONFLICTS.format("ld"))
assert at(p_01, CAST, SHARED.format("st")) == 8 * 256 / 32

# %% [markdown]
# ### The suspect
#
# The step: all threads work on the same head. Each reads two neighbors (8 bytes), waits at a barrier until all have
# read, and writes them back as *one word* of two `bfloat16`, over the numbers that were there. Several such pairs are
# read before each barrier. $P$ lies in the first half of each row of $S$ then.

# %% question="int4_gqa/opt02_cast_p/shared_bytes" points=1
saved = lk.answer("int4_gqa/opt02_cast_p/shared_bytes", 8192)
saved

# %% question="int4_gqa/opt02_cast_p/barriers" points=1
barriers = lk.answer("int4_gqa/opt02_cast_p/barriers", 8)
barriers

# %% [markdown]
# ### The change
#
# Two regions. The first is your loop over $K$, as in your opt01_unroll_k: copy it. The second is new. Mind that in
# it every thread must come to every barrier, also those whose tokens are beyond the end.
#
# <details><summary>Hint 1: who takes what</summary>
#
# Thread `tid` takes tokens `2 * tid` and `2 * tid + 1`, and again `2 * THREADS` further on. `CASTS` such pairs between
# two barriers. If a block has more tokens than fit, there is another round.
#
# <details><summary>Hint 2: how many rounds</summary>
#
# All threads must do the same number of rounds. So the loop's condition may not depend on `tid`: subtract it again, as
# in `t0 - 2 * tid < padded`.
#
# <details><summary>Hint 3: types</summary>
#
# `float2 two[CASTS];`, read through `(const float2 *)(S + h * room + t)`, written as
# `*(__nv_bfloat162 *)(P + h * 2 * room + t)`, converted by `__float22bfloat162_rn`.
#
# </details></details></details>

# %% kernel="int4_gqa/opt02_cast_p" language="cuda"

# %% check="int4_gqa/opt02_cast_p" language="cuda" points=3
opt02 = int4_gqa["opt02_cast_p", "cuda"]
opt02.check()

# %% [markdown]
# ### The proof

# %%
p_02 = opt02.profile(**shape)
p_02.diff(p_01)

# %%
for p in (p_01, p_02):
    per_token = 48 if p is p_01 else 32
    room = occupancy(128, int(p[REGISTERS]), tokens * per_token + 6464)
    print(f"{p.kernel.split()[0]}: {p[SHARED.format('st')]:.0f} store wavefronts, {max(p.steps.phases)} barriers, "
          f"{p[REGISTERS]:.0f} registers\n  with {tokens} tokens a block: {room}")

# %%
published(1550, 1435)

# %% solved_only=true
assert p_01[SHARED.format("st")] - p_02[SHARED.format("st")] == 8 * 256 / 32 / 2
assert max(p_02.steps.phases) - max(p_01.steps.phases) == barriers.value
assert p_01[SHARED_BYTES] - p_02[SHARED_BYTES] == saved.value * 256 / 512
assert (occupancy(128, int(p_01[REGISTERS]), tokens * 48 + 6464).blocks
        < occupancy(128, int(p_02[REGISTERS]), tokens * 32 + 6464).blocks)  # fmt: skip

# %% [markdown]
# Half of the cast's stores are gone. That is little among thousands; what weighs more is the room. A block needs a
# third less shared memory, so more blocks fit on a multiprocessor, and that helps *every* line that waits. The document
# calls the registers, of which there are more, a culprit that lowers occupancy. With our compiler and on Hopper, what
# ran out was shared memory, and the step raises occupancy. (Computed, for blocks of 512 tokens; the little shape of the
# profile has less shared memory to save, and there registers decide.)
#
# ### The story
#
# Why is a barrier needed between reading and writing, when each thread writes what it has itself read?

# %% [markdown] explain="int4_gqa/opt02_cast_p" language="cuda" points=2
# ### BEGIN SOLUTION
# A number of 4 bytes becomes one of 2: tokens t and t + 1 are read from bytes 4 t to 4 t + 7 of the row and written to
# bytes 2 t to 2 t + 3. There lie the scores of tokens t / 2 and t / 2 + 1, which belong to another thread, often of
# another warp. Without the barrier it might not have read them yet.
# ### END SOLUTION

# %% [markdown]
# Two steps, 1.16 times as fast on an A100. Next: [what should be in registers and is not](03b_local_memory.ipynb).
