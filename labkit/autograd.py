"""Train through kernels of a ladder: attention whose forward and backward pass are two rungs.

    attend = lk.attention(lk.problem("attention")["flash"], lk.problem("attention_backward")["recompute"])
    attend(q, k, v, causal=True).sum().backward()

It runs where the kernels do, on a GPU or on the emulator.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from labkit.errors import LabkitError
from labkit.problems.attention import heads

if TYPE_CHECKING:
    from labkit.kernels import Kernel
    from labkit.ladder import Rung


class attention:
    """softmax(scale q k^T) v by the rung `forward`, and its gradients by the rung `backward`, which fits to it.

    The kernels are loaded once, here: make another one after a kernel has changed. Raises LabkitError where the rungs
    are not those of attention and attention_backward (or _f16, _bf16) in one precision, or a kernel is missing.
    """

    def __init__(self, forward: Rung, backward: Rung):
        for rung, inputs, wanted in ((forward, "Q K V", "forward"), (backward, "Q K V O L dO", "backward")):
            if tuple(rung.problem.inputs) != tuple(inputs.split()):
                raise LabkitError(f"{rung.name} is no kernel for the {wanted} pass of attention.")
        self.forward, self.backward = forward, backward
        dtypes = [rung.problem.inputs["Q"].dtype for rung in (forward, backward)]
        if dtypes[0] != dtypes[1]:
            raise LabkitError(f"{forward.name} takes {dtypes[0]} and {backward.name} {dtypes[1]}; they must agree.")
        self.dtype: torch.dtype = getattr(torch, dtypes[0])
        self._kernels = forward.kernel, backward.kernel

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float = 0.0
    ) -> torch.Tensor:
        """[B, H, N, D] in the rungs' type, of q [B, H, N, D] and k, v [B, HK, NK, D] in that type, on one device.

        scale 0 stands for 1 / sqrt(D). Tensors that are not contiguous are copied. Differentiable once, in q, k and v,
        which are finite; between the passes q, k, v, the result and one float32 per row are kept. Raises LabkitError
        for tensors that do not fit.
        """
        for name, t in (("q", q), ("k", k), ("v", v)):
            if t.dim() != 4 or t.numel() == 0:
                raise LabkitError(f"{name} must be [batch, heads, length, D], none of them 0, not {list(t.shape)}.")
            if t.dtype != self.dtype:
                raise LabkitError(f"{name} is {t.dtype}, and {self.forward.name} takes {self.dtype}; convert it.")
            if t.device != q.device:
                raise LabkitError(f"q is on {q.device} and {name} is on {t.device}; move one of them.")
        if k.shape != v.shape or (k.shape[0], k.shape[3]) != (q.shape[0], q.shape[3]):
            raise LabkitError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit together.")
        heads(q, k)  # refuses other heads
        if not (math.isfinite(scale) and scale >= 0):
            raise LabkitError(f"scale must be positive, or 0 for 1 / sqrt(D), not {scale}.")
        options = {"scale": float(scale), "causal": int(causal)}
        return _Attention.apply(q.contiguous(), k.contiguous(), v.contiguous(), self._kernels, options)

    def __repr__(self) -> str:
        return f"attention by {self.forward.label}, its gradients by {self.backward.label}, in {self.dtype}"


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, kernels: tuple[Kernel, Kernel], options: dict[str, Any]) -> Any:
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        kernels[0].launch((out, lse), q, k, v, **options)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.kernel, ctx.options = kernels[1], options
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        grads = tuple(torch.empty_like(t) for t in (q, k, v))
        ctx.kernel.launch(grads, q, k, v, out, lse, grad.contiguous(), **ctx.options)
        return *grads, None, None
