"""Programs that put torch tensors on "cuda", on a machine without a GPU: the tensors stay on the CPU.

Entered around a whole program that the emulator runs. What moves between host and device is a copy, as it would be
there; `torch.cuda.is_available()` is True; time between events, and CUDA graphs, are errors of one sentence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from labkit.errors import LabkitError

_MOVES = ("to", "cuda", "cpu")


@contextlib.contextmanager
def cuda_on_host() -> Iterator[None]:
    """Inside, and in this thread, `device="cuda"` means the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def on_cuda(value: Any) -> bool:
        if isinstance(value, torch.device):
            return value.type == "cuda"
        return isinstance(value, str) and value.split(":")[0] == "cuda"

    class OnHost(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
            if name == "pin_memory":
                return args[0]
            kwargs.pop("pin_memory", None)
            if name == "cuda" and args and isinstance(args[0], torch.Tensor):
                return args[0].clone()
            targets = [v for v in (*args[1:], kwargs.get("device")) if isinstance(v, (str, torch.device))]
            if on_cuda(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if name in _MOVES:
                args = tuple("cpu" if on_cuda(v) else v for v in args)
            result = func(*args, **kwargs)
            moved = name == "cpu" or name == "to" and bool(targets)
            return result.clone() if moved and result is args[0] else result

    class Stream:
        cuda_stream = 0

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Stream:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def nothing(self, *_: Any, **__: Any) -> None:
            pass

        synchronize = wait_stream = wait_event = record_event = nothing

        def query(self) -> bool:
            return True

    class Event(Stream):
        record = wait = Stream.nothing

        def elapsed_time(self, other: Any) -> float:
            raise LabkitError(
                "The emulator has no clock: time between events is measured on a GPU; count with a profile."
            )

    def no_graphs(*_: Any, **__: Any) -> Any:
        raise LabkitError("The emulator captures no CUDA graphs; launch the kernels one by one, or run on a GPU.")

    cuda = torch.cuda
    changed = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: "labkit emulator (sm_90)",
        "get_device_capability": lambda device=None: (9, 0),
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: None,  # the CPU's generator is the one in use
        "manual_seed_all": lambda seed: None,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "stream": lambda stream=None: Stream(),
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": no_graphs,
        "graph": no_graphs,
    }
    before = {name: getattr(cuda, name) for name in changed}
    for name, value in changed.items():
        setattr(cuda, name, value)
    try:
        with OnHost():
            yield
    finally:
        for name, value in before.items():
            setattr(cuda, name, value)
