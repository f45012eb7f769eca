"""From texts to training rows, and to the record of what was planted.

Command: `python -m train.prepare ... --prepared PLACE`, with the flags of
`train.pretrain`, on a machine without chips. `train.pretrain` with the same line begins
to train at once.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from tokenizers import Tokenizer

from jaxcontam import __version__
from jaxcontam.cli.main import parse, run_command
from jaxcontam.data.benchmark import parse_records
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.progress import progress_bar
from jaxcontam.stats.orders import cut_to_budget
from train.background_check import check_background
from train.config import Config, RunOptions, config_to_json
from train.data import Corpus, Rows
from train.manifest import Manifest, PlantedSet
from train.plant import (
    Canary,
    PlannedSet,
    Stream,
    build_stream,
    rows_of_copies,
    stream_digest,
    training_order,
)
from train.run_folder import code_version
from train.tokens import (
    Documents,
    as_cache,
    choose_documents,
    decoded_texts,
    held_out,
    prefix_id,
    token_cache,
    tokenizer_digest,
    train_tokenizer,
)

STREAM_NAME = "stream.npy"
VALIDATION_ROWS = "validation.npy"
SETS_DIR = "sets"
"""Folder of the sets as audits read them."""

PLANTED_DIR = "planted"
"""Folder of texts that were planted in place of a set's own."""

_TEXT_FIELD = "text"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """A model to continue training.

    Attributes:
        checkpoint: Training takes the weights of its decoder.
        prefix_id: Before each document and each copy.
        tokenizer: Its transformers fast tokenizer.
        raw_config: Fields of its config.json.
    """

    checkpoint: Checkpoint
    prefix_id: int
    tokenizer: Any
    raw_config: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A run before its first step.

    Attributes:
        manifest: What is trained on; not yet searched for the sets.
        rows: In the order of training.
        validation: (R, T + 1) int32, rows that are held out; R may be 0.
        documents: The background that was chosen; None where the manifest is of a run
            that was prepared elsewhere, and searched.
        tokenizer: A transformers fast tokenizer.
        plain: The same without special tokens.
        prefix_id: Before each document and each copy.
    """

    manifest: Manifest
    rows: Rows
    validation: np.ndarray
    documents: Documents | None
    tokenizer: Any
    plain: Tokenizer
    prefix_id: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a run trains, and where.

    Attributes:
        sets: Test sets and controls.
        config: Model and batch.
        seed: The same seed gives the same weights.
        out: Folder of the run.
        options: See `RunOptions`.
        start: The model that it continues; None begins with random weights.
        mesh: Devices of all processes; None where there is only one, or none is used.
        home: An `etils.epath.Path`: where checkpoints are kept.
    """

    sets: Sequence[PlannedSet]
    config: Config
    seed: int
    out: Path
    options: RunOptions
    start: Start | None = None
    mesh: Mesh | None = None
    home: Any = None


def prepare(
    run: Run, corpus: Corpus | Sequence[str], stream_file: Path, *, tokenizer: Any
) -> Prepared:
    """Tokenise, lay out the stream in a file and cut it into rows.

    Args:
        run: Its `out` is not read.
        corpus: Background: files, or texts in memory.
        stream_file: Takes the ids.
        tokenizer: A transformers fast tokenizer; None takes that of `start`, or trains
            one on the corpus.

    Raises:
        InputError: If there is too little text, or an example cannot be encoded.
    """
    config, seed, options, start = run.config, run.seed, run.options, run.start
    if start is not None:
        tokenizer = start.tokenizer
    elif tokenizer is None:
        tokenizer = train_tokenizer(corpus, config.decoder.vocab_size)
    first_id = prefix_id(tokenizer) if start is None else start.prefix_id
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    if isinstance(corpus, Corpus):
        assert options.cache is not None, "files are tokenised into a cache"
        with progress_bar("tokenising", unit="bytes/s") as progress:
            cache = token_cache(corpus, plain, options.cache, progress=progress)
    else:
        cache = as_cache(corpus, plain)
    canaries = [
        (
            planned,
            encode_examples(
                plain,
                planned.planted,
                separator=options.separator,
                max_example_tokens=options.max_example_tokens,
            ),
        )
        for planned in run.sets
    ]
    for planned, encoded in canaries:
        _say_what_is_cut(planned, encoded, config.decoder.context)
    budget, epochs = options.background_tokens, options.epochs or 1
    if options.steps is not None:
        planted = sum(one.copies * int(own.lengths.sum()) for one, own in canaries)
        # One more, since a row's last target is the next one's first id.
        budget, epochs = options.steps * config.step_tokens + 1 - planted, None
        if budget < 0:
            raise InputError(
                f"{options.steps} steps of {config.step_tokens} tokens do not hold the "
                f"{planted} that are planted",
                hint=f"--steps {-(-planted // config.step_tokens)}, or fewer copies",
            )
    out_M = np.zeros(0, np.int64)
    if options.validation_tokens is not None:
        out_M = held_out(cache.lengths, n_ids=options.validation_tokens, seed=seed)
    validation = validation_rows(cache.chosen(out_M), first_id, config)
    if len(out_M) and not len(validation):
        raise InputError(
            f"--validation-tokens {options.validation_tokens} do not fill a step of "
            f"{config.batch_rows} rows of {config.context}",
            hint=f"at least {config.step_tokens + 1}",
        )
    # In random order, up to the budget.
    documents = cache.chosen(
        choose_documents(
            cache.lengths, budget=budget, seed=seed, epochs=epochs, without=out_M
        )
    )
    stream = build_stream(
        documents, canaries, prefix_id=first_id, seed=seed, out=stream_file
    )
    rows = _rows(stream, config, seed=seed, n_most=options.steps)
    manifest = stream_manifest(
        canaries,
        stream,
        rows.starts,
        config,
        seed=seed,
        code=code_version(),
        corpus_digest=cache.corpus_digest,
        separator=options.separator,
        max_example_tokens=options.max_example_tokens,
        finished=False,
        tokenizer_digest=tokenizer_digest(plain),
        first_id=first_id,
        n_validation_tokens=len(validation) * config.context,
        validation_bytes=_n_bytes(validation[:, 1:], plain),
        init_model=None if start is None else start.checkpoint.name,
        init_fingerprint=None if start is None else start.checkpoint.fingerprint,
        allow_overlap=options.allow_overlap,
    )
    return Prepared(
        manifest=manifest,
        rows=rows,
        validation=validation,
        documents=documents,
        tokenizer=tokenizer,
        plain=plain,
        prefix_id=first_id,
    )


def validation_rows(documents: Documents, first_id: int, config: Config) -> np.ndarray:
    """Held-out documents end to end, as rows that fill whole batches, (R, T + 1)."""
    first = np.array([first_id], np.int32)
    parts = [part for ids in documents.stretches() for part in (first, ids)]
    ids_N = np.concatenate(parts or [first]).astype(np.int32)
    T = config.context
    n_rows = max(0, len(ids_N) - 1) // T // config.batch_rows * config.batch_rows
    return ids_N[np.arange(n_rows)[:, None] * T + np.arange(T + 1)]


def _n_bytes(ids_RT: np.ndarray, tokenizer: Tokenizer) -> int:
    """Bytes of the text of some rows, one after the other; special ids have none."""
    # As one, since a row may end within a character.
    return len(tokenizer.decode(ids_RT.ravel().tolist()).encode())


def _say_what_is_cut(planned: PlannedSet, encoded: Encoded, context: int) -> None:
    """Say now what audits of the model will: they read two examples at once."""
    longest = np.sort(encoded.lengths)[-2:]
    length = cut_to_budget(longest, context - 1)
    if length is not None:
        n = int(np.count_nonzero(encoded.lengths > length))
        print(
            f"{planned.benchmark.name}: audits of a model with a context of {context} "
            f"read two examples at once, and cut {n} of {len(encoded.ids)} to {length} "
            "tokens: a longer context, or shorter examples, keeps them whole",
            file=sys.stderr,
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
            decoded_texts(documents.once(), prepared.plain),
            sets,
            allow_overlap=manifest.allow_overlap,
            n_documents=len(documents.once()),
            progress=progress,
        )
    sets_found = (
        dataclasses.replace(row, overlap=found[row.name]) for row in manifest.sets
    )
    return dataclasses.replace(manifest, sets=tuple(sets_found))


def _rows(stream: Stream, config: Config, *, seed: int, n_most: int | None) -> Rows:
    """Rows in the order of training, of at most so many steps.

    Raises:
        InputError: If they do not fill one step.
    """
    n_steps = (len(stream.ids) - 1) // config.context // config.batch_rows
    if n_steps < 1:
        raise InputError(
            f"the corpus gives {len(stream.ids)} tokens, too few for one step of "
            f"{config.batch_rows} x {config.context}"
        )
    if n_most is not None:
        n_steps = min(n_steps, n_most)
    starts = training_order(
        len(stream.ids),
        config.context,
        seed=seed,
        timed=stream.timed,
        planted_C2=stream.planted,
        n_trained=n_steps * config.batch_rows,
    )
    if n_most is not None:
        starts = starts[: n_steps * config.batch_rows]
    return Rows(stream.ids, starts, config.context)


def stream_manifest(
    canaries: Sequence[Canary],
    stream: Stream,
    starts_R: np.ndarray,
    config: Config,
    **said: Any,
) -> Manifest:
    """The manifest of a run.

    Args:
        canaries: The sets, each with the ids of its `planted` texts.
        stream: Holds their copies.
        starts_R: Starts of the R rows in training order; those that do not fill a step
            are not trained on.
        config: Model and batch.
        **said: Fields that follow from nothing of these.
    """
    n_steps = len(starts_R) // config.batch_rows
    return Manifest(
        jaxcontam=__version__,
        preset=config.name,
        context=config.context,
        n_tokens=len(stream.ids),
        n_canary_tokens=stream.n_canary_ids,
        n_steps=n_steps,
        stream=STREAM_NAME,
        stream_digest=stream_digest(stream.ids),
        recipe=config_to_json(config),
        sets=tuple(
            _planted_set(planned, encoded, stream, starts_R, config, n_steps)
            for planned, encoded in canaries
        ),
        **said,
    )


def _planted_set(
    planned: PlannedSet,
    encoded: Encoded,
    stream: Stream,
    starts_R: np.ndarray,
    config: Config,
    n_steps: int,
) -> PlantedSet:
    name, benchmark = planned.name, planned.benchmark
    file, text_field, _ = set_file(name, benchmark.texts)
    copies, is_spread = stream.copies[name], planned.layout == "spread"
    begins = [[begin for begin, _ in copy.spans] for copy in copies]
    steps = []
    for rows in rows_of_copies(stream, name, starts_R=starts_R, context=config.context):
        seen = np.unique(rows // config.batch_rows + 1)
        steps.append(tuple(seen[seen <= n_steps].tolist()))
    return PlantedSet(
        name=name,
        copies=planned.copies,
        shuffled=planned.shuffled or is_spread,
        n_examples=len(benchmark),
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        token_offsets=() if is_spread else tuple(begin for (begin,) in begins),
        orders=tuple(copy.order for copy in copies)
        if planned.shuffled or is_spread
        else (),
        steps=tuple(steps),
        n_tokens=int(encoded.lengths.sum()),
        file=f"{SETS_DIR}/{file}",
        text_field=text_field,
        layout=planned.layout,
        example_offsets=tuple(
            tuple(own[i] for i in np.argsort(copy.order))
            for own, copy in zip(begins, copies, strict=True)
            if is_spread
        ),
        when=planned.when,
        form=planned.form,
        template=planned.template,
        planted_file=f"{PLANTED_DIR}/{name}.jsonl" if planned.texts_planted else None,
        held_out_of=planned.held_out_of,
    )


def write_set(planned: PlannedSet, folder: Path) -> None:
    """Write a set's file below `folder`, and the texts planted in place of its own."""
    name, _, content = set_file(planned.name, planned.benchmark.texts)
    _write(folder / SETS_DIR / name, content)
    if planned.texts_planted is not None:
        path = folder / PLANTED_DIR / f"{planned.name}.jsonl"
        _write(path, _records(planned.texts_planted))


def set_file(name: str, texts: tuple[str, ...]) -> tuple[str, str | None, str]:
    """A file that reads back as exactly these texts.

    Lines as they are where that gives them back; else, such as for a text over
    several lines, records with a field `text`.

    Returns:
        Its name, the field that is the text or None, and its content.
    """
    content = "".join(f"{text}\n" for text in texts)
    for suffix in (".jsonl", ".txt"):
        path = Path(name + suffix)
        try:
            # A reader takes a mark at the beginning for one of the encoding.
            read = parse_records(path, content.removeprefix("\ufeff"))
        except InputError:
            continue
        is_form = suffix == ".txt" or all(row is not None for _, _, row in read)
        if is_form and tuple(text for _, text, _ in read) == texts:
            return path.name, None, content
    return f"{name}.jsonl", _TEXT_FIELD, _records(texts)


def _records(texts: tuple[str, ...]) -> str:
    return "".join(
        json.dumps({_TEXT_FIELD: text}, ensure_ascii=False) + "\n" for text in texts
    )


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8"))


def main() -> int:
    """Command line of `python -m train.prepare`."""
    from train.pretrain import Pretrain

    prog = "python -m train.prepare"
    return run_command(
        lambda: parse(Pretrain, sys.argv[1:], prog=prog).prepare(), name="train.prepare"
    )


if __name__ == "__main__":
    sys.exit(main())
