"""What a kernel did wrong, where, by which thread, and how to mend it."""

from __future__ import annotations

from labkit.errors import LabkitError

KINDS = (
    "out_of_bounds",
    "misaligned",
    "race",
    "uninitialized",
    "barrier",
    "shuffle",
    "no_progress",
    "trap",
    "launch",
    "unsupported",
)


class KernelFault(LabkitError):
    """A kernel stopped by the emulator.

    `message` is the cause and `mend` what to do, one sentence each. `line` is the kernel's own
    source line; `inner` is the (file, line) inside an inlined function, where there is one.
    `address` is a byte address (global) or an offset (shared, local). Of a race, `other_line`, `other_thread` and
    `other_block` tell of the earlier access; `entry`, `pc` and `other_pc` name the instructions.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        mend: str = "",
        *,
        kernel: str | None = None,
        file: str | None = None,
        line: int | None = None,
        inner: tuple[str, int] | None = None,
        other_line: int | None = None,
        thread: tuple[int, int, int] | None = None,
        block: tuple[int, int, int] | None = None,
        address: int | None = None,
        array: str | None = None,
        index: tuple[int, ...] | None = None,
        entry: str | None = None,
        pc: int | None = None,
        other_pc: int | None = None,
        other_thread: tuple[int, int, int] | None = None,
        other_block: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.mend = mend
        self.kernel = kernel
        self.file = file
        self.line = line
        self.inner = inner
        self.other_line = other_line
        self.thread = thread
        self.block = block
        self.address = address
        self.array = array
        self.index = index
        self.entry = entry
        self.pc = pc
        self.other_pc = other_pc
        self.other_thread = other_thread
        self.other_block = other_block

    def __str__(self) -> str:
        where = self.kernel or "kernel"
        if self.line:
            where += f" line {self.line}"
        if self.inner and self.inner != (self.file, self.line):
            where += f" (inlined from {self.inner[0]}:{self.inner[1]})"
        text = f"{where}: {self.message}."
        return f"{text} {self.mend}" if self.mend else text

    def __reduce__(self) -> tuple:
        return _rebuild, (dict(self.__dict__),)


def _rebuild(fields: dict) -> KernelFault:
    fields = dict(fields)
    return KernelFault(fields.pop("kind"), fields.pop("message"), **fields)
