"""Ask for memory before it is needed: what hides the wait in loops that jump about in large arrays."""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# ---------- Sixteen bytes of text at once, for kernels: what numba cannot say in Python.
#
# Words are short: a loop over their bytes spends its time on mispredicted ends. Plain LLVM vectors, hence the same on
# every processor.


WIDTH = 16
_BYTES = ir.VectorType(ir.IntType(8), WIDTH)
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20


def _pointer(context, builder, array_type, array, at):
    first = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(first, [at]), _BYTES.as_pointer())


def _load(context, builder, signature, arguments):
    return builder.load(_pointer(context, builder, signature.args[0], *arguments[:2]), align=1)


def _below(builder, loaded, bound):
    return builder.icmp_unsigned("<", loaded, ir.Constant(_BYTES, [bound] * WIDTH))


def _any_of(builder, loaded, wanted):
    found = ir.Constant(ir.VectorType(ir.IntType(1), WIDTH), [0] * WIDTH)
    for byte in wanted:
        found = builder.or_(found, builder.icmp_unsigned("==", loaded, ir.Constant(_BYTES, [byte] * WIDTH)))
    return found


def _mask(builder, found):
    """One bit per byte, the first byte's the lowest."""
    return builder.zext(builder.bitcast(found, ir.IntType(WIDTH)), ir.IntType(64))


def _count_before(builder, found):
    mask = builder.or_(_mask(builder, found), ir.Constant(ir.IntType(64), 1 << WIDTH))
    return builder.cttz(mask, ir.Constant(ir.IntType(1), 1))


@intrinsic
def plain_bytes(typing, data, at):
    """Count the bytes of ``data[at:at + 16]`` before the first quote, backslash or control character."""

    def build(context, builder, signature, arguments):
        loaded = _load(context, builder, signature, arguments)
        special = builder.or_(_below(builder, loaded, _SPACE), _any_of(builder, loaded, (_QUOTE, _BACKSLASH)))
        return _count_before(builder, special)

    return types.int64(data, at), build


@intrinsic
def spaces_and_oddities(typing, data, at):
    """Mark two things in ``data[at:at + 16]``, a bit per byte: spaces, and from bit 16 on what may need cleaning.

    That is a control character, ``&``, ``<``, or the lead byte of characters among which are odd spaces.
    """

    def build(context, builder, signature, arguments):
        loaded = _load(context, builder, signature, arguments)
        odd = _any_of(builder, loaded, (0x26, 0x3C, 0x7F, 0xC2, 0xE1, 0xE2, 0xE3))
        odd = _mask(builder, builder.or_(_below(builder, loaded, _SPACE), odd))
        spaces = _mask(builder, _any_of(builder, loaded, (_SPACE,)))
        return builder.or_(spaces, builder.shl(odd, ir.Constant(ir.IntType(64), WIDTH)))

    return types.int64(data, at), build


@intrinsic
def copy_wide(typing, source, start, target, at):
    """Copy sixteen bytes, wherever they lie."""

    def build(context, builder, signature, arguments):
        loaded = _load(context, builder, signature, arguments)
        builder.store(loaded, _pointer(context, builder, signature.args[2], *arguments[2:]), align=1)
        return context.get_dummy_value()

    return types.void(source, start, target, at), build


@njit(forceinline=True)
def copy(source, start, length, target, at):
    """Copy bytes; may write up to ``WIDTH`` bytes of rubbish behind them."""
    done = 0
    while done < length and start + done + WIDTH <= len(source):
        copy_wide(source, start + done, target, at + done)
        done += WIDTH
    while done < length:
        target[at + done] = source[start + done]
        done += 1


@intrinsic
def prefetch(typingctx, array, position):
    """Ask for the cache line of ``array[position]`` (flat) without waiting for it. For compiled loops only.

    Example:
        >>> import numpy as np
        >>> from sciscidata._kernels.compile import kernel
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
