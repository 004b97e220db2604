"""PTX text to programs: one flat list of instructions per kernel, device functions inlined.

Reads what NVVM (numba) and NVRTC write (PTX ISA 9.0). Every instruction keeps its source line: the
line in the kernel's own file, and the position inside an inlined function beside it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from labkit.emulator import collector
from labkit.emulator.faults import KernelFault

SIZES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "u16x2": 4, "s16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8,
    "b128": 16,
}  # fmt: skip
SPACES = ("reg", "param", "local", "shared", "const", "global")


# ---------------------------------------------------------------------------- operands


@dataclass(frozen=True)
class Reg:
    """A register; `slot` is its number in the program, `type` its declared PTX type."""

    name: str
    type: str
    slot: int = -1


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Imm:
    """An integer (`bits` None) or a float literal given by its bits and their width."""

    value: int | float
    bits: int | None = None
    width: int = 0


@dataclass(frozen=True)
class Variable:
    """A variable in memory; `data` its initial bytes, `relocations` (byte offset, symbol, addend).

    `dynamic` marks `.extern .shared`, whose size the launch decides.
    """

    name: str
    space: str
    align: int
    size: int
    type: str = "b8"
    count: int = 1
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()
    dynamic: bool = False


@dataclass(frozen=True)
class Sym:
    """The address of a variable, plus `offset`."""

    variable: Variable
    offset: int = 0


@dataclass(frozen=True)
class Addr:
    """`[base + offset]`."""

    base: Reg | Sym | Imm
    offset: int = 0


@dataclass(frozen=True)
class Vec:
    """`{a, b}`."""

    items: tuple


@dataclass(frozen=True)
class Pair:
    """`a|b`: two destinations."""

    first: object
    second: object


@dataclass(frozen=True)
class Not:
    """`!p`."""

    reg: Reg


@dataclass(frozen=True)
class Label:
    """A branch target or a list of them (`brx.idx`); `pc` holds the instruction numbers."""

    name: str
    pc: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sink:
    """`_`: a value nobody wants."""


@dataclass
class Instruction:
    """One instruction; `index` is its program counter.

    `fma.rn.f32` has op "fma", mods ("rn",), types ("f32",). `guard` is (register, wanted value).
    `inner` is the (file, line) inside an inlined function; equal to (file, line) elsewhere.
    """

    index: int
    op: str
    mods: tuple[str, ...]
    types: tuple[str, ...]
    operands: tuple
    guard: tuple[Reg, bool] | None
    file: str | None
    line: int | None
    inner: tuple[str, int] | None
    text: str
    flow: tuple[list[Reg], list[Reg]] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def type(self) -> str | None:
        """The first type, which is the destination's where there are two."""
        return self.types[0] if self.types else None


@dataclass(frozen=True)
class Param:
    """A kernel parameter: its size and its place in the parameter block, in bytes."""

    name: str
    size: int
    align: int
    offset: int


@dataclass
class Program:
    """A kernel ready to run.

    `registers` are the PTX types by slot; `shared` and `local` map variables to their offsets.
    """

    name: str
    kernel: str
    file: str | None
    params: list[Param]
    instructions: list[Instruction]
    registers: list[Reg]
    shared: dict[str, tuple[Variable, int]]
    shared_size: int
    local: dict[str, tuple[Variable, int]]
    local_size: int
    module: Module
    steps: list | None = field(default=None, repr=False)
    provenance: object | None = field(default=None, repr=False)
    declared: dict = field(default_factory=dict, repr=False)
    plan: tuple | None = field(default=None, repr=False)

    @property
    def param_size(self) -> int:
        """Bytes of the parameter block."""
        last = self.params[-1] if self.params else None
        return last.offset + last.size if last else 0

    @cached_property
    def live(self) -> list[int]:
        """`compiler.liveness` of the instructions, for all who ask."""
        from labkit.emulator.compiler import liveness

        return liveness(self.instructions)

    @cached_property
    def turns(self) -> list[int]:
        """`turns.turns` of the instructions."""
        from labkit.emulator.turns import turns

        return turns(self.instructions)


# ---------------------------------------------------------------------------- functions as read


@dataclass
class Statement:
    """An instruction as written, or a label (`op` None, its name in `text`)."""

    op: str | None
    operands: tuple
    guard: tuple[str, bool] | None
    position: tuple[tuple[int, int], ...]  # (file, line) from the innermost to the outermost
    text: str


@dataclass
class Function:
    """A parsed `.entry` (`entry`) or `.func`; `tables` are the labels of its branch targets, by name.

    body: False for a declaration.
    """

    name: str
    entry: bool
    params: list[Variable]
    returns: list[Variable]
    statements: list[Statement]
    tables: dict[str, tuple[str, ...]]
    body: bool = True


@dataclass
class Module:
    """A parsed PTX text; `program(entry)` gives a kernel's flat program."""

    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str]
    key: int
    programs: dict[str, Program] = field(default_factory=dict, repr=False)

    @property
    def entries(self) -> list[str]:
        """Names of the kernels."""
        return [f.name for f in self.functions.values() if f.entry]

    @collector.paused()
    def program(self, entry: str) -> Program:
        """The flat program of kernel `entry`; raises KernelFault if there is none."""
        if entry not in self.programs:
            function = self.functions.get(entry)
            if function is None or not function.entry:
                raise KernelFault(
                    "launch",
                    f"the PTX has no kernel named {entry}",
                    f"It has {', '.join(self.entries) or 'none'}.",
                )
            try:
                program = _Flattener(self, function).run()
            except _MALFORMED as error:
                raise _broken(f"{type(error).__name__}: {error}") from error
            from labkit.emulator.contraction import contract

            program.instructions = contract(program.instructions)
            self.programs[entry] = program
        return self.programs[entry]


def short_name(symbol: str) -> str:
    """The kernel's name as the author wrote it: `_ZN8__main__5naiveB2v1...` gives `naive`."""
    match = re.match(r"_Z(N?)", symbol)
    if not match:
        return symbol
    at, name = match.end(), symbol
    while found := re.match(r"(\d+)", symbol[at:]):
        start = at + found.end()
        at = start + int(found[1])
        name = symbol[start:at]
        if not match[1]:
            break
    # numba writes <locals> of nested functions as parts of the name.
    return name


# ---------------------------------------------------------------------------- reading

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)
_SPACE = re.compile(r"\s*")
_LINE = re.compile(r"[^\n]*")
_LABEL = re.compile(r"([\w$%.]+)\s*:(?!:)")
_DECL = re.compile(r"\.(reg|param|local|shared|const|global)\b")
_INSTR = re.compile(r"(?:@(!?)\s*([\w$%.]+)\s+)?([\w.:]+)\s*(.*)", re.S)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(.*)")
_LOC_START = re.compile(r"\.loc\s")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_BRACKET = re.compile(r"[()\[\]{}]")
_PUNCTUATION = re.compile(r"[()\[\]{},]")
_INT = re.compile(r"([+-]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_BEGIN_NUMBER = {*"0123456789+-.W"}


# What reading trips over in a text that is not PTX; users are told so in one sentence.
_MALFORMED = (ValueError, IndexError, KeyError, AttributeError, TypeError, StopIteration)


def _broken(what: str) -> KernelFault:
    return KernelFault("unsupported", f"cannot read this PTX: {what}")


def _integer(text: str) -> int | None:
    match = _INT.match(text.strip())
    if not match:
        return None
    digits = match[2]
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        value = int(digits, 8)
    else:
        value = int(digits, 0)
    return -value if match[1] == "-" else value


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    if not _BRACKET.search(text):
        return [part for part in map(str.strip, text.split(",")) if part]
    parts, depth, start = [], 0, 0
    for found in _PUNCTUATION.finditer(text):
        char = found[0]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def _closing(text: str, at: int) -> int:
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for match in re.compile(r'"(?:\\.|[^"\\])*"|[{}]').finditer(text, at):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    raise _broken("a brace is not closed")


class _Scope:
    """Names visible at one place of a function."""

    def __init__(self, outer: _Scope | None, prefix: str) -> None:
        self.outer = outer
        self.prefix = prefix
        self.names: dict[str, object] = {}
        self.ranges: dict[str, tuple[str, int]] = {}
        self.operands: dict[str, object] = {}  # by their text, until something else is declared

    def find(self, name: str) -> object | None:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            match = re.match(r"(.*?)(\d+)$", name)
            if match and match[1] in scope.ranges:
                kind, count = scope.ranges[match[1]]
                if int(match[2]) < count:
                    return scope.names.setdefault(name, Reg(scope.prefix + name, kind))
            scope = scope.outer
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = _COMMENT.sub(lambda m: m[1] or " ", text.rstrip("\0 \n"))
        self.module = Module({}, {}, {}, hash(text))
        self.globals = _Scope(None, "")
        self.scopes = 0

    def run(self) -> Module:
        text, at = self.text, 0
        while True:
            at = _SPACE.match(text, at).end()
            if at >= len(text):
                return self.module
            if text[at] == ";":
                at += 1
            elif text.startswith(".file", at):
                line = _LINE.match(text, at)
                match = re.match(r'\.file\s+(\d+)\s+"((?:\\.|[^"\\])*)"', line[0])
                if match:
                    self.module.files[int(match[1])] = match[2]
                at = line.end()
            elif text.startswith(".section", at):
                at = _closing(text, text.index("{", at)) + 1
            elif re.compile(r"\.(version|target|address_size|loc)\b").match(text, at):
                at = _LINE.match(text, at).end()
            elif text.startswith(".pragma", at) or text.startswith(".alias", at):
                at = text.index(";", at) + 1
            else:
                at = self.definition(at)

    def definition(self, at: int) -> int:
        stop = re.compile(r"[{;=]").search(self.text, at)
        if stop is None:
            raise _broken(f"{self.text[at : at + 40]!r} has no end")
        head = self.text[at : stop.start()]
        if re.search(r"\.(entry|func)\b", head):
            return self.function(head, stop.start())
        end = self.text.index(";", stop.start())
        for variable in self.variables(self.text[at:end], self.globals):
            self.module.variables[variable.name] = variable
        return end + 1

    # ---- variables

    def variables(self, text: str, scope: _Scope) -> list[Variable]:
        """Declare what `.global .align 4 .b8 a[4] = {...}, b` names."""
        match = re.match(r"((?:\s*\.[\w:]+(?:\s+\d+(?=\s))?(?:\(\d+\))?)+)\s*(.*)", text, re.S)
        if not match:
            raise _broken(f"declaration {text.strip()[:60]!r}")
        words = match[1].split()
        space = next((w[1:].split("::")[0] for w in words if w[1:].split("::")[0] in SPACES), None)
        kind = next((w[1:] for w in words if w[1:] in SIZES), None)
        if space is None or kind is None:
            raise _broken(f"declaration {text.strip()[:60]!r}")
        vector = {".v2": 2, ".v4": 4, ".v8": 8}
        lanes = next((vector[w] for w in words if w in vector), 1)
        align = SIZES[kind] * lanes
        if ".align" in words:
            align = int(words[words.index(".align") + 1])
        if align < 1 or align & (align - 1):
            raise _broken(f"alignment {align} is no power of two")
        made = []
        for part in _split(match[2]):
            name, _, value = (p.strip() for p in part.partition("="))
            made.append(self.variable(name, space, kind, lanes, align, value, words))
        for variable in made:
            scope.names[variable.name.split("@")[0]] = variable
        scope.operands.clear()
        return made

    def variable(
        self, name: str, space: str, kind: str, lanes: int, align: int, value: str, words: list[str]
    ) -> Variable:
        dims = re.findall(r"\[([^\]]*)\]", name)
        name = name.split("[")[0].strip()
        count, dynamic = lanes, False
        for dim in dims:
            if dim.strip():
                count *= _integer(dim) or 0
            else:
                dynamic = True
        data, relocations = None, []
        if value:
            data = bytearray()
            for item in _split(value.strip("{} \n\t").replace("{", "").replace("}", "")):
                place = len(data)
                number = self.literal(item, kind)
                if number is None:
                    match = re.match(r"(?:generic\()?([\w$%.]+)\)?\s*(?:\+\s*(\d+))?$", item)
                    if not match:
                        raise _broken(f"initial value {item!r} of {name}")
                    relocations.append((place, match[1], int(match[2] or 0)))
                    number = bytes(SIZES[kind])
                data += number
            if dynamic:
                count, dynamic = len(data) // SIZES[kind], False
            data = bytes(data.ljust(count * SIZES[kind], b"\0"))
        dynamic = dynamic and space == "shared" and ".extern" in words
        size = count * SIZES[kind] if not dynamic else 0
        if not 0 <= size < 1 << 32:
            raise _broken(f"{name} has {size} bytes")
        return Variable(
            name, space, align, size, kind, count, data, tuple(relocations), dynamic
        )

    def literal(self, text: str, kind: str) -> bytes | None:
        size = SIZES[kind]
        operand = _number(text)
        if operand is None:
            return None
        if operand.width == 8 * size:
            return operand.bits.to_bytes(size, "little")
        if kind == "f32":
            return struct.pack("<f", operand.value)
        if kind == "f64":
            return struct.pack("<d", operand.value)
        return (int(operand.value) % (1 << (8 * size))).to_bytes(size, "little")

    # ---- functions

    def function(self, head: str, at: int) -> int:
        entry = bool(re.search(r"\.entry\b", head))
        tail = re.split(r"\.(?:entry|func)\b", head, maxsplit=1)[1].strip()
        returns = ""
        if tail.startswith("("):
            returns, _, tail = (t.strip() for t in tail[1:].partition(")"))
        match = re.match(r"([\w$%.]+)\s*(\((.*?)\))?", tail, re.S)
        if not match:
            raise _broken(f"function {head.strip()[:60]!r}")
        scope = _Scope(self.globals, "")
        made = Function(
            match[1], entry, self.params(match[3], scope), self.params(returns, scope), [], {}
        )
        if self.text[at] == ";":
            made.body = False
            self.module.functions.setdefault(made.name, made)
            return at + 1
        end = _closing(self.text, at)
        self.module.functions[made.name] = made
        self.body(made, at + 1, end, scope)
        return end + 1

    def params(self, text: str | None, scope: _Scope) -> list[Variable]:
        made = []
        for part in _split(text or ""):
            # `.ptr .global .align 8` after the type speaks of what the pointer points to.
            part = re.sub(r"\.ptr(\s*\.(global|const|shared|local))?(\s*\.align\s+\d+)?", "", part)
            made += self.variables(part, scope)
        return made

    def body(self, function: Function, at: int, end: int, scope: _Scope) -> None:
        text = self.text
        position: tuple[tuple[int, int], ...] = ()
        calls: dict[tuple[int, int, int], tuple] = {}
        while True:
            at = _SPACE.match(text, at).end()
            if at >= end:
                return
            char = text[at]
            if char == "{":
                self.scopes += 1
                scope = _Scope(scope, f"{scope.prefix}{self.scopes}.")
                at += 1
                continue
            if char == "}":
                scope = scope.outer
                at += 1
                continue
            if char == ";":
                at += 1
                continue
            if _LOC_START.match(text, at):
                line = _LINE.match(text, at)
                position = self.location(line[0], calls, position)
                at = line.end()
                continue
            label = _LABEL.match(text, at)
            if label:
                name = label[1]
                at = _SPACE.match(text, label.end()).end()
                table = re.compile(r"\.branchtargets\s+([^;]*);").match(text, at)
                if table:
                    function.tables[name] = tuple(_split(table[1]))
                    at = table.end()
                elif text.startswith(".callprototype", at) or text.startswith(".calltargets", at):
                    at = text.index(";", at) + 1
                else:
                    function.statements.append(Statement(None, (), None, position, name))
                continue
            stop = text.index(";", at)
            piece = text[at:stop]
            at = stop + 1
            if piece.startswith(".reg"):
                self.registers(piece, scope)
            elif _DECL.match(piece):
                for variable in self.variables(piece, scope):
                    unique = variable.name if variable.space == "shared" else None
                    if unique is None:
                        unique = f"{variable.name}@{function.name}.{scope.prefix}"
                    scope.names[variable.name] = replace(variable, name=unique)
            elif not piece.startswith("."):
                function.statements.append(self.statement(piece, scope, position))

    def location(self, line: str, calls: dict, before: tuple) -> tuple:
        match = _LOC.match(line)
        if not match:
            return before
        file, number, column = (int(match[k]) for k in (1, 2, 3))
        outer: tuple = ()
        inlined = _INLINED.search(match[4])
        if inlined:
            site = tuple(int(inlined[k]) for k in (1, 2, 3))
            outer = calls.get(site, ()) or ((site[0], site[1]),)
        if number == 0:
            return before
        position = ((file, number), *outer)
        calls[(file, number, column)] = position
        return position

    def registers(self, piece: str, scope: _Scope) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)", piece, re.S)
        if not match or match[1] not in SIZES:
            raise _broken(f"declaration {piece.strip()!r}")
        scope.operands.clear()
        for name in _split(match[2]):
            many = re.match(r"([\w$%.]+?)<(\d+)>$", name)
            if many:
                scope.ranges[many[1]] = (match[1], int(many[2]))
            else:
                scope.names[name] = Reg(scope.prefix + name, match[1])

    def statement(self, piece: str, scope: _Scope, position: tuple) -> Statement:
        text = " ".join(piece.split())
        match = _INSTR.match(text)
        if not match:
            raise _broken(f"instruction {text!r}")
        guard = None
        if match[2]:
            guard = (scope.find(match[2]), match[1] != "!")
            if not isinstance(guard[0], Reg):
                raise _broken(f"no predicate {match[2]} for {text!r}")
        if match[3].split(".")[0] == "call":
            operands: tuple = tuple(
                tuple(self.operand(i, scope) for i in _split(part[1:-1]))
                if part.startswith("(")
                else part
                for part in _split(match[4])
            )
        else:
            operands = tuple(self.operand(part, scope) for part in _split(match[4]))
        return Statement(match[3], operands, guard, position, text)

    def operand(self, text: str, scope: _Scope) -> object:
        if text not in scope.operands:
            scope.operands[text] = self.read_operand(text, scope)
        return scope.operands[text]

    def read_operand(self, text: str, scope: _Scope) -> object:
        if text == "_":
            return Sink()
        if text.startswith("["):
            inside = _split(text[1:-1])
            if len(inside) != 1:
                return Label(text)
            match = re.match(r"(.+?)\s*\+\s*([+-]?\w+)$", inside[0])
            base, offset = (match[1], _integer(match[2])) if match else (inside[0], 0)
            found = self.operand(base, scope)
            if offset is None or not isinstance(found, Reg | Sym | Imm):
                raise _broken(f"address {text!r}")
            return Addr(found, offset)
        if text.startswith("{"):
            return Vec(tuple(self.operand(t, scope) for t in _split(text[1:-1])))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self.operand(first.strip(), scope), self.operand(second.strip(), scope))
        if text.startswith("!"):
            return Not(self.operand(text[1:].strip(), scope))
        number = _number(text)
        if number is not None:
            return number
        found = scope.find(text)
        if isinstance(found, Reg):
            return found
        if isinstance(found, Variable):
            return Sym(found)
        if text.startswith("%"):
            return Special(text)
        match = re.match(r"([\w$%.]+)\s*\+\s*(\d+)$", text)
        if match and isinstance(scope.find(match[1]), Variable):
            return Sym(scope.find(match[1]), int(match[2]))
        return Label(text)


def _number(text: str) -> Imm | None:
    text = text.strip()
    if text[:1] not in _BEGIN_NUMBER:
        return None
    if re.match(r"0[fF][0-9a-fA-F]{8}$", text):
        bits = int(text[2:], 16)
        return Imm(struct.unpack("<f", struct.pack("<I", bits))[0], bits, 32)
    if re.match(r"0[dD][0-9a-fA-F]{16}$", text):
        bits = int(text[2:], 16)
        return Imm(struct.unpack("<d", struct.pack("<Q", bits))[0], bits, 64)
    if text == "WARP_SZ":
        return Imm(32)
    value = _integer(text)
    if value is not None:
        return Imm(value)
    if re.match(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?$", text):
        return Imm(float(text), struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return None


# ---------------------------------------------------------------------------- flattening


class _Flattener:
    """Inline device functions, number registers and instructions, lay out shared and local."""

    def __init__(self, module: Module, entry: Function) -> None:
        self.module = module
        self.entry = entry
        self.out: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.slots: dict[str, Reg] = {}
        self.local: dict[str, tuple[Variable, int]] = {}
        self.local_size = 0
        self.shared: dict[str, Variable] = {}
        self.cells: dict[str, dict[int, int]] = {}
        self.sites = 0
        self.file: int | None = None

    def run(self) -> Program:
        entry = self.entry
        first = next((s.position for s in entry.statements if s.position), None)
        self.file = first[-1][0] if first else None
        self.inline(entry, "", {}, (), None)
        params, offset = [], 0
        for p in entry.params:
            offset = -(-offset // p.align) * p.align
            params.append(Param(p.name, p.size, p.align, offset))
            offset += p.size
        for instruction in self.out:
            instruction.operands = tuple(self.target(o) for o in instruction.operands)
            if instruction.op in ("bra", "brx"):
                label = instruction.operands[1 if instruction.op == "brx" else 0]
                if not isinstance(label, Label) or not label.pc:
                    raise _broken(f"no such label: {instruction.text!r}")
        shared, size = self.layout()
        return Program(
            name=entry.name,
            kernel=short_name(entry.name),
            file=self.module.files.get(self.file),
            params=params,
            instructions=self.out,
            registers=list(self.slots.values()),
            shared=shared,
            shared_size=size,
            local=self.local,
            local_size=self.local_size,
            module=self.module,
        )

    def layout(self) -> tuple[dict[str, tuple[Variable, int]], int]:
        placed, at = {}, 0
        for variable in sorted(self.shared.values(), key=lambda v: v.dynamic):
            at = -(-at // variable.align) * variable.align
            placed[variable.name] = (variable, at)
            at += variable.size
        return placed, at

    def target(self, operand: object) -> object:
        if isinstance(operand, Label) and not operand.pc:
            names = operand.name.split()
            if all(n in self.labels for n in names):
                return Label(operand.name, tuple(self.labels[n] for n in names))
        return operand

    def inline(
        self,
        function: Function,
        prefix: str,
        alias: dict[str, str],
        stack: tuple[str, ...],
        site: Instruction | None,
    ) -> None:
        if function.name in stack:
            raise KernelFault(
                "unsupported",
                f"device function {short_name(function.name)} calls itself",
                "The emulator inlines device functions: write the recursion as a loop.",
                kernel=short_name(self.entry.name),
                file=site.file if site else None,
                line=site.line if site else None,
            )
        stack = (*stack, function.name)
        end = f"{prefix}$end"
        final = len(function.statements) - 1
        renamed: dict[int, object] = {}  # operands of these statements, which share them
        line = site.line if site else None
        for i, statement in enumerate(function.statements):
            if statement.op is None:
                self.labels[prefix + statement.text] = len(self.out)
                continue
            made = self.instruction(statement, function, prefix, alias, site, line, renamed)
            line = made.line
            op = made.op
            if op == "call":
                self.call(made, prefix, stack)
            elif op == "ret" and site is not None:
                if i != final or made.guard:
                    made.op, made.mods, made.operands = "bra", (), (Label(end),)
                    self.emit(made)
            elif op in ("ld", "st") and "param" in made.mods and self.is_cell(made):
                self.cell(made)
            else:
                self.emit(made)
        if site is not None:
            self.labels[end] = len(self.out)
        else:
            # Falling off the end, or a jump to it, returns.
            last = self.out[-1] if self.out else None
            ends = last is not None and last.op in ("ret", "exit", "bra", "trap") and not last.guard
            if not ends or len(self.out) in self.labels.values():
                where = (last.file, last.line, last.inner) if last else (None, None, None)
                self.out.append(
                    Instruction(len(self.out), "ret", (), (), (), None, *where, "ret")
                )

    def emit(self, instruction: Instruction) -> None:
        instruction.index = len(self.out)
        self.out.append(instruction)

    def instruction(
        self,
        statement: Statement,
        function: Function,
        prefix: str,
        alias: dict[str, str],
        site: Instruction | None,
        line: int | None,
        renamed: dict[int, object],
    ) -> Instruction:
        files = self.module.files
        inner = None
        if statement.position:
            inner_file, inner_line = statement.position[0]
            inner = (files.get(inner_file), inner_line)
            outer_file, outer_line = statement.position[-1]
            if site is None and outer_file == self.file:
                line = outer_line
        if site is not None:
            line = site.line
        op, mods, types = _words(statement.op)
        guard = None
        if statement.guard:
            guard = (self.rename(statement.guard[0], prefix, alias, function), statement.guard[1])
        operands = statement.operands
        if op != "call":
            for o in operands:
                if id(o) not in renamed:
                    renamed[id(o)] = self.rename(o, prefix, alias, function)
            operands = tuple([renamed[id(o)] for o in operands])
        if op in ("addc", "subc", "madc"):
            operands = (*operands, self.register("%cc", "pred"))
        if "cc" in mods:
            operands = (Pair(operands[0], self.register("%cc", "pred")), *operands[1:])
        return Instruction(
            -1, op, mods, types, operands, guard,
            files.get(self.file), line, inner, statement.text,
        )  # fmt: skip

    def rename(self, o: object, prefix: str, alias: dict[str, str], function: Function) -> object:
        if isinstance(o, Reg):
            return self.register(prefix + o.name, o.type)
        if isinstance(o, Addr):
            return Addr(self.rename(o.base, prefix, alias, function), o.offset)
        if isinstance(o, Vec):
            return Vec(tuple(self.rename(i, prefix, alias, function) for i in o.items))
        if isinstance(o, Pair):
            return Pair(
                self.rename(o.first, prefix, alias, function),
                self.rename(o.second, prefix, alias, function),
            )
        if isinstance(o, Not):
            return Not(self.rename(o.reg, prefix, alias, function))
        if isinstance(o, Label):
            names = function.tables.get(o.name, (o.name,))
            return Label(" ".join(prefix + n for n in names))
        if isinstance(o, Sym):
            return Sym(self.place(o.variable, prefix, alias), o.offset)
        return o

    def register(self, name: str, kind: str) -> Reg:
        found = self.slots.get(name)
        if found is None:
            found = self.slots[name] = Reg(name, kind, len(self.slots))
        return found

    def place(self, variable: Variable, prefix: str, alias: dict[str, str]) -> Variable:
        """Give a variable its room: per inlined copy for local, per kernel for shared."""
        if variable.space == "shared":
            self.shared.setdefault(variable.name, variable)
        elif variable.space == "local":
            variable = replace(variable, name=prefix + variable.name)
            if variable.name not in self.local:
                at = -(-self.local_size // variable.align) * variable.align
                self.local[variable.name] = (variable, at)
                self.local_size = at + variable.size
        elif variable.space == "param" and not (
            prefix == "" and any(p.name == variable.name for p in self.entry.params)
        ):
            name = alias.get(variable.name, prefix + variable.name)
            variable = replace(variable, name="call:" + name.removeprefix("call:"))
        return variable

    # ---- calls

    def is_cell(self, instruction: Instruction) -> bool:
        address = next((o for o in instruction.operands if isinstance(o, Addr)), None)
        return (
            address is not None
            and isinstance(address.base, Sym)
            and address.base.variable.name.startswith("call:")
        )

    def cell(self, made: Instruction) -> None:
        """An access to a call's parameter is a move to or from a register of that name."""
        address = next(o for o in made.operands if isinstance(o, Addr))
        value = next(o for o in made.operands if not isinstance(o, Addr))
        name = address.base.variable.name
        size = SIZES[made.type]
        values = value.items if isinstance(value, Vec) else (value,)
        for k, item in enumerate(values):
            at = address.base.offset + address.offset + k * size
            cells = self.cells.setdefault(name, {})
            if any(a != at and a < at + size and at < a + s for a, s in cells.items()) or (
                cells.setdefault(at, size) != size
            ):
                raise KernelFault(
                    "unsupported",
                    f"a call passes bytes in one width and reads them in another: {made.text}",
                    "Inline the function (__forceinline__).",
                    kernel=short_name(self.entry.name),
                    file=made.file,
                    line=made.line,
                )
            register = self.register(f"{name}+{at}", f"b{8 * size}")
            pair = (item, register) if made.op == "ld" else (register, item)
            self.emit(replace(made, op="mov", mods=(), types=(f"b{8 * size}",), operands=pair))

    def call(self, made: Instruction, prefix: str, stack: tuple[str, ...]) -> None:
        parts = list(made.operands)
        name = next((p for p in parts if isinstance(p, str)), "")
        at = parts.index(name) if name in parts else 0
        returns = parts[0] if at == 1 else ()
        args = parts[at + 1] if len(parts) > at + 1 and isinstance(parts[at + 1], tuple) else ()
        callee = self.module.functions.get(name)
        if callee is None or not callee.body:
            self.emit(replace(made, operands=(Label(name),)))
            return
        alias = {}
        passed = zip([*callee.params, *callee.returns], [*args, *returns], strict=True)
        for formal, actual in passed:
            if not isinstance(actual, Sym):
                self.emit(replace(made, operands=(Label(name),)))
                return
            alias[formal.name] = self.place(actual.variable, prefix, {}).name
        self.sites += 1
        inner = f"{prefix}{short_name(name)}#{self.sites}."
        if made.guard:
            register, wanted = made.guard
            around = replace(
                made, op="bra", mods=(), guard=(register, not wanted),
                operands=(Label(f"{inner}$end"),),
            )  # fmt: skip
            self.emit(around)
        self.inline(callee, inner, alias, stack, made)


@lru_cache(maxsize=1024)
def _words(name: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Opcode, modifiers and types of `fma.rn.f32`."""
    op, *words = name.split(".")
    return op, tuple(w for w in words if w not in SIZES), tuple(w for w in words if w in SIZES)


@lru_cache(maxsize=64)
@collector.paused()
def parse(ptx: str) -> Module:
    """Read a PTX text; cached by content. Raises KernelFault where it cannot be read."""
    try:
        return _Reader(ptx).run()
    except _MALFORMED as error:
        raise _broken(f"{type(error).__name__}: {error}") from error
