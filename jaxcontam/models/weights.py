"""Weights in safetensors: files of a directory, names, shapes, in and out.

A pickle is refused rather than opened: it can run any code.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401  lets safetensors return bfloat16 as NumPy arrays
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import Family

_INDEX = "model.safetensors.index.json"


def weight_files(directory: Path) -> list[Path]:
    """Safetensors files of a model directory.

    Raises:
        InputError: If there are none, or only pickles; says how to convert them.
    """
    index = directory / _INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted(set(weight_map.values()))
            # A name with a folder in it could lead out of the model's.
            if strangers := [name for name in names if Path(name).name != name]:
                raise ValueError(f"{strangers[0]!r} is no plain file name")
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise InputError(f"{index}: not an index of weights ({e!r})") from e
        files = [directory / name for name in names]
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
            hint="convert where you trust them: AutoModelForCausalLM.from_pretrained("
            "DIR).save_pretrained(NEW_DIR) writes safetensors",
        )
    raise InputError(f"{directory}: no weights ({', '.join(missing)} is missing)")


def read_weights(
    directory: Path, files: list[Path], family: Family, config: DecoderConfig
) -> Decoder:
    """Fill a decoder from files, as float32.

    Raises:
        InputError: If a tensor is missing, unknown, of a wrong shape, or a head that
            config.json calls tied differs from the embedding; names the tensor.
    """
    decoder = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    weights = {
        path: np.empty(leaf.shape, np.float32)
        for path, leaf in _flat_state(decoder).items()
    }
    with contextlib.ExitStack() as open_files:
        handles = {}
        for path in files:
            try:
                handle = open_files.enter_context(safe_open(path, "np"))
            except SafetensorError as e:
                raise InputError(f"{path}: not a safetensors file ({e})") from e
            handles |= dict.fromkeys(handle.keys(), handle)
        names = _names_on_disk(list(handles), family, config, directory)
        for ours, theirs, transposed, layer in _disk_names(family, config):
            target = weights[ours] if layer is None else weights[ours][layer]
            stop = 0
            sizes = _output_sizes(theirs, config, target.shape[-1])
            for name, size in zip(theirs, sizes, strict=True):
                part = handles[names[name]].get_tensor(names[name])
                shape = (*target.shape[:-1], size)
                wanted = shape[::-1] if transposed else shape
                if part.shape != wanted:
                    raise InputError(
                        f"{directory}: {name} has shape {part.shape}, config.json "
                        f"says {wanted}"
                    )
                start, stop = stop, stop + size
                target[..., start:stop] = part.T if transposed else part
        if config.tied:
            _check_tie(handles, names, weights["embedding"], directory)
    loaded = jax.tree.map_with_path(
        lambda path, _: jnp.asarray(weights.pop(_path_name(path))), nnx.state(decoder)
    )
    # Copies to the device run ahead; waiting frees the host's arrays.
    nnx.update(decoder, jax.block_until_ready(loaded))
    return decoder


def write_weights(decoder: Decoder, family: Family, path: Path) -> None:
    """Write one safetensors file under the family's own tensor names."""
    state = _flat_state(decoder)
    config = decoder.config
    tensors = {}
    for ours, names, transposed, layer in _disk_names(family, config):
        value = np.asarray(state[ours])
        value = value if layer is None else value[layer]
        bounds = np.cumsum(_output_sizes(names, config, value.shape[-1]))[:-1]
        for name, part in zip(names, np.split(value, bounds, axis=-1), strict=True):
            part = part.T if transposed else part
            tensors[name] = np.ascontiguousarray(part)
    save_file(tensors, path, metadata={"format": "pt"})


def _disk_names(
    family: Family, config: DecoderConfig
) -> Iterator[tuple[str, tuple[str, ...], bool, int | None]]:
    """Each of our weights with its names on disk, layer by layer."""
    for ours, tensor in family.tensors(config).items():
        prefix = "" if ours == "head" else family.prefix
        layers = range(config.n_layers) if ours.startswith("blocks.") else (None,)
        for layer in layers:
            names = tuple(prefix + name.format(i=layer) for name in tensor.names)
            yield ours, names, tensor.transposed, layer


def _output_sizes(
    names: tuple[str, ...], config: DecoderConfig, total: int
) -> list[int]:
    """Outputs of each tensor that is joined into one of ours."""
    if len(names) == 3:
        kv = config.n_kv_heads * config.head_dim
        return [config.n_heads * config.head_dim, kv, kv]
    return [total // len(names)] * len(names)


def _check_tie(
    handles: dict[str, Any], names: dict[str, str], embedding: np.ndarray, where: Path
) -> None:
    """Refuse a head that config.json calls tied and the file holds with other values.

    Raises:
        InputError: If the two differ; scoring with either could be wrong.
    """
    if "lm_head.weight" not in names:
        return
    head = handles[names["lm_head.weight"]].get_tensor(names["lm_head.weight"])
    if not np.array_equal(head.astype(np.float32), embedding):
        raise InputError(
            f"{where}: lm_head.weight differs from the embedding",
            hint='config.json should say "tie_word_embeddings": false',
        )


def _names_on_disk(
    found: list[str], family: Family, config: DecoderConfig, directory: Path
) -> dict[str, str]:
    """Full name of each wanted tensor -> its name in the file.

    Some published files leave the family's prefix out.

    Raises:
        InputError: If a tensor is missing, or one is unknown.
    """
    has_prefix = any(name.startswith(family.prefix) for name in found)
    full = {
        name
        if has_prefix or name.startswith("lm_head.")
        else family.prefix + name: name
        for name in found
    }
    wanted = {name for _, names, _, _ in _disk_names(family, config) for name in names}
    if missing := wanted - full.keys():
        raise InputError(f"{directory}: missing tensors: {_some(missing)}")
    tied = {"lm_head.weight"} if config.tied else set()
    extra = full.keys() - wanted - tied
    if unknown := {name for name in extra if not name.endswith(family.ignored)}:
        raise InputError(f"{directory}: unknown tensors: {_some(unknown)}")
    return full


def _flat_state(decoder: Decoder) -> dict[str, Any]:
    return {
        _path_name(path): leaf
        for path, leaf in jax.tree.leaves_with_path(nnx.state(decoder))
    }


def _path_name(path) -> str:
    keys = [str(getattr(part, "key", getattr(part, "name", part))) for part in path]
    return ".".join(key for key in keys if key != "value")


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
