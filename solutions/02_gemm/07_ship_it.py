# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ship it: from a kernel to an operator
#
# Your kernel is right and fast, on contiguous float32 matrices of matching shapes, on one GPU, called by
# someone who knows all that. Now give it to somebody who does not. They will pass a transposed view, half
# precision, an empty batch, a tensor on another device; they will want gradients, and put it into a model
# that `torch.compile` takes apart.
#
# An **operator** is a kernel with a contract: what it takes, what it refuses and how it says so, what it
# returns before anything has run, and what its gradient is. In this notebook you write that contract, in
# Python, around your own `register_2d`. Everything runs without a GPU, too: there, your operator runs on the
# emulator.

# %%
import torch

import labkit as lk

gemm = lk.problem("gemm")
register_2d = gemm["register_2d"]
register_2d.check()

# %% [markdown]
# ## What a bare kernel does with a wrong argument
#
# Here is the shortest way from your kernel to a function of tensors:

# %%
kernel = register_2d.kernel


def bare(a, b):
    """a @ b, for those who know what they do."""
    c = a.new_empty(a.shape[0], b.shape[1])
    kernel.launch(c, a, b)
    return c


a, b = torch.randn(40, 30), torch.randn(30, 50)
torch.testing.assert_close(bare(a, b), a @ b)

# %% [markdown]
# And here is what it does with matrices that do not match: `a` has 30 columns, `b` has only 20 rows. On a GPU
# nobody stops the kernel when it reads beyond the end of `b`: it finds whatever lies there, and the result is
# garbage that looks like numbers. The emulator stops it:

# %%
from labkit.errors import LabkitError

try:
    bare(torch.randn(40, 30), torch.randn(20, 50))
except LabkitError as error:
    print(error)
else:
    print("no complaint at all")

# %% [markdown]
# ## The limits of the kernel itself
#
# Before you write checks, know what the kernel cannot do. One limit is easy to forget: integers end.

# %% question="gemm/ship_it/largest_square" points=1
lk.answer("gemm/ship_it/largest_square", 46340)

# %% [markdown]
# numba indexes arrays with 64-bit integers, so that this one is not yours. In CUDA C++ it is the reason why
# indices are written as `(size_t)row * N + col`.
#
# ## The contract: one sentence for each fault
#
# A good refusal says what is wrong and what to do about it, **before** anything is launched. Compare
# `RuntimeError: invalid argument` with `gemm: the inner dimensions differ, 30 of a and 20 of b; they must be
# the same number.`
#
# ### Write
#
# Complete `check_arguments`. It raises a `ValueError` with one sentence (that starts with `gemm:` and ends with
# a full stop) when
#
# - `a` or `b` is not a matrix, or has no elements;
# - one of them is not float32;
# - they are on different devices;
# - one of them is not contiguous;
# - the inner dimensions differ.

# %% [markdown]
# <details><summary>Hint 1: in which order</summary>
#
# Whoever passes a vector has no inner dimension to compare. Check what a later check relies on first.
#
# <details><summary>Hint 2: what to ask a tensor</summary>
#
# `t.dim()`, `t.numel()`, `t.dtype`, `t.device`, `t.is_contiguous()`.
#
# </details></details>


# %%
def check_arguments(a, b):
    """Raise ValueError in one sentence where gemm(a, b) cannot be computed."""
    ### BEGIN SOLUTION
    for name, t in (("a", a), ("b", b)):
        if t.dim() != 2:
            raise ValueError(f"gemm: {name} must be a matrix, but it has {t.dim()} dimensions; reshape it to two.")
        if t.numel() == 0:
            raise ValueError(f"gemm: {name} is empty, {tuple(t.shape)}; pass at least one row and one column.")
        if t.dtype != torch.float32:
            raise ValueError(f"gemm: {name} must be float32, not {t.dtype}; convert it with .float().")
        if not t.is_contiguous():
            raise ValueError(f"gemm: {name} must be contiguous, not strided {t.stride()}; call .contiguous() on it.")
    if a.device != b.device:
        raise ValueError(f"gemm: a is on {a.device} and b is on {b.device}; move one of them, so that they agree.")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"gemm: the inner dimensions differ, {a.shape[1]} of a and {b.shape[0]} of b; they must be the same number."
        )
    ### END SOLUTION


# %% [markdown]
# Now be the user from hell. (A tensor on the device `meta` has a shape and no data. It stands in for another
# device here, so that this works on any machine.)

# %%
right = (torch.randn(4, 3), torch.randn(3, 5))
wrong = {
    "a vector": (torch.randn(3), torch.randn(3, 5)),
    "a batch": (torch.randn(2, 4, 3), torch.randn(3, 5)),
    "nothing": (torch.randn(0, 3), torch.randn(3, 5)),
    "half precision": (torch.randn(4, 3).half(), torch.randn(3, 5).half()),
    "two types": (torch.randn(4, 3), torch.randn(3, 5).double()),
    "a transposed view": (torch.randn(3, 4).t(), torch.randn(3, 5)),
    "every other column": (torch.randn(4, 3), torch.randn(3, 10)[:, ::2]),
    "two devices": (torch.randn(4, 3), torch.empty(3, 5, device="meta")),
    "shapes that do not match": (torch.randn(4, 3), torch.randn(4, 5)),
}


def refusals(check):
    """What `check` says to each of the wrong arguments; None where it lets them pass."""
    said = {}
    for what, arguments in wrong.items():
        try:
            check(*arguments)
        except ValueError as error:
            said[what] = str(error)
        else:
            said[what] = None
    return said


check_arguments(*right)  # must not complain
for what, sentence in refusals(check_arguments).items():
    print(f"{what:25} {sentence or 'NOT REFUSED'}")

# %% solved_only=true
said = refusals(check_arguments)
assert all(said.values()) and len(set(said.values())) == len(said)
assert all(s.startswith("gemm: ") and s.endswith(".") and "\n" not in s for s in said.values())

# %% [markdown]
# ## An operator of PyTorch's
#
# Now tell PyTorch about it. `torch.library.custom_op` makes an operator with a **schema** (types of arguments and
# results) out of a Python function. Three things it wants to know:
#
# - whether the function changes its arguments (`mutates_args`); yours does not;
# - what it returns **without data**: a function that only makes an empty tensor of the right shape and type.
#   `torch.compile` calls it with tensors that have no memory, to plan a whole program before anything runs;
# - its gradient.


# %%
@torch.library.custom_op("mylab::gemm", mutates_args=())
def my_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in float32: a [M, K], b [K, N], contiguous, on one device."""
    check_arguments(a, b)
    c = a.new_empty(a.shape[0], b.shape[1])
    kernel.launch(c, a, b)
    return c


@my_gemm.register_fake
def _(a, b):
    check_arguments(a, b)
    return a.new_empty(a.shape[0], b.shape[1])


a, b = torch.randn(40, 30), torch.randn(30, 50)
torch.testing.assert_close(my_gemm(a, b), a @ b)
print(torch.ops.mylab.gemm.default._schema)
print(my_gemm(a.to("meta"), b.to("meta")))

# %% [markdown]
# ## The gradient
#
# Let $C = A B$, and let $G$ be the gradient of some loss with respect to $C$. Then
#
# $$\frac{\partial L}{\partial A} = G\,B^T, \qquad \frac{\partial L}{\partial B} = A^T G .$$
#
# (Check the shapes: $G$ is $M \times N$, $B^T$ is $N \times K$.)

# %% question="gemm/ship_it/backward_ratio" points=1
lk.answer("gemm/ship_it/backward_ratio", 2)

# %% [markdown]
# Two more products, with a transposed factor each. A transposed view is not contiguous, and you have just
# refused those. One way out is to copy the transpose; your kernel has a better one. Its launch takes `trans_a`
# and `trans_b`, and reads the matrix as it lies in memory. So there is an operator for that, too:


# %%
@torch.library.custom_op("mylab::gemm_nt_tn", mutates_args=())
def product(a: torch.Tensor, b: torch.Tensor, trans_a: bool, trans_b: bool) -> torch.Tensor:
    """op(a) @ op(b), where op transposes if its flag is set."""
    c = a.new_empty(a.shape[1] if trans_a else a.shape[0], b.shape[0] if trans_b else b.shape[1])
    kernel.launch(c, a, b, trans_a=int(trans_a), trans_b=int(trans_b))
    return c


@product.register_fake
def _(a, b, trans_a, trans_b):
    return a.new_empty(a.shape[1] if trans_a else a.shape[0], b.shape[0] if trans_b else b.shape[1])


# %% [markdown]
# ### Write
#
# `save` keeps what the gradient will need. Complete `backward` with two calls of `product`.

# %% [markdown]
# <details><summary>Hint: which is transposed</summary>
#
# For $G\,B^T$, pass `b` as it is and set `trans_b`. For $A^T G$, pass `a` as it is and set `trans_a`.
#
# </details>


# %%
def save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    a, b = ctx.saved_tensors
    grad = grad.contiguous()  # such as that of a sum, which has strides of 0
    ### BEGIN SOLUTION
    return product(grad, b, False, True), product(a, grad, True, False)
    ### END SOLUTION


my_gemm.register_autograd(backward, setup_context=save)

# %%
a = torch.randn(40, 30, requires_grad=True)
b = torch.randn(30, 50, requires_grad=True)
my_gemm(a, b).square().sum().backward()

exact_a, exact_b = (t.detach().double().requires_grad_() for t in (a, b))
(exact_a @ exact_b).square().sum().backward()
for name, mine, exact in (("a", a.grad, exact_a.grad), ("b", b.grad, exact_b.grad)):
    off = float((mine - exact).abs().max() / exact.abs().max())
    print(f"gradient of {name}: off by {off:.1e} of its largest element")
    assert off < 1e-5

# %% [markdown]
# ## Does it keep the rules?
#
# PyTorch can test a custom operator: whether the schema is true (nothing is changed, nothing returned that
# shares memory), whether shapes without data agree with those of real results, whether gradients work when
# the program is traced. One call; silence is praise:

# %%
torch.library.opcheck(torch.ops.mylab.gemm.default, (torch.randn(9, 7, requires_grad=True), torch.randn(7, 5)))

# %% [markdown]
# And a compiled program with the operator in its middle, traced as a whole, with sizes left open:


# %%
@torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
def layer(x, w):
    return torch.relu(my_gemm(x, w)) + 1


for rows in (16, 17, 40):
    x, w = torch.randn(rows, 30), torch.randn(30, 50)
    torch.testing.assert_close(layer(x, w), torch.relu(x @ w) + 1)

# %% [markdown]
# A linear layer with your kernel inside learns:

# %%
torch.manual_seed(0)
inputs, truth = torch.randn(64, 16), torch.randn(16, 8)
weights = torch.zeros(16, 8, requires_grad=True)
losses = []
for _ in range(12):
    loss = (my_gemm(inputs, weights) - inputs @ truth).square().mean()
    loss.backward()
    with torch.no_grad():
        weights -= 2.0 * weights.grad
        weights.grad = None
    losses.append(float(loss.detach()))
print(" ".join(f"{loss:.3f}" for loss in losses))

# %% solved_only=true
assert losses[-1] < 0.05 * losses[0]

# %% [markdown]
# ## Streams and devices
#
# Two more clauses of the contract, which matter on a GPU:
#
# - **The current stream.** Work of one stream runs in order; streams run side by side. An operator launches on
#   the stream that is current when it is called, and waits for nothing. labkit's launches do that.
# - **The device of the tensors.** With two GPUs, the current device may be another one than that of the
#   arguments. An operator switches to the device of its arguments, and back.
#
# ## In C++
#
# A Python operator costs tens of microseconds per call, before the kernel starts. In a model with thousands of
# small calls that is too much, and it needs Python to be there at all. Libraries therefore register operators in
# C++, with the same parts: schema, checks, shapes without data, launch, gradient. The launch itself is a line. Look
# at the one in the header of the kernel in CUDA C++:
#
# ```
# // launch gemm_register_2d<<<((N + 127) / 128, (M + 127) / 128), (16, 16), 0>>>(C, A, B, M, N, K, alpha, beta, ...)
# ```
#
# Its expressions mean the same in Python and in C++. So labkit evaluates them when it launches a kernel for you, and
# the extension that comes with the solutions of this lab pastes them into C++. There is one kernel, and one launch.
#
# ### Explain
#
# Why does the operator have to know the shape of its result without computing anything? Name two things that
# would not work otherwise.

# %% [markdown] explain="gemm/ship_it" points=2
# ### BEGIN SOLUTION
# torch.compile runs a program on tensors without memory to learn all shapes and types, and plans the memory
# and the fusions of its neighbors from them; without the shape it would have to break the program at the
# operator. torch.export and the meta device need it as well: a model could not be sized, or its memory
# estimated, before it is put on a machine.
# ### END SOLUTION

# %% check="gemm/register_2d" points=2
gemm["register_2d"].check()
