"""Compile loops with numba, with what Python cannot say: sixteen bytes at a time, and prefetched memory.

Words are short: a loop over their bytes spends its time on mispredicted ends. These are plain LLVM vectors, so the
result is the same on every processor. Import late: numba loads slowly.
"""

# numba infers types from the calls and reads no annotation; an intrinsic is called without its first argument.
# pyright: basic, reportCallIssue=false
from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

logger = logging.getLogger(__name__)

WIDTH = 16
_BYTES = ir.VectorType(ir.IntType(8), WIDTH)
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20

# No loop divides whole numbers by 0, and C calls none.
_FAST = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, and keep the machine code on disk for later runs.

    Where numba can write neither beside the source nor to the user's cache, every run compiles again, which takes
    seconds. So loops avoid what compiles slowly: NumPy's sort, sums and slices that are assigned to cost up to two
    seconds each, a plain loop next to nothing.
    """
    try:
        return njit(cache=True, **_FAST)(function)
    except RuntimeError as error:
        logger.info("compiled for this run only: %s", error)
        return njit(**_FAST)(function)


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call: without what lets Python call it."""
    return njit(no_cpython_wrapper=True, **_FAST)(function)


class _Compiling(event.Listener):
    """Says once what a run waits for, and stops garbage collection meanwhile, which takes a fifth of the time."""

    was_told = False
    depth, collects = 0, False

    def on_start(self, event: event.Event) -> None:
        self.depth += 1
        function = getattr(event.data["dispatcher"], "py_func", None) if event.data else None
        if self.depth > 1 or not (getattr(function, "__module__", None) or "").startswith("sciscidata."):
            return
        self.collects = gc.isenabled()
        gc.disable()
        if not _Compiling.was_told:
            _Compiling.was_told = True
            logger.info(told := "compiling kernels, once (about 10 s)", extra={"fact": told})

    def on_end(self, event: event.Event) -> None:
        self.depth -= 1
        if self.depth == 0 and self.collects:
            self.collects = False
            gc.enable()


event.register("numba:compile", _Compiling())


def _pointer(context, builder, array_type, array, at):
    first = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(first, [at]), _BYTES.as_pointer())


def _load(context, builder, signature, arguments):
    return builder.load(_pointer(context, builder, signature.args[0], *arguments[:2]), align=1)


@intrinsic
def plain_bytes(typing, data, at):
    """Count the bytes of ``data[at:at + 16]`` before the first quote, backslash or control character."""

    def build(context, builder, signature, arguments):
        loaded = _load(context, builder, signature, arguments)

        def compare(sign, byte):
            return builder.icmp_unsigned(sign, loaded, ir.Constant(_BYTES, [byte] * WIDTH))

        special = builder.or_(compare("<", _SPACE), builder.or_(compare("==", _QUOTE), compare("==", _BACKSLASH)))
        mask = builder.zext(builder.bitcast(special, ir.IntType(WIDTH)), ir.IntType(64))  # a bit per byte
        mask = builder.or_(mask, ir.Constant(ir.IntType(64), 1 << WIDTH))
        return builder.cttz(mask, ir.Constant(ir.IntType(1), 1))

    return types.int64(data, at), build


WORD = 64
_WORD_BYTES = ir.VectorType(ir.IntType(8), WORD)


def _compare_word(sign):
    def typed(typing, data, at, byte):
        def build(context, builder, signature, arguments):
            array, place, value = arguments
            first = context.make_array(signature.args[0])(context, builder, array).data
            loaded = builder.load(builder.bitcast(builder.gep(first, [place]), _WORD_BYTES.as_pointer()), align=1)
            value = builder.trunc(value, ir.IntType(8))
            lane = builder.insert_element(ir.Constant(_WORD_BYTES, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), WORD), [0] * WORD)
            wide = builder.shuffle_vector(lane, ir.Constant(_WORD_BYTES, ir.Undefined), mask)
            return builder.bitcast(builder.icmp_unsigned(sign, loaded, wide), ir.IntType(WORD))

        return types.uint64(data, types.int64, types.int64), build

    return intrinsic(typed)


#: Which of ``data[at:at + 64]`` equal a byte, or are less: a bit for each, the first the lowest.
bytes_equal, bytes_below = _compare_word("=="), _compare_word("<")


@intrinsic
def trailing_zeros(typing, word):
    """Count the zeros below the lowest bit of a word; 64 for zero."""

    def build(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), build


def _read_at(bits, kind):
    def typed(typing, address):
        def build(context, builder, signature, arguments):
            whole = ir.IntType(bits)
            loaded = builder.load(builder.inttoptr(arguments[0], whole.as_pointer()), align=1)
            return builder.zext(loaded, ir.IntType(64)) if bits < 64 else loaded

        return kind(types.int64), build

    return intrinsic(typed)


#: What stands at an address: a byte, or four or eight as a whole number, the first the lowest. An address needs no
#: array, which a loop that calls functions would count who refers to, at each call.
byte_at, four_at, eight_at = _read_at(8, types.int64), _read_at(32, types.uint64), _read_at(64, types.uint64)


def bytes_within(*ranges: tuple[int, int]) -> Any:
    """Make a function that says which of the eight bytes at an address are in a range (first, number), by bits."""
    eight = ir.VectorType(ir.IntType(8), 8)

    def typed(typing, address):
        def build(context, builder, signature, arguments):
            loaded = builder.load(builder.inttoptr(arguments[0], eight.as_pointer()), align=1)
            found = ir.Constant(ir.VectorType(ir.IntType(1), 8), [0] * 8)
            for first, n in ranges:
                from_first = builder.sub(loaded, ir.Constant(eight, [first] * 8))
                found = builder.or_(found, builder.icmp_unsigned("<", from_first, ir.Constant(eight, [n] * 8)))
            return builder.zext(builder.bitcast(found, ir.IntType(8)), ir.IntType(64))

        return types.int64(types.int64), build

    return intrinsic(typed)


@intrinsic
def prefetch_at(typing, address):
    """Ask for the cache line of an address without waiting for it."""

    def build(context, builder, signature, arguments):
        _prefetch(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), build


def _prefetch(builder, address):
    i32 = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, i32(0), i32(3), i32(1)])  # for reading, keep, data


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
    """Ask for the cache line of ``array[position]`` (flat) without waiting for it. For compiled loops only."""

    def generate(context, builder, signature, arguments):
        layout = signature.args[0]
        data = context.make_array(layout)(context, builder, arguments[0]).data
        item = builder.bitcast(data, context.get_value_type(layout.dtype).as_pointer())
        _prefetch(builder, builder.bitcast(builder.gep(item, [arguments[1]]), ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(array, position), generate
