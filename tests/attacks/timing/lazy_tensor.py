# family: lazy tensor subclass
# target: vector_add/grid
# tries:  returns a tensor that adds when somebody looks at it, which is after the clock.
# naive:  returned
# gains:  time
# ours:   fail started no kernel|never written

import torch


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [a.A + a.B if isinstance(a, Later) else a for a in args]
            return function(*args, **(kwargs or {}))


def launch(C, A, B):
    later = C.as_subclass(Later)
    later.A, later.B = A, B
    return later
