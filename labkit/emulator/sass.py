"""What ptxas makes of a kernel: fused, split and dropped memory accesses, registers, spills.

Addresses and masks come from running the PTX; how wide the accesses are, and how many there are,
stands in the machine code (SASS). ptxas of the wheels compiles the PTX as the driver's own ptxas does,
with the same registers; nvdisasm of the wheels reads the result, no GPU is needed, and both results are
kept on disk. Without ptxas, nvJitLink compiles for later linking, which is near. Loads and stores of the two
are aligned by source line and by the pattern of their offsets; where that fails, the counts are
those of the PTX and called a bound.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import cache
from labkit.emulator import collector
from labkit.emulator.ptx import SIZES, Reg
from labkit.errors import LabkitError

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch
    from labkit.emulator.ptx import Instruction, Program

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_SPACES = {"G": "global", "S": "shared", "L": "local", "": "generic"}
_FLOPS = {
    **{f"{s}{o}": f"{p}{o.lower()}" for s, p in (("F", "f"), ("D", "d")) for o in ("ADD", "MUL", "FMA")},
    **{f"H{o}2": f"h{o.lower()}" for o in ("ADD", "MUL", "FMA")},
}
_PTX_FLOPS = {"add": "add", "sub": "add", "mul": "mul", "fma": "fma", "mad": "fma"}
_PTX_TYPES = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h", "f16x2": "h", "bf16x2": "h"}
METRICS = {  # by space; {} is the kind
    "global": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum",
    ),
    "shared": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum",
    ),
    "local": (
        "l1tex__t_requests_pipe_lsu_mem_local_op_{}.sum",
        "l1tex__t_sectors_pipe_lsu_mem_local_op_{}.sum",
        "smsp__sass_inst_executed_op_local_{}.sum",
    ),
}
_FLOP_METRIC = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# What ptxas may change, and is a bound where nobody looked at its code.
AS_PTX = (
    *(m.format(k) for s in METRICS for m in METRICS[s] for k in ("ld", "st", "atom", "red")),
    *(_FLOP_METRIC.format(name) for name in _FLOPS.values()),
)


@dataclass(frozen=True)
class Plan:
    """How to count a program's accesses as the hardware would.

    `parts` maps a program counter to the accesses that stand for it, (byte shift, width) each: none
    where another access took it over; absent where it stays as it is. `kinds` maps atomics to the
    kind they became; `merged` are those that serve all lanes of one address at once. `launch` holds
    launch__* metrics, `bounds` the metrics that are only a bound, and `notes` says why, one sentence
    each. `repeated`: accesses that stand in the machine code more often than in the PTX, as loops are unrolled.
    `sunk`: loads that moved behind a branch, as (its program counter, whether to where it jumps). `code`: bytes of
    machine code by source position. `exact`: the machine code is the driver's.
    """

    parts: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    merged: frozenset[int] = frozenset()
    launch: dict[str, float] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    repeated: frozenset[int] = frozenset()
    sunk: dict[int, tuple[int, bool]] = field(default_factory=dict)
    code: dict[object, int] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True)
class Machine:
    """One kernel's machine code: its instructions and what ptxas reports of it.

    stack, spills, shared : bytes. exact : compiled as a driver compiles it, not for later linking.
    """

    code: tuple[Sass, ...]
    registers: int
    stack: int
    spills: int
    shared: int = 0
    exact: bool = True


@dataclass(frozen=True)
class Sass:
    """A machine instruction; `at` is (file, line) of the innermost source position, `guard` such as "@!P0".

    `routine` names the function of ptxas that it is part of, such as "__cuda_sm20_div_u64"; its line is that of the
    kernel's end.
    """

    block: int
    at: tuple[str, int] | None
    op: str
    operands: str
    guard: str = ""
    routine: str = ""


# ---------------------------------------------------------------------------- PTX to SASS


@lru_cache(maxsize=64)
def machine_code(
    ptx: str, entry: str, arch: str = "sm_90", max_registers: int | None = None
) -> Machine:
    """Compile a PTX text and disassemble kernel `entry`, with no GPU.

    Raises LabkitError where the compilers or nvdisasm are missing or refuse.
    """
    target = re.search(r"\.target\s+(sm_\w+)", ptx)
    if target and target[1].endswith(("a", "f")):
        arch = target[1]
    tool = find("ptxas")
    ptx = ptx.rstrip("\0 \n") + "\n" if tool else _whole_program(ptx, entry)
    options = [f"-arch={arch}", "-lineinfo", "-v" if tool else "-verbose"]
    if max_registers:
        options.append(f"-maxrregcount={max_registers}")
    parts = (_version(tool), *options, ptx)
    try:
        text, log = json.loads(cache.kept(parts, "json") or b"")
    except ValueError:
        cubin, log = _ptxas(tool, ptx, options) if tool else _nvjitlink(ptx, options)
        text = _disassemble(cubin)
        cache.keep(parts, "json", json.dumps([text, log]).encode())
    return replace(_read(text, log, entry), exact=bool(tool))


_SHARED = re.compile(r"(\.shared\s+\.align\s+)(\d+)(\s+\.(\w+)\s+([\w$%.]+)(?:\[(\d+)\])?\s*;)")


def _whole_program(ptx: str, entry: str) -> str:
    """Let ptxas know where shared arrays lie.

    nvJitLink compiles PTX for later linking and so trusts only the declared alignment of a shared
    array. Whole-program compilation (NVRTC's cubin, numba's link-time optimization) knows that
    they follow each other in the order of their declarations, which lets it fuse loads. Declaring
    the alignment that comes of that order gives the same code.
    """
    start = re.search(rf"\.entry\s+{re.escape(entry)}\b", ptx)
    if not start:
        return ptx
    end = re.compile(r"\.(entry|func)\s").search(ptx, start.end())
    body = ptx[start.start() : end.start() if end else len(ptx)]
    place = 0

    def align(match: re.Match) -> str:
        nonlocal place
        declared, name = int(match[2]), match[5]
        uses = len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", body))
        if uses <= (match[0] in body):
            return match[0]
        place = -(-place // declared) * declared
        known = min(place & -place or 16, 16)
        place += SIZES[match[4]] * int(match[6] or 1)
        return f"{match[1]}{max(declared, known)}{match[3]}"

    return _SHARED.sub(align, ptx)


def _version(ptxas: str | None) -> str:
    names = ("nvidia-cuda-nvcc" if ptxas else "nvidia-nvjitlink", "nvidia-cuda-nvdisasm")
    try:
        return " ".join(metadata.version(n) for n in names)
    except metadata.PackageNotFoundError:
        return f"system {ptxas}"


def _ptxas(tool: str, ptx: str, options: list[str]) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = subprocess.run([tool, *options, str(source), "-o", str(cubin)], capture_output=True, text=True)
        if done.returncode:
            why = done.stderr.replace(f"{source}, ", "").replace(str(source), "kernel.ptx").strip().splitlines()
            raise LabkitError(f"ptxas refuses this PTX: {why[0] if why else f'exit status {done.returncode}'}")
        return cubin.read_bytes(), done.stderr


def _nvjitlink(ptx: str, options: list[str]) -> tuple[bytes, str]:
    try:
        from cuda.bindings import nvjitlink
    except ImportError:
        raise LabkitError("nvJitLink is not installed: pip install nvidia-nvjitlink cuda-bindings.") from None
    try:
        handle = nvjitlink.create(len(options), options)
    except RuntimeError as error:
        raise LabkitError(f"nvJitLink cannot start ({_first_line(error)}): pip install nvidia-nvjitlink.") from None
    except nvjitlink.nvJitLinkError as error:
        raise LabkitError(f"nvJitLink refuses the options {' '.join(options)}: {_first_line(error)}.") from None
    try:
        data = ptx.rstrip("\0 \n").encode() + b"\0"
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            why = bytes(log).decode(errors="replace").strip("\0 \n").splitlines()
            raise LabkitError(f"ptxas refuses this PTX: {why[0] if why else _first_line(error)}") from None
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        return bytes(cubin), bytes(log).decode(errors="replace").rstrip("\0 \n")
    finally:
        nvjitlink.destroy(handle)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}


@lru_cache
def find(tool: str) -> str | None:
    """The path of ptxas or nvdisasm: the wheel's, else the one on PATH; None without either."""
    try:
        for file in metadata.files(_WHEELS[tool]) or ():
            if file.name == tool and (path := Path(file.locate())).exists():
                return str(path)
    except metadata.PackageNotFoundError:
        pass
    return shutil.which(tool)


def _disassemble(cubin: bytes) -> str:
    tool = find("nvdisasm")
    if not tool:
        raise LabkitError("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-g", "-c", "-ndf", str(path)], capture_output=True, text=True)
    if done.returncode:
        raise LabkitError(f"nvdisasm failed: {done.stderr.strip()[:200]}")
    return done.stdout


_LINE = re.compile(r'\s*//## File "(.*?)", line (\d+)')
_ROUTINE = re.compile(r"\$__internal_\d+_\$(\w+):")
_CODE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def _read(text: str, log: str, entry: str) -> Machine:
    code, at, block, inside, routine = [], None, 0, False, ""
    for line in text.splitlines():
        if line.startswith(".text."):
            inside = line == f".text.{entry}:"
            at, routine = None, ""
        elif not inside:
            continue
        elif match := _LINE.match(line):
            at = (match[1], int(match[2]))
        elif line.startswith(".L_"):
            block += 1
        elif match := _ROUTINE.match(line):
            block, routine = block + 1, match[1]
        elif match := _CODE.match(line):
            guard, op, operands = match[1] or "", match[2], match[3]
            code.append(Sass(block, at, op, operands, guard, routine))
            if op.split(".")[0] in ("BRA", "EXIT", "BAR", "RET", "BRX", "CALL", "WARPSYNC"):
                block += 1
    if not code:
        raise LabkitError(f"ptxas left no code for the kernel {entry}.")
    part = log.split(f"Compiling entry function '{entry}'")[-1].split("Compiling entry function")[0]
    used, stack, shared = _USED.search(part), _STACK.search(part), _SMEM.search(part)
    return Machine(
        tuple(code),
        int(used[1]) if used else 0,
        int(stack[1]) if stack else 0,
        int(stack[2]) + int(stack[3]) if stack else 0,
        int(shared[1]) if shared else 0,
    )


# ---------------------------------------------------------------------------- accesses of both


@dataclass(frozen=True)
class _Access:
    """A load or store: bytes [offset, offset + width) from `base`, both inside `block`."""

    pc: int
    at: object
    space: str
    kind: str
    group: tuple
    offset: int
    width: int


def _sass_accesses(code: tuple[Sass, ...]) -> list[_Access]:
    found: list[_Access] = []
    version: Counter[str] = Counter()
    for number, sass in enumerate(code):
        name, *mods = sass.op.split(".")
        match = re.fullmatch(r"(LD|ST)([GSL]?)", name)
        if match and sass.guard != "@!PT":  # three loads that never load stand before an LDGSTS
            base, offset = _sass_address(sass.operands)
            width = next((_WIDTHS[m] for m in reversed(mods) if m in _WIDTHS), 4)
            found.append(
                _Access(
                    number,
                    sass.at,
                    _SPACES[match[2]],
                    match[1].lower(),
                    (sass.block, *((r, version[r]) for r in base)),
                    offset,
                    width,
                )
            )
        if not name.startswith(("ST", "RED", "BRA", "EXIT", "BAR")):
            for register in _written(name, mods, sass.operands):
                version[register] += 1
    return found


def _sass_address(operands: str) -> tuple[list[str], int]:
    inside = re.findall(r"\[([^\[\]]*)\]", operands)
    terms = inside[-1].split("+") if inside else []
    base, offset = [], 0
    for term in terms:
        if re.fullmatch(r"-?0x[0-9a-f]+", term):
            offset += int(term, 16)
        else:
            base.append(term.split(".")[0])
    return base, offset


def _written(name: str, mods: list[str], operands: str) -> list[str]:
    """The registers that an instruction writes."""
    match = re.search(r"\b(U?R)(\d+)\b", operands.split("[")[0].split(",")[0])
    if not match:
        # A predicate may stand before the register: ATOMG.E.ADD PT, R2, ...
        match = re.match(r"U?P\w+,\s*(U?R)(\d+)\b", operands)
    if not match:
        return []
    wide = "WIDE" in mods or "64" in mods or name.startswith("D")
    count = 4 if "128" in mods else 2 if wide else 1
    return [f"{match[1]}{int(match[2]) + k}" for k in range(count)]


def _ptx_accesses(program: Program) -> list[_Access]:
    blocks = _blocks(program.instructions)
    linear = _Linear(program.instructions)
    found = []
    for instr in program.instructions:
        if instr.op not in ("ld", "st") or {"param", "const"} & set(instr.mods):
            continue
        space = next((m for m in instr.mods if m in ("global", "shared", "local")), None)
        if space is None:
            space = next((m.split("::")[0] for m in instr.mods if m.startswith("shared::")), "generic")
        address = next(o for o in instr.operands if hasattr(o, "base"))
        constant, terms = linear.of(address.base)
        guard = (instr.guard[0].slot, instr.guard[1]) if instr.guard else None
        found.append(
            _Access(
                instr.index,
                instr.inner,
                space,
                instr.op,
                (blocks[instr.index], guard, terms),
                constant + address.offset,
                _ptx_width(instr),
            )
        )
    return found


def _ptx_width(instr: Instruction) -> int:
    size = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "16x2": 4, "32x2": 8}
    lanes = next((int(m[1:]) for m in instr.mods if re.fullmatch(r"v\d", m)), 1)
    return size[re.sub(r"^\D+", "", instr.type)] * lanes


def _blocks(instructions: list[Instruction]) -> list[int]:
    """A number per instruction, the same while control runs straight and meets no barrier."""
    leaders = {0}
    for instr in instructions:
        if instr.op in ("bra", "brx", "ret", "exit", "bar", "barrier", "call"):
            leaders.add(instr.index + 1)
            for operand in instr.operands:
                leaders.update(getattr(operand, "pc", ()))
    number, found = 0, []
    for index in range(len(instructions)):
        number += index in leaders
        found.append(number)
    return found


class _Linear:
    """Address registers as a constant plus multiples of registers that are not taken apart."""

    def __init__(self, instructions: list[Instruction]) -> None:
        written: Counter[int] = Counter()
        self.definition: dict[int, Instruction] = {}
        for instr in instructions:
            if instr.op not in ("st", "red", "bra") and instr.operands:
                slot = getattr(instr.operands[0], "slot", None)
                if slot is not None:
                    written[slot] += 1
                    self.definition[slot] = instr
        for slot, count in written.items():
            if count > 1 or self.definition[slot].guard:
                del self.definition[slot]
        self.known: dict[int, tuple[int, tuple]] = {}

    def of(self, operand: object) -> tuple[int, tuple]:
        """(constant, ((term, factor), ...)) of an operand."""
        if hasattr(operand, "variable"):
            return operand.offset, ((operand.variable.name, 1),)
        slot = getattr(operand, "slot", None)
        if slot is None:
            value = getattr(operand, "value", 0)
            return (value, ()) if isinstance(value, int) else (0, ((repr(operand), 1),))
        if slot not in self.known:
            self.known[slot] = 0, ((slot, 1),)  # what a loop through itself would see
            self.known[slot] = self.expand(slot)
        return self.known[slot]

    def expand(self, slot: int) -> tuple[int, tuple]:
        opaque = 0, ((slot, 1),)
        instr = self.definition.get(slot)
        if instr is None or (instr.type or "") not in ("b64", "u64", "s64", "b32", "u32", "s32"):
            return opaque
        args = instr.operands[1:]
        if instr.op == "mov" or instr.op == "cvta":
            return self.of(args[0])
        if instr.op in ("add", "sub") and len(args) == 2:
            return self.sum(self.of(args[0]), self.of(args[1]), 1 if instr.op == "add" else -1)
        factor = getattr(args[-1], "value", None) if args else None
        if instr.op == "shl" and isinstance(factor, int):
            return self.sum((0, ()), self.of(args[0]), 1 << factor)
        if instr.op == "mul" and "lo" in instr.mods and isinstance(factor, int):
            return self.sum((0, ()), self.of(args[0]), factor)
        return opaque

    @staticmethod
    def sum(left: tuple[int, tuple], right: tuple[int, tuple], factor: int) -> tuple[int, tuple]:
        terms = dict(left[1])
        for term, count in right[1]:
            terms[term] = terms.get(term, 0) + factor * count
        kept = sorted(((t, c) for t, c in terms.items() if c), key=repr)
        return left[0] + factor * right[0], tuple(kept)


# ---------------------------------------------------------------------------- the plan


@lru_cache(maxsize=64)
def _begun(ptx: str, entry: str, arch: str, max_registers: int | None) -> threading.Thread:
    """A thread in which `machine_code` is at work, or was."""

    def make() -> None:
        with contextlib.suppress(LabkitError):  # `memory_plan` meets it again, and says it
            machine_code(ptx, entry, arch, max_registers)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    return thread


def begin(launch: Launch) -> None:
    """Start to make the launch's machine code, which `memory_plan` will want, while other things are compiled."""
    _begun(launch.ptx, launch.entry, launch.arch, launch.max_registers)


@collector.paused()
def memory_plan(launch: Launch, program: Program) -> Plan:
    """How the launch's accesses are counted on the hardware; never raises.

    Without a compiler or nvdisasm everything stays as in the PTX and is a bound.
    """
    key = launch.ptx, launch.entry, launch.arch, launch.max_registers
    _begun(*key).join()
    try:
        machine = machine_code(*key)
    except LabkitError as error:
        return Plan(bounds=AS_PTX, notes=(f"Counts are the PTX's own. {error}",))
    if program.plan is None or program.plan[0] is not machine:
        program.plan = machine, _plan(program, machine)
    return program.plan[1]


def _plan(program: Program, machine: Machine) -> Plan:
    parts: dict[int, tuple[tuple[int, int], ...]] = {}
    bounds: set[str] = set()
    notes: list[str] = []
    # The accesses of wmma are counted as ptxas is known to write them.
    matrices = {i.inner for i in program.instructions if i.op == "wmma"}
    mine = _by_kind(_ptx_accesses(program))
    theirs = _by_kind([a for a in _sass_accesses(machine.code) if a.at not in matrices])
    for (space, kind), accesses in mine.items():
        found = _align(accesses, theirs.get((space, kind), []), drop=space == "local")
        if found is not None:
            parts.update(found)
            continue
        spaces = METRICS if space == "generic" else (space,)
        bounds.update(m.format(kind) for s in spaces for m in METRICS[s])
        notes.append(f"ptxas reshaped the {space} {'loads' if kind == 'ld' else 'stores'}; they count as in the PTX.")
    kinds, merged = _atomics(program, machine, bounds, notes)
    if unsettled := _unsettled(program.instructions):
        bounds.update(unsettled)
        notes.append("Some addresses come from atomics, whose order differs from run to run; so do their counts.")
    if machine.spills:
        bounds.update(m.format(k) for m in METRICS["local"] for k in ("ld", "st"))
        notes.append(f"ptxas spills {machine.spills} bytes of registers to local memory, which is not counted.")
    if not machine.exact and any(space == "local" for space, _ in mine):
        # The driver's own ptxas has been seen to keep such an array in registers after all.
        bounds.update(m.format(k) for m in METRICS["local"] for k in ("ld", "st"))
    bounds.update(_changed_flops(program, machine))
    facts = {
        "launch__registers_per_thread": max(machine.registers, 16),
        "labkit__stack_bytes": machine.stack,
        "labkit__spill_bytes": machine.spills,
        "labkit__code_bytes": 16 * len(machine.code),
    }
    repeated = _repeated(mine, theirs)
    if machine.exact:  # which rounds up to the alignment of the module's dynamic arrays
        facts["launch__shared_mem_per_block_static"] = machine.shared
    sunk = _sunk(program, machine.code)
    code = {at: 16 * count for at, count in Counter(sass.at for sass in machine.code).items()}
    return Plan(parts, kinds, merged, facts, tuple(sorted(bounds)), tuple(notes), repeated, sunk, code, machine.exact)


def _by_kind(accesses: list[_Access]) -> dict[tuple[str, str], list[_Access]]:
    found = defaultdict(list)
    for access in accesses:
        found[access.space, access.kind].append(access)
    return found


def _align(mine: list[_Access], theirs: list[_Access], drop: bool) -> dict[int, tuple] | None:
    """Parts of PTX accesses from the SASS ones, line by line and failing that all at once."""
    parts: dict[int, tuple] = {}
    rest_mine, rest_theirs = [], []
    lines = dict.fromkeys([a.at for a in (*mine, *theirs)])
    for at in lines:
        here = [a for a in mine if a.at == at]
        there = [a for a in theirs if a.at == at]
        found = _match(here, there)
        if found is None:
            rest_mine += here
            rest_theirs += there
        else:
            parts.update(found)
    if rest_mine or rest_theirs:
        found = _match(rest_mine, rest_theirs)
        if found is None and drop and not rest_theirs:
            found = {a.pc: () for a in rest_mine}  # a local array that lives in registers
        if found is None:
            return None
        parts.update(found)
    return parts


def _repeated(
    mine: dict[tuple[str, str], list[_Access]], theirs: dict[tuple[str, str], list[_Access]]
) -> frozenset[int]:
    """The PTX accesses whose bytes the machine code names more often than the PTX."""
    found = set()
    for key, accesses in mine.items():
        here, there = Counter(), Counter()
        for counts, each in ((here, accesses), (there, theirs.get(key, ()))):
            for a in each:
                counts[a.at] += a.width
        moved = there.keys() - here.keys() and there.total() > here.total()
        found.update(a.pc for a in accesses if moved or there[a.at] > here[a.at])
    return frozenset(found)


def _match(mine: list[_Access], theirs: list[_Access]) -> dict[int, tuple] | None:
    widths = {a.width for a in (*mine, *theirs)}
    if len(widths) == 1 and mine and len(theirs) >= len(mine):
        return {}  # the same accesses, in loops that ptxas may have unrolled
    return _cover(mine, theirs)


def _cover(mine: list[_Access], theirs: list[_Access]) -> dict[int, tuple] | None:
    """Lay the SASS accesses over the PTX ones so that each byte is fetched once.

    What stands in the PTX twice may be fetched once: its second time comes last. Returns what each PTX access becomes,
    None if they do not fit.
    """
    groups = _groups(mine)
    for group in groups:
        group.sort(key=lambda a: (a.offset, a.pc))
    open_bytes = {a.pc: set(range(a.offset, a.offset + a.width)) for a in mine}
    parts: dict[int, list[tuple[int, int]]] = {a.pc: [] for a in mine}
    fetched: dict[tuple, set[int]] = defaultdict(set)
    for pattern in sorted(_groups(theirs), key=lambda g: -sum(a.width for a in g)):
        pattern.sort(key=lambda a: a.offset)
        best = None
        for group in groups:
            for shift in dict.fromkeys(a.offset - pattern[0].offset for a in group):
                placed = _place(group, pattern, shift, open_bytes)
                if placed is not None:
                    left = sum(len(open_bytes[a.pc]) for a in group)
                    spare = left - sum(a.width for a in pattern)
                    bytes_ = set().union(*(b for *_, taken in placed for b in taken.values()))
                    again = len(bytes_ & fetched[group[0].group])
                    if best is None or (again, spare) < best[0]:
                        best = (again, spare), placed, group[0].group
        if best is None:
            return None
        for owner, part, taken in best[1]:
            parts[owner].append(part)
            for pc, bytes_ in taken.items():
                open_bytes[pc] -= bytes_
                fetched[best[2]] |= bytes_
    for group in groups:
        twins = {(a.offset, a.width) for a in group if not open_bytes[a.pc]}
        for a in group:
            untouched = len(open_bytes[a.pc]) == a.width
            if untouched and (a.offset, a.width) not in twins:
                return None
            if not untouched and open_bytes[a.pc] and a.width <= 4:
                return None
    whole = {a.pc: ((0, a.width),) for a in mine}
    return {pc: tuple(p) for pc, p in parts.items() if tuple(p) != whole[pc]}


def _groups(accesses: list[_Access]) -> list[list[_Access]]:
    found = defaultdict(list)
    for access in accesses:
        found[access.group].append(access)
    return list(found.values())


def _place(
    group: list[_Access], pattern: list[_Access], shift: int, open_bytes: dict[int, set[int]]
) -> list[tuple[int, tuple[int, int], dict[int, set[int]]]] | None:
    """Where each access of the pattern falls: (owner, (shift, width), bytes it takes of whom)."""
    taken: dict[int, set[int]] = defaultdict(set)
    placed = []
    for access in pattern:
        start, owner, mine = access.offset + shift, None, defaultdict(set)
        for byte in range(start, start + access.width):
            for a in group:
                if byte in open_bytes[a.pc] and byte not in taken[a.pc]:
                    taken[a.pc].add(byte)
                    mine[a.pc].add(byte)
                    owner = owner or a
                    break
            else:
                return None
        placed.append((owner.pc, (start - owner.offset, access.width), mine))
    return placed


def _atomics(
    program: Program, machine: Machine, bounds: set[str], notes: list[str]
) -> tuple[dict[int, str], frozenset[int]]:
    """Atomics without a wanted result become reductions; some become other code altogether.

    Returns the kinds that atomics became, and those that serve all lanes of an address at once: ATOMS.POPC.INC, and
    one lane's atomic for all lanes where they share an address.
    """
    kinds: dict[int, str] = {}
    merged = set()
    read = {slot for instr in program.instructions for slot in _read_slots(instr)}
    ops = defaultdict(set)
    for sass in machine.code:
        ops[sass.at].add(sass.op)
    for instr in program.instructions:
        if instr.op not in ("atom", "red"):
            continue
        here = ops.get(instr.inner, set())
        names = {op.split(".")[0] for op in here}
        wanted = isinstance(instr.operands[0], Reg) and instr.operands[0].slot in read
        if instr.op == "atom" and not wanted and not {"exch", "cas"} & set(instr.mods):
            kinds[instr.index] = "red"
        plain = names & {"RED", "REDG", "ATOM", "ATOMG", "ATOMS"}
        loops = any(".CAS" in op for op in here) and "cas" not in instr.mods
        counts = any(op.startswith("ATOMS.POPC.INC") for op in here)
        gathers = any(op.startswith("VOTE") for op in here)
        if plain and not loops and (counts or gathers and names & {"POPC", "UPOPC"}):
            merged.add(instr.index)
        elif not plain or loops or gathers:
            bounds.update(m.format(k) for s in ("global", "shared") for m in METRICS[s] for k in ("atom", "red"))
            note = "ptxas replaced atomics by other code; they count as in the PTX."
            if note not in notes:
                notes.append(note)
    return kinds, frozenset(merged)


def _unsettled(instructions: list[Instruction]) -> set[str]:
    """Counters of accesses at addresses that follow from an atomic's result, and so from the order of threads."""
    from labkit.emulator.compiler import defs_and_uses

    if not any(i.op == "atom" for i in instructions):
        return set()
    flows = [(i, *({r.slot for r in registers} for registers in defs_and_uses(i))) for i in instructions]
    unsettled = {slot for i, defined, _ in flows if i.op == "atom" for slot in defined}
    if not unsettled:
        return set()
    known, shared = -1, False
    while known < len(unsettled):
        known = len(unsettled)
        for i, defined, used in flows:
            if used & unsettled or shared and i.op == "ld" and "shared" in i.mods:
                unsettled |= defined
                shared |= i.op == "st" and "shared" in i.mods
    found = set()
    for i, _, _ in flows:
        address = next((o.base for o in i.operands if hasattr(o, "base")), None)
        if i.op not in ("ld", "st", "atom", "red") or getattr(address, "slot", None) not in unsettled:
            continue
        space = next((s for s in ("global", "shared") if s in i.mods), None)
        kinds = ("atom", "red") if i.op in ("atom", "red") else (i.op,)
        for name in (space,) if space else ("global", "shared"):
            # As many requests in any order, each of other places.
            metrics = METRICS[name][1:] if name == "global" else METRICS[name]
            found.update(m.format(kind) for m in metrics for kind in kinds)
    return found


def _read_slots(instr: Instruction) -> list[int]:
    """The registers that an instruction reads: all it names except its destination."""
    found, todo = [], list(instr.operands[0 if instr.op in ("st", "red", "bra") else 1 :])
    while todo:
        operand = todo.pop()
        if isinstance(operand, Reg):
            found.append(operand.slot)
        else:
            todo += [getattr(operand, n) for n in ("base", "reg", "first", "second") if hasattr(operand, n)]
            todo += getattr(operand, "items", ())
    return found + ([instr.guard[0].slot] if instr.guard else [])


# What ptxas leaves before a branch although only one way needs it, with what it is computed from.
_STAYS = {"ld", "st", "atom", "red", "mma", "wmma", "ldmatrix", "stmatrix", "cp", "vote", "match", "activemask"}


_ENDS = {"bra", "brx", "ret", "exit", "bar", "barrier"}


def _needed_one_way(program: Program, stays: set[str], ends: set[str]) -> Iterator[tuple[int, Instruction, set[int]]]:
    """Operations before a conditional branch of which one way alone needs the result: ptxas may move them there.

    Each as the branch's program counter, the operation, and the registers that it writes. `stays` are operations that
    do not move, nor what they need; looking back from the branch, `ends` end the search.
    """
    from labkit.emulator.compiler import defs_and_uses, successors

    instructions, live = program.instructions, program.live
    for n, branch in enumerate(instructions):
        if branch.op not in ("bra", "ret", "exit") or branch.guard is None:
            continue
        ways = [s for s in successors(branch) if s < len(instructions)]
        needed = {r.slot for r in defs_and_uses(branch)[1]}
        for pc in range(n - 1, -1, -1):
            i = instructions[pc]
            if i.op in ends:
                break
            defined, used = defs_and_uses(i)
            slots = {r.slot for r in defined}
            everywhere = bool(ways[1:]) and any(all(live[s] >> slot & 1 for s in ways) for slot in slots)
            if i.op in stays or slots & needed or everywhere:
                needed |= {r.slot for r in used}
            else:
                yield n, i, slots


def _sinking(program: Program) -> set[tuple]:
    """Kinds and lines of floating-point operations that ptxas may move behind a branch."""
    return {
        (_PTX_TYPES[i.type] + _PTX_FLOPS[i.op], i.inner)
        for _, i, _ in _needed_one_way(program, _STAYS, _ENDS | {"shfl"})
        if i.op in _PTX_FLOPS and i.type in _PTX_TYPES
    }


def _sunk(program: Program, code: tuple[Sass, ...]) -> dict[int, tuple[int, bool]]:
    """Loads that ptxas has moved behind a branch.

    By program counter: that of the branch, and whether they moved to where it jumps.
    """
    instructions, live = program.instructions, program.live
    # By a load's position, those of the conditional branches that stand right before it.
    here, there = defaultdict(set), defaultdict(set)
    branch = None
    for sass in code:
        name = sass.op.split(".")[0]
        if name in ("BRA", "EXIT") and sass.guard:
            branch = sass.at
        elif name in ("LD", "LDG", "LDS", "LDL"):
            there[sass.at].add(branch)
    branch = None
    for i in instructions:
        if i.op in ("bra", "ret", "exit") and i.guard is not None:
            branch = i.inner
        elif i.op == "ld":
            here[i.inner].add(branch)
    found = {}
    for n, i, slots in _needed_one_way(program, _STAYS - {"ld"} | {"shfl"}, _ENDS):
        branch = instructions[n]
        if i.op == "ld" and there[i.inner] == {branch.inner} and branch.inner not in here[i.inner]:
            target = branch.operands[0].pc[0] if branch.op == "bra" else None
            found[i.index] = n, target is not None and any(live[target] >> slot & 1 for slot in slots)
    return found


# PTX operations that ptxas expands into additions, multiplications and FMAs of its own.
_EXPANDED = {"div", "sqrt", "rcp", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh", "rem"}


def _changed_flops(program: Program, machine: Machine) -> set[str]:
    """Floating-point counters of operations that ptxas added, dropped, replaced, or put under a condition."""
    mine: Counter[tuple] = Counter()
    theirs: Counter[tuple] = Counter()
    expanded, guarded = set(), set()
    blocks = _blocks(program.instructions)
    turns: dict[tuple, dict[object, Counter]] = defaultdict(lambda: defaultdict(Counter))  # by line and block
    there: dict[tuple, dict[object, Counter]] = defaultdict(lambda: defaultdict(Counter))
    for instr in program.instructions:
        kind = _PTX_TYPES.get(instr.type)
        if instr.op in _PTX_FLOPS and kind:
            mine[kind + _PTX_FLOPS[instr.op], instr.inner] += 1
            turns[instr.inner][blocks[instr.index]][kind + _PTX_FLOPS[instr.op]] += 1
        elif instr.op in _EXPANDED and kind:
            expanded.update((kind + name, instr.inner) for name in ("add", "mul", "fma"))
    for sass in machine.code:
        name = _FLOPS.get(sass.op.split(".")[0])
        if name:
            theirs[name, sass.at] += 1
            there[sass.at][sass.block, sass.guard][name] += 1
            if sass.guard:
                guarded.add((name, sass.at))
    changed = {name for name, at in mine if theirs[name, at] < mine[name, at]}
    changed |= {name for name, at in theirs if not mine[name, at]}
    changed |= {name for name, at in expanded if theirs[name, at] != mine[name, at]}
    changed |= {name for name, _ in guarded & _chosen(program.instructions)}
    sinking = _sinking(program)
    for at, each in turns.items():
        names = set().union(*each.values())
        parts = [Counter({name: n for name, n in part.items() if name in names}) for part in there[at].values()]
        if Counter(_key(part) for part in each.values()) != Counter(_key(part) for part in parts if part):
            changed |= {name for name, where in sinking if where == at}  # not where each block stayed as it was
        if not {(name, at) for name in names} & expanded:
            if not _repeats(list(each.values()), {name: theirs[name, at] for name in names}):
                changed.update(names)
    return {_FLOP_METRIC.format(name) for name in changed}


def _chosen(instructions: list[Instruction]) -> set[tuple]:
    """Kinds and lines of floating-point operations that serve a selp alone: ptxas may do them where it takes them."""
    readers: dict[int, list[Instruction]] = defaultdict(list)
    for i in instructions:
        for slot in _read_slots(i):
            readers[slot].append(i)
    optional, found = set(), set()
    for i in reversed(instructions):
        if i.op in _PTX_FLOPS and i.type in _PTX_TYPES:
            if all(r.op == "selp" or r.index in optional for r in readers[i.operands[0].slot]):
                optional.add(i.index)
                found.add((_PTX_TYPES[i.type] + _PTX_FLOPS[i.op], i.inner))
    return found


def _repeats(parts: list[Counter], whole: dict[str, int]) -> bool:
    """Whether `whole` is made of each of the parts, once or several times, as unrolled loops are."""
    rest = Counter(whole)
    for part in parts:
        rest.subtract(part)
    kinds = list({_key(part) for part in parts})
    return min(rest.values()) >= 0 and (len(kinds) > 4 or _made_of(+rest, kinds))


def _made_of(rest: Counter, kinds: list[tuple]) -> bool:
    if not rest or not kinds:
        return not rest
    most = min(rest[name] // n for name, n in kinds[0])
    for times in range(most, -1, -1):
        left = rest - Counter({name: times * n for name, n in kinds[0]})
        if _made_of(left, kinds[1:]):
            return True
    return False


def _key(part: Counter) -> tuple:
    return tuple(sorted(part.items()))
