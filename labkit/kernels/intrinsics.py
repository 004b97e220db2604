"""16-byte memory accesses for numba.cuda kernels, for which numba itself has no expression.

    a, b, c, d = lk.cuda.load4(array, index)
    lk.cuda.store4(array, index, (a, b, c, d))

`array` is a contiguous 1-D float32 array in global or shared memory, `index` counts elements. The address must
be a multiple of 16 bytes: an index that is a multiple of 4 into an array that starts on 16 bytes, as tensors and
shared arrays made with `alignment=16` do. As with any element access in numba, nothing checks bounds.

The call becomes one `ld.global.v4.f32` or `st.shared.v4.f32` (`ld.v4.f32` where the compiler cannot tell the
memory). Any other array, dtype or value is a numba TypingError that says so.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.cuda.extending import intrinsic

from labkit.kernels.packed_intrinsics import dp4a, load2, load8, load16, store8
from labkit.kernels.tensor_intrinsics import (
    cp_async,
    cp_async_commit,
    cp_async_wait,
    exp2_approx,
    ldmatrix,
    ldmatrix_transposed,
    lop3,
    mma_m16n8k16,
    mma_m16n8k16_bf16,
    mma_m16n8k32,
    movmatrix_transposed,
    pack_bf16x2,
    pack_f16x2,
    unpack_f16x2,
)

__all__ = [
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "dp4a",
    "exp2_approx",
    "ldmatrix",
    "ldmatrix_transposed",
    "load2",
    "load4",
    "load8",
    "load16",
    "lop3",
    "mma_m16n8k16",
    "mma_m16n8k16_bf16",
    "mma_m16n8k32",
    "movmatrix_transposed",
    "pack_bf16x2",
    "pack_f16x2",
    "store4",
    "store8",
    "unpack_f16x2",
]

_VALUES = types.UniTuple(types.float32, 4)
_VECTOR = ir.VectorType(ir.FloatType(), 4)


def _check(name: str, array: Any, index: Any) -> None:
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.float32):
        raise TypingError(
            f"{name} takes a 1-D float32 array, not {array}; a matrix has a view, A.reshape(-1)."
        )
    if array.layout != "C":
        raise TypingError(f"{name} takes a contiguous array, not one with strides.")
    if not isinstance(index, types.Integer):
        raise TypingError(f"{name} takes an integer index, not {index}.")


def _vector_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    element = builder.gep(data, [index])
    return builder.bitcast(element, _VECTOR.as_pointer(data.type.addrspace))


@intrinsic
def load4(typingctx, array, index):
    """The float32 elements index .. index + 3 of `array`, read in one 16-byte access."""
    _check("load4", array, index)

    def codegen(context, builder, signature, args):
        pointer = _vector_pointer(context, builder, signature.args[0], *args)
        vector = builder.load(pointer, align=16)
        lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return cgutils.pack_array(builder, lanes)

    return _VALUES(array, index), codegen


@intrinsic
def store4(typingctx, array, index, values):
    """Write 4 float32 `values` to elements index .. index + 3 of `array` in one 16-byte access."""
    _check("store4", array, index)
    if values != _VALUES:
        raise TypingError(f"store4 takes a tuple of 4 float32 values, not {values}.")

    def codegen(context, builder, signature, args):
        array, index, values = args
        vector = ir.Constant(_VECTOR, ir.Undefined)
        for i, value in enumerate(cgutils.unpack_tuple(builder, values, 4)):
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), i))
        pointer = _vector_pointer(context, builder, signature.args[0], array, index)
        builder.store(vector, pointer, align=16)
        return context.get_dummy_value()

    return types.void(array, index, values), codegen
