"""BLEURT: how close a completion is to its reference, by a model trained on ratings.

Dimension key
    N  pairs
    B  pairs of a batch
    T  tokens, padding at the end
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tokenizers import Tokenizer

from jaxcontam.data.files import read_json_object
from jaxcontam.data.model_files import check_tensor_names, check_tokenizer_files
from jaxcontam.errors import InputError, first_line, unknown_name
from jaxcontam.models.checkpoint import (
    Checkpoint,
    load_checkpoint,
    quiet_transformers,
    read_fast_tokenizer,
)
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.hub import fingerprint_files, model_directory, need_torch
from jaxcontam.models.weights import weight_files
from jaxcontam.replication.overlap import Measure
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.run_batches import plan_batches
from jaxcontam.terminal_text import printable

_HINT = (
    "see docs/how_to/replicate.md for the files of a checkpoint and how to convert one"
)
_KINDS = {
    "bert": "BertForSequenceClassification",
    "rembert": "RemBertForSequenceClassification",
}
# Tensors that a file may hold and no forward pass reads.
_IGNORED = re.compile(r".*(position_ids|token_type_ids)")
# Layers and width of the stream.
_BLEURT_20 = (32, 1152)
# Tokens of a batch, padding included.
_BATCH_TOKENS = 2048
_ENCODERS = ("bert", "roberta")
# Of SimCSE's tool: texts at once, and tokens of each.
_SENTENCES, _SENTENCE_TOKENS = 64, 128


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bleurt:
    """BLEURT with an open checkpoint.

    A score is about 0 for unrelated texts and about 1 for equal ones; it has no bounds,
    and scores of two checkpoints are not comparable. `model` is transformers' sequence
    classifier of one label; `context` counts the three special tokens of a pair.
    """

    folder: str
    fingerprint: str
    model: Any
    tokenizer: Tokenizer
    first_id: int
    separator_id: int
    context: int

    @classmethod
    def load(cls, directory: str | Path) -> "Bleurt":
        """Open a folder that transformers wrote; nothing is unpickled."""
        directory = Path(directory)
        if not directory.is_dir():
            raise InputError(f"{directory}: no such folder", hint=_HINT)
        need_torch("BLEURT")
        check_tokenizer_files(directory)
        config = directory / "config.json"
        if not config.is_file():
            raise InputError(f"{directory}: no config.json", hint=_HINT)
        try:
            files = weight_files(directory)
        except InputError as e:
            raise InputError(str(e), hint=_HINT) from e
        for path in files:
            check_tensor_names(path)
        tokenizer, limit = _read_tokenizer(directory)
        model = _read_model(directory, config)
        token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
        if largest >= model.config.vocab_size:
            raise InputError(
                f"{directory}: the tokenizer's token {token!r} has id {largest}, but "
                f"the model has {model.config.vocab_size} rows"
            )
        first_id, separator_id = map(tokenizer.token_to_id, ("[CLS]", "[SEP]"))
        if first_id is None or separator_id is None:
            raise InputError(f"{directory}: no [CLS] or no [SEP]", hint=_HINT)
        return cls(
            folder=printable(directory.resolve().name),
            fingerprint=fingerprint_files([config, *files], tokenizer.to_str()),
            model=model,
            tokenizer=tokenizer,
            first_id=first_id,
            separator_id=separator_id,
            context=min(limit, model.config.max_position_embeddings),
        )

    @property
    def version(self) -> str:
        """Name and digest of the checkpoint, for a report."""
        digest = self.fingerprint.removeprefix("sha256:")
        return f"{self.folder} {digest[:12]}"

    @property
    def is_bleurt_20(self) -> bool:
        """True if the encoder has BLEURT-20's shape, whose scores judges read."""
        config = self.model.config
        return (config.num_hidden_layers, config.hidden_size) == _BLEURT_20

    @property
    def measure(self) -> Measure:
        """The measure for `overlap_scores`; BLEURT compares whole sentences."""
        return Measure(
            name="bleurt",
            whole_when_inside=True,
            score=self.scores,
            note=f"BLEURT is measured by {self.version}",
            is_bleurt_20=self.is_bleurt_20,
        )

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Score of each (reference, candidate) pair, (N,) float64.

        A pair that is too long loses tokens at the end of its longer text.

        Source:
            Sellam et al., arXiv:2004.04696: the reference comes first, and the score is
            the head's output.
        """
        import torch

        texts = [text for pair in pairs for text in pair]
        found = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        ids = [one.ids for one in found]
        encoded = list(map(self._pair_ids, ids[::2], ids[1::2]))
        scores_N = np.zeros(len(pairs))
        for batch in plan_batches(
            [len(ids) for ids, _ in encoded],
            context=self.context,
            batch_tokens=_BATCH_TOKENS,
        ):
            # The rows of a batch as they are: torch compiles no shapes.
            shape = len(batch.rows), max(len(encoded[i][0]) for i in batch.rows)
            ids_BT, segments_BT, is_token_BT = np.zeros((3, *shape), np.int64)
            for b, i in enumerate(batch.rows):
                ids, n_first = encoded[i]
                ids_BT[b, : len(ids)] = ids
                segments_BT[b, n_first : len(ids)] = 1
                is_token_BT[b, : len(ids)] = 1
            with torch.inference_mode():
                logits_B1 = self.model(
                    input_ids=torch.tensor(ids_BT, device=self.model.device),
                    token_type_ids=torch.tensor(segments_BT, device=self.model.device),
                    attention_mask=torch.tensor(is_token_BT, device=self.model.device),
                ).logits
            scores_N[list(batch.rows)] = logits_B1[:, 0].cpu().numpy()
        return scores_N

    def _pair_ids(self, first: list[int], second: list[int]) -> tuple[list[int], int]:
        """`[CLS] first [SEP] second [SEP]`, and where the second segment begins."""
        n_first, n_second = kept_tokens(len(first), len(second), self.context - 3)
        ids = [self.first_id, *first[:n_first], self.separator_id]
        return [*ids, *second[:n_second], self.separator_id], len(ids)


def kept_tokens(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Tokens that are kept of each text: the longer one, else the second, is cut.

    Source:
        The closed form of the function that BLEURT's and BERT's own code truncates
        pairs with, one token after the other.
    """
    room = max(room, 0)
    if n_first + n_second <= room:
        return n_first, n_second
    # Each is cut to the half; a shorter one is kept whole.
    half = room // 2
    if n_second <= half:
        return room - n_second, n_second
    if n_first <= room - half:
        return n_first, room - n_first
    return room - half, half


def _read_model(directory: Path, config: Path) -> Any:
    """The torch module; InputError if the config makes none, or a tensor is wrong."""
    import torch

    quiet_transformers()
    import transformers
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    fields = read_json_object(config)
    kind = fields.get("model_type")
    if kind not in _KINDS:
        unknown = unknown_name("model_type", str(kind), _KINDS)
        raise InputError(f"{config}: {unknown}", hint=unknown.hint)
    if fields.get("position_embedding_type", "absolute") != "absolute":
        raise InputError(f"{config}: only absolute positions are read")
    try:
        model, found = getattr(transformers, _KINDS[kind]).from_pretrained(
            directory,
            num_labels=1,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    # transformers raises many types for a folder that makes no model.
    except Exception as e:
        raise InputError(
            f"{directory}: cannot load the model ({type(e).__name__}: {first_line(e)})",
            hint=_HINT,
        ) from e
    # Name of a tensor, its shape in the file, and that of the config.
    for name, theirs, wanted in sorted(found["mismatched_keys"]):
        raise InputError(
            f"{directory}: {name} has shape {tuple(theirs)} (the config says "
            f"{tuple(wanted)})"
        )
    for name in sorted(found["missing_keys"]):
        raise InputError(
            f"{directory}: missing tensor {name}",
            hint="it must be a model with a regression head; " + _HINT,
        )
    unknown = sorted(found["unexpected_keys"])
    if strange := [name for name in unknown if not _IGNORED.fullmatch(name)]:
        raise InputError(
            f"{directory}: unknown tensors: {', '.join(strange[:5])}", hint=_HINT
        )
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _read_tokenizer(directory: Path) -> tuple[Tokenizer, int]:
    """The tokenizer, and the most tokens that its own settings allow."""
    settings, own = directory / "tokenizer_config.json", directory / "tokenizer.json"
    fields = read_json_object(settings) if settings.is_file() else {}
    limit = fields.get("model_max_length")
    # transformers writes a number of 31 digits where there is no limit.
    limit = int(limit) if isinstance(limit, int | float) and limit < 2**31 else 2**31
    try:
        tokenizer = Tokenizer.from_file(str(own))
    except Exception as e:  # tokenizers raises its own bare Exception
        raise InputError(f"{own}: no tokenizer ({first_line(e)})", hint=_HINT) from e
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A completion that spells [SEP] is text, not a separator.
    tokenizer.encode_special_tokens = True
    return tokenizer, limit


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Embedder:
    """A model that gives texts unit vectors: (N) texts -> (N, D) float32."""

    name: str
    fingerprint: str
    embed: Callable[[Sequence[str]], np.ndarray]


def open_embedder(model: str) -> Embedder:
    """Open an encoder of sentences, such as SimCSE, in torch; else a decoder."""
    folder = model_directory(model)
    config = folder / "config.json"
    fields = read_json_object(config) if config.is_file() else {}
    if fields.get("model_type") in _ENCODERS:
        # Theirs looks at the name of the model as well.
        return _sentence_encoder(folder, before_pooler="unsup" in model)
    checkpoint = load_checkpoint(model)
    embed = functools.partial(text_embeddings, checkpoint)
    return Embedder(checkpoint.name, checkpoint.fingerprint, embed)


def _sentence_encoder(folder: Path, *, before_pooler: bool) -> Embedder:
    """Vectors of the first token, as SimCSE's tool takes them.

    Source:
        Gao et al., arXiv:2104.08821, and their `simcse/tool.py`: 128 tokens of a text;
        the pooler's output, but for unsupervised models the state before it. A
        checkpoint without a pooler is read as these.
    """
    need_torch("an encoder of sentences")
    check_tokenizer_files(folder)
    quiet_transformers()
    import torch
    from transformers import AutoModel

    files = weight_files(folder)
    for path in files:
        check_tensor_names(path)
    try:
        model, found = AutoModel.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    # transformers raises many types for a folder that makes no model.
    except Exception as e:
        raise InputError(
            f"{folder}: cannot load the encoder ({type(e).__name__}: {first_line(e)})"
        ) from e
    before_pooler |= any("pooler" in name for name in found["missing_keys"])
    tokenizer = read_fast_tokenizer(folder)
    model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    def embed(texts: Sequence[str]) -> np.ndarray:
        parts = [np.zeros((0, model.config.hidden_size), np.float32)]
        for start in range(0, len(texts), _SENTENCES):
            some = list(texts[start : start + _SENTENCES])
            limit = {"truncation": True, "max_length": _SENTENCE_TOKENS}
            given = tokenizer(some, padding=True, return_tensors="pt", **limit)
            with torch.no_grad():
                read = model(**given.to(model.device))
            vectors_BD = read.last_hidden_state[:, 0]
            vectors_BD = vectors_BD if before_pooler else read.pooler_output
            vectors_BD = torch.nn.functional.normalize(vectors_BD, dim=1)
            parts.append(vectors_BD.cpu().numpy())
        return np.concatenate(parts)

    state = fingerprint_files(
        [folder / "config.json", *files], tokenizer.backend_tokenizer.to_str()
    )
    return Embedder(printable(folder.resolve().name), state, embed)


def embedding_measure(embedder: Embedder) -> Measure:
    """Cosine of the vectors of two texts; 0 where a text has no tokens.

    Those of a plain language model are high for any two texts of one language; what
    counts is how much higher they are with the guided instruction.
    """

    def scores(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        if not pairs:
            return np.zeros(0)
        # A reference stands in two pairs, one an instruction: it is read once.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        vectors_ND = embedder.embed(texts).astype(np.float64)
        place = {text: i for i, text in enumerate(texts)}
        sides = zip(*pairs, strict=True)
        firsts, seconds = ([place[text] for text in side] for side in sides)
        return np.sum(vectors_ND[firsts] * vectors_ND[seconds], axis=1)

    digest = embedder.fingerprint.removeprefix("sha256:")[:12]
    return Measure(
        name="embedding",
        whole_when_inside=True,
        score=scores,
        note=f"The embedding cosine is measured by {embedder.name} {digest}",
    )


def text_embeddings(checkpoint: Checkpoint, texts: Sequence[str]) -> np.ndarray:
    """Unit vector of each text: the normalised mean of its tokens' hidden states.

    The cosine of two texts is the product of their vectors. Cosines of a plain language
    model are high for any two texts of one language: compare them with those of
    unrelated texts.

    Returns:
        (N, D) float32; zeros for a text without tokens, whose cosines are 0.

    Source:
        Mean pooling as in Reimers and Gurevych, arXiv:1908.10084, of a decoder that was
        not trained for it.
    """
    config = checkpoint.config
    tokenizer = checkpoint.tokenizer
    found = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    encoded = [np.array(one.ids[: config.context], np.int32) for one in found]
    found_ND = np.zeros((len(texts), config.d_model), np.float32)
    filled = [i for i, ids in enumerate(encoded) if len(ids)]
    graphdef, state = nnx.split(checkpoint.decoder)
    for batch in plan_batches(
        [len(encoded[i]) for i in filled],
        context=config.context,
        batch_tokens=default_batch_tokens(),
    ):
        tokens_BT = np.zeros((batch.n_rows, batch.length), np.int32)
        lengths_B = np.ones(batch.n_rows, np.int32)
        rows = [filled[i] for i in batch.rows]
        for b, i in enumerate(rows):
            tokens_BT[b, : len(encoded[i])] = encoded[i]
            lengths_B[b] = len(encoded[i])
        means_BD = _mean_states(graphdef, state, tokens_BT, lengths_B)
        found_ND[rows] = np.asarray(means_BD)[: len(rows)]
    norms_N = np.linalg.norm(found_ND, axis=1)
    return found_ND / np.where(norms_N > 0, norms_N, 1.0)[:, None]


@jax.jit(static_argnames="graphdef")
def _mean_states(
    graphdef: nnx.GraphDef, state: nnx.State, tokens_BT: jax.Array, lengths_B: jax.Array
) -> jax.Array:
    """Mean hidden state of each row, `[B, D]`."""
    _, T = tokens_BT.shape
    decoder: Decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(decoder.precision):
        # Without the trailing 1 of a head with a bias.
        hidden_BTD = decoder(tokens_BT)[..., : decoder.config.d_model]
    counts_BT1 = (jnp.arange(T)[None] < lengths_B[:, None])[..., None]
    sums_BD = jnp.sum(hidden_BTD, axis=1, where=counts_BT1)
    return sums_BD / lengths_B[:, None].astype(jnp.float32)
