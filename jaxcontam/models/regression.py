"""Folders with an encoder and a regression head: BLEURT, in three layouts.

Read are what transformers writes for a sequence classifier of one label (model_type
`bert` or `rembert`), the layout of the public PyTorch port (`bleurt`), and the folder
of an official checkpoint whose TensorFlow variables were written to
`model.safetensors` under their own names. `docs/bleurt.md` says how to get each.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes  # noqa: F401 - lets safetensors return bfloat16 as NumPy arrays
import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from jaxcontam.data.files import read_json_object
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.encoder import STACKED, EncoderConfig, Weights, weight_shapes
from jaxcontam.models.families.family import activation, need
from jaxcontam.models.fingerprint import fingerprint_files
from jaxcontam.models.sentencepiece import HIDDEN, read_sentencepiece
from jaxcontam.models.weights import weight_files

_HINT = "docs/bleurt.md says which files a checkpoint needs and how to convert one"
# Field of the embedding's width, and its default where that is not the stream's.
_EMBEDDING = {
    "bert": ("hidden_size", None),
    "rembert": ("input_embedding_size", 256),
    "bleurt": ("embedding_size", None),
}
_SENTENCEPIECE_NAMES = ("sent_piece.model", "spm.model", "sentencepiece.model")
# Our name of a part -> its name on disk, after `canonical_name`.
_PARTS = {
    "embedding_norm": "embeddings.LayerNorm",
    "mapping": "encoder.embedding_projection",
    "pooler": "pooler.dense",
    "head": "classifier",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
# Tensors that a file may hold and no forward pass reads.
_IGNORED = re.compile(r".*(position_ids|token_type_ids|global_step|adam_[mv])")
# Longer words are one unknown token, as in BERT's own code.
_LONGEST_WORD = 200


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RegressionModel:
    """An encoder with a head, ready to score pairs.

    Attributes:
        name: Of its folder.
        fingerprint: SHA-256 of the config, the weights and the tokenizer.
        config: Shape of the encoder.
        weights: Float32 arrays, see `weight_shapes`.
        tokenizer: Neither adds nor reads special tokens.
        first_id: `[CLS]`, before a pair.
        separator_id: `[SEP]`, after each text.
        context: Most tokens of a pair, the three special ones included.
    """

    name: str
    fingerprint: str
    config: EncoderConfig
    weights: Weights
    tokenizer: Tokenizer
    first_id: int
    separator_id: int
    context: int


def load_regression(directory: str | Path) -> RegressionModel:
    """Open a folder.

    Raises:
        InputError: If there is none, it holds no config, weights or tokenizer, or they
            do not fit together; names the tensor.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder", hint=_HINT)
    config_path, raw = _read_config(directory)
    settings = _json_object(directory / "bleurt_config.json")
    try:
        config = _encoder_config(raw)
    except InputError as e:
        raise InputError(f"{config_path}: {e}", hint=e.hint) from e
    except (ValueError, TypeError, KeyError) as e:
        raise InputError(f"{config_path}: {e}") from e
    try:
        files = weight_files(directory)
    except InputError as e:
        raise InputError(str(e), hint=_HINT) from e
    tokenizer, limit = _read_tokenizer(directory, settings)
    first_id, separator_id = (
        _special_id(tokenizer, name, directory) for name in ("[CLS]", "[SEP]")
    )
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= config.vocab_size:
        raise InputError(
            f"{directory}: the tokenizer's token {token!r} has id {largest}, "
            f"the model has {config.vocab_size} rows"
        )
    return RegressionModel(
        name=directory.resolve().name,
        fingerprint=fingerprint_files([config_path, *files], tokenizer.to_str()),
        config=config,
        weights=_read_weights(directory, files, config),
        tokenizer=tokenizer,
        first_id=first_id,
        separator_id=separator_id,
        context=min(config.context, limit, settings.get("max_seq_length") or limit),
    )


def canonical_name(name: str) -> str:
    """One name for a tensor, whichever of the three layouts it comes from.

    The parts of a name are those of transformers' BERT, without the model's own prefix;
    a TensorFlow `kernel` keeps its name, since it lies the other way round.
    """
    name = name.split(":")[0].replace("/", ".")
    name = re.sub(r"\blayer_(\d+)", r"layer.\1", name)
    name = re.sub(r"^(bert|rembert|bleurt)\.", "", name)
    name = re.sub(r"^dense\.", "classifier.", name)
    name = name.replace("embedding_hidden_mapping_in", "embedding_projection")
    name = re.sub(r"\.gamma$", ".weight", name)
    name = re.sub(r"\.beta$", ".bias", name)
    return re.sub(r"(_embeddings)$", r"\1.weight", name)


def _read_config(directory: Path) -> tuple[Path, dict[str, Any]]:
    """`config.json`, or the two files of an official checkpoint."""
    path = directory / "config.json"
    if path.is_file():
        return path, _json_object(path)
    official = directory / "bert_config.json"
    if not official.is_file():
        raise InputError(f"{directory}: no config.json", hint=_HINT)
    raw = _json_object(official)
    # TensorFlow's code calls the tanh form of gelu by that name.
    act = raw.get("hidden_act", "gelu")
    raw["hidden_act"] = "gelu_new" if act == "gelu" else act
    return official, {"model_type": "bleurt", **raw}


def _json_object(path: Path) -> dict[str, Any]:
    """Fields of a JSON file; none where the file is absent."""
    return read_json_object(path) if path.is_file() else {}


def _encoder_config(raw: Mapping[str, Any]) -> EncoderConfig:
    kind = raw.get("model_type")
    if kind not in _EMBEDDING:
        raise unknown_name("model_type", str(kind), _EMBEDDING)
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise InputError("only absolute positions are read")
    d_model = need(raw, "hidden_size")
    field, default = _EMBEDDING[kind]
    return EncoderConfig(
        vocab_size=need(raw, "vocab_size"),
        embedding_size=need(raw, field, default or d_model),
        d_model=d_model,
        n_layers=need(raw, "num_hidden_layers"),
        n_heads=need(raw, "num_attention_heads"),
        d_ff=need(raw, "intermediate_size"),
        context=need(raw, "max_position_embeddings"),
        n_segments=need(raw, "type_vocab_size", 2),
        norm_eps=float(raw.get("layer_norm_eps", 1e-12)),
        activation=activation(raw.get("hidden_act", "gelu")),
    )


def _read_weights(
    directory: Path, files: list[Path], config: EncoderConfig
) -> dict[str, jax.Array]:
    """Each weight, those of the layers stacked.

    Raises:
        InputError: If a tensor is missing, unknown or of a wrong shape.
    """
    places: dict[str, tuple[Path, str]] = {}
    for path in files:
        try:
            with safe_open(path, "np") as handle:
                for name in handle.keys():  # noqa: SIM118 - no mapping
                    places[canonical_name(name)] = (path, name)
        except SafetensorError as e:
            raise InputError(f"{path}: not a safetensors file ({e})") from e

    used: set[str] = set()

    def read(ours: str, shape: tuple[int, ...], layer: int | None) -> np.ndarray:
        wanted = _name_on_disk(ours, layer)
        kernel = wanted.removesuffix(".weight") + ".kernel"
        found = kernel if ours.endswith(".kernel") and kernel in places else wanted
        if found not in places:
            raise InputError(
                f"{directory}: missing tensor {wanted}",
                hint="it must be a model with a regression head; " + _HINT,
            )
        used.add(found)
        path, name = places[found]
        with safe_open(path, "np") as handle:
            value = np.asarray(handle.get_tensor(name), np.float32)
        if ours.endswith(".kernel") and found == wanted:
            value = value.T
        if value.shape != shape:
            raise InputError(
                f"{directory}: {name} has shape {value.shape}, where "
                f"the config says {shape}"
            )
        return value

    weights = {}
    for ours, shape in weight_shapes(config).items():
        if ours.startswith(STACKED):
            value = np.stack([read(ours, shape, i) for i in range(config.n_layers)])
        else:
            value = read(ours, shape, None)
        weights[ours] = jax.device_put(value)
    if unknown := sorted(n for n in places.keys() - used if not _IGNORED.fullmatch(n)):
        raise InputError(
            f"{directory}: unknown tensors: {', '.join(unknown[:5])}", hint=_HINT
        )
    return weights


def _name_on_disk(ours: str, layer: int | None) -> str:
    if "." not in ours:
        kind = "token_type" if ours == "segment" else ours
        return f"embeddings.{kind}_embeddings.weight"
    part, _, kind = ours.removeprefix(STACKED).rpartition(".")
    before = "" if layer is None else f"encoder.layer.{layer}."
    return f"{before}{_PARTS[part]}.{'bias' if kind == 'bias' else 'weight'}"


def _read_tokenizer(
    directory: Path, settings: Mapping[str, Any]
) -> tuple[Tokenizer, int]:
    """The tokenizer, and the most tokens that its own settings allow.

    Raises:
        InputError: If there is none that is known.
    """
    fields = _json_object(directory / "tokenizer_config.json")
    limit = fields.get("model_max_length")
    # transformers writes a number of 31 digits where there is no limit.
    limit = int(limit) if isinstance(limit, int | float) and limit < 2**31 else 2**31
    own = directory / "tokenizer.json"
    words = directory / str(settings.get("vocab_file") or "vocab.txt")
    pieces = [
        directory / name
        for name in (f"{settings.get('sp_model')}.model", *_SENTENCEPIECE_NAMES)
        if (directory / name).is_file()
    ]
    if own.is_file():
        try:
            tokenizer = Tokenizer.from_file(str(own))
        except Exception as e:  # tokenizers raises its own bare Exception
            raise InputError(f"{own}: no tokenizer ({e})") from e
    elif pieces:
        tokenizer = read_sentencepiece(pieces[0])
    elif words.is_file():
        lower = settings.get("do_lower_case", fields.get("do_lower_case", True))
        tokenizer = _word_pieces(words, lower=bool(lower))
    else:
        raise InputError(f"{directory}: no tokenizer", hint=_HINT)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A completion that spells [SEP] is text, not a separator.
    tokenizer.encode_special_tokens = True
    return tokenizer, limit


def _word_pieces(path: Path, *, lower: bool) -> Tokenizer:
    """BERT's tokenizer from a vocabulary of one piece a line."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except ValueError as e:
        raise InputError(f"{path}: not UTF-8 ({e})", hint=_HINT) from e
    vocab = {line.removesuffix("\r"): i for i, line in enumerate(lines) if line}
    if "[UNK]" not in vocab:
        raise InputError(f"{path}: no piece [UNK]", hint="BERT's vocab.txt has one")
    made = Tokenizer(
        models.WordPiece(
            vocab, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD
        )
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def _special_id(tokenizer: Tokenizer, name: str, directory: Path) -> int:
    for spelled in (name, HIDDEN + name):
        if (found := tokenizer.token_to_id(spelled)) is not None:
            return found
    raise InputError(f"{directory}: the tokenizer has no {name}", hint=_HINT)
