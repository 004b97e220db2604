# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Fusion and recomputation
#
# A GPU computes faster than its memory delivers. So the question about a chain of simple operations is
# not how much it computes, but **how often the numbers travel**. This notebook has two answers, both from
# Stanford's CS336. *Fusion*: once a number is in a register, do everything with it. *Recomputation*:
# if a number is cheap to compute, do not fetch it, compute it again.
#
# As always: **predict**, **write**, **check**, **profile**, **explain**; and no GPU is needed.

# %%
import numpy as np
import pandas as pd
import torch

import labkit as lk

# %% [markdown]
# ## A function of five operators
#
# Think of memory as a warehouse, of the multiprocessors as a factory, and of a belt between them. The
# factory is fast and the belt is slow. Now somebody orders
#
# ```python
# y = torch.sin(x) ** 2 + torch.cos(x) ** 2
# ```
#
# PyTorch runs one kernel for each operator, as it comes to it. Each takes its vectors from the
# warehouse, and sends its result back there.

# %%
fusion = lk.problem("fusion")
fusion

# %% [markdown]
# ### Predict
#
# Write the five kernels down, each with what it reads and what it writes. How many vectors ride the belt?

# %% [markdown]
# <details><summary>Hint 1: one kernel</summary>
#
# `s = sin(x)` reads one vector and writes one: two rides.
#
# <details><summary>Hint 2: the odd one out</summary>
#
# The last kernel adds two vectors. The others have one input each.
#
# </details></details>

# %% question="fusion/five_kernels/memory_operations" points=2
predicted_five = lk.answer("fusion/five_kernels/memory_operations", 11)
predicted_five

# %% [markdown]
# ### Write
#
# Here they are, the two simplest left to you. Each thread has one number.

# %% kernel="fusion/five_kernels"

# %% check="fusion/five_kernels" points=2
five_kernels = fusion["five_kernels"]
five_kernels.check()

# %% [markdown]
# ### Profile
#
# All five launches, summed up. From the sectors that traveled (32 bytes each) follows how many
# vectors that was.

# %%
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"

N = 2048


def vectors(profile):
    """How many vectors of N float32 were loaded, and how many stored."""
    return profile[LOADED] * 32 / (4 * N), profile[STORED] * 32 / (4 * N)


p_five = five_kernels.profile(N=N)
print("loaded {:g}, stored {:g} vectors".format(*vectors(p_five)), f"({p_five.origin})")

# %% solved_only=true
assert sum(vectors(p_five)) == predicted_five.value == 11

# %% [markdown]
# ## Fused
#
# None of the five kernels needs anything but what the one before left at the same place. So one thread
# can do all five for its number, and the results between stay in registers.
#
# ### Predict

# %% question="fusion/fused/memory_operations" points=1
predicted_fused = lk.answer("fusion/fused/memory_operations", 2)
predicted_fused

# %% question="fusion/fused/speedup" points=1
lk.answer("fusion/fused/speedup", 11 / 2)

# %% [markdown]
# ### Write

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.sin` and `math.cos` of `x[i]`, each kept in a variable. A variable of a kernel is a register.
#
# </details>

# %% kernel="fusion/fused"

# %% check="fusion/fused" points=2
fused = fusion["fused"]
fused.check()

# %%
p_fused = fused.profile(N=N)
p_fused.diff(p_five)

# %%
print("loaded {:g}, stored {:g} vectors".format(*vectors(p_fused)), f"({p_fused.origin})")

# %% solved_only=true
assert sum(vectors(p_fused)) == predicted_fused.value == 2

# %% [markdown]
# ## Who fuses for you: torch.compile
#
# What you have just done by hand, a compiler can do. `torch.compile` looks at the whole expression, sees that
# each operator works number by number, and writes one kernel. These are times of PyTorch's five operators
# ("eager"), of the same expression compiled, and of our rungs, all recorded on one machine. (With a GPU of your own,
# `fused.time()` measures yours.)

# %%
times = {rung.step.name: rung.time(recorded=True) for rung in fusion}
compiled = fusion.rival("compiled")
eager = np.median(times["fused"].baseline_ms)

milliseconds = {"PyTorch eager": eager, "torch.compile": compiled.median_ms}
milliseconds |= {name: timing.median_ms for name, timing in times.items()}
t = times["fused"]
lk.plots.bars(milliseconds, f"fusion at N = {t.shape['N']:,}, {t.origin} on {t.machine}", unit="ms")

# %%
for name, ms in milliseconds.items():
    print(f"{name:16} {ms:.3f} ms, {eager / ms:.2f} times as fast as eager")
print(f"The least that the copy ceiling allows for two vectors: {t.bound.bytes_ms:.3f} ms")

# %% [markdown]
# The ratio that you predicted from the bytes is not there yet. Our five kernels are slower than PyTorch's, and our
# fused kernel is faster than five, but slower than the compiler's. All of them move the right number of vectors. So
# something else takes the time.

# %% solved_only=true
assert eager > 4 * compiled.median_ms  # the compiler gets most of the predicted 5.5
assert milliseconds["five_kernels"] > eager and eager > 2 * milliseconds["fused"]
assert milliseconds["fused"] > 1.3 * compiled.median_ms > 1.3 * milliseconds["vectorized"]

# %% [markdown]
# ### A budget of instructions: vectorized
#
# "Computing is free" holds up to a limit, and the limit can be counted. Each multiprocessor starts at most 4
# instructions of a warp per cycle. If numbers are to flow at the speed of memory, 8 bytes for each, how many
# instructions may be spent on one?

# %%
from labkit.models import devices

INSTRUCTIONS_PER_CYCLE = 4 * 32  # of a thread, by one multiprocessor


def budget(timing, bytes_per_number):
    """Instructions per number that a machine can execute while its memory moves the number's bytes."""
    rate = devices.find(timing.machine).sms * INSTRUCTIONS_PER_CYCLE * timing.sm_clock_mhz[1] * 1e6
    return rate / (timing.ceilings["copy_gbps"] * 1e9 / bytes_per_number)


def spent(name):
    """Instructions per number of our solution, as Nsight Compute counted them on an H200."""
    problem, rung = name.split("/")
    p = lk.problem(problem)[rung].recorded()
    return 32 * p[INSTRUCTIONS] / p.shape["N"]  # a warp's instruction serves 32 numbers


print(f"budget: {budget(t, 8):.0f} instructions per number on the {t.machine}")
print(f"fused:  {spent('fusion/fused'):.0f} (recorded)")

# %% [markdown]
# Over budget. Which lines spend it? The source of your kernel, with what each line costs in one block:

# %%
from labkit.profiling.emulated import profile_emulated

lk.plots.source(profile_emulated(**fused.launches(dict(N=256))))

# %% [markdown]
# Sine and cosine are not single instructions: each first finds out in which quarter of the circle the
# angle lies, and both do that for themselves. One function that returns both, `sincosf`, does it once. And 16-byte
# accesses, four numbers per thread, save instructions that find an address, ask for the number and test the bounds.

# %% kernel="fusion/vectorized" given=true

# %% check="fusion/vectorized"
vectorized = fusion["vectorized"]
vectorized.check()

# %%
p_vectorized = vectorized.profile(N=N)
for name, p in {"fused": p_fused, "vectorized": p_vectorized}.items():
    print(f"{name:12} {spent('fusion/' + name):3.0f} instructions per number, {p[REQUESTS]:.0f} load requests")

# %%
t = times["vectorized"]
print(f"{t.median_ms:.3f} ms: {t.bound.ms / t.median_ms:.0%} of the copy ceiling, "
      f"{t.ratio:.2f} times as fast as eager, "
      f"{compiled.median_ms / t.median_ms:.2f} times as fast as torch.compile")

# %% solved_only=true
assert spent("fusion/vectorized") < budget(t, 8) < spent("fusion/fused")
assert [fusion[rung].recorded().explain().binds for rung in ("fused", "vectorized")] == ["issue", "DRAM"]
assert p_vectorized[REQUESTS] * 4 == p_fused[REQUESTS]
assert t.bound.ms / t.median_ms > 0.9

# %% [markdown]
# ### One step too far?
#
# You have noticed, of course, that $\sin^2 + \cos^2 = 1$. Here is the ultimate fusion:

# %%
import tempfile
from pathlib import Path

shortcut = Path(tempfile.mkdtemp(), "fused.py")
shortcut.write_text('''
from numba import cuda, float32


@cuda.jit
def one(y, x):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = float32(1)


def launch(y, x):
    one[(y.shape[0] + 255) // 256, 256](y, x)
''')
too_clever = fused.load(shortcut)
too_clever.check()

# %%
print("loaded {:g}, stored {:g} vectors".format(*vectors(too_clever.profile(N=N))))

# %% [markdown]
# It passes: for every number that was tried, 1 is right to the last digit, and more exact than any sine. No
# compiler does this for you all the same. What should come out for an infinite $x$, and for one that is not a number?
#
# Keep two things in mind. A check compares results, so it can only know what its inputs show. And a
# kernel that is faster than its bytes allow is not fast, it does something else: always ask whether a time is
# *possible*.

# %% solved_only=true
assert too_clever.check().passed and vectors(too_clever.profile(N=N)) == (0, 1)
assert torch.isnan(fusion.reference(torch.tensor([float("inf"), float("nan")], dtype=torch.float64))).all()

# %% [markdown]
# ### Explain
#
# Fusion did not remove a single sine, product or sum. Where does the speed come from?

# %% [markdown] explain="fusion/fused" points=2
# ### BEGIN SOLUTION
# From the memory traffic. One kernel moves 2 vectors where five moved 11, and the results between are never sent to
# memory. That lasts until the instructions bind: fused already spends more on sine and cosine than its two vectors
# leave time for, and only the cheaper arithmetic of vectorized reaches the ceiling.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# The five launches stand in the header, with `workspace` lines for the vectors between.

# %% kernel="fusion/five_kernels" language="cuda"

# %% check="fusion/five_kernels" language="cuda"
fusion["five_kernels", "cuda"].check()

# %% kernel="fusion/fused" language="cuda"

# %% check="fusion/fused" language="cuda"
fusion["fused", "cuda"].check()

# %% [markdown]
# ## There and back: three sigmoids
#
# Training runs every function twice: forward, to get its value, and backward, to get its gradient. And
# backward needs what forward has computed. The lecture's example is a chain of three sigmoids,
#
# $$s_1 = \sigma(x),\quad s_2 = \sigma(s_1),\quad y = \sigma(s_2),\qquad \sigma(t) = \frac{1}{1 + e^{-t}}.$$
#
# The slope of a sigmoid follows from its value, $\sigma' = \sigma (1 - \sigma)$, so by the chain rule
#
# $$dx = dy \cdot y(1-y) \cdot s_2(1-s_2) \cdot s_1(1-s_1).$$
#
# Between forward and backward lies the rest of the network, which turns $y$ into $dy$. So these are two
# kernels at least, and nothing stays in registers from one to the other.

# %%
recompute = lk.problem("recompute")
recompute

# %% [markdown]
# ### Rung 1: operators
#
# What PyTorch does: three kernels forward, each of which **keeps** its output, and three backward. How many vectors
# travel?

# %% question="recompute/operators/memory_operations" points=1
lk.answer("recompute/operators/memory_operations", 15)

# %% [markdown]
# The sigmoid is given; write its slope, with which the gradient `dout` becomes `da`.

# %% kernel="recompute/operators"

# %% check="recompute/operators" points=2
operators = recompute["operators"]
operators.check()

# %% [markdown]
# The check compares with a float64 reference, here PyTorch's autograd. You can do that by hand, too:

# %%
from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"
inputs = recompute.make_inputs({"N": 1000}, device=device)
outputs = recompute.make_outputs({"N": 1000}, device=device)

x = inputs["x"].double().requires_grad_()
exact = torch.sigmoid(torch.sigmoid(torch.sigmoid(x)))
exact.backward(inputs["dy"].double())

operators.kernel.launch((outputs["y"], outputs["dx"]), inputs["x"], inputs["dy"])
print(f"largest error of y:  {(outputs['y'] - exact.detach()).abs().max():.1e}")
print(f"largest error of dx: {(outputs['dx'] - x.grad).abs().max():.1e}, of gradients up to {x.grad.abs().max():.2f}")

# %% [markdown]
# ### Rung 2: store
#
# First fuse each way. Forward computes all three sigmoids, and stores $s_1$ and $s_2$ besides $y$, for the way back.
# Backward loads them. (It needs $y$ as well; from $s_2$ that is one sigmoid, cheaper than one more vector.) This is
# the lecture's first count. What is it?

# %% [markdown]
# <details><summary>Hint</summary>
#
# Forward: in comes x, out go s1, s2 and y. Backward: in come s1, s2 and dy, out goes dx.
#
# </details>

# %% question="recompute/store/memory_operations" points=1
predicted_store = lk.answer("recompute/store/memory_operations", 8)
predicted_store

# %% kernel="recompute/store"

# %% check="recompute/store" points=3
store = recompute["store"]
store.check()

# %% [markdown]
# ### Rung 3: recompute
#
# Now the trick. Storing $s_1$ and $s_2$ and fetching them again takes four rides. What does it take to have
# them without? One ride of $x$, and some arithmetic. So store nothing, and compute them again.
#
# ### Predict

# %% question="recompute/recompute/memory_operations" points=1
predicted_recompute = lk.answer("recompute/recompute/memory_operations", 5)
predicted_recompute

# %% question="recompute/recompute/sigmoids" points=1
lk.answer("recompute/recompute/sigmoids", 6)

# %% [markdown]
# ### Write

# %% [markdown]
# <details><summary>Hint</summary>
#
# The last line is that of store. Only where `a` and `b` come from is new: `sigmoid(x[i])`, and the sigmoid
# of that.
#
# </details>

# %% kernel="recompute/recompute"

# %% check="recompute/recompute" points=3
again = recompute["recompute"]
again.check()

# %% [markdown]
# ### Profile

# %%
profiles = {rung.step.name: rung.profile(N=N) for rung in (operators, store, again)}
profiles["recompute"].diff(profiles["store"])

# %%
pd.DataFrame(
    {
        "vectors loaded": vectors(p)[0],
        "vectors stored": vectors(p)[1],
        "together": sum(vectors(p)),
        "instructions of a warp": p[INSTRUCTIONS],
    }
    for p in profiles.values()
).set_axis(list(profiles)).style.format(precision=0, thousands=",")

# %% solved_only=true
assert [sum(vectors(p)) for p in profiles.values()] == [15, 8, 5]
assert sum(vectors(profiles["store"])) == predicted_store.value
assert sum(vectors(profiles["recompute"])) == predicted_recompute.value
assert profiles["recompute"][INSTRUCTIONS] > profiles["store"][INSTRUCTIONS]

# %% [markdown]
# 8 against 5, as the lecture counts, and more instructions in exchange.
#
# ### Time
#
# By the bytes, recompute should take 5/8 of the time of store. Does it?

# %%
recompute_times = {rung.step.name: rung.time(recorded=True) for rung in recompute}
t = recompute_times["recompute"]
milliseconds = {"PyTorch eager": np.median(t.baseline_ms), "torch.compile": recompute.rival("compiled").median_ms}
milliseconds |= {name: timing.median_ms for name, timing in recompute_times.items()}
lk.plots.bars(milliseconds, f"recompute at N = {t.shape['N']:,}, {t.origin} on {t.machine}", unit="ms")

# %%
print(f"recompute takes {milliseconds['recompute'] / milliseconds['store']:.0%} of the time of store, not {5 / 8:.0%}")
for name, p in profiles.items():
    moved = 4 * sum(vectors(p))  # bytes per number
    print(f"{name:10} {moved:2.0f} bytes and {spent('recompute/' + name):3.0f} instructions per number, "
          f"budget {budget(t, moved):3.0f}")

# %% [markdown]
# Here is the fine print of "compute is free". operators and store stay within their budgets. recompute moves so little
# that its budget is small, and it spends more: six sigmoids, each with an exponential and a **division**, which takes
# many instructions to be rounded exactly. Now the instructions bind.

# %% solved_only=true
assert 5 / 8 + 0.1 < milliseconds["recompute"] / milliseconds["store"] < 1
assert spent("recompute/recompute") > budget(t, 20) and spent("recompute/store") < 0.8 * budget(t, 32)
assert spent("recompute/operators") < 0.8 * budget(t, 60)
assert [recompute[rung].recorded().explain().binds for rung in ("store", "recompute")] == ["DRAM", "issue"]

# %% [markdown]
# ### Rung 4: vectorized
#
# So make the computing cheap. The GPU has a fast reciprocal and a fast power of two, wrong by a few units in the last
# place; the check, which knows how exact PyTorch is, accepts them. With 16-byte accesses besides, it looks like this:

# %% kernel="recompute/vectorized" given=true

# %% check="recompute/vectorized"
recompute["vectorized"].check()

# %%
p_fast = recompute["vectorized"].profile(N=N)
fast = recompute_times["vectorized"]
print(f"{spent('recompute/vectorized'):.0f} instructions per number, {spent('recompute/recompute'):.0f} in recompute")
fast

# %% [markdown]
# Could storing be as fast, if it were written as well? Give it the benefit of the doubt: a perfect kernel that moves 8
# vectors at the measured copy ceiling.

# %%
perfect = 8 * 4 * fast.shape["N"] / fast.ceilings["copy_gbps"] / 1e6
print(f"8 vectors at the ceiling: {perfect:.3f} ms at least. Recomputing takes {fast.median_ms:.3f} ms, "
      f"{fast.median_ms / perfect:.0%} of that; {5 / 8:.1%} was predicted.")

# %% solved_only=true
assert sum(vectors(p_fast)) == 5 and spent("recompute/vectorized") < 0.5 * spent("recompute/recompute")
assert fast.median_ms < 0.7 * perfect and fast.bound.ms / fast.median_ms > 0.9
assert fast.median_ms < recompute.rival("compiled").median_ms < perfect

# %% [markdown]
# And torch.compile? It is below the 8-vector floor as well, so it cannot be storing: it has found the same trick by
# itself. It cuts the graph of forward and backward where the fewest bytes have to be kept, and computes the rest again.

# %%
print(f"torch.compile: {milliseconds['torch.compile']:.3f} ms")

# %% [markdown]
#
# ### Memory, too
#
# What is not stored takes no room. For the activations of a large network that is the better known reason to
# recompute, under the name of *gradient checkpointing*; here the reason is speed.

# %%
kept = 2 * 4 * fast.shape["N"]
print(f"s1 and s2 of {fast.shape['N']:,} numbers: {kept / 2**20:.0f} MiB, kept from forward to backward")

# %% [markdown]
# ### Explain
#
# When is recomputing a bad idea? Name a chain of operators for which you would rather store.

# %% [markdown] explain="recompute/recompute" points=2
# ### BEGIN SOLUTION
# When computing again takes longer than fetching: as soon as the multiprocessors are busy anyway. A matrix
# product costs hundreds of operations per number of its result, so its result is stored. Sigmoids, products
# and sums of single numbers cost some tens of instructions at most, and are computed again.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="recompute/operators" language="cuda"

# %% check="recompute/operators" language="cuda"
recompute["operators", "cuda"].check()

# %% kernel="recompute/store" language="cuda"

# %% check="recompute/store" language="cuda"
recompute["store", "cuda"].check()

# %% kernel="recompute/recompute" language="cuda"

# %% check="recompute/recompute" language="cuda"
recompute["recompute", "cuda"].check()

# %% [markdown]
# ## What to keep
#
# Count the vectors before you count anything else: for operators that work number by number, the rides to
# memory and back are the time. Fuse what belongs together, and recompute what is cheap. FlashAttention, later in this
# course, is both ideas at once: softmax fused between two matrix products, and recomputed on the way back.
#
# Next: [Reductions, softmax and RMSNorm](05_reductions_and_norms.ipynb).
