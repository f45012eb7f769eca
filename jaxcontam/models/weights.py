"""Safetensors weights: files of a directory, tensor names and shapes, reading, writing.

A pickle is refused rather than opened: it can run any code.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes  # also lets safetensors return bfloat16 as NumPy arrays
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxcontam.data.files import read_json
from jaxcontam.data.model_files import GGUF, check_tensor_names
from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder, abstract_decoder
from jaxcontam.models.families import Family, Tensor
from jaxcontam.models.hub import convert_hint
from jaxcontam.models.sharding import EMBEDDINGS, mesh_sharding, place, weight_name
from jaxcontam.models.stacks import STACKS, layer_stacks

if TYPE_CHECKING:
    from jaxcontam.models.adapter import Adapter
    from jaxcontam.models.dequantize import Scheme

_INDEX = "model.safetensors.index.json"
# Within the names of an image model's text model.
_NESTED = "language_model."
# Types of weights that stand for themselves, without a scale in another tensor.
_KINDS = ("F64", "F32", "F16", "BF16")
# Bytes; what XLA asks of memory that it takes over.
_ALIGNMENT = 64

Slices = tuple[slice, ...]
"""A part of an array, one range for each axis."""


def weight_files(directory: Path) -> list[Path]:
    """Safetensors files of a model directory; a GGUF file is its own."""
    if directory.suffix == GGUF and directory.is_file():
        return [directory]
    index = directory / _INDEX
    if index.is_file():
        whole = directory / "model.safetensors"
        try:
            weight_map = read_json(index)["weight_map"]
            names = sorted(set(weight_map.values()))
            # A name with a folder in it could lead out of the model's.
            if strangers := [name for name in names if Path(name).name != name]:
                raise ValueError(f"{strangers[0]!r} is not a plain file name")
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise InputError(f"{index}: not an index of weights ({e!r})") from e
        files = [directory / name for name in names]
        if whole.is_file() and whole not in files:
            raise InputError(
                f"{directory}: holds {whole.name} and {_INDEX}, which names others",
                hint="move the one that you do not mean to another folder",
            )
    else:
        files = [directory / "model.safetensors"]
    missing = [path.name for path in files if not path.is_file()]
    if not missing:
        return files
    pickles = sorted(
        path.name
        for suffix in ("*.bin", "*.pt", "*.pth", "*.ckpt")
        for path in directory.glob(suffix)
    )
    if pickles:
        raise InputError(
            f"{directory}: only pickled weights ({pickles[0]}), which can run code",
            hint=convert_hint(directory),
        )
    raise InputError(
        f"{directory}: no weights ({', '.join(missing)} is missing)",
        hint="copy or download the model again, whole: its weights are .safetensors "
        "files",
    )


def read_weights(
    directory: Path,
    files: list[Path],
    family: Family,
    config: DecoderConfig,
    *,
    dtype: str = "float32",
    mesh: Mesh | None = None,
    adapter: "Adapter | None" = None,
    scheme: "Scheme | None" = None,
    values: bool = True,
) -> Decoder:
    """Read a decoder from files, with the changes of an adapter.

    Weights that are quantised by a `scheme` are dequantised.

    Weights are read one after the other, so that the host holds no second copy, and
    only the shards of this process's devices are read. `dtype` is that of matmul
    operands, float32 or bfloat16, which is faster but less accurate. Without a mesh
    weights are whole on the first device. Without `values`, for plans, they have shapes
    and places alone: JAX raises RuntimeError where one is computed with.
    """
    source: Any
    if directory.suffix == GGUF:
        from jaxcontam.models.gguf_model import GgufTensors

        source = GgufTensors(directory, config)
    else:
        source = _Safetensors(files)
    if scheme is not None:
        from jaxcontam.models.dequantize import DequantizedTensors

        source = DequantizedTensors(source, scheme)
    if adapter is not None:
        from jaxcontam.models.adapter import AdaptedTensors

        source = AdaptedTensors(source, adapter)
    decoder = abstract_decoder(config)
    shapes = {path: leaf.shape for path, leaf in _flat_state(decoder).items()}
    n_weights = sum(map(math.prod, shapes.values()))
    if n_weights > source.most_weights:
        raise InputError(
            f"{directory}: config.json describes {n_weights:,} weights, the files hold "
            f"at most {source.most_weights:,}",
            hint="check that no file is truncated, and that config.json is of this "
            "model",
        )
    sharding = None if mesh is None else mesh_sharding(nnx.state(decoder), mesh)
    wanted = _wanted(family, config)
    found = source.names({*wanted, family.head})
    names = _names_on_disk(found, wanted, family, config, directory)

    def read(name: str, shape: tuple[int, ...], cut: Slices) -> np.ndarray:
        if (found := source.shape(names[name])) != shape:
            raise InputError(
                f"{directory}: {name} has shape {found}, config.json says {shape}"
            )
        return source.read(names[name], cut)

    def load(ours: str, tensor: Tensor) -> jax.Array:
        shape = shapes[ours]

        def part(cut: Slices) -> np.ndarray:
            sizes = tuple(one.stop - one.start for one in cut)
            is_narrow = dtype == "bfloat16" and is_operand(ours)
            kind = np.dtype(ml_dtypes.bfloat16 if is_narrow else np.float32)
            # Aligned so that a CPU device adopts it without a copy.
            n_bytes = kind.itemsize * math.prod(sizes)
            raw = np.zeros(n_bytes + _ALIGNMENT, np.uint8)
            start = -raw.ctypes.data % _ALIGNMENT
            host = raw[start : start + n_bytes].view(kind).reshape(sizes)
            if not values:
                return host
            for index, target in _stacked(ours, tensor, host, config):
                own = (shape[-target.ndim :], cut[-target.ndim :])
                _fill(target, tensor, index, read, config, *own)
            return host

        if mesh is None or sharding is None:
            whole = tuple(slice(0, size) for size in shape)
            return jax.block_until_ready(jax.device_put(part(whole)))
        return place(shape, part, NamedSharding(mesh, sharding.spec(ours)))

    tensors = _tensors(family, config)
    loaded = {ours: load(ours, tensor) for ours, tensor in tensors.items()}
    if values and config.tied and family.head in names:
        embedding = loaded["embedding"]
        # Devices that keep the same part are asked once.
        parts = {str(one.index): one for one in embedding.addressable_shards}
        for one in parts.values():
            head = read(family.head, embedding.shape, one.index)
            if not np.array_equal(head.astype(embedding.dtype), np.asarray(one.data)):
                raise InputError(
                    f"{directory}: {family.head} differs from the embedding",
                    hint='set "tie_word_embeddings": false in config.json',
                )
    filled = jax.tree.map_with_path(
        lambda path, _: loaded.pop(weight_name(path)), nnx.state(decoder)
    )
    nnx.update(decoder, filled)
    if not values:
        for leaf in jax.tree.leaves(filled):
            leaf.delete()
    return decoder


def is_operand(name: str) -> bool:
    """Tell if a weight, such as `blocks.mlp.up.kernel`, is a matmul operand.

    Operands may be bfloat16; norms, biases and learned positions are float32.
    """
    return name.endswith((".kernel", "head")) or name in EMBEDDINGS


def write_weights(decoder: Decoder, family: Family, path: Path) -> None:
    """Write one float32 safetensors file under the family's own tensor names.

    Rows that no token reads are zeros; buffers and a tied head are left out.
    """
    state = _flat_state(decoder)
    config = decoder.config
    tensors = {}
    for ours, tensor in _tensors(family, config).items():
        for index, value in _stacked(ours, tensor, np.asarray(state[ours]), config):
            sizes = _output_sizes(tensor, config, value.shape[-1])
            parts = np.split(value, np.cumsum(sizes)[:-1], axis=-1)
            for name, part in zip(tensor.names, parts, strict=True):
                if tensor.conversion is not None:
                    part = tensor.conversion.to_disk(part, config)
                if tensor.skipped_rows:
                    unread = (tensor.skipped_rows, *part.shape[1:])
                    part = np.concatenate([np.zeros(unread, part.dtype), part])
                part = part.T if tensor.transposed else part
                part = np.ascontiguousarray(part, dtype=np.float32)
                tensors[name.format(**index)] = part
    # safetensors makes its own file, for the owner alone: keep what the umask gives.
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)


class _Safetensors:
    """Tensors of files of one model."""

    def __init__(self, files: Sequence[Path]):
        self._places: dict[str, Path] = {}
        for path in files:
            check_tensor_names(path)
            with open_tensors(path) as handle:
                names = dict.fromkeys(handle.keys(), path)
            if twice := sorted(names.keys() & self._places.keys()):
                raise InputError(
                    f"{path}: holds {twice[0]}, as {self._places[twice[0]].name} does",
                    hint="save the model again with one tensor per name",
                )
            self._places |= names
        # The narrowest type has one byte per weight.
        self.most_weights = sum(path.stat().st_size for path in files)

    def names(self, wanted: Collection[str]) -> list[str]:
        del wanted  # every tensor has the family's name
        return list(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        with open_tensors(self._places[name]) as handle:
            return tuple(handle.get_slice(name).get_shape())

    def read(self, name: str, cut: Slices, more: Sequence[str] = ()) -> np.ndarray:
        """A part of a tensor of a plain type, or one of `more`."""
        # Opened anew for each: pages of a mapped file stay in memory until it closes.
        with open_tensors(path := self._places[name]) as handle:
            tensor = handle.get_slice(name)
            if (kind := tensor.get_dtype()) not in (*_KINDS, *more):
                raise InputError(
                    f"{path.parent}: {name} is of unsupported type {kind}",
                    hint="convert the model, which may be quantised, to one of "
                    f"{', '.join(_KINDS)}",
                )
            if kind == "F8_E4M3":
                return _eight_bits(path, name)[cut]
            return tensor[cut]


def _eight_bits(path: Path, name: str) -> np.ndarray:
    """A tensor of FP8, for which safetensors asks NumPy in vain."""
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(n_header))[name]
        begin, end = about["data_offsets"]
        file.seek(8 + n_header + begin)
        raw = np.frombuffer(file.read(end - begin), ml_dtypes.float8_e4m3fn)
    return raw.reshape(about["shape"])


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file for the block."""
    try:
        with safe_open(path, "np") as handle:
            yield handle
    except SafetensorError as e:
        raise InputError(f"{path}: not a safetensors file ({e})") from e


def _tensors(family: Family, config: DecoderConfig) -> dict[str, Tensor]:
    """Each weight of the decoder with its full names on disk."""
    tensors = {
        ours: dataclasses.replace(
            tensor, names=tuple(family.prefix + name for name in tensor.names)
        )
        for ours, tensor in family.tensors(config).items()
    }
    head = {} if config.tied else {"head": Tensor((family.head,))}
    bias = {"head_bias": Tensor((family.head_bias,))} if config.head_bias else {}
    return tensors | head | bias


def _stacked(
    ours: str, tensor: Tensor, value: np.ndarray, config: DecoderConfig
) -> Iterator[tuple[dict[str, int], np.ndarray]]:
    """Views of a weight, each with its `{i}` (layer) and `{x}` (expert) in names."""
    layers = _layers(ours, config)
    axes = [] if layers is None else ["i"]
    if "{x}" in tensor.names[0]:
        axes.append("x")
    for index in np.ndindex(value.shape[: len(axes)]):
        named = dict(zip(axes, index, strict=True))
        if layers is not None:
            named["i"] = layers[index[0]]
        yield named, value[index]


def _layers(ours: str, config: DecoderConfig) -> list[int] | None:
    """Layers that a weight of ours has on its first axis; None where it has none."""
    stack = ours.split(".")[0]
    if stack not in STACKS:
        return None
    return [i for i, name in enumerate(layer_stacks(config)) if name == stack]


def _fill(
    target: np.ndarray,
    tensor: Tensor,
    index: dict[str, int],
    read: Callable[[str, tuple[int, ...], Slices], np.ndarray],
    config: DecoderConfig,
    shape: tuple[int, ...],
    cut: Slices,
) -> None:
    """Copy a part of one layer's weight, or one expert's, from its tensors on disk."""
    stop = 0
    sizes = _output_sizes(tensor, config, shape[-1])
    is_whole = len(sizes) == 1 and tensor.conversion is None
    assert is_whole or cut[-1] == slice(0, shape[-1]), "outputs are not divided"
    for template, size in zip(tensor.names, sizes, strict=True):
        outputs = cut[-1] if is_whole else slice(0, size)
        wanted, ranges = (*shape[:-1], size), (*cut[:-1], outputs)
        if skipped := tensor.skipped_rows:
            rows = slice(ranges[0].start + skipped, ranges[0].stop + skipped)
            wanted, ranges = (wanted[0] + skipped, *wanted[1:]), (rows, *ranges[1:])
        if tensor.transposed:
            wanted, ranges = wanted[::-1], ranges[::-1]
        part = read(template.format(**index), wanted, ranges)
        part = part.T if tensor.transposed else part
        start, stop = stop, stop + outputs.stop - outputs.start
        conversion = tensor.conversion
        target[..., start:stop] = (
            part if conversion is None else conversion.to_ours(part, config)
        )


def _output_sizes(tensor: Tensor, config: DecoderConfig, total: int) -> list[int]:
    """Outputs of each tensor that is joined into one of ours."""
    if tensor.widths:
        return list(tensor.widths)
    if len(tensor.names) == 3:
        kv = config.n_kv_heads * config.head_dim
        return [total - 2 * kv, kv, kv]
    return [total // len(tensor.names)] * len(tensor.names)


def _wanted(family: Family, config: DecoderConfig) -> set[str]:
    """Full name of each tensor of a model."""
    n_experts = 0 if config.experts is None else config.experts.n
    return {
        name.format(i=layer, x=expert)
        for ours, tensor in _tensors(family, config).items()
        for name in tensor.names
        for layer in (_layers(ours, config) or (0,))
        for expert in (range(n_experts) if "{x}" in name else (0,))
    }


def _names_on_disk(
    found: list[str],
    wanted: set[str],
    family: Family,
    config: DecoderConfig,
    directory: Path,
) -> dict[str, str]:
    """Name of each wanted tensor -> that in the file, maybe without the prefix."""
    heads = {family.head, family.head_bias}
    full = {name.replace(_NESTED, "", 1): name for name in found}
    if full.keys() != set(found):
        full = {x: name for x, name in full.items() if x != name or x in heads}
    has_prefix = any(name.startswith(family.prefix) for name in full)
    if not has_prefix:
        full = {x if x in heads else family.prefix + x: full[x] for x in full}
    if missing := wanted - full.keys():
        hint = ""
        if missing == {family.head}:
            # Configs leave it out where a library's default is to tie them.
            hint = "if the embedding is also the head, set in config.json: "
            hint += '"tie_word_embeddings": true'
        raise InputError(f"{directory}: missing tensors: {_some(missing)}", hint=hint)
    tied = {family.head} if config.tied else set()
    extra = full.keys() - wanted - tied
    # A layer of the model's own that the config does not count lacks it.
    if (further := family.further.format(n=config.n_layers)) in extra:
        start = further.rsplit(".", 2)[0] + "."
        extra = {name for name in extra if not name.startswith(start)}
    if unknown := {name for name in extra if not name.endswith(family.ignored)}:
        raise InputError(f"{directory}: unknown tensors: {_some(unknown)}")
    return full


def _flat_state(decoder: Decoder) -> dict[str, Any]:
    return {
        weight_name(path): leaf
        for path, leaf in jax.tree.leaves_with_path(nnx.state(decoder))
    }


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
