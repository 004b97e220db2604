"""Tensor cores and asynchronous copies for numba.cuda kernels: one PTX instruction each.

    a = lk.cuda.ldmatrix(tile, i)                    four 8 x 8 matrices of 16-bit elements from shared memory
    b = lk.cuda.ldmatrix_transposed(tile, i)         the same, each turned round
    c = lk.cuda.mma_m16n8k16(a, (b[0], b[1]), c)     c + a @ b, float16 in, float32 sums
    c = lk.cuda.mma_m16n8k16_bf16(a, b, c)           the same of bfloat16
    c = lk.cuda.mma_m16n8k32(a, b, c)                the same of int8 in, int32 sums
    t = lk.cuda.movmatrix_transposed(w)              an 8 x 8 matrix of 16-bit elements turned round in registers
    w = lk.cuda.pack_f16x2(low, high)                two float32 rounded to float16, as a fragment holds them
    w = lk.cuda.pack_bf16x2(low, high)               ... and to bfloat16
    low, high = lk.cuda.unpack_f16x2(w)              the two float16 of a uint32, as float32
    w = lk.cuda.lop3(a, b, c, 0xEA)                  (a & b) | c in one instruction; 0xF0 & 0xCC | 0xAA says what
    y = lk.cuda.exp2_approx(x)                       2 to the x by one instruction, 0 for -inf
    lk.cuda.cp_async(tile, i, A, j, n)               start copying n of 16 bytes, zeros for the rest
    lk.cuda.cp_async_commit()                        what was started is a group
    lk.cuda.cp_async_wait(n)                         until at most n groups are on their way

Fragments are tuples of uint32, two float16 or bfloat16, or four int8 in each. With g = lane // 4 and q = lane % 4, a
lane holds

    c   (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
    a   of m16n8k16: (g, 2q..2q+1), (g + 8, same), (g, 2q + 8..2q + 9), (g + 8, same)
        of m16n8k32: (g, 4q..4q+3), (g + 8, same), (g, 4q + 16..4q + 19), (g + 8, same)
    b   of m16n8k16: (2q..2q+1, g), (2q + 8..2q + 9, g)
        of m16n8k32: (4q..4q+3, g), (4q + 16..4q + 19, g)

as (row, column), after the PTX manual, "Matrix Fragments for mma". All of a warp's lanes take part. Lane n of ldmatrix
says where row n % 8 of matrix n / 8 begins, an element's index into a 1-D shared array, on 16 bytes; it receives of
matrix m, as element m of the tuple, the pair of row g at columns 2q and 2q + 1 (transposed: of column g at rows 2q and
2q + 1). movmatrix takes the pair of row g at columns 2q and 2q + 1 from each lane, and gives that of column g at rows
2q and 2q + 1. Indices count elements; nothing checks bounds, but the emulator does. Any other argument is a numba
TypingError that says so. They need an Ampere GPU or newer.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.cuda.extending import intrinsic

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORD = types.uint32


def _array(name: str, array: Any, index: Any, widths: tuple[int, ...]) -> None:
    *most, last = (str(8 * width) for width in widths)
    sizes = f"{', '.join(most)} or {last}"
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.dtype.bitwidth // 8 in widths):
        raise TypingError(f"{name} takes a 1-D array of {sizes}-bit elements, not {array}.")
    if array.layout != "C":
        raise TypingError(f"{name} takes a contiguous array, not one with strides.")
    if not isinstance(index, types.Integer):
        raise TypingError(f"{name} takes an integer index, not {index}.")


def _tuple(name: str, what: str, value: Any, wanted: Any) -> None:
    if not (isinstance(value, types.UniTuple) and value.count == wanted.count and value.dtype == wanted.dtype):
        raise TypingError(f"{name} takes {what} as a tuple of {wanted.count} {wanted.dtype}, not {value}.")


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, index_type: Any) -> Any:
    """The generic address of an element, as 64 bits."""
    data = context.make_array(array_type)(context, builder, array).data
    wide = context.cast(builder, index, index_type, types.int64)
    return builder.ptrtoint(builder.gep(data, [wide]), _I64)


def _asm(builder: Any, text: str, constraints: str, result: Any, args: list[Any]) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    constraints = ",".join(filter(None, (constraints, "~{memory}")))
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), args)


def _results(builder: Any, found: Any, count: int) -> Any:
    return cgutils.pack_array(builder, [builder.extract_value(found, i) for i in range(count)])


def _ldmatrix(name: str, mods: str):
    def typed(typingctx, array, index):
        _array(name, array, index, (1, 2, 4))

        def codegen(context, builder, signature, args):
            at = _address(context, builder, signature.args[0], args[0], args[1], signature.args[1])
            text = (
                "{ .reg .u64 p; .reg .u32 s; cvta.to.shared.u64 p, $4; cvt.u32.u64 s, p; "
                f"ldmatrix.sync.aligned.m8n8.x4{mods}.shared.b16 {{$0, $1, $2, $3}}, [s]; }}"
            )
            found = _asm(builder, text, "=r,=r,=r,=r,l", ir.LiteralStructType([_I32] * 4), [at])
            return _results(builder, found, 4)

        return types.UniTuple(_WORD, 4)(array, index), codegen

    return typed


@intrinsic
def ldmatrix(typingctx, array, index):
    """Four 8 x 8 matrices of 16-bit elements from shared memory, as a tuple of 4 uint32."""
    return _ldmatrix("ldmatrix", "")(typingctx, array, index)


@intrinsic
def ldmatrix_transposed(typingctx, array, index):
    """Four 8 x 8 matrices of 16-bit elements from shared memory, each transposed, as a tuple of 4 uint32."""
    return _ldmatrix("ldmatrix_transposed", ".trans")(typingctx, array, index)


def _mma(name: str, kind: str, result: Any, llvm: Any, letter: str):
    def typed(typingctx, a, b, c):
        _tuple(name, "a", a, types.UniTuple(_WORD, 4))
        _tuple(name, "b", b, types.UniTuple(_WORD, 2))
        _tuple(name, "c", c, types.UniTuple(result, 4))

        def codegen(context, builder, signature, args):
            sized = zip(args, (4, 2, 4), strict=True)
            parts = [part for value, size in sized for part in cgutils.unpack_tuple(builder, value, size)]
            text = (
                f"mma.sync.aligned.{kind} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
            )
            wanted = ",".join([f"={letter}"] * 4 + ["r"] * 6 + [letter] * 4)
            found = _asm(builder, text, wanted, ir.LiteralStructType([llvm] * 4), parts)
            return _results(builder, found, 4)

        return types.UniTuple(result, 4)(a, b, c), codegen

    return typed


@intrinsic
def mma_m16n8k16(typingctx, a, b, c):
    """c + a @ b for float16 a (16 x 16) and b (16 x 8), sums in float32: tuples of 4 uint32, 2 uint32, 4 float32."""
    kind = "m16n8k16.row.col.f32.f16.f16.f32"
    return _mma("mma_m16n8k16", kind, types.float32, _F32, "f")(typingctx, a, b, c)


@intrinsic
def mma_m16n8k16_bf16(typingctx, a, b, c):
    """c + a @ b for bfloat16 a (16 x 16) and b (16 x 8), sums in float32: tuples of 4 uint32, 2 uint32, 4 float32."""
    kind = "m16n8k16.row.col.f32.bf16.bf16.f32"
    return _mma("mma_m16n8k16_bf16", kind, types.float32, _F32, "f")(typingctx, a, b, c)


@intrinsic
def mma_m16n8k32(typingctx, a, b, c):
    """c + a @ b for int8 a (16 x 32) and b (32 x 8), sums in int32: tuples of 4 uint32, 2 uint32, 4 int32."""
    kind = "m16n8k32.row.col.s32.s8.s8.s32"
    return _mma("mma_m16n8k32", kind, types.int32, _I32, "r")(typingctx, a, b, c)


@intrinsic
def movmatrix_transposed(typingctx, word):
    """An 8 x 8 matrix of 16-bit elements, a row's pair in each lane's uint32, transposed among the warp's lanes."""
    if word != _WORD:
        raise TypingError(f"movmatrix_transposed takes a uint32, not {word}.")

    def codegen(context, builder, signature, args):
        return _asm(builder, "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", _I32, list(args))

    return _WORD(word), codegen


def _floats(name: str, args: tuple[Any, ...]) -> None:
    for arg in args:
        if arg != types.float32:
            raise TypingError(f"{name} takes float32, not {arg}.")


@intrinsic
def pack_f16x2(typingctx, low, high):
    """Two float32 rounded to float16, `low` in the low half of a uint32."""
    _floats("pack_f16x2", (low, high))

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I32, [_F32, _F32])
        return builder.call(ir.InlineAsm(kind, "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f"), args)

    return _WORD(low, high), codegen


@intrinsic
def pack_bf16x2(typingctx, low, high):
    """Two float32 rounded to bfloat16, `low` in the low half of a uint32."""
    _floats("pack_bf16x2", (low, high))

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I32, [_F32, _F32])
        return builder.call(ir.InlineAsm(kind, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f"), args)

    return _WORD(low, high), codegen


@intrinsic
def unpack_f16x2(typingctx, word):
    """The two float16 of a uint32, that in the low half first, as float32."""
    if word != _WORD:
        raise TypingError(f"unpack_f16x2 takes a uint32, not {word}.")

    def codegen(context, builder, signature, args):
        halves = builder.bitcast(args[0], ir.VectorType(ir.HalfType(), 2))
        parts = [builder.extract_element(halves, ir.Constant(_I32, i)) for i in range(2)]
        return cgutils.pack_array(builder, [builder.fpext(part, _F32) for part in parts])

    return types.UniTuple(types.float32, 2)(word), codegen


@intrinsic
def lop3(typingctx, a, b, c, table):
    """Bitwise function of three uint32: the constant `table` is its value at a = 0xF0, b = 0xCC, c = 0xAA."""
    if any(word != _WORD for word in (a, b, c)):
        raise TypingError(f"lop3 takes three uint32, not {a}, {b} and {c}; convert with uint32(...).")
    if not (isinstance(table, types.IntegerLiteral) and 0 <= table.literal_value < 256):
        raise TypingError(f"lop3 takes a constant table of 0 to 255, not {table}.")

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I32, [_I32] * 3)
        code = f"lop3.b32 $0, $1, $2, $3, {table.literal_value};"
        return builder.call(ir.InlineAsm(kind, code, "=r,r,r,r"), args[:3])

    return _WORD(a, b, c, table), codegen


@intrinsic
def exp2_approx(typingctx, x):
    """2 to the power of a float32, to 2 units in the last place; results below 2**-126 are 0 (ex2.approx.ftz)."""
    _floats("exp2_approx", (x,))

    def codegen(context, builder, signature, args):
        return builder.call(ir.InlineAsm(ir.FunctionType(_F32, [_F32]), "ex2.approx.ftz.f32 $0, $1;", "=f,f"), args)

    return types.float32(x), codegen


@intrinsic
def cp_async(typingctx, to, index, array, start, nbytes):
    """Start copying `nbytes` (0 to 16) from array[start:] to the shared to[index:]; zeros fill up 16 bytes."""
    _array("cp_async", to, index, (1, 2, 4))
    _array("cp_async", array, start, (1, 2, 4))
    if not isinstance(nbytes, types.Integer):
        raise TypingError(f"cp_async takes a number of bytes, not {nbytes}.")

    def codegen(context, builder, signature, args):
        kinds = signature.args
        there = _address(context, builder, kinds[0], args[0], args[1], kinds[1])
        here = _address(context, builder, kinds[2], args[2], args[3], kinds[3])
        count = context.cast(builder, args[4], kinds[4], types.int32)
        text = (
            "{ .reg .u64 p, g; .reg .u32 s; cvta.to.shared.u64 p, $0; cvt.u32.u64 s, p; cvta.to.global.u64 g, $1; "
            "cp.async.cg.shared.global [s], [g], 16, $2; }"
        )
        _asm(builder, text, "l,l,r", ir.VoidType(), [there, here, count])
        return context.get_dummy_value()

    return types.void(to, index, array, start, nbytes), codegen


@intrinsic
def cp_async_commit(typingctx):
    """Make a group of the copies that this thread has started since the last one."""

    def codegen(context, builder, signature, args):
        _asm(builder, "cp.async.commit_group;", "", ir.VoidType(), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cp_async_wait(typingctx, groups):
    """Wait until at most `groups`, a constant, of this thread's groups of copies are on their way."""
    if not isinstance(groups, types.IntegerLiteral):
        raise TypingError(f"cp_async_wait takes a constant number of groups, not {groups}.")

    def codegen(context, builder, signature, args):
        _asm(builder, f"cp.async.wait_group {groups.literal_value};", "", ir.VoidType(), [])
        return context.get_dummy_value()

    return types.void(groups), codegen
