"""Thrift's compact protocol, as far as the footer and the page headers of Parquet use it: bytes to structs and back.

A struct is a dict from field number to (type, value), a list is (type of the elements, values); nothing is named, so
what a newer writer adds passes through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Struct: TypeAlias = dict[int, tuple[int, Any]]

TRUE: Final = 1
FALSE: Final = 2
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_BYTE: Final = 3
_WHOLE: Final = (4, I32, I64)
_DOUBLE: Final = 7
_MAP: Final = 11


def parse_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """Parse the struct that begins at a byte; give it and the byte after it.

    Raises:
        ValueError: no such protocol. An IndexError means that ``data`` ends too early.

    Example:
        >>> parse_struct(write_struct({1: (I32, -7), 4: (BINARY, b"id"), 30: (LIST, (I64, [1, 300]))}))
        ({1: (5, -7), 4: (8, b'id'), 30: (9, (6, [1, 300]))}, 13)
    """
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _read_whole(data, at)
        if kind in (TRUE, FALSE):  # the value of a field is in its type
            fields[number] = (kind, kind == TRUE)
        else:
            value, at = _read(data, at, kind)
            fields[number] = (kind, value)
    return fields, at + 1


def write_struct(fields: Mapping[int, tuple[int, Any]]) -> bytes:
    """Write a struct as ``parse_struct`` reads it, its fields in the order of their numbers."""
    out, last = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _whole(number)
        last = number
        if kind not in (TRUE, FALSE):
            out += _write(kind, value)
    return bytes(out) + b"\0"


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _WHOLE:
        return _read_whole(data, at)
    if kind == BINARY:
        length, at = _read_varint(data, at)
        if at + length > len(data):
            raise IndexError(at + length)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return parse_struct(data, at)
    if kind in (TRUE, FALSE, _BYTE):
        return data[at], at + 1
    if kind == _DOUBLE:
        if at + 8 > len(data):
            raise IndexError(at + 8)
        return data[at : at + 8], at + 8
    if kind in (LIST, LIST + 1):  # a set is written as a list is
        return _read_list(data, at)
    if kind == _MAP:
        msg = "Parquet has no maps in its structs"
        raise ValueError(msg)
    msg = f"no type {kind} in Thrift's compact protocol"
    raise ValueError(msg)


def _read_list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    kind, length = data[at] & 15, data[at] >> 4
    at += 1
    if length == 15:
        length, at = _read_varint(data, at)
    values: list[Any] = []
    for _ in range(length):
        value, at = _read(data, at, kind)
        values.append(value)
    return (kind, values), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read_whole(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _write(kind: int, value: Any) -> bytes:  # noqa: ANN401 (its type is in kind)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind in (LIST, LIST + 1):
        inner, values = value
        head = bytes([min(len(values), 15) << 4 | inner]) + (_varint(len(values)) if len(values) >= 15 else b"")
        return head + b"".join(_write(inner, one) for one in values)
    if kind == _DOUBLE:
        return value
    writers: dict[int, Callable[[Any], bytes]] = {STRUCT: write_struct} | dict.fromkeys(_WHOLE, _whole)
    return writers[kind](value) if kind in writers else struct.pack("B", value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _whole(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
