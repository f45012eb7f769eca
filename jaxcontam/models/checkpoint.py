"""Hugging Face directories in and out: config.json, safetensors, tokenizer.

Weights are read from safetensors only. A pickle is refused rather than opened: it can
run any code.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401  lets safetensors return bfloat16 as NumPy arrays
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES, Family, family_of

_INDEX = "model.safetensors.index.json"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model ready to score.

    Attributes:
        name: The directory's name.
        decoder: The model, float32.
        tokenizer: Adds no special tokens and no prefix space.
        prefix_id: BOS id, or EOS id where there is no BOS, or None.
        fingerprint: SHA-256 of the config, the weights and the tokenizer.
    """

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    prefix_id: int | None
    fingerprint: str

    @property
    def config(self) -> DecoderConfig:
        """The decoder's shape."""
        return self.decoder.config

    @property
    def n_parameters(self) -> int:
        """Weights, tied ones counted once."""
        return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(self.decoder)))


def load_checkpoint(model: str) -> Checkpoint:
    """Open a directory in Hugging Face layout, or a name on the hub.

    Raises:
        InputError: If there is no such model, or config, weights or tokenizer are
            missing, unknown or do not fit together; names the tensors.
    """
    directory = _locate(model)
    decoder = load_decoder(directory)
    tokenizer, prefix_id = _read_tokenizer(directory)
    n_rows = decoder.config.vocab_size
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= n_rows:
        raise InputError(
            f"{directory}: the tokenizer's token {token!r} has id {largest}, "
            f"the model has {n_rows} rows"
        )
    return Checkpoint(
        name=directory.resolve().name
        if directory.name in ("", ".")
        else Path(model).name,
        decoder=decoder,
        tokenizer=tokenizer,
        prefix_id=prefix_id,
        fingerprint=_fingerprint(
            [directory / "config.json", *_weight_files(directory)], tokenizer
        ),
    )


def load_decoder(directory: Path) -> Decoder:
    """Read config.json and the weights of a directory, as float32.

    Raises:
        InputError: As `load_checkpoint`, but for the tokenizer.
    """
    where = f"{directory}/config.json"
    raw = _read_config(directory)
    family = family_of(raw, where)
    try:
        config = family.read_config(raw)
    except InputError as e:
        raise InputError(f"{where}: {e}", hint=e.hint) from e
    except (ValueError, TypeError, AttributeError, ZeroDivisionError) as e:
        raise InputError(f"{where}: {_first_line(e)}") from e
    return _read_weights(directory, _weight_files(directory), family, config)


def save_checkpoint(
    decoder: Decoder, tokenizer, directory: Path, *, model_type: str = "llama"
) -> None:
    """Write a directory that transformers and `load_checkpoint` open.

    Args:
        decoder: The model.
        tokenizer: A transformers fast tokenizer; None writes the weights alone.
        directory: Created if missing.
        model_type: A row of FAMILIES whose shape the decoder has.
    """
    family = FAMILIES[model_type]
    config = decoder.config
    directory.mkdir(parents=True, exist_ok=True)
    fields = {
        "architectures": [family.architecture],
        "model_type": model_type,
        "dtype": "float32",
        **family.write_config(config),
    }
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
        fields["bos_token_id"] = tokenizer.bos_token_id
        fields["eos_token_id"] = tokenizer.eos_token_id
    state = _flat_state(decoder)
    tensors = {}
    for ours, names, transposed, layer in _disk_names(family, config):
        value = np.asarray(state[ours])
        value = value if layer is None else value[layer]
        bounds = np.cumsum(_output_sizes(names, config, value.shape[-1]))[:-1]
        for name, part in zip(names, np.split(value, bounds, axis=-1), strict=True):
            part = part.T if transposed else part
            tensors[name] = np.ascontiguousarray(part)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(fields, indent=1) + "\n")


def quiet_transformers() -> None:
    """Before its first import: no word about torch, which nothing here needs."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _locate(model: str) -> Path:
    directory = Path(model)
    if directory.is_dir():
        return directory
    if directory.exists():
        raise InputError(f"{model}: not a model directory", hint="name its folder")
    is_hub_name = model.count("/") == 1 and not directory.parent.exists()
    if not is_hub_name or model.startswith((".", "/")):
        raise InputError(
            f"{model}: no such model directory",
            hint="give a folder with config.json, or a hub name such as org/name",
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                model,
                allow_patterns=["*.json", "*.safetensors", "tokenizer.model", "*.txt"],
            )
        )
    except (OSError, ValueError) as e:
        first_line = str(e).strip().splitlines()[0]
        raise InputError(
            f"{model}: no such folder, and not on the hub ({first_line})"
        ) from e


def _read_config(directory: Path) -> Mapping[str, Any]:
    path = directory / "config.json"
    if not path.is_file():
        raise InputError(
            f"{directory}: no config.json", hint="not a Hugging Face model directory"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise InputError(f"{path}: not JSON ({e})") from e
    if not isinstance(raw, dict):
        raise InputError(f"{path}: expected an object, got {type(raw).__name__}")
    return raw


def _weight_files(directory: Path) -> list[Path]:
    """Safetensors files; refuses pickles and says how to convert them."""
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


def _read_weights(
    directory: Path, files: list[Path], family: Family, config: DecoderConfig
) -> Decoder:
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


def _read_tokenizer(directory: Path) -> tuple[Tokenizer, int | None]:
    if not any(
        (directory / n).is_file()
        for n in ("tokenizer.json", "tokenizer.model", "vocab.json")
    ):
        raise InputError(
            f"{directory}: no tokenizer (tokenizer.json is missing)",
            hint="copy the tokenizer files of the model into its folder",
        )
    quiet_transformers()
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as e:  # transformers raises many types for a broken file
        raise InputError(
            f"{directory}: the tokenizer does not load "
            f"({type(e).__name__}: {_first_line(e)})"
        ) from e
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise InputError(f"{directory}: no fast tokenizer", hint="needs tokenizer.json")
    prefix_id = loaded.bos_token_id
    if prefix_id is None:
        prefix_id = loaded.eos_token_id
    return plain_tokenizer(backend), prefix_id


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [""])[0]


def _fingerprint(files: list[Path], tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    digest.update(tokenizer.to_str().encode())
    return f"sha256:{digest.hexdigest()}"
