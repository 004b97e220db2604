"""Tensor cores: mma.sync, wmma, ldmatrix, stmatrix and movmatrix, a warp at a time.

Fragments of mma.sync lie in registers as NVIDIA's PTX manual draws them; those of wmma, which it leaves open, as an
H200 loads and stores them (wmma_layouts.json, recorded by tests/tensor_cases.py).

Integer products are exact. Sums of floating-point products are what an H200 computes, found from its results and
equal to all of them (tests/test_recorded_tensor.py): one fused sum of the accumulator and all products along k, each
term cut off 25 bits below the largest exponent among them, the sum cut off to float32 or rounded to float16. So its
error is at most (k + 3) * 2**-25 of the largest term, plus one unit in the last place of the result. The manual
promises less: it leaves the order, the rounding and the handling of subnormal numbers open, and other GPUs differ.
Products of float64 are added one by one, along k, each with one rounding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.emulator import ops
from labkit.emulator.converge import meeting
from labkit.emulator.ptx import Imm, Instruction, Vec

if TYPE_CHECKING:
    from labkit.emulator.compiler import Access, Compiler
    from labkit.emulator.engine import Machine, Mask

u16, u32, s64, f32, f64 = np.uint16, np.uint32, np.int64, np.float32, np.float64

BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}
LANE = np.arange(32)
EVERYBODY = Imm(0xFFFFFFFF)
MMA = {
    "f16": ("m16n8k16", "m16n8k8"),
    "bf16": ("m16n8k16", "m16n8k8"),
    "tf32": ("m16n8k8", "m16n8k4"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}
MMA["u8"] = MMA["s8"]
# What of tensor cores is not here, and where it is looked for in an instruction.
MISSING = ("sp", "block_scale", "b1", "s4", "u4", "e4m3", "e5m2")


def operations(i: Instruction) -> tuple[str, int] | None:
    """The type of ncu's counter that an instruction feeds and what a warp adds to it; None for other instructions."""
    if i.op not in ("mma", "wmma") or (i.op == "wmma" and "mma" not in i.mods):
        return None
    kind = i.types[1] if len(i.types) == 4 else "f16"
    name = {"bf16": "bf16_dst_fp32", "f16": "fp16", "tf32": "tf32_dst_fp32", "f64": "fp64"}.get(kind, "int8")
    m, n, k = _shape(i)
    return name, 2 * m * n * k


def smallest_access(i: Instruction) -> int:
    """Bytes of the smallest access that a wmma, ldmatrix or stmatrix instruction may make."""
    return 1 if i.types and i.types[-1] in ("s8", "u8") else 4


def _shape(i: Instruction) -> tuple[int, int, int]:
    for word in i.mods:
        if found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word):
            return tuple(map(int, found.groups()))
    raise ops.Unsupported(i.text)


# ---------------------------------------------------------------------------- layouts


@cache
def mma_layout(matrix: str, m: int, n: int, k: int, kind: str) -> np.ndarray:
    """Element numbers (row * columns + column) by lane and place in the registers, of mma.sync's fragments."""
    group, quad = LANE >> 2, LANE & 3
    places = []
    if matrix == "c":
        for r in range(m * n // 32):
            places.append((group + 8 * (r >> 1)) * n + 2 * quad + (r & 1))
        return np.stack(places, axis=1)
    per = max(1, 4 // BYTES[kind])
    for r in range((m if matrix == "a" else n) * k // 32 // per):
        for j in range(per):
            if matrix == "b":
                places.append((4 * per * r + per * quad + j) * n + group)
                continue
            block, half = (r >> 1, r & 1) if m == 16 else (r, 0)
            places.append((group + 8 * half) * k + 4 * per * block + per * quad + j)
    return np.stack(places, axis=1)


@cache
def _recorded() -> dict[str, np.ndarray]:
    table = json.loads((Path(__file__).parent / "wmma_layouts.json").read_text())["layouts"]
    return {name: np.array(places) for name, places in table.items()}


def wmma_layout(matrix: str, shape: tuple[int, int, int], kind: str) -> np.ndarray:
    """As `mma_layout`, of wmma's fragments; an element may be held twice. Raises Unsupported for another shape."""
    m, n, k = shape
    found = _recorded().get(f"{matrix} m{m}n{n}k{k} {kind}")
    if found is None:
        raise ops.Unsupported(f"wmma m{m}n{n}k{k} of {kind}")
    return found


@dataclass(frozen=True)
class Piece:
    """One access that moves part of a matrix: for each lane (-1: none) its first element's place along the lines
    of memory and across them, `count` elements on from it, and their numbers in the matrix, (32, count)."""

    line: np.ndarray
    place: np.ndarray
    count: int
    elements: np.ndarray


@cache
def pieces(matrix: str, shape: tuple[int, int, int], kind: str, row_major: bool, shared: bool) -> tuple[Piece, ...]:
    """The accesses by which the hardware moves a wmma matrix, as ptxas writes them for sm_90.

    Tiles of 8 lines of 16 bytes go by ldmatrix out of shared memory, by 4 bytes a lane elsewhere, and are transposed
    in registers where need be; what does not fit such tiles goes element by element, or two at a time.
    """
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[matrix]
    size = BYTES[kind]
    layout = wmma_layout(matrix, shape, kind)
    row, column = layout // columns, layout % columns
    line, place = (row, column) if row_major else (column, row)
    length, lines = (columns, rows) if row_major else (rows, columns)

    def piece(line: np.ndarray, place: np.ndarray, count: int) -> Piece:
        along = place[:, None] + np.arange(count)
        across = np.broadcast_to(line[:, None], along.shape)
        return Piece(line, place, count, across * columns + along if row_major else along * columns + across)

    whole = size == 1 and (line[:, :4] == line[:, :1]).all() and (np.diff(place[:, :4]) == 1).all()
    if size == 2 or whole:
        tiles = [(first, at) for first in range(0, lines, 8) for at in range(0, length, 16 // size)]
        if not shared or matrix == "c":
            return tuple(piece(first + LANE // 4, at + LANE % 4 * (4 // size), 4 // size) for first, at in tiles)
        found = []
        for start in range(0, len(tiles), 4):
            some = tiles[start : start + 4]
            tile = LANE // 8 % len(some)
            active = LANE < 8 * len(some)
            first, at = np.array(some)[tile].T
            found.append(piece(np.where(active, first + LANE % 8, -1), at, 16 // size))
        return tuple(found)
    found, slot = [], 0
    while slot < layout.shape[1]:
        pair = size > 1 and slot + 1 < layout.shape[1]
        pair = pair and (line[:, slot + 1] == line[:, slot]).all() and (place[:, slot + 1] == place[:, slot] + 1).all()
        found.append(piece(line[:, slot], place[:, slot], 1 + pair))
        slot += 1 + pair
    return tuple(found)


# ---------------------------------------------------------------------------- registers


def _items(operand: object) -> tuple:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _sources(c: Compiler, operand: object, kind: str) -> list:
    return [c.source(o, "b64" if kind == "f64" else "b32") for o in _items(operand)]


def _targets(c: Compiler, operand: object, kind: str) -> list:
    return [c.destination(o, "b64" if kind == "f64" else "b32") for o in _items(operand)]


def _read(m: Machine, sources: list, warps: np.ndarray) -> np.ndarray:
    """The registers of some warps as (warps, 32, registers)."""
    lanes = (m.chunk.lanes,)
    values = [np.broadcast_to(m.R[s] if get is None else get(m.R[s]), lanes) for s, get in sources]
    return np.stack([v.reshape(-1, 32)[warps] for v in values], axis=2)


def _write(m: Machine, targets: list, values: np.ndarray, warps: np.ndarray, mask: Mask) -> None:
    """`values` as (warps, 32, registers) to the registers of those warps."""
    for k, target in enumerate(targets):
        full = np.zeros((m.chunk.lanes // 32, 32), values.dtype)
        full[warps] = values[:, :, k]
        m.put(target, full.ravel(), mask)


def _warps(m: Machine, mask: Mask, i: Instruction) -> np.ndarray:
    """The warps of a mask; all their lanes must be there."""
    lanes = np.count_nonzero(mask.where.reshape(-1, 32), axis=1)
    short = (lanes > 0) & (lanes < 32)
    if short.any():
        warp = int(np.argmax(short))
        who = m.who(int(np.argmax(mask.where.reshape(-1, 32)[warp])) + 32 * warp)
        raise m.fault(
            "barrier",
            f"{i.op} is reached by {int(lanes[warp])} of 32 threads of the warp of thread {who['thread']} of block"
            f" {who['block']}",
            "All 32 threads of a warp must execute it together: take it out of the branch, and give blocks a multiple"
            " of 32 threads.",
            pc=i.index,
            **who,
        )
    return np.flatnonzero(lanes)


def _matrix(registers: np.ndarray, kind: str, layout: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Registers (warps, 32, n) to bits of matrices (warps, rows, columns)."""
    elements = np.ascontiguousarray(registers).view(f"u{BYTES[kind]}")
    out = np.empty((len(elements), rows * columns), elements.dtype)
    out[:, layout.ravel()] = elements.reshape(len(elements), -1)
    return out.reshape(-1, rows, columns)


def _fragments(bits: np.ndarray, layout: np.ndarray) -> np.ndarray:
    """Bits of matrices to registers (warps, 32, n) of 32 bits, or 64 for float64."""
    flat = bits.reshape(len(bits), -1)
    word = "u8" if bits.dtype.itemsize == 8 else "u4"
    return np.ascontiguousarray(flat[:, layout.ravel()].reshape(len(bits), 32, -1)).view(word)


# ---------------------------------------------------------------------------- products


def _numbers(bits: np.ndarray, kind: str) -> np.ndarray:
    """Elements as float64, integers as float64 too: both exactly. tf32 is a float32 whose last 13 bits do not count."""
    if kind in ("f16", "bf16"):
        return ops.from_half(bits, kind).astype(f64)
    if kind == "tf32":
        return (bits & u32(0xFFFFE000)).view(f32).astype(f64)
    return bits.view({"f32": f32, "f64": f64, "s32": np.int32, "s8": np.int8, "u8": np.uint8}[kind]).astype(f64)


def _exponents(x: np.ndarray, least: int) -> np.ndarray:
    """Exponents as a number format writes them; of 0 one that is below all others."""
    return np.where(x == 0, -2000, np.maximum(np.frexp(x)[1] - 1, least)).astype(np.int32)


LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126}


def fused_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str, result: str) -> np.ndarray:
    """c + a @ b, (warps, m, k) times (warps, k, n), in float64 from numbers of `kind`; the bits of type `result`.

    See the head of this file for how it rounds.
    """
    ea, eb = _exponents(a, LEAST[kind]), _exponents(b, LEAST[kind])
    top = _exponents(c, LEAST[result])
    depth = range(a.shape[2])
    for k in depth:
        np.maximum(top, ea[:, :, k, None] + eb[:, k, None, :], out=top)
    shift = 25 - np.maximum(top, -500)
    scale = np.ldexp(1.0, shift)
    total = np.trunc(c * scale)
    for k in depth:
        total += np.trunc(a[:, :, k, None] * b[:, k, None, :] * scale)
    total = np.ldexp(total, -shift)
    finite = np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all()
    if not finite:
        plain = np.matmul(a, b) + c
        total = np.where(np.isfinite(plain), total, plain)
    if result == "f16":
        return ops.to_half(ops._odd32(total), "f16")
    cut = ops._directed(total, f64(0), "rz")
    cut = np.where(np.abs(total) >= 2.0**128, np.copysign(f32(np.inf), cut), cut)
    return np.where(np.isnan(total), ops.NAN32, cut).view(u32)


def product(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: tuple[str, str, str, str], depth: int, saturate: bool
) -> np.ndarray:
    """Bits of d = a @ b + c from bits; `kinds` of d, a, b, c; `depth` products are summed at a time."""
    result, ka, kb, kc = kinds
    x, y = _numbers(a, ka), _numbers(b, kb)
    if result == "s32":
        total = np.matmul(x, y).astype(s64) + c.view(np.int32)
        if saturate:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return total.astype(u32)
    if result == "f64":
        total = c.view(f64)
        for k in range(x.shape[2]):
            total = ops.fma64(x[:, :, k, None], y[:, k, None, :], total)
        return total.view(np.uint64)
    for k in range(0, x.shape[2], depth):
        c = fused_sum(x[:, :, k : k + depth], y[:, k : k + depth], _numbers(c, kc), ka, result)
        kc = result
    return c


def mma(c: Compiler, i: Instruction) -> Callable:
    """mma.sync and wmma.mma."""
    words = set(i.mods)
    if words & set(MISSING):
        return lacking(c, i, f"{i.op} with {', '.join(sorted(words & set(MISSING)))}")
    m, n, k = shape = _shape(i)
    if i.op == "wmma":
        kinds = i.types if len(i.types) == 4 else (i.types[0], "f16", "f16", i.types[1])
        layouts = {x: wmma_layout(x, shape, t) for x, t in zip("dabc", kinds, strict=True) if x != "d"}
        layouts["d"] = wmma_layout("c", shape, kinds[0])
        ways = [w for w in i.mods if w in ("row", "col")]
        depth = 4 if kinds[1] == "tf32" else k
    else:
        kinds = i.types
        if len(kinds) != 4 or f"m{m}n{n}k{k}" not in MMA.get(kinds[1], ()):
            return lacking(c, i, f"{i.op} of this shape and these types")
        layouts = {x: mma_layout(x, m, n, k, kinds["dabc".index(x)]) for x in "abc"}
        layouts["d"] = mma_layout("c", m, n, k, kinds[0])
        ways = [w for w in i.mods if w in ("row", "col")]
        depth = k
        if ways != ["row", "col"]:
            raise ops.Unsupported(i.text)
    sides = {"a": (m, k), "b": (k, n), "c": (m, n)}
    target = _targets(c, i.operands[0], kinds[0])
    sources = {x: _sources(c, o, t) for x, o, t in zip("abc", i.operands[1:4], kinds[1:], strict=True)}
    for x, held in (("d", target), *sources.items()):
        kind = kinds["dabc".index(x)]
        if len(held) != layouts[x].shape[1] * BYTES[kind] // max(4, BYTES[kind]):
            raise ops.Unsupported(i.text)
    saturate = "satfinite" in words

    def step(machine: Machine, mask: Mask) -> None:
        warps = _warps(machine, mask, i)
        bits = [
            _matrix(_read(machine, sources[x], warps), t, layouts[x], *sides[x])
            for x, t in zip("abc", kinds[1:], strict=True)
        ]
        result = product(*bits, kinds, depth, saturate)
        _write(machine, target, _fragments(result, layouts["d"]), warps, mask)

    return meeting(i.index, c.source(EVERYBODY, "b32"), step)


# ---------------------------------------------------------------------------- matrices in memory


def _access(c: Compiler, i: Instruction, kind: str, operand: object, size: int, count: int) -> tuple[Access, int, int]:
    spaces = tuple(w for w in i.mods if w.split("::")[0] in ("shared", "global"))
    plain = replace(i, mods=spaces, types=(f"b{8 * size}",))
    return c.access(plain, kind, operand, count)


def _load(m: Machine, access: Access, address: np.ndarray, mask: Mask) -> list[np.ndarray]:
    """The elements that an access reads, each an array over all lanes."""
    place = m.place(access, address, mask)
    if m.sanitize:
        if place.space == "shared":
            m.watch_read(access, place)
        elif place.space == "global" and place.watched != ():
            m.globals.read(access, place)
    if m.watch:
        m.report(access, place, mask)
    if place.view is None:
        return [m.gather(access, place, k) for k in range(access.count)]
    return [np.broadcast_to(place.view[place.index + k], (m.chunk.lanes,)) for k in range(access.count)]


def _store(m: Machine, access: Access, address: np.ndarray, mask: Mask, values: list[np.ndarray]) -> None:
    """Write elements, each an array over the mask's lanes."""
    place = m.place(access, address, mask)
    if m.watch:
        m.report(access, place, mask)
    if m.sanitize and place.space == "global":
        m.globals.write(access, place, values)
    if place.view is None:
        m.scatter(place, values)
        return
    index = np.broadcast_to(place.active, (mask.threads,))
    if m.shadow is not None and place.space == "shared":
        m.watch_write(access, place, [place.view[index + k] for k in range(access.count)], values, atomic=False)
    for k, value in enumerate(values):
        place.view[index + k] = value


def _tiles(i: Instruction) -> tuple[int, bool]:
    """How many 8x8 matrices an ldmatrix or stmatrix moves, and whether transposed."""
    words = set(i.mods) - {"sync", "aligned", "shared", "shared::cta"}
    count = next((n for n in (1, 2, 4) if f"x{n}" in words), 0)
    if not count or i.types != ("b16",) or words - {f"x{count}", "trans", "m8n8"} or "m8n8" not in words:
        raise ops.Unsupported(i.text)
    return count, "trans" in words


def _row_lanes(m: Machine, mask: Mask, count: int) -> Mask:
    """The lanes that give the addresses of rows."""
    return mask if count == 4 else m.narrow(mask, np.arange(m.chunk.lanes) % 32 < 8 * count)


def ldmatrix(c: Compiler, i: Instruction) -> Callable:
    """8x8 matrices of 16-bit elements; lane 8t + r gives the address of row r of matrix t, 16 bytes."""
    count, transposed = _tiles(i)
    access, slot, offset = _access(c, i, "ld", i.operands[1], 4, 4)
    target = _targets(c, i.operands[0], "b16")
    if len(target) != count:
        raise ops.Unsupported(i.text)

    def step(m: Machine, mask: Mask) -> None:
        warps = _warps(m, mask, i)
        words = _load(m, access, m.address(i.index, slot, offset), _row_lanes(m, mask, count))
        rows = np.stack(words, axis=1).reshape(-1, 32, 4)[warps, : 8 * count]
        _write(m, target, _spread(np.ascontiguousarray(rows).view(u16), transposed), warps, mask)

    return meeting(i.index, c.source(EVERYBODY, "b32"), step)


def _spread(rows: np.ndarray, transposed: bool) -> np.ndarray:
    """Rows (warps, 8n, 8) of 16-bit elements to registers (warps, 32, n): lane 4r + q holds row r, columns 2q, 2q+1."""
    tiles = rows.reshape(len(rows), -1, 8, 8)
    if transposed:
        tiles = tiles.swapaxes(2, 3)
    held = np.ascontiguousarray(tiles).view(u32).reshape(len(rows), -1, 32)
    return held.swapaxes(1, 2)


def _collect(registers: np.ndarray, transposed: bool) -> np.ndarray:
    """The inverse of `_spread`: registers (warps, 32, n) to rows (warps, 8n, 8)."""
    tiles = np.ascontiguousarray(registers.swapaxes(1, 2)).view(u16).reshape(len(registers), -1, 8, 8)
    if transposed:
        tiles = tiles.swapaxes(2, 3)
    return np.ascontiguousarray(tiles).reshape(len(registers), -1, 8)


def stmatrix(c: Compiler, i: Instruction) -> Callable:
    """The reverse of ldmatrix."""
    count, transposed = _tiles(i)
    access, slot, offset = _access(c, i, "st", i.operands[0], 4, 4)
    sources = _sources(c, i.operands[1], "b16")
    if len(sources) != count:
        raise ops.Unsupported(i.text)

    def step(m: Machine, mask: Mask) -> None:
        warps = _warps(m, mask, i)
        words = _collect(_read(m, sources, warps), transposed).view(u32).reshape(-1, 4)
        giving = _row_lanes(m, mask, count)
        _store(m, access, m.address(i.index, slot, offset), giving, list(words.T))

    return meeting(i.index, c.source(EVERYBODY, "b32"), step)


def movmatrix(c: Compiler, i: Instruction) -> Callable:
    """An 8x8 matrix of 16-bit elements transposed in registers."""
    if i.types != ("b16",) or "trans" not in i.mods:
        raise ops.Unsupported(i.text)
    target, sources = _targets(c, i.operands[0], "b16"), _sources(c, i.operands[1], "b16")

    def step(m: Machine, mask: Mask) -> None:
        warps = _warps(m, mask, i)
        rows = _collect(_read(m, sources, warps), False)
        _write(m, target, _spread(rows, True), warps, mask)

    return meeting(i.index, c.source(EVERYBODY, "b32"), step)


def wmma(c: Compiler, i: Instruction) -> Callable:
    """wmma.load, wmma.store and wmma.mma."""
    if "mma" in i.mods:
        return mma(c, i)
    shape, kind = _shape(i), i.types[-1]
    m_, n_, k_ = shape
    loads = "load" in i.mods
    matrix = next(w for w in i.mods if w in ("a", "b", "c", "d")).replace("d", "c")
    row_major = "row" in i.mods
    rows, columns = {"a": (m_, k_), "b": (k_, n_), "c": (m_, n_)}[matrix]
    size = BYTES[kind]
    layout = wmma_layout(matrix, shape, kind)
    where, held = i.operands[:2] if not loads else i.operands[1::-1]
    shared = any(w.startswith("shared") for w in i.mods)
    moves = []
    for p in pieces(matrix, shape, kind, row_major, shared):
        access, slot, offset = _access(c, i, "ld" if loads else "st", where, size, p.count)
        moves.append((access, p))
    stride = c.source(i.operands[2], "u32") if len(i.operands) > 2 else None
    packed = columns if row_major else rows
    registers = (_targets if loads else _sources)(c, held, kind)
    if len(registers) != layout.shape[1] * size // max(4, size):
        raise ops.Unsupported(i.text)

    def step(m: Machine, mask: Mask) -> None:
        warps = _warps(m, mask, i)
        base = np.broadcast_to(m.address(i.index, slot, offset), (m.chunk.lanes,))
        ld: object = s64(packed)
        if stride is not None:
            s, get = stride
            ld = (m.R[s] if get is None else get(m.R[s])).astype(s64)
        ld = np.broadcast_to(ld, (m.chunk.lanes,))
        _aligned(m, i, mask, base, ld, size, min(16, packed * size))
        matrices = np.zeros((len(warps), rows * columns), f"u{size}")
        if not loads:
            bits = _matrix(_read(m, registers, warps), kind, layout, rows, columns)
            matrices = bits.reshape(len(warps), -1)
        for access, p in moves:
            repeat = (m.chunk.lanes // 32,)
            address = base + (np.tile(p.line, repeat) * ld + np.tile(p.place, repeat)) * size
            active = p.line >= 0
            some = mask if active.all() else m.narrow(mask, np.tile(active, repeat))
            if loads:
                values = np.stack(_load(m, access, address, some), axis=1).reshape(-1, 32, p.count)[warps][:, active]
                matrices[:, p.elements[active].ravel()] = values.reshape(len(warps), -1)
            else:
                values = matrices[:, p.elements[active].ravel()].reshape(-1, p.count)
                _store(m, access, address, some, list(values.T))
        if loads:
            _write(m, registers, _fragments(matrices, layout), warps, mask)

    return meeting(i.index, c.source(EVERYBODY, "b32"), step)


def _aligned(m: Machine, i: Instruction, mask: Mask, base: np.ndarray, ld: np.ndarray, size: int, row: int) -> None:
    """What the CUDA C++ Programming Guide asks of the pointer (256 bits) and of the leading dimension (`row` bytes)."""
    bad = mask.where & ((base % 32 != 0) | (ld * size % row != 0))
    if not bad.any():
        return
    lane = int(np.argmax(bad))
    who = m.who(lane)
    verb = "loads" if "load" in i.mods else "stores"
    what = f"a leading dimension of {int(ld[lane])} elements, not a multiple of {row} bytes"
    if base[lane] % 32:
        what = f"an address that is {int(base[lane] % 32)} bytes past a multiple of 32 bytes"
    raise m.fault(
        "misaligned",
        f"thread {who['thread']} of block {who['block']} {verb} a matrix with {what}",
        f"wmma needs pointers that are multiples of 32 bytes and rows that are multiples of {row} bytes apart.",
        pc=i.index,
        address=int(base[lane]),
        **who,
    )


# ---------------------------------------------------------------------------- what is not here


def lacking(c: Compiler, i: Instruction, what: str) -> Callable:
    """A step that says what the emulator lacks."""

    def step(m: Machine, mask: Mask) -> None:
        raise m.fault(
            "unsupported",
            f"it uses {what}, which the emulator does not have",
            "Run this kernel on a GPU; on the emulator use mma.sync, wmma, ldmatrix and cp.async.",
            pc=i.index,
        )

    return step


def hopper(c: Compiler, i: Instruction) -> Callable:
    """Instructions of sm_90a and of clusters, each named for what it belongs to."""
    words = {i.op, *i.mods}
    if i.op.startswith("wgmma"):
        return lacking(c, i, "wgmma (the tensor cores' warpgroup instructions)")
    if i.op == "mbarrier":
        return lacking(c, i, "mbarrier (barriers in shared memory)")
    if words & {"bulk", "tensor"}:
        return lacking(c, i, "TMA (the bulk copies cp.async.bulk and tensor maps)")
    if words & {"cluster", "mapa", "shared::cluster", "getctarank", "multimem"}:
        return lacking(c, i, "thread block clusters")
    if i.op == "setmaxnreg":
        return lacking(c, i, "setmaxnreg")
    raise ops.Unsupported(i.text)
