"""Ask for memory before it is needed: what hides the wait in loops that jump about in large arrays."""

# pyright: basic
from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def prefetch(typingctx, array, position):
    """Ask for the cache line of ``array[position]`` (flat) without waiting for it. For compiled loops only.

    Example:
        >>> import numpy as np
        >>> from sciscidata.compiled import kernel
        >>> @kernel
        ... def last(numbers):
        ...     prefetch(numbers, numbers.size - 1)
        ...     return numbers[numbers.size - 1]
        >>> last(np.arange(3))
        2
    """

    def generate(context, builder, signature, arguments):
        layout = signature.args[0]
        data = context.make_array(layout)(context, builder, arguments[0]).data
        item = builder.bitcast(data, context.get_value_type(layout.dtype).as_pointer())
        address = builder.bitcast(builder.gep(item, [arguments[1]]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, i32(0), i32(3), i32(1)])  # for reading, keep, data
        return context.get_dummy_value()

    return types.void(array, position), generate
