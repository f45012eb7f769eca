"""Quantised safetensors, read as the numbers that they stand for.

FP8: a float of eight bits, times the scale of its block of rows and columns. GPTQ and
AWQ: (q - zero) * scale, where eight q of four bits share a word; zero and scale are
those of a group of inputs. Layouts: transformers' integrations/finegrained_fp8.py;
AutoGPTQ's and AutoAWQ's packing, which the test writes out by loops.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np

from jaxcontam.errors import InputError

_WORD = 32
# Column of a word's eight that each of its fields holds, lowest bits first.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_PARTS = {"fp8": ("weight", "weight_scale_inv")}
_INTEGER_PARTS = ("qweight", "qzeros", "scales")
# Of activations, which stay floats here; and of inputs, whose order is optional.
_UNUSED = ("activation_scale", "input_scale")
_GROUPS = "g_idx"
_KINDS = ("F8_E4M3", "I32", "I64")
_COPY = "read a bfloat16, float32 or GGUF copy, or serve the model (api:URL#NAME)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a folder's weights are quantised.

    Attributes:
        block: Rows and columns that share a scale of `fp8`; None: all do.
        group: Inputs that share one; -1 is all.
        zero_shift: Added to zeros on disk, which the first GPTQ wrote less one.
    """

    method: Literal["fp8", "gptq", "awq"]
    bits: int
    block: tuple[int, int] | None = None
    group: int = -1
    zero_shift: int = 0

    @property
    def name(self) -> str:
        """Name in a report, such as `GPTQ, 4 bits`."""
        return (
            "FP8"
            if self.method == "fp8"
            else f"{self.method.upper()}, {self.bits} bits"
        )


def read_scheme(raw: Mapping[str, Any], where: str) -> Scheme:
    """The scheme that a config.json names.

    Raises:
        InputError: If it is none that is read here; the message names it.
    """
    found = raw.get("quantization_config")
    given: Mapping[str, Any] = found if isinstance(found, dict) else {}
    method = given.get("quant_method")
    if method == "fp8" and given.get("fmt", "e4m3") == "e4m3":
        block = given.get("weight_block_size")
        if block is None:
            return Scheme(method="fp8", bits=8)
        if isinstance(block, list) and len(block) == 2 and all(map(_is_count, block)):
            return Scheme(method="fp8", bits=8, block=(block[0], block[1]))
    if method in ("gptq", "awq"):
        bits, group = given.get("bits", 4), given.get("group_size", 128)
        form = given.get("checkpoint_format") or given.get("format") or method
        if method == "awq":
            form = given.get("version") or given.get("format") or "gemm"
        forms = {"gptq": {"gptq": 1, "gptq_v2": 0}, "awq": {"gemm": 0}}[method]
        # 4.0 shifts no word.
        is_plain = _is_count(bits) and bits in ((4, 8) if method == "gptq" else (4,))
        is_plain &= given.get("zero_point", True) is True and not given.get("dynamic")
        is_plain &= group == -1 or _is_count(group)
        # Kernels of GPT-2 are [inputs, outputs] in files, and may be square.
        is_plain &= raw.get("model_type") != "gpt2"
        if is_plain and str(form).lower() in forms:
            shift = forms[str(form).lower()]
            return Scheme(method=method, bits=bits, group=group, zero_shift=shift)
        raise InputError(
            f"{where}: quantization_config {method!r} of {bits} bits and format "
            f"{form!r}, or with other settings than plain ones, is not supported",
            hint=_COPY,
        )
    raise InputError(
        f"{where}: quantization_config {method or found!r} is not supported", hint=_COPY
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class DequantizedTensors:
    """Tensors of quantised files under the names of plain ones."""

    def __init__(self, source: Any, scheme: Scheme):
        """Hold both; nothing is read yet."""
        self._source, self._scheme = source, scheme
        self._held: frozenset[str] = frozenset()
        self._modules: dict[str, str] = {}
        # The smallest type has two weights a byte.
        self.most_weights = 2 * source.most_weights

    def names(self, wanted: Collection[str]) -> list[str]:
        """Names of the tensors that the quantised and the plain ones stand for."""
        held = self._held = frozenset(self._source.names(wanted))
        parts = _PARTS.get(self._scheme.method, _INTEGER_PARTS)
        ends = [name.removesuffix(f".{parts[0]}") for name in held]
        self._modules = {
            f"{module}.weight": module
            for module in ends
            if all(f"{module}.{part}" in held for part in parts)
        }
        used = {
            f"{module}.{part}"
            for module in self._modules.values()
            for part in (*parts, *_UNUSED, _GROUPS)
        }
        # Some writers give every layer a bias, zeros where the model has none.
        used |= {
            name
            for module in self._modules.values()
            if (name := f"{module}.bias") in held - {*wanted}
            and not self._all(name).any()
        }
        return [*self._modules, *(held - used)]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor once it is dequantised."""
        if name not in self._modules or self._scheme.method == "fp8":
            return self._source.shape(name)
        packed, per_word = self._packed_shape(name), _WORD // self._scheme.bits
        if self._scheme.method == "gptq":
            return packed[1], packed[0] * per_word
        return packed[1] * per_word, packed[0]

    def read(self, name: str, cut: tuple[slice, ...]) -> np.ndarray:
        """A part of a tensor, in float32 if it was quantised."""
        if name not in self._modules:
            return self._source.read(name, cut)
        scheme, module = self._scheme, self._modules[name]
        if scheme.method == "fp8":
            values, scales = (self._all(f"{module}.{x}") for x in _PARTS["fp8"])
            return self._scaled(name, values, scales)[cut]
        words, zeros, scales = (self._all(f"{module}.{x}") for x in _INTEGER_PARTS)
        n_out, n_in = self.shape(name)
        n_groups = 1 if scheme.group == -1 else -(-n_in // scheme.group)
        per_word = _WORD // scheme.bits
        found = {x.dtype for x in (words, zeros)}, zeros.shape, scales.shape
        shapes = (n_groups, n_out // per_word), (n_groups, n_out)
        if found != ({np.dtype(np.int32)}, *shapes):
            raise self._unlike(name)
        if scheme.method == "gptq":
            q, zero = fields(words.T, scheme.bits).T, fields(zeros, scheme.bits)
        else:
            q, zero = awq_fields(words), awq_fields(zeros)
        if scheme.zero_shift and (zero == (1 << scheme.bits) - 1).any():
            raise InputError(
                f"{module}.qzeros: zeros below 0, which readers of GPTQ disagree on",
                hint=_COPY,
            )
        groups = np.arange(n_in) // (n_in if scheme.group == -1 else scheme.group)
        if f"{module}.{_GROUPS}" in self._held:
            groups = self._all(f"{module}.{_GROUPS}")
            if groups.shape != (n_in,) or groups.min() < 0 or groups.max() >= n_groups:
                raise self._unlike(name)
        zero = zero.astype(np.float32) + scheme.zero_shift
        weight = q.astype(np.float32)
        weight -= zero[groups]
        weight *= scales.astype(np.float32)[groups]
        return weight.T[cut]

    def _scaled(self, name: str, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        scales, block = scales.astype(np.float32), self._scheme.block
        weight = values.astype(np.float32)
        if block is None and scales.size == 1:
            return weight * scales.reshape(())
        if block is None or weight.ndim != 2:
            raise self._unlike(name)
        sizes = tuple(-(-n // one) for n, one in zip(weight.shape, block, strict=True))
        if scales.shape != sizes:
            raise self._unlike(name)
        rows, columns = (
            np.arange(n) // one for n, one in zip(weight.shape, block, strict=True)
        )
        weight *= scales[rows][:, columns]
        return weight

    def _packed_shape(self, name: str) -> tuple[int, ...]:
        shape = self._source.shape(f"{self._modules[name]}.qweight")
        if len(shape) != 2 or not math.prod(shape):
            raise self._unlike(name)
        return shape

    def _all(self, name: str) -> np.ndarray:
        shape = self._source.shape(name)
        return self._source.read(name, tuple(slice(0, n) for n in shape), more=_KINDS)

    def _unlike(self, name: str) -> InputError:
        return InputError(
            f"{name}: its quantised parts do not fit quantization_config", hint=_COPY
        )


def fields(words: np.ndarray, bits: int) -> np.ndarray:
    """Numbers in words along the last axis, lowest bits first."""
    shifts = np.arange(0, _WORD, bits, dtype=np.uint32)
    found = words.astype(np.uint32)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return found.astype(np.uint8).reshape(*words.shape[:-1], -1)


def awq_fields(words: np.ndarray) -> np.ndarray:
    """The same of four bits, each at the column that AWQ's order gives it."""
    found = fields(words, 4).reshape(*words.shape, len(_AWQ_ORDER))
    return found[..., np.argsort(_AWQ_ORDER)].reshape(*words.shape[:-1], -1)
