"""Hugging Face directories in and out: config.json, safetensors, tokenizer.

No remote code runs and nothing is unpickled.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx
from jax.sharding import Mesh
from tokenizers import Tokenizer

from jaxcontam.arguments import Dtype, public
from jaxcontam.data.encoding import take_file, text_tokenizer, within_rows
from jaxcontam.data.files import read_json, read_json_object
from jaxcontam.data.model_files import ADAPTER, GGUF, check_tokenizer_files
from jaxcontam.errors import InputError, first_line
from jaxcontam.models.config import DecoderConfig, at_context
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES, Family, family_of, text_fields
from jaxcontam.models.hub import file_state, fingerprint_files, model_directory
from jaxcontam.models.weights import read_weights, weight_files, write_weights
from jaxcontam.terminal_text import printable

if TYPE_CHECKING:
    from jaxcontam.models.adapter import Adapter
    from jaxcontam.models.dequantize import Scheme


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model ready to score.

    Attributes:
        name: The directory's name, or its parent's where it is called `model`.
        tokenizer: Adds no special tokens and no prefix space.
        prefix_id: BOS id of the tokenizer, else the config's, else the EOS id, or None.
        stop_ids: EOS ids of generation_config.json, config and tokenizer.
        folder: Of its files, a chat template among them, or its GGUF file; None in
            memory.
        quantisation: Types of weights that were dequantised, most first; or "".
    """

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    prefix_id: int | None
    fingerprint: str
    stop_ids: tuple[int, ...] = ()
    folder: Path | None = None
    quantisation: str = ""

    @property
    def config(self) -> DecoderConfig:
        """The decoder's shape."""
        return self.decoder.config

    @property
    def n_parameters(self) -> int:
        """Weights, tied ones counted once."""
        return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(self.decoder)))


def check_model(model: str) -> None:
    """Refuse what is no whole model of a known family; reads no weights."""
    _, directory, _ = model_parts(model)
    read_decoder_config(directory)
    weight_files(directory)


def model_fingerprint(model: str) -> str:
    """Fingerprint of a model, before its weights are read: they are only hashed."""
    folder, directory, adapter = model_parts(model)
    raw = read_config_fields(directory)
    tokenizer, _, _ = read_tokenizer(folder, raw)
    files = model_files(directory, adapter)
    return fingerprint_files(files, tokenizer.to_str())


def model_parts(model: str) -> "tuple[Path, Path, Adapter | None]":
    """Folders of the tokenizer and of the weights, and the adapter of these."""
    folder = model_directory(model)
    adapter = None
    if (folder / ADAPTER).is_file():
        from jaxcontam.models.adapter import read_adapter

        adapter = read_adapter(folder)
    base = folder if adapter is None else model_directory(adapter.base)
    is_own = adapter is None or (folder / "tokenizer.json").is_file()
    return folder if is_own else base, base, adapter


def quantisation_of(files: Sequence[Path]) -> str:
    """Types of the weights of a GGUF file, most first; "" of plain safetensors."""
    if files[0].suffix != GGUF:
        directory = files[0].parent
        scheme = _scheme(read_config_fields(directory), directory)
        return scheme.name if scheme is not None else ""
    from jaxcontam.models.gguf_file import open_gguf

    return open_gguf(files[0]).quantisation


def model_files(directory: Path, adapter: "Adapter | None" = None) -> list[Path]:
    """Files that a model's scores follow from, but for its tokenizer's."""
    files = weight_files(directory)
    files = files if files == [directory] else [directory / "config.json", *files]
    return files if adapter is None else [*files, *adapter.files]


@public
def load_checkpoint(
    model: str,
    *,
    dtype: Dtype = "float32",
    mesh: Mesh | None = None,
    context: int | None = None,
    values: bool = True,
) -> Checkpoint:
    """Open a directory in Hugging Face layout, a GGUF file, or a name on the hub.

    A directory with a LoRA adapter alone is its base model with the adapter's changes.
    For `dtype`, `mesh` and `values` see `read_weights`, for `context` `at_context`.
    """
    folder, directory, adapter = model_parts(model)
    raw = read_config_fields(directory)
    files = model_files(directory, adapter)
    states = [file_state(path) for path in files]
    decoder = load_decoder(
        directory,
        dtype=dtype,
        mesh=mesh,
        context=context,
        adapter=adapter,
        values=values,
    )
    tokenizer, prefix_id, eos_id = read_tokenizer(folder, raw)
    n_rows = decoder.config.vocab_size
    if (prefix_id or 0) >= n_rows:
        raise InputError(
            f"{directory}: the token before a text has id {prefix_id:.7g}, but the "
            f"model has {n_rows} rows"
        )
    tokenizer = within_rows(tokenizer, n_rows)
    fingerprint = fingerprint_files(files, tokenizer.to_str())
    if [file_state(path) for path in files] != states:
        raise InputError(
            f"{directory}: changed while it was read",
            hint="wait until it is completely written",
        )
    path = Path(model).resolve()
    return Checkpoint(
        name=printable(
            path.parent.name if path.name == "model" else path.name.removesuffix(GGUF)
        ),
        decoder=decoder,
        tokenizer=tokenizer,
        prefix_id=prefix_id,
        fingerprint=fingerprint,
        stop_ids=_stop_ids(directory, raw, eos_id, n_rows),
        folder=folder,
        quantisation=quantisation_of(files),
    )


def load_decoder(
    directory: Path,
    *,
    dtype: Dtype = "float32",
    mesh: Mesh | None = None,
    context: int | None = None,
    adapter: "Adapter | None" = None,
    values: bool = True,
) -> Decoder:
    """Read config.json and the weights of a directory; see `read_weights`."""
    family, config = read_decoder_config(directory)
    if context is not None:
        try:
            config = at_context(config, context)
        except ValueError as e:
            raise InputError(f"{directory}: {e}") from e
    files = weight_files(directory)
    how: dict[str, Any] = {"dtype": dtype, "mesh": mesh, "adapter": adapter}
    how["values"] = values
    how["scheme"] = _scheme(read_config_fields(directory), directory)
    return read_weights(directory, files, family, config, **how)


def read_decoder_config(directory: Path) -> tuple[Family, DecoderConfig]:
    """Family and shape of a model out of its config.json."""
    where = f"{directory}/config.json"
    raw = read_config_fields(directory)
    family = FAMILIES[raw["model_type"]]
    _scheme(raw, directory)
    try:
        config = family.read_config(raw)
    except InputError as e:
        raise InputError(f"{where}: {e}", hint=e.hint) from e
    except KeyError as e:
        raise InputError(f"{where}: no field {e}") from e
    except (ValueError, TypeError, AttributeError, ArithmeticError) as e:
        raise InputError(f"{where}: {first_line(e)}") from e
    return family, config


def _scheme(raw: Mapping[str, Any], directory: Path) -> "Scheme | None":
    """How weights are quantised; None of plain ones."""
    if raw.get("quantization_config") is None:
        return None
    from jaxcontam.models.dequantize import read_scheme

    return read_scheme(raw, f"{directory}/config.json")


def save_checkpoint(
    decoder: Decoder,
    tokenizer,
    directory: Path,
    *,
    model_type: str = "llama",
    raw_config: Mapping[str, Any] | None = None,
) -> None:
    """Write a directory that transformers and `load_checkpoint` open, in float32.

    Without a tokenizer the rest is written alone. `raw_config` holds
    `read_config_fields` of the model that the decoder was read from, so that what no
    field of ours holds stays. None makes the fields from the decoder's shape, and is a
    ValueError where the family cannot.
    """
    family = FAMILIES[model_type]
    config = decoder.config
    labels: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "dtype": "float32",
    }
    if raw_config is None:
        if family.write_config is None:
            raise ValueError(
                f"{family.model_type} is written only with the config.json fields that "
                "the model was read from (raw_config)"
            )
        shape = family.write_config(config)
        if family.read_config(shape) != config:
            raise ValueError(f"no {family.model_type} has this shape: {config}")
        fields = {**labels, **shape}
    else:
        if (found := raw_config.get("model_type")) != family.model_type:
            raise ValueError(
                f"raw_config must be of model_type {family.model_type!r}, got {found!r}"
            )
        if (found := family.read_config(raw_config)) != config:
            raise ValueError(
                f"raw_config must have the decoder's shape {config}, got {found}"
            )
        # `dtype` under its older name, and what is not written: names of code files,
        # and weights of few bits.
        unkept = ("torch_dtype", "auto_map", "quantization_config")
        kept = {name: x for name, x in raw_config.items() if name not in unkept}
        fields = {**kept, **labels}
    directory.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
        if raw_config is None:
            fields["bos_token_id"] = tokenizer.bos_token_id
            fields["eos_token_id"] = tokenizer.eos_token_id
    write_weights(decoder, family, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(fields, indent=1) + "\n")


def read_config_fields(directory: Path) -> dict[str, Any]:
    """Every field of a directory's config.json, or of the text model in it."""
    path = directory / "config.json"
    if directory.suffix == GGUF and directory.is_file():
        from jaxcontam.models.gguf_model import config_fields

        raw = config_fields(directory)
        family_of(raw, str(directory))
        return raw
    if not path.is_file():
        raise InputError(
            f"{directory}: no config.json", hint="not a Hugging Face model directory"
        )
    raw = text_fields(read_json_object(path))
    family_of(raw, str(path))
    return raw


def read_fast_tokenizer(directory: Path):
    """The transformers fast tokenizer of a directory; its ids are tokenizer.json's."""
    if directory.suffix == GGUF and directory.is_file():
        quiet_transformers()
        from jaxcontam.models.gguf_model import gguf_tokenizer

        return gguf_tokenizer(directory)
    check_tokenizer_files(directory)
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
    if not any((directory / name).is_file() for name in names):
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
        take_file(loaded, directory / names[0])
    except Exception as e:  # transformers raises many types for a broken file
        raise InputError(
            f"{directory}: the tokenizer does not load "
            f"({type(e).__name__}: {first_line(e)})",
            hint=""
            if (directory / names[0]).is_file()
            else "write a tokenizer.json first: pip install sentencepiece protobuf, "
            "then AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        ) from e
    if getattr(loaded, "backend_tokenizer", None) is None:
        raise InputError(f"{directory}: no fast tokenizer", hint="needs tokenizer.json")
    return loaded


def read_tokenizer(
    directory: Path, config: Mapping[str, Any]
) -> tuple[Tokenizer, int | None, int | None]:
    """The plain tokenizer, the id before a text, and the tokenizer's EOS id."""
    loaded = read_fast_tokenizer(directory)
    plain = text_tokenizer(loaded.backend_tokenizer)
    eos_id = loaded.eos_token_id
    # A chat model's tokenizer may have no BOS and an EOS that no document starts with,
    # where its config still names the token that does.
    for prefix_id in (loaded.bos_token_id, config.get("bos_token_id")):
        if isinstance(prefix_id, int) and prefix_id >= 0:
            return plain, prefix_id, eos_id
    return plain, eos_id, eos_id


def quiet_transformers() -> None:
    """Silence transformers' warning that torch is missing; call before its import."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _stop_ids(
    directory: Path, config: Mapping[str, Any], eos_id: int | None, n_rows: int
) -> tuple[int, ...]:
    """Ids that end a text; chat models name one of their own beside the tokenizer's."""
    path = directory / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    named: list[Any] = [eos_id]
    for fields in (generation, config):
        ids = fields.get("eos_token_id") if isinstance(fields, dict) else None
        named += ids if isinstance(ids, list) else [ids]
    known = {i for i in named if isinstance(i, int) and 0 <= i < n_rows}
    return tuple(sorted(known))
