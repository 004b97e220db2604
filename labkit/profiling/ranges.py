"""The nvtx ranges that a program is in: those of the package nvtx and of torch, noted as they open and close."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable
from typing import Any

_thread = threading.local()


def _stack() -> list[tuple[str, Any]]:
    return _thread.__dict__.setdefault("stack", [])


def current() -> tuple[str, ...]:
    """The open ranges of this thread from the outermost in; `domain@name` where a range has a domain."""
    return tuple(name for name, _ in _stack())


def watch(opened: Callable[[str], Any] | None = None, closed: Callable[[Any], None] | None = None) -> None:
    """From now on note ranges. `opened(name)` is called as one opens, and `closed` with what that returned."""

    def push(name: Any, domain: str | None = None) -> int:
        label = f"{domain}@{name}" if domain else str(name)
        _stack().append((label, opened(label) if opened else None))
        return len(_stack()) - 1

    def pop() -> int:
        if _stack():
            _, handle = _stack().pop()
            if closed:
                closed(handle)
        return len(_stack())

    _watch_nvtx(push, pop)
    when_imported("torch", lambda: _watch_torch(push, pop))


def _watch_nvtx(push: Callable, pop: Callable) -> None:
    try:
        import nvtx
    except ImportError:
        return
    module = importlib.import_module("nvtx.nvtx")
    base = nvtx.annotate

    class annotate(base):  # noqa: N801
        def __init__(self, message: Any = None, color: Any = None, domain: Any = None, *args: Any, **kwargs: Any):
            super().__init__(message, color, domain, *args, **kwargs)
            self.labkit = (message, domain)

        def __enter__(self) -> Any:
            push(self.labkit[0] or "", self.labkit[1])
            return super().__enter__()

        def __exit__(self, *error: Any) -> Any:
            pop()
            return super().__exit__(*error)

        def __call__(self, fn: Callable) -> Callable:
            inner = super().__call__(fn)

            @functools.wraps(fn)
            def ranged(*args: Any, **kwargs: Any) -> Any:
                push(self.labkit[0] or fn.__name__, self.labkit[1])
                try:
                    return inner(*args, **kwargs)
                finally:
                    pop()

            return ranged

    real_push, real_pop = nvtx.push_range, nvtx.pop_range

    def push_range(message: Any = None, color: Any = "blue", domain: Any = None, *args: Any, **kwargs: Any) -> Any:
        push(message or "", domain)
        return real_push(message, color, domain, *args, **kwargs)

    def pop_range(*args: Any, **kwargs: Any) -> Any:
        pop()
        return real_pop(*args, **kwargs)

    for place in (nvtx, module):
        place.annotate, place.push_range, place.pop_range = annotate, push_range, pop_range


def _watch_torch(push: Callable, pop: Callable) -> None:
    """torch's functions, which a PyTorch without CUDA lacks, and torch.profiler's record_function."""
    from torch.autograd import profiler
    from torch.cuda import nvtx

    nvtx.range_push = lambda msg: push(msg)
    nvtx.range_pop = pop
    nvtx.mark = lambda msg: None
    record = profiler.record_function
    enter, leave = record.__enter__, record.__exit__

    def entered(self: Any) -> Any:
        _stack().append((self.name, None))  # torch's profiler sees it by itself
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        if _stack():
            _stack().pop()
        return leave(self, *error)

    record.__enter__, record.__exit__ = entered, left


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module has been imported, now if it has been."""
    if name in sys.modules:
        then()
        return

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, wanted: str, path: Any, target: Any = None) -> Any:
            if wanted != name:
                return None
            sys.meta_path.remove(self)  # those of other calls still see it
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module

                def exec_module(module: Any) -> None:
                    execute(module)
                    then()

                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())
