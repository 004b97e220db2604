# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice: the small operators of a model
#
# Between its matrices, a model does small things to every number: it scales, adds, masks, rounds. llama.cpp has a
# kernel for each, and so has this notebook. They are exercises, all of one kind, and short: do them in any order. The
# last two take longer, and are optional.
#
# Each has two rungs. `plain` is one thread per number, as in llama.cpp. `vectorized` moves 16 bytes per access, and
# looks for what else there is to save: a division, a sine, a row that is read again and again. Memory sets the time
# of all of them; how close do they come to a copy? You need `lk.cuda.load4` and `store4` from
# [Memory](02_memory.ipynb), and no GPU. The stubs have the way for arrays that do not begin on 16 bytes.

# %%
import labkit as lk
from labkit import recorded

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
copy = recorded.ceilings("NVIDIA H200")["copy_gbps"]


def compare(problem):
    """What your two rungs ask for, at the small shape."""
    plain, vectorized = problem["plain"].profile(), problem["vectorized"].profile()
    for name, metric in (("load requests", REQUESTS), ("store requests", STORES), ("instructions", INSTRUCTIONS)):
        print(f"{name:15} {plain[metric]:8.0f} in plain, {vectorized[metric]:8.0f} in vectorized ({plain.origin})")
    return plain, vectorized


def on_h200(problem):
    """What Nsight Compute read of our rungs in CUDA C++ on an H200: plain, vectorized."""
    return [problem[rung, "cuda"].recorded() for rung in ("plain", "vectorized")]


def times(problem):
    """GB/s of both rungs: yours where there is a GPU, and ours in CUDA C++, as recorded."""
    for rung in ("plain", "vectorized"):
        print(problem[rung].time())
        print(problem[rung, "cuda"].time(recorded=True))


print(f"a copy: {copy:.0f} GB/s (recorded on an H200)")

# %% [markdown]
# ## scale
#
# Attention scores are divided by the square root of the head size: each number times a factor, which is an argument.

# %%
scale = lk.problem("scale")
scale

# %% kernel="scale/plain"

# %% check="scale/plain" points=1
scale["plain"].check()

# %% question="scale/vectorized/numbers_per_request" points=1
lk.answer("scale/vectorized/numbers_per_request", 128)

# %% kernel="scale/vectorized"

# %% check="scale/vectorized" points=1
scale["vectorized"].check()

# %%
p_plain, p_vectorized = compare(scale)

# %% solved_only=true
assert p_plain[REQUESTS] == 4 * p_vectorized[REQUESTS] and p_plain[STORES] == 4 * p_vectorized[STORES]

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="scale/plain" language="cuda"

# %% check="scale/plain" language="cuda"
scale["plain", "cuda"].check()

# %% kernel="scale/vectorized" language="cuda"

# %% check="scale/vectorized" language="cuda"
scale["vectorized", "cuda"].check()

# %% [markdown]
# ## silu
#
# The activation of the feed-forward network: $x / (1 + e^{-x})$. The exponential is `math.exp` here and `expf` in C++.

# %% question="silu/intensity" points=1
lk.answer("silu/intensity", 1 / 2)

# %% kernel="silu/plain"

# %% check="silu/plain" points=1
silu = lk.problem("silu")
silu["plain"].check()

# %% kernel="silu/vectorized"

# %% check="silu/vectorized" points=1
silu["vectorized"].check()

# %%
p_plain, p_vectorized = compare(silu)

# %% [markdown]
# The requests fall to a quarter again; the instructions do not, for the exponential and the division are many of
# them, and a thread does four of each.

# %% solved_only=true
assert p_plain[REQUESTS] == 4 * p_vectorized[REQUESTS]
assert p_vectorized[INSTRUCTIONS] > p_plain[INSTRUCTIONS] / 3

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="silu/plain" language="cuda"

# %% check="silu/plain" language="cuda"
silu["plain", "cuda"].check()

# %% kernel="silu/vectorized" language="cuda"

# %% check="silu/vectorized" language="cuda"
silu["vectorized", "cuda"].check()

# %% [markdown]
# ## mul
#
# After a norm, every token's row is multiplied with one row of weights, number by number. llama.cpp counts through all
# numbers and finds the column as a remainder.

# %% kernel="mul/plain"

# %% check="mul/plain" points=1
mul = lk.problem("mul")
mul["plain"].check()

# %% [markdown]
# In `vectorized`, a thread takes 4 columns of 4 rows: it reads its 4 numbers of $y$ once, and its place tells row and
# column. Read all rows first and multiply afterwards, so that no load waits for another.

# %% question="mul/vectorized/requests_ratio" points=1
lk.answer("mul/vectorized/requests_ratio", 32 / 5)

# %% kernel="mul/vectorized"

# %% check="mul/vectorized" points=2
mul["vectorized"].check()

# %%
p_plain, p_vectorized = compare(mul)

# %% solved_only=true
assert p_plain[REQUESTS] == 32 / 5 * p_vectorized[REQUESTS]
assert p_vectorized[INSTRUCTIONS] < p_plain[INSTRUCTIONS] / 2

# %%
times(mul)

# %% solved_only=true
assert all(mul["vectorized", language].time(recorded=True).gbps > 0.9 * copy for language in ("numba", "cuda"))

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="mul/plain" language="cuda"

# %% check="mul/plain" language="cuda"
mul["plain", "cuda"].check()

# %% kernel="mul/vectorized" language="cuda"

# %% check="mul/vectorized" language="cuda"
mul["vectorized", "cuda"].check()

# %% [markdown]
# ## add
#
# The residual connection, or a bias: the same with a plus. If you have done `mul`, this takes a minute.

# %% kernel="add/plain"

# %% check="add/plain" points=1
add = lk.problem("add")
add["plain"].check()

# %% question="add/vectorized/loads_of_y" points=1
lk.answer("add/vectorized/loads_of_y", 1 / 4)

# %% kernel="add/vectorized"

# %% check="add/vectorized" points=1
add["vectorized"].check()

# %%
p_plain, p_vectorized = compare(add)

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="add/plain" language="cuda"

# %% check="add/plain" language="cuda"
add["plain", "cuda"].check()

# %% kernel="add/vectorized" language="cuda"

# %% check="add/vectorized" language="cuda"
add["vectorized", "cuda"].check()

# %% [markdown]
# ## diag_mask
#
# A token must not look at tokens after it. Row $t$ of the scores belongs to token `n_past + t`; all scores beyond
# that become minus infinity, so that softmax makes 0 of them. (llama.cpp subtracts `INT_MAX` from them instead, a
# little faster on its author's GPU: for softmax it comes to the same. The check asks for infinity.)

# %%
diag_mask = lk.problem("diag_mask")
diag_mask

# %% question="diag_mask/generation" points=1
lk.answer("diag_mask/generation", 0)

# %% kernel="diag_mask/plain"

# %% check="diag_mask/plain" points=1
diag_mask["plain"].check()

# %% [markdown]
# In `vectorized`, a thread takes 4 scores of 4 rows. A score that is masked need not be read.

# %% kernel="diag_mask/vectorized"

# %% check="diag_mask/vectorized" points=2
diag_mask["vectorized"].check()

# %%
p_plain, p_vectorized = compare(diag_mask)

# %% solved_only=true
assert 4 * p_vectorized[REQUESTS] < p_plain[REQUESTS]

# %%
times(diag_mask)

# %% solved_only=true
assert all(diag_mask["vectorized", language].time(recorded=True).gbps > 0.9 * copy for language in ("numba", "cuda"))

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="diag_mask/plain" language="cuda"

# %% check="diag_mask/plain" language="cuda"
diag_mask["plain", "cuda"].check()

# %% kernel="diag_mask/vectorized" language="cuda"

# %% check="diag_mask/vectorized" language="cuda"
diag_mask["vectorized", "cuda"].check()

# %% [markdown]
# ## Optional: rope
#
# Rotary position embedding: neighbors in a head are taken as pairs, and each pair is turned in its plane,
#
# $$(a, b) \to (a \cos\theta - b \sin\theta,\; a \sin\theta + b \cos\theta)$$
#
# $$\theta = (n_{past} + t) \, base^{-p / P}$$
#
# for pair $p$ of $P$ in token $t$. The first pairs turn fast from token to token, the last slowly.

# %%
rope = lk.problem("rope")
rope

# %% question="rope/plain/threads_at_work"
lk.answer("rope/plain/threads_at_work", 64)

# %% kernel="rope/plain"

# %% check="rope/plain"
rope["plain"].check()

# %% [markdown]
# A sine, a cosine and a power cost dozens of instructions. Who needs the same ones?

# %% question="rope/vectorized/angles"
lk.answer("rope/vectorized/angles", 4)

# %% kernel="rope/vectorized"

# %% check="rope/vectorized"
rope["vectorized"].check()

# %%
p_plain, p_vectorized = compare(rope)

# %% solved_only=true
assert p_vectorized[INSTRUCTIONS] < p_plain[INSTRUCTIONS] / 2

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="rope/plain" language="cuda"

# %% check="rope/plain" language="cuda"
rope["plain", "cuda"].check()

# %% kernel="rope/vectorized" language="cuda"

# %% check="rope/vectorized" language="cuda"
rope["vectorized", "cuda"].check()

# %% [markdown]
# ## Optional: cpy_f32_f16
#
# Keys and values are kept in float16, to read fewer bytes of them later, and head by head: `dst[h, t, d]` from `x[t,
# h, d]`. Rounding has exactly one right result, the nearest; in Python, storing a float32 in a float16 array rounds
# so.

# %%
cpy_f32_f16 = lk.problem("cpy_f32_f16")
cpy_f32_f16

# %% question="cpy_f32_f16/bytes_per_number"
lk.answer("cpy_f32_f16/bytes_per_number", 6)

# %% kernel="cpy_f32_f16/plain"

# %% check="cpy_f32_f16/plain"
cpy_f32_f16["plain"].check()

# %% [markdown]
# `lk.cuda.store8(array, i, values)` rounds 8 float32 to float16 and writes them in one access of 16 bytes.

# %% kernel="cpy_f32_f16/vectorized"

# %% check="cpy_f32_f16/vectorized"
cpy_f32_f16["vectorized"].check()

# %%
p_plain, p_vectorized = compare(cpy_f32_f16)

# %% solved_only=true
assert p_plain[STORES] == 8 * p_vectorized[STORES] and p_plain[REQUESTS] == 4 * p_vectorized[REQUESTS]

# %%
times(cpy_f32_f16)

# %% [markdown]
# `plain` divides three times per number, in 64 bits, and a division is a subroutine of dozens of instructions. It
# costs more than the memory traffic.

# %% solved_only=true
p_plain, p_vectorized = on_h200(cpy_f32_f16)
assert p_plain.explain().binds == "issue" and p_plain[INSTRUCTIONS] > 10 * p_vectorized[INSTRUCTIONS]
assert cpy_f32_f16["plain", "cuda"].time(recorded=True).gbps < 0.5 * copy
assert all(cpy_f32_f16["vectorized", language].time(recorded=True).gbps > 0.9 * copy for language in ("numba", "cuda"))

# %% [markdown]
# ### Optional: in CUDA C++

# %% kernel="cpy_f32_f16/plain" language="cuda"

# %% check="cpy_f32_f16/plain" language="cuda"
cpy_f32_f16["plain", "cuda"].check()

# %% kernel="cpy_f32_f16/vectorized" language="cuda"

# %% check="cpy_f32_f16/vectorized" language="cuda"
cpy_f32_f16["vectorized", "cuda"].check()

# %% [markdown]
# ## Your page
#
# All of them in CUDA C++, as recorded, beside a copy: useful bytes per second.

# %%
operators = [lk.problem(name) for name in ("scale", "silu", "mul", "add", "diag_mask", "rope", "cpy_f32_f16")]
rates = {f"{problem.name}/{rung}": problem[rung, "cuda"].time(recorded=True)
         for problem in operators for rung in ("plain", "vectorized")}
t = rates["mul/plain"]
lk.plots.bars({name: timing.gbps for name, timing in rates.items()} | {"a copy": copy},
              f"Small operators, {t.origin} on {t.machine}", unit="GB/s")

# %% solved_only=true
assert all((timing.gbps > 0.9 * copy) == name.endswith("vectorized") for name, timing in rates.items())

# %% [markdown]
# One plan does for all: wide accesses, several of them in flight, and what neighbors share computed or read once. The
# plain rungs lose to it by different things: `scale` and `silu` have too little in flight, `mul` and `add` read their
# row again and again, `diag_mask` reads what it throws away, `rope` computes each angle for every head, `cpy_f32_f16`
# divides. What binds each of the plain rungs, by Nsight Compute:

# %%
for problem in operators:
    print(on_h200(problem)[0].explain().sentences[0])

# %% solved_only=true
READ = "dram__bytes_read.sum"
binds = {problem.name: [p.explain().binds for p in on_h200(problem)] for problem in operators}
assert all(of_vectorized == "DRAM" for _, of_vectorized in binds.values()), binds
assert {name for name, (of_plain, _) in binds.items() if of_plain == "issue"} == {"rope", "cpy_f32_f16"}, binds
assert all(of_plain in ("latency", "issue") for of_plain, _ in binds.values()), binds
p_plain, p_vectorized = on_h200(diag_mask)
assert p_plain[READ] > 1.9 * p_vectorized[READ]
p_plain, p_vectorized = on_h200(rope)
assert p_plain[INSTRUCTIONS] > 4 * p_vectorized[INSTRUCTIONS]

# %% [markdown]
# Next: [the matrix product](../02_gemm/01_naive_to_tiled.ipynb).
