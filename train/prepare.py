"""From texts to training rows, before the first step.

Command: `python -m train.prepare ... --prepared PLACE`, with the flags of
`train.pretrain`, on a machine without chips. `train.pretrain` with the same line begins
to train at once.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from jaxcontam import __version__
from jaxcontam.cli import parse, run_command
from jaxcontam.data.encoding import encode_examples, plain_tokenizer
from jaxcontam.data.training_manifest import Manifest
from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.mesh_shape import MeshShape
from train.audits import DEFAULT_TESTS
from train.background_check import check_background
from train.earlier import code_version
from train.plan import PlannedSet
from train.planting_records import planted_sets
from train.presets import Preset, preset_to_json
from train.rows import Rows
from train.sources import Corpus
from train.stream import Stream, build_stream, stream_digest, training_order
from train.tokenizer import prefix_id, tokenizer_digest, train_tokenizer
from train.tokens import Documents, as_cache, choose_documents, token_cache

STREAM_NAME = "stream.npy"

# Documents that are turned back into text together.
_DECODED = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run: the flags of `Pretrain`, which say what they mean."""

    background_tokens: int | None = None
    separator: str = "\n"
    max_example_tokens: int | None = None
    allow_overlap: bool = False
    audit_at: tuple[float, ...] = ()
    audit_every: int | None = None
    audit_tests: tuple[str, ...] = DEFAULT_TESTS
    checkpoint_steps: int | None = None
    keep_every: int | None = None
    peak_tflops: float | None = None
    tensorboard: bool = False
    cache: Path | None = None
    mesh: MeshShape | None = None
    checkpoints: str | None = None
    prepared: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """A model to continue training.

    Attributes:
        name: As it was given.
        decoder: With its weights, which training takes.
        tokenizer: Its transformers fast tokenizer.
        prefix_id: Before each document and each copy.
        fingerprint: Digest of the model.
        raw_config: Fields of its config.json.
    """

    name: str
    decoder: Decoder
    tokenizer: Any
    prefix_id: int
    fingerprint: str
    raw_config: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A run before its first step.

    Attributes:
        manifest: What is trained on; not yet searched for the sets.
        rows: In the order of training.
        documents: The background that was chosen; None where the manifest is of a run
            that was prepared elsewhere, and searched.
        tokenizer: A transformers fast tokenizer.
        plain: The same without special tokens.
        prefix_id: Before each document and each copy.
    """

    manifest: Manifest
    rows: Rows
    documents: Documents | None
    tokenizer: Any
    plain: Tokenizer
    prefix_id: int


def prepare(
    corpus: Corpus | Sequence[str],
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    stream_file: Path,
    seed: int,
    options: RunOptions,
    start: Start | None = None,
    tokenizer: Any = None,
) -> Prepared:
    """Tokenise, lay out the stream and cut it into rows; arguments as for `pretrain`.

    Raises:
        InputError: If there is too little text, or an example cannot be encoded.
    """
    if start is not None:
        tokenizer = start.tokenizer
    elif tokenizer is None:
        tokenizer = train_tokenizer(corpus, preset.decoder.vocab_size)
    first_id = prefix_id(tokenizer) if start is None else start.prefix_id
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    documents, corpus_sum = _background(corpus, plain, options, seed=seed)
    encoded = [
        encode_examples(
            plain,
            planned.planted,
            separator=options.separator,
            max_example_tokens=options.max_example_tokens,
        )
        for planned in sets
    ]
    stream = build_stream(
        documents,
        list(zip(sets, encoded, strict=True)),
        prefix_id=first_id,
        seed=seed,
        out=stream_file,
    )
    rows = _rows(stream, preset, seed=seed)
    manifest = Manifest(
        jaxcontam=__version__,
        code=code_version(),
        seed=seed,
        preset=preset.name,
        corpus_digest=corpus_sum,
        separator=options.separator,
        max_example_tokens=options.max_example_tokens,
        context=preset.context,
        n_tokens=len(stream.ids),
        n_canary_tokens=stream.n_canary_ids,
        n_steps=len(rows) // preset.batch_rows,
        finished=False,
        stream=STREAM_NAME,
        stream_digest=stream_digest(stream.ids),
        tokenizer_digest=tokenizer_digest(plain),
        recipe=preset_to_json(preset),
        init_model=None if start is None else start.name,
        init_fingerprint=None if start is None else start.fingerprint,
        allow_overlap=options.allow_overlap,
        sets=planted_sets(sets, encoded, stream, rows.starts, preset),
    )
    return Prepared(
        manifest=manifest,
        rows=rows,
        documents=documents,
        tokenizer=tokenizer,
        plain=plain,
        prefix_id=first_id,
    )


def searched(prepared: Prepared, sets: Sequence[PlannedSet]) -> Manifest:
    """The manifest with what of the sets stands in the background and in one another.

    The ids are searched as text again, so nothing but what is trained on counts.

    Raises:
        InputError: If a control is found, unless the manifest allows it.
    """
    manifest, documents = prepared.manifest, prepared.documents
    if not sets or documents is None:
        return manifest
    with progress_bar("searching for the sets", unit="documents/s") as progress:
        found = check_background(
            _texts(documents, prepared.plain),
            sets,
            allow_overlap=manifest.allow_overlap,
            n_documents=len(documents),
            progress=progress,
        )
    return dataclasses.replace(
        manifest,
        sets=tuple(
            dataclasses.replace(row, overlap=found[row.name]) for row in manifest.sets
        ),
    )


def _background(
    corpus: Corpus | Sequence[str], plain: Tokenizer, options: RunOptions, *, seed: int
) -> tuple[Documents, str]:
    """Documents in random order up to the budget, and the digest of the corpus."""
    if isinstance(corpus, Corpus):
        assert options.cache is not None, "files are tokenised into a cache"
        with progress_bar("tokenising", unit="bytes/s") as progress:
            cache = token_cache(corpus, plain, options.cache, progress=progress)
    else:
        cache = as_cache(corpus, plain)
    indices = choose_documents(
        cache.lengths, budget=options.background_tokens, seed=seed
    )
    return cache.chosen(indices), cache.corpus_digest


def _rows(stream: Stream, preset: Preset, *, seed: int) -> Rows:
    """Rows in the order of training.

    Raises:
        InputError: If they do not fill one step.
    """
    n_rows = (len(stream.ids) - 1) // preset.context
    n_steps = n_rows // preset.batch_rows
    if n_steps < 1:
        raise InputError(
            f"the corpus gives {len(stream.ids)} tokens, too few for one step of "
            f"{preset.batch_rows} x {preset.context}"
        )
    starts = training_order(
        len(stream.ids),
        preset.context,
        seed=seed,
        timed=stream.timed,
        planted_C2=stream.planted,
        n_trained=n_steps * preset.batch_rows,
    )
    return Rows(stream.ids, starts, preset.context)


def _texts(documents: Documents, plain: Tokenizer) -> Iterator[str]:
    stretches = documents.stretches()
    while batch := [ids.tolist() for ids in itertools.islice(stretches, _DECODED)]:
        yield from plain.decode_batch(batch, skip_special_tokens=False)


def main() -> int:
    """Command line of `python -m train.prepare`."""
    from train.pretrain import Pretrain

    prog = "python -m train.prepare"
    return run_command(
        lambda: parse(Pretrain, sys.argv[1:], prog=prog).prepare(), name="train.prepare"
    )


if __name__ == "__main__":
    sys.exit(main())
