"""The tags of a MATLAB v5 file, checked before the file is read.

scipy's reader trusts types and sizes: a damaged tag can end in a segmentation fault, or allocate whatever the
tag claims. These functions walk through the file in the same way without keeping its numbers, and raise a ValueError
where scipy would fail. The format is that of "MAT-File Format", The MathWorks.
"""

import math
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from boolcp.io.limits import refuse_expansion

MATRIX, COMPRESSED = 14, 15
N_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}  # of the types of numbers
TEXT = (1, 2, 4, 16, 17, 18)
CELL, STRUCT, OBJECT, CHAR, SPARSE, NUMBERS, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, range(6, 16), 16, 17
IS_COMPLEX = 1 << 11
MAX_DEPTH, MAX_DIMS, MAX_EMPTY = 60, 32, 10**6  # cells in cells; modes; entries that take no bytes in the file
CHUNK = 2**18


class Stream:
    """The bytes of a file or of a compressed part of it, from first to last; no more than a chunk is held."""

    def __init__(self, chunks: Iterable[bytes], byte_order: str) -> None:
        self._chunks, self.byte_order = iter(chunks), byte_order
        self._held, self._start = b"", 0  # the present chunk, and the position of the next byte in it

    def read(self, n: int) -> bytes:
        """Return the next n bytes."""
        while len(self._held) < self._start + n:
            self._held, self._start = self._held[self._start :] + self._next(), 0
        self._start += n
        return self._held[self._start - n : self._start]

    def skip(self, n: int) -> None:
        """Skip n bytes."""
        while len(self._held) < self._start + n:
            n -= len(self._held) - self._start
            self._held, self._start = self._next(), 0
        self._start += n

    def pad(self, n_bytes: int) -> None:
        """Skip the padding that fills n bytes up to a multiple of 8; the last element needs none."""
        with suppress(ValueError):
            self.skip(-n_bytes % 8)

    def _next(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise ValueError("it ends in the middle of a variable")

    def numbers(self, n: int) -> tuple[int, ...]:
        """Return the next n unsigned integers of 4 bytes."""
        return struct.unpack(f"{self.byte_order}{n}I", self.read(4 * n))


def check_tags(path: Path) -> None:
    """Raise a ValueError if a v5 file contradicts its own tags; files of other versions pass."""
    with open(path, "rb") as file:
        header = file.read(128)
        if len(header) < 128 or 0 in header[:4] or header[125 if header[126:127] == b"I" else 124] != 1:
            return  # v4 or v7.3, or no MATLAB file at all: the reader says so
        byte_order = "<" if header[126:] == b"IM" else ">"
        size = file.seek(0, 2)
        position = 128
        while position < size:
            file.seek(position)
            kind, n_bytes = Stream([file.read(8)], byte_order).numbers(2)
            position += 8 + n_bytes
            if n_bytes == 0 or position > size:
                raise ValueError("a variable is longer than the file")
            if kind == COMPRESSED:
                stream = Stream(inflated(path, file, n_bytes), byte_order)
                kind = stream.numbers(2)[0]
            else:
                stream = Stream(pieces(file, size - file.tell()), byte_order)
            if kind != MATRIX:
                raise ValueError(f"a variable has the unknown type {kind}")
            check_content(stream)


def pieces(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    """Yield the next bytes of a file in chunks."""
    while n_bytes > 0 and (chunk := file.read(min(n_bytes, CHUNK))):
        n_bytes -= len(chunk)
        yield chunk


def inflated(path: Path, file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of the next part of a file in chunks."""
    inflate, n_inflated = zlib.decompressobj(), 0
    for chunk in pieces(file, n_bytes):
        while chunk:
            content = inflate.decompress(chunk, CHUNK)
            chunk = inflate.unconsumed_tail
            n_inflated += len(content)
            refuse_expansion(path, "a variable", n_bytes, n_inflated)
            if content:
                yield content


def check_matrix(stream: Stream, depth: int) -> None:
    """Check a matrix with its tag, inside a cell or a struct."""
    kind, n_bytes = stream.numbers(2)
    if kind != MATRIX:
        raise ValueError(f"a matrix is expected, but the type is {kind}")
    if n_bytes:
        check_content(stream, depth)


def check_content(stream: Stream, depth: int = 0) -> None:
    """Check flags, dimensions, name and numbers of a matrix."""
    if depth > MAX_DEPTH:
        raise ValueError(f"cells or structs are nested more than {MAX_DEPTH} deep")
    flags = stream.numbers(4)[2]
    kind = flags & 0xFF
    if kind == OPAQUE:
        for _ in range(3):  # its name, its type system and its class
            check_text(stream)
        return check_matrix(stream, depth + 1)
    shape = read_integers(stream, MAX_DIMS)
    check_text(stream)
    if kind in NUMBERS:
        n_parts = 2 if flags & IS_COMPLEX else 1
        if any(check_numbers(stream) != math.prod(shape) for _ in range(n_parts)):
            raise ValueError(f"a matrix does not have the {' x '.join(map(str, shape))} numbers it claims")
    elif kind == SPARSE:
        for _ in range(4 if flags & IS_COMPLEX else 3):  # rows, columns, values
            check_numbers(stream)
    elif kind == CHAR:
        check_characters(stream, math.prod(shape))
    elif kind == FUNCTION:
        check_matrix(stream, depth + 1)
    elif kind in (CELL, STRUCT, OBJECT):
        check_members(stream, kind, math.prod(shape), depth)
    else:
        raise ValueError(f"a matrix has the unknown class {kind}")


def check_members(stream: Stream, kind: int, n_members: int, depth: int) -> None:
    """Check what a cell or a struct holds."""
    n_fields = 1
    if kind == OBJECT:
        check_text(stream)
    if kind != CELL:
        (length,) = read_integers(stream, 1)
        n_fields = check_text(stream) // max(length, 1)
        if length == 0 or (n_fields == 0 and n_members > MAX_EMPTY):
            raise ValueError("the names of the fields of a struct have no length")
    for _ in range(n_members * n_fields):  # the file ends before a false number does
        check_matrix(stream, depth + 1)


def read_tag(stream: Stream) -> tuple[int, int, bytes | None]:
    """Return the type and the number of bytes of an element, and its content if the tag holds it."""
    first = stream.read(4)
    (kind,) = struct.unpack(f"{stream.byte_order}I", first)
    if kind >> 16 == 0:
        return kind, stream.numbers(1)[0], None
    if kind >> 16 > 4:
        raise ValueError("the tag of a small element is damaged")
    return kind & 0xFFFF, kind >> 16, stream.read(4)


def skip_element(stream: Stream, n_bytes: int, content: bytes | None) -> None:
    """Skip the content of an element and its padding to a multiple of 8 bytes."""
    if content is None:
        stream.skip(n_bytes)
        stream.pad(n_bytes)


def read_integers(stream: Stream, n_most: int) -> tuple[int, ...]:
    """Return the integers of an element: dimensions, or the length of names."""
    kind, n_bytes, content = read_tag(stream)
    if kind not in (5, 6) or n_bytes % 4 or not 0 < n_bytes <= 4 * n_most:
        raise ValueError("the dimensions of a matrix are damaged")
    if content is None:
        content = stream.read(n_bytes)
        stream.pad(n_bytes)
    values = struct.unpack(f"{stream.byte_order}{n_bytes // 4}i", content[:n_bytes])
    if min(values) < 0:
        raise ValueError(f"a matrix has the size {min(values)}")
    return values


def check_text(stream: Stream) -> int:
    """Check a name and return its length."""
    kind, n_bytes, content = read_tag(stream)
    if kind not in (1, 16):
        raise ValueError(f"a name is expected, but the type is {kind}")
    skip_element(stream, n_bytes, content)
    return n_bytes


def check_numbers(stream: Stream) -> int:
    """Check an element of numbers and return how many there are."""
    kind, n_bytes, content = read_tag(stream)
    if kind not in N_BYTES:
        raise ValueError(f"numbers have the unknown type {kind}")
    skip_element(stream, n_bytes, content)
    return n_bytes // N_BYTES[kind]


def check_characters(stream: Stream, n_characters: int) -> None:
    """Check an element of text; one without bytes stands for blanks."""
    kind, n_bytes, content = read_tag(stream)
    if kind not in TEXT:
        raise ValueError(f"text has the unknown type {kind}")
    if n_characters > max(n_bytes, MAX_EMPTY):
        raise ValueError(f"a text claims to have {n_characters} characters in {n_bytes} bytes")
    skip_element(stream, n_bytes, content)
