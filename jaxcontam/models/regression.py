"""BLEURT checkpoints: an encoder with a regression head, in transformers' torch.

Three layouts are read: what transformers writes for a sequence classifier of one label
(model_type `bert` or `rembert`), the public PyTorch port (`bleurt`), and the folder of
an official checkpoint whose TensorFlow variables were written to `model.safetensors`
under their own names. `docs/bleurt.md` says how to get each. Nothing is unpickled.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from jaxcontam.data.files import read_json_object, read_limited
from jaxcontam.data.model_files import check_tensor_names, check_tokenizer_files
from jaxcontam.errors import InputError, first_line, unknown_name
from jaxcontam.models.checkpoint import quiet_transformers
from jaxcontam.models.families.family import need
from jaxcontam.models.fingerprint import fingerprint_files
from jaxcontam.models.torch_extra import need_torch
from jaxcontam.models.weights import weight_files
from jaxcontam.terminal import printable

_HINT = "docs/bleurt.md says which files a checkpoint needs and how to convert one"
_KINDS = ("bert", "rembert", "bleurt")
# Fields that give a shape; the others have the defaults of BERT's own code.
_SHAPE = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
_DEFAULTS = {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
_SENTENCEPIECE_NAMES = ("sent_piece.model", "spm.model", "sentencepiece.model")
# Tensors that a file may hold and no forward pass reads.
_IGNORED = re.compile(r".*(position_ids|token_type_ids|global_step|adam_[mv])")
# Bytes of a vocab.txt; a piece a line takes far more memory than its letters.
_MOST_PIECES = 16 << 20
# Longer words are one unknown token, as in BERT's own code.
_LONGEST_WORD = 200
# Prefix of pieces that no text contains, such as `[CLS]`, in the vocabulary: a text
# that spells one is read as plain characters.
_HIDDEN = "\U0010ffff"
# Types of SentencePiece's pieces that are text, and its unigram model.
_NORMAL, _UNKNOWN, _USER_DEFINED, _BYTE = 1, 2, 4, 6
_UNIGRAM = 1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RegressionModel:
    """An encoder with a head, ready to score pairs.

    Attributes:
        name: Name of its folder.
        fingerprint: SHA-256 of the config, the weights and the tokenizer.
        model: transformers' sequence classifier of one label, in evaluation mode, in
            float32, on a GPU where torch finds one.
        tokenizer: Neither adds nor reads special tokens.
        first_id: `[CLS]`, before a pair.
        separator_id: `[SEP]`, after each text.
        context: Most tokens of a pair, the three special ones included.
    """

    name: str
    fingerprint: str
    model: Any
    tokenizer: Tokenizer
    first_id: int
    separator_id: int
    context: int


def load_regression(directory: str | Path) -> RegressionModel:
    """Open a folder.

    Raises:
        InputError: If there is none, it holds no config, weights or tokenizer, or they
            do not fit together (names the tensor); or if torch is not installed.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder", hint=_HINT)
    need_torch("BLEURT")
    check_tokenizer_files(directory)
    config_path, raw = _read_config(directory)
    settings = _json_object(directory / "bleurt_config.json")
    try:
        kind, fields = _shape(raw)
    except InputError as e:
        raise InputError(f"{config_path}: {e}", hint=e.hint) from e
    try:
        files = weight_files(directory)
    except InputError as e:
        raise InputError(str(e), hint=_HINT) from e
    tokenizer, limit = _read_tokenizer(directory, settings)
    first_id, separator_id = (
        _special_id(tokenizer, name, directory) for name in ("[CLS]", "[SEP]")
    )
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= fields["vocab_size"]:
        raise InputError(
            f"{directory}: the tokenizer's token {token!r} has id {largest}, "
            f"the model has {fields['vocab_size']} rows"
        )
    limit = min(fields["max_position_embeddings"], limit)
    return RegressionModel(
        name=printable(directory.resolve().name),
        fingerprint=fingerprint_files([config_path, *files], tokenizer.to_str()),
        model=_read_model(directory, config_path, files, kind, fields),
        tokenizer=tokenizer,
        first_id=first_id,
        separator_id=separator_id,
        context=min(limit, settings.get("max_seq_length") or limit),
    )


def canonical_name(name: str) -> str:
    """One name for a tensor, whichever of the three layouts it comes from.

    The name within transformers' BERT, without the model's own prefix. A TensorFlow
    `kernel` keeps its name, since it is transposed.
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


def _shape(raw: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """`bert` or `rembert`, and the fields of its transformers config.

    The two differ in one matrix: RemBERT's token embeddings are narrower than the
    stream and are mapped into it.
    """
    kind = raw.get("model_type")
    if kind not in _KINDS:
        raise unknown_name("model_type", str(kind), _KINDS)
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise InputError("only absolute positions are read")
    fields = {name: need(raw, name) for name in _SHAPE}
    fields |= {name: raw.get(name, default) for name, default in _DEFAULTS.items()}
    if kind == "bleurt":
        width = raw.get("embedding_size") or fields["hidden_size"]
        kind = "bert" if width == fields["hidden_size"] else "rembert"
    else:
        width = raw.get("input_embedding_size", 256)
    return kind, fields | ({} if kind == "bert" else {"input_embedding_size": width})


def _read_model(
    directory: Path,
    config_path: Path,
    files: list[Path],
    kind: str,
    fields: Mapping[str, Any],
) -> Any:
    """The torch module with the tensors of the files.

    Raises:
        InputError: If the config makes no model, or a tensor is missing, unknown or of
            a wrong shape.
    """
    import torch

    quiet_transformers()
    import transformers
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    classes: tuple[Any, Any] = (
        transformers.BertConfig,
        transformers.BertForSequenceClassification,
    )
    if kind == "rembert":
        classes = (
            transformers.RemBertConfig,
            transformers.RemBertForSequenceClassification,
        )
    try:
        config = classes[0](**fields, num_labels=1)
        # Shapes alone: nothing is drawn that the file then replaces.
        with torch.device("meta"):
            wanted = classes[1](config).state_dict()
    # transformers raises many types for fields that make no model.
    except Exception as e:
        raise InputError(f"{config_path}: {first_line(e)}") from e
    tensors = _read_tensors(directory, files, wanted)
    model = classes[1].from_pretrained(None, config=config, state_dict=tensors)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _read_tensors(
    directory: Path, files: list[Path], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """Tensors by transformers' names, float32.

    Raises:
        InputError: If one is missing, unknown or of another shape than wanted.
    """
    ours = {canonical_name(name): name for name in wanted}
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for path in files:
        check_tensor_names(path)
        try:
            with safe_open(path, "pt") as handle:
                for name in handle.keys():  # noqa: SIM118 - no mapping
                    key = canonical_name(name)
                    is_kernel = key.endswith(".kernel")
                    key = ours.get(key.removesuffix(".kernel") + ".weight" * is_kernel)
                    if key is None:
                        unknown.append(name)
                        continue
                    value = handle.get_tensor(name).float()
                    found[key] = value.T.contiguous() if is_kernel else value
                    if found[key].shape != wanted[key].shape:
                        raise InputError(
                            f"{directory}: {name} has shape {tuple(value.shape)}, "
                            f"where the config says {tuple(wanted[key].shape)}"
                        )
        except SafetensorError as e:
            raise InputError(f"{path}: not a safetensors file ({e})") from e
    if missing := [name for name, key in ours.items() if key not in found]:
        raise InputError(
            f"{directory}: missing tensor {missing[0]}",
            hint="it must be a model with a regression head; " + _HINT,
        )
    if strange := sorted(name for name in unknown if not _IGNORED.fullmatch(name)):
        raise InputError(
            f"{directory}: unknown tensors: {', '.join(strange[:5])}", hint=_HINT
        )
    return found


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
        tokenizer = _sentence_pieces(pieces[0])
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
        lines = read_limited(path, most=_MOST_PIECES).decode("utf-8").split("\n")
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


def _sentence_pieces(path: Path) -> Tokenizer:
    """A tokenizer that gives the ids SentencePiece would give, without its library.

    Raises:
        InputError: If the file is no SentencePiece model, or not of the unigram kind.
    """
    from google.protobuf.message import DecodeError
    from transformers.convert_slow_tokenizer import import_protobuf

    module: Any = import_protobuf()
    proto = module.ModelProto()
    try:
        proto.ParseFromString(read_limited(path))
        if not proto.pieces:
            raise ValueError("it holds no pieces")
        unknown = [piece.type for piece in proto.pieces].index(_UNKNOWN)
    except (DecodeError, ValueError) as e:
        raise InputError(
            f"{path}: not a SentencePiece model ({e})",
            hint="copy the .model file again, or use a tokenizer.json",
        ) from e
    if proto.trainer_spec.model_type != _UNIGRAM:
        raise InputError(
            f"{path}: not a unigram model",
            hint="only that kind is read without a tokenizer.json",
        )
    is_text = (_NORMAL, _USER_DEFINED, _BYTE)
    vocab = [
        (piece.piece if piece.type in is_text else _HIDDEN + piece.piece, piece.score)
        for piece in proto.pieces
    ]
    made = Tokenizer(
        models.Unigram(
            vocab, unk_id=unknown, byte_fallback=proto.trainer_spec.byte_fallback
        )
    )
    spec = proto.normalizer_spec
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend("\u2581"))
    steps.append(normalizers.Replace(" ", "\u2581"))
    made.normalizer = normalizers.Sequence(steps)
    return made


def _special_id(tokenizer: Tokenizer, name: str, directory: Path) -> int:
    for spelled in (name, _HIDDEN + name):
        if (found := tokenizer.token_to_id(spelled)) is not None:
            return found
    raise InputError(f"{directory}: the tokenizer has no {name}", hint=_HINT)
