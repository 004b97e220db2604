"""Wide accesses to float16 and int8 arrays for numba.cuda kernels, and the dot product of packed int8.

    a = lk.cuda.load2(array, index)              2 float16 elements from index on, 4 bytes, as a tuple of 2 float32
    a = lk.cuda.load8(array, index)              8 float16 elements from index on, as a tuple of 8 float32
    lk.cuda.store8(array, index, values)         8 float32 values rounded to nearest, as 8 float16 elements
    w = lk.cuda.load16(array, index)             16 int8 elements from index on, as a tuple of 4 int32 words
    c = lk.cuda.dp4a(a, b, c)                    c plus the dot product of the 4 int8 in a with those in b

`array` is a contiguous 1-D array, `index` counts its elements, and the address must be a multiple of 16 bytes (of
load2, 4). Nothing checks bounds, but the emulator does. Any other argument is a numba TypingError that says so.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.cuda.extending import intrinsic

_I32, _F32, _F16 = ir.IntType(32), ir.FloatType(), ir.HalfType()
_TWO = types.UniTuple(types.float32, 2)
_EIGHT = types.UniTuple(types.float32, 8)
_WORDS = types.UniTuple(types.int32, 4)


def _check(name: str, array: Any, index: Any, dtype: str) -> None:
    if not (isinstance(array, types.Array) and array.ndim == 1 and str(array.dtype) == dtype):
        raise TypingError(f"{name} takes a 1-D {dtype} array, not {array}; a matrix has a view, A.reshape(-1).")
    if array.layout != "C":
        raise TypingError(f"{name} takes a contiguous array, not one with strides.")
    if not isinstance(index, types.Integer):
        raise TypingError(f"{name} takes an integer index, not {index}.")


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: ir.VectorType) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer(data.type.addrspace))


def _lane(number: int) -> ir.Constant:
    return ir.Constant(_I32, number)


def _halves(context: Any, builder: Any, signature: Any, args: Any, count: int) -> Any:
    """`count` float16 elements in one access, widened."""
    pointer = _pointer(context, builder, signature.args[0], *args, ir.VectorType(_F16, count))
    vector = builder.load(pointer, align=2 * count)
    halves = [builder.extract_element(vector, _lane(i)) for i in range(count)]
    return cgutils.pack_array(builder, [builder.fpext(half, _F32) for half in halves])


@intrinsic
def load2(typingctx, array, index):
    """The float16 elements index and index + 1 of `array`, read in one 4-byte access, as float32; index is even."""
    _check("load2", array, index, "float16")
    return _TWO(array, index), lambda *how: _halves(*how, 2)


@intrinsic
def load8(typingctx, array, index):
    """The float16 elements index .. index + 7 of `array`, read in one 16-byte access, as float32."""
    _check("load8", array, index, "float16")
    return _EIGHT(array, index), lambda *how: _halves(*how, 8)


@intrinsic
def store8(typingctx, array, index, values):
    """Round 8 float32 `values` to float16 and write them to elements index .. index + 7 in one 16-byte access."""
    _check("store8", array, index, "float16")
    if values != _EIGHT:
        raise TypingError(f"store8 takes a tuple of 8 float32 values, not {values}.")

    def codegen(context, builder, signature, args):
        array, index, values = args
        vector = ir.Constant(ir.VectorType(_F16, 8), ir.Undefined)
        for i, value in enumerate(cgutils.unpack_tuple(builder, values, 8)):
            vector = builder.insert_element(vector, builder.fptrunc(value, _F16), _lane(i))
        pointer = _pointer(context, builder, signature.args[0], array, index, vector.type)
        builder.store(vector, pointer, align=16)
        return context.get_dummy_value()

    return types.void(array, index, values), codegen


@intrinsic
def load16(typingctx, array, index):
    """The int8 elements index .. index + 15 of `array`, read in one 16-byte access, as 4 words of 4 each."""
    _check("load16", array, index, "int8")

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], *args, ir.VectorType(_I32, 4))
        vector = builder.load(pointer, align=16)
        return cgutils.pack_array(builder, [builder.extract_element(vector, _lane(i)) for i in range(4)])

    return _WORDS(array, index), codegen


@intrinsic
def dp4a(typingctx, a, b, c):
    """c + a0 b0 + a1 b1 + a2 b2 + a3 b3 of the signed bytes in the int32 words a and b: one instruction."""
    for value in (a, b, c):
        if not (isinstance(value, types.Integer) and value.bitwidth == 32):
            raise TypingError(f"dp4a takes three int32 values, not {value}; convert with int32(...).")

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I32, [_I32] * 3)
        code = ir.InlineAsm(kind, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", side_effect=False)
        return builder.call(code, args)

    return types.int32(a, b, c), codegen
