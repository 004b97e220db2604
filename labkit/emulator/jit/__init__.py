"""The compiled engine: straight stretches of PTX as LLVM code, everything else as the interpreter does it.

Compiled are arithmetic (halves too), loads from global, constant and shared memory, and shuffles, votes and reductions
of whole warps: a stretch between branches at a time and a warp's 32 lanes at once. Stores, branches, barriers, atomics,
tensor operations, most approximations, guarded instructions and local memory stay with the interpreter, which also
decides which threads run; so do loads that somebody watches (arrays that the launch writes, shared memory written since
the last barrier), warps that are not whole, and whatever would be a fault. Hence both engines give the same bits,
counters and messages, but for which NaN a float64 operation gives.
`Emulation(engine=...)` chooses; "auto" compiles a stretch once it has run often, and takes kept machine code earlier.
"""

from labkit.emulator.jit.build import usable
from labkit.emulator.jit.run import Jit

__all__ = ["Jit", "usable"]
