"""GGUF files: a header that is read within bounds, tensors dequantised one at a time.

The format is that of ggml-org/ggml, docs/gguf.md, versions 2 and 3. The reader of the
package `gguf` makes an array of every token (20 s and 0.9 GB for the 262,144 of Gemma
3) and follows sizes that lie, so only its constants and its dequantisation are used.
"""

import dataclasses
import functools
import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.errors import InputError, first_line, install_hint
from jaxcontam.models.hub import file_state

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}
_FLOAT32, _TEXT, _ARRAY = 6, 8, 9
_LENGTH = struct.Struct("<Q")
# Axes of a tensor, and bytes that a tensor or a text takes in the header, at least.
_MOST_AXES, _LEAST_TENSOR, _LEAST_TEXT = 4, 32, 8
_MOST_ALIGNMENT = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor:
    """Place of a tensor: `shape` as NumPy has it, bytes from the file's beginning."""

    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int
    n_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """Metadata by key, and tensors by name, none of them read yet."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, StoredTensor]

    @property
    def quantisation(self) -> str:
        """Types of the tensors by their weights, most first, such as `Q4_K, Q6_K`."""
        gguf = _package()
        sizes: dict[str, int] = {}
        for one in self.tensors.values():
            name = gguf.GGMLQuantizationType(one.kind).name
            sizes[name] = sizes.get(name, 0) + math.prod(one.shape)
        return ", ".join(sorted(sizes, key=lambda name: -sizes[name]))

    def read(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Dequantise a tensor, or rows of its first axis, into float32."""
        gguf, found = _package(), self.tensors[name]
        kind = gguf.GGMLQuantizationType(found.kind)
        is_row = len(found.shape) == 1
        lead = (1,) if is_row else found.shape[:-1]
        # Mapped anew for each: pages of a mapped file stay in memory until it closes.
        data = np.memmap(self.path, np.uint8, "r", found.begin, (found.n_bytes,))
        part = data.reshape(*lead, -1)[slice(None) if is_row else rows]
        try:
            values = gguf.dequantize(np.asarray(part), kind)
        except NotImplementedError as e:
            raise InputError(
                f"{self.path}: {name} is of unsupported type {kind.name}",
                hint="make a file of another quantisation, such as Q8_0 or Q4_K",
            ) from e
        return values[0][rows] if is_row else values


def open_gguf(path: Path) -> GgufFile:
    """Read a file's header; the one read last is kept.

    Raises:
        InputError: If the package is missing, or the file is none, is cut short, is a
            part of a model, or holds a type that the package does not know.
    """
    return _open(path, file_state(path))


@functools.lru_cache(maxsize=1)
def _open(path: Path, state: str) -> GgufFile:
    _package()
    try:
        header = _Header(path)
        fields, places = header.read()
    except (UnicodeDecodeError, ValueError) as e:
        raise InputError(
            f"{path}: not a whole GGUF file ({first_line(e)})",
            hint="download it again",
        ) from e
    n_parts = fields.get("split.count", 1)
    if n_parts not in (0, 1):
        raise InputError(
            f"{path}: a part of {n_parts} of one model",
            hint="join them: llama-gguf-split --merge FIRST_PART OUT.gguf",
        )
    return GgufFile(path, fields, {one.name: one for one in places})


class _Header:
    """Cursor over the header of a file."""

    def __init__(self, path: Path):
        if path.stat().st_size < 24:
            raise ValueError("shorter than a header")
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0

    def read(self) -> tuple[dict[str, Any], list[StoredTensor]]:
        """All metadata, and all tensors with their places."""
        if self._data[:4] != b"GGUF":
            raise ValueError("it begins otherwise")
        self._at = 4
        version, n_tensors, n_fields = self._numbers("IQQ")
        if version not in (2, 3):
            raise ValueError(f"version {version}; 2 and 3 are read")
        self._check_room(n_fields * (_LEAST_TEXT + 5), f"{n_fields:,} fields")
        fields: dict[str, Any] = {}
        for _ in range(n_fields):
            key = self._text()
            if key in fields:
                raise ValueError(f"names {key!r} twice")
            (kind,) = self._numbers("I")
            fields[key] = self._value(kind, key)
        self._check_room(n_tensors * _LEAST_TENSOR, f"{n_tensors:,} tensors")
        found = [self._tensor() for _ in range(n_tensors)]
        if len({name for name, *_ in found}) < n_tensors:
            raise ValueError("names a tensor twice")
        alignment = fields.get("general.alignment", 32)
        if not (isinstance(alignment, int) and 0 < alignment <= _MOST_ALIGNMENT):
            raise ValueError(f"alignment {alignment!r}")
        begin = -(-self._at // alignment) * alignment
        return fields, [self._placed(begin, *one) for one in found]

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text()
        (n_axes,) = self._numbers("I")
        if not 0 < n_axes <= _MOST_AXES:
            raise ValueError(f"{name!r} has {n_axes} axes")
        sizes = self._numbers(f"{n_axes}Q")
        kind, offset = self._numbers("IQ")
        return name, sizes[::-1], kind, offset

    def _placed(
        self, begin: int, name: str, shape: tuple[int, ...], kind: int, offset: int
    ) -> StoredTensor:
        gguf = _package()
        try:
            block, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        except (ValueError, KeyError) as e:
            raise ValueError(f"{name!r} is of an unknown type ({kind})") from e
        if shape[-1] % block or not all(shape):
            raise ValueError(f"{name!r} has shape {shape} in blocks of {block}")
        size = math.prod(shape) // block * n_bytes
        if begin + offset + size > len(self._data):
            raise ValueError(f"{name!r} lies past the end of the file")
        return StoredTensor(name, shape, kind, begin + offset, size)

    def _value(self, kind: int, key: str) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind in _SCALARS:
            (value,) = self._numbers(_SCALARS[kind])
            # The number that was written, 1e-5, not the float32 next to it.
            return float(str(np.float32(value))) if kind == _FLOAT32 else value
        if kind != _ARRAY:
            raise ValueError(f"{key!r} is of an unknown type ({kind})")
        inner, n = self._numbers("IQ")
        if inner in _SCALARS:
            return list(self._numbers(f"{n}{_SCALARS[inner]}"))
        if inner != _TEXT:
            raise ValueError(f"{key!r} is an array of type {inner}")
        self._check_room(n * _LEAST_TEXT, f"{n:,} texts")
        return [self._text() for _ in range(n)]

    def _text(self) -> str:
        # By hand, without `_numbers`: a vocabulary has a hundred thousand of them.
        begin = self._at + _LENGTH.size
        if begin > len(self._data):
            raise ValueError("it ends within its header")
        (n,) = _LENGTH.unpack_from(self._data, self._at)
        self._at = begin
        self._check_room(n, "a text")
        self._at += n
        return self._data[begin : self._at].decode("utf-8")

    def _numbers(self, code: str) -> tuple[Any, ...]:
        # Counted before `struct` makes room for them.
        count = int(code[:-1]) if code[:-1].isdigit() else 1
        self._check_room(count, "numbers")
        begin, packed = self._at, f"<{code}"
        self._at += struct.calcsize(packed)
        if self._at > len(self._data):
            raise ValueError("it ends within its header")
        return struct.unpack_from(packed, self._data, begin)

    def _check_room(self, n_bytes: int, what: str) -> None:
        if n_bytes > len(self._data) - self._at:
            raise ValueError(f"{what} do not fit in its {len(self._data):,} bytes")


def _package() -> Any:
    try:
        import gguf
    except ImportError as e:
        raise InputError(
            "a GGUF file needs the package gguf, which is not installed",
            hint=install_hint("gguf"),
        ) from e
    return gguf
