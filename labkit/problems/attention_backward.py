"""attention_backward: the gradients dQ, dK, dV of attention from dO, with no tensor of N x NK numbers, in float32.

Shapes and options are those of attention. O and L are what its forward pass left: the weights are computed again from
Q, K and L, as exp(scale q k - L). With D_i = sum of dO_i O_i and dP = dO V^T,

    dV = P^T dO,   dS = P (dP - D),   dQ = scale dS K,   dK = scale dS^T Q,

where dK and dV of a key head are summed over its query heads (Dao, FlashAttention-2, section 3.1.2). Q, K and V are
finite.
"""

from __future__ import annotations

import math

from labkit.problems import attention
from labkit.problems.attention import OPTIONS, heads, probabilities, queries, shape
from labkit.problems.problem import Problem, Question, Step, Tensor


def flops(d) -> int:
    return attention.flops(d) // 2 * 5  # five products where the forward pass has two


def reference(Q, K, V, O, L, dO, scale=0.0, causal=0):
    """From Q, K, V and dO alone, head by head."""
    factor = scale or 1 / math.sqrt(Q.shape[-1])
    dQ, dK, dV = Q.new_empty(Q.shape), K.new_zeros(K.shape), V.new_zeros(V.shape)
    for b, h, g in heads(Q, K):
        p, _ = probabilities(Q[b, h], K[b, g], scale, causal)
        dV[b, g] += p.T @ dO[b, h]
        dP = dO[b, h] @ V[b, g].T
        dS = dP.sub_((p * dP).sum(-1, keepdim=True)).mul_(p)
        dQ[b, h] = factor * (dS @ K[b, g])
        dK[b, g] += factor * (dS.T @ Q[b, h])
    return dQ, dK, dV


def magnitude(Q, K, V, O, L, dO, scale=0.0, causal=0, weight=1.0, of_scores=1.0):
    """What rounding errors are relative to.

    A weight has the relative error of its score and of L, e = scale sum |q| |k| + |L|, and its own; dP that of sum
    |dO| |V|, D that of sum |dO| |O|, to which O's rounding adds as much. So dS = p (dP - D) has p times
    (|dP - D| (e + 1) + sum |dO| |V| + 2 sum |dO| |O|), and what is summed from p and dS inherits it. weight : what an
    own rounding, or O's, counts; of_scores : what an error of the sums counts.
    """
    factor = scale or 1 / math.sqrt(Q.shape[-1])
    dQ, dK, dV = Q.new_empty(Q.shape), K.new_zeros(K.shape), V.new_zeros(V.shape)
    for b, h, g in heads(Q, K):
        q, k, v, do = Q[b, h], K[b, g], V[b, g], dO[b, h]
        p, total = probabilities(q, k, scale, causal)
        e = factor * (q.abs() @ k.abs().T) + total.abs()[:, None]
        e.mul_(of_scores).add_(weight)
        dV[b, g] += (p * e).T @ do.abs()
        dP = do @ v.T
        D = (p * dP).sum(-1, keepdim=True)
        own = (do.abs() * O[b, h].abs()).sum(-1, keepdim=True) * (of_scores + weight)
        E = e.mul_((dP - D).abs_()).add_(of_scores * (do.abs() @ v.abs().T)).add_(own).mul_(p)
        dQ[b, h] = factor * (E @ k.abs())
        dK[b, g] += factor * (E.T @ q.abs())
    return dQ, dK, dV


def baseline(Q, K, V, O, L, dO, scale=0.0, causal=0):
    """PyTorch's own: on a GPU the backward kernel alone, from the given O and L; on the CPU by autograd."""
    import torch
    from torch.nn.functional import pad, scaled_dot_product_attention

    scale, causal, group = scale or 1 / math.sqrt(Q.shape[-1]), bool(causal), Q.shape[1] // K.shape[1]
    if not Q.is_cuda:
        with torch.enable_grad():
            Q, K, V = (t.detach().requires_grad_() for t in (Q, K, V))
            out = scaled_dot_product_attention(Q, K, V, is_causal=causal, scale=scale, enable_gqa=group > 1)
            return torch.autograd.grad(out, (Q, K, V), dO)
    nothing = torch.zeros((), dtype=torch.int64)  # the state of a random generator, for dropout
    if Q.dtype != torch.float32 and (not causal or Q.shape[2] == K.shape[2]):
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            dO, Q, K, V, O, L, None, None, Q.shape[2], K.shape[2], 0.0, causal, nothing, nothing, scale=scale
        )
    wide_k, wide_v = (t if group == 1 else t.repeat_interleave(group, 1) for t in (K, V))
    dQ, dK, dV, _ = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        dO, Q, wide_k, wide_v, None, O, pad(L, (0, -L.shape[2] % 32)), nothing, nothing, 0.0,
        [True, True, True, False], causal, scale=scale,
    )
    if group > 1:
        dK, dV = (t.unflatten(1, (-1, group)).sum(2) for t in (dK, dV))
    return dQ, dK, dV


def _forward(which: int, dtype: str):
    """O (0) or L (1) of the forward pass on the inputs so far, exact but for the rounding to `dtype`."""

    def derive(known):
        import torch

        options = {name: known.get(name, default) for name, default in OPTIONS.items()}
        results = attention.reference(*(known[name].double() for name in "QKV"), **options)
        return results[which].to(getattr(torch, dtype))

    return derive


def tensors(dtype: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs and outputs in `dtype`, L in float32."""
    of_q, of_k = ("B", "H", "N", "D"), ("B", "HK", "NK", "D")
    inputs = {
        "Q": Tensor(of_q, dtype, make=queries(dtype)),
        "K": Tensor(of_k, dtype),
        "V": Tensor(of_k, dtype),
        "O": Tensor(of_q, dtype, derive=_forward(0, dtype)),
        "L": Tensor(("B", "H", "N"), derive=_forward(1, "float32")),
        "dO": Tensor(of_q, dtype),
    }
    return inputs, {"dQ": Tensor(of_q, dtype), "dK": Tensor(of_k, dtype), "dV": Tensor(of_k, dtype)}


_INPUTS, _OUTPUTS = tensors("float32")

problem = Problem(
    name="attention_backward",
    lab="03_attention",
    formula="P = exp(scale Q K^T - L), dS = P (dO V^T - rowsum(dO O)); dV = P^T dO, dQ = scale dS K, dK = scale dS^T Q",
    dims=("B", "H", "HK", "N", "NK", "D"),
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=flops,
    options=OPTIONS,
    ladder=(
        Step(
            "recompute", "weights computed again, tile by tile, once for dK and dV and once for dQ",
            "peak memory; FFMA against the forward pass",
        ),
    ),
    shapes=(
        shape(N=32),
        shape(N=1, D=64),
        shape(N=17, causal=1),
        shape(B=2, H=2, N=33, NK=9, D=64),
        shape(H=4, HK=2, N=9, NK=33, causal=1),
        shape(N=5, NK=1, D=128),
        shape(N=129, causal=1, scale=0.25),
        shape(N=33, NK=129, D=128),
        shape(H=3, HK=1, N=70, NK=40, D=64, causal=1),
    ),
    large_shapes=attention.LARGE,
    profile_shape=shape(N=64, D=64),
    odd_shape=shape(H=2, HK=1, N=49, NK=75, D=64, causal=1),
    bench_shape=shape(B=4, H=16, N=4096, D=128),
    recorded_at={"profiles": (shape(B=4, H=16, N=2048, D=128),)},  # some rungs take half a second at 4096
    questions={
        "flops": Question(
            "The forward pass has two products of matrices. How many times its operations does the backward pass take, "
            "if no weight was kept?",
            lambda: 5 / 2,
            "times",
            "Q K^T again, dO V^T, and one product for each of dQ, dK and dV.",
        ),
        "stored_weights": Question(
            "How many bytes would the weights take that a backward pass without recomputation needs, for 64 heads at "
            "N = 8192 in 16 bits?",
            lambda: 2 * 64 * 8192**2,
            "bytes",
            "L takes 2 MB in their place.",
        ),
        "softmax_gradient": Question(
            "A query sees two keys, with the weights 0.25 and 0.75. dP of the first is 4, of the second 0. What is dS "
            "of the first?",
            lambda: 0.25 * (4 - (0.25 * 4 + 0.75 * 0)),
            "",
            "D is the mean of 4 and 0, weighted: 1. dS = P (dP - D).",
        ),
        "kept": Question(
            "With recomputation, Q, K, V, O and L are kept, in float32. How many bytes is that for one head at "
            "N = 8192, D = 128?",
            lambda: 4 * (4 * 8192 * 128 + 8192),
            "bytes",
            "Q, K, V and O of 8192 x 128 numbers, L of 8192. The weights would take 268 MB.",
        ),
        "recompute/products": Question(
            "recompute has one kernel for dK and dV and another for dQ. How many products of matrices do both take "
            "together?",
            lambda: 4 + 3,
            "",
            "Both need Q K^T and dO V^T.",
        ),
    },
)
