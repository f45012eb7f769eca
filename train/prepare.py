"""From texts to training rows, and to the record of what was planted.

`python -m train.pretrain ... --prepared PLACE --stop-after-data`, on a machine without
accelerators, keeps stream, rows, tokenizer and manifest in one place. The same line
without its last flag reads them: all that is left to do before the first step is to
copy the stream.

The first process that sees a disk makes stream and rows there, and all that see it read
them. Every process compares with process 0 what it is about to train on.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jax.sharding import Mesh
from tokenizers import Tokenizer

from jaxcontam import __version__
from jaxcontam.data.benchmark import parse_records
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.processes import barrier, gather, process_index
from jaxcontam.progress import progress_bar
from jaxcontam.reports.report_files import make_folder
from jaxcontam.stats.orders import cut_to_budget
from train.background_check import check_background
from train.checkpoints import saved_steps
from train.config import Config, RunOptions, config_to_json
from train.data import Corpus, Rows
from train.export import TOKENIZER_DIR, read_run_tokenizer
from train.filters import document_filter
from train.manifest import Manifest, SetRecord, read_manifest, write_manifest
from train.plant import (
    Canary,
    PlannedSet,
    Stream,
    build_stream,
    rows_of_copies,
    stream_digest,
    training_order,
)
from train.run_folder import (
    MANIFEST_NAME,
    MODEL_DIR,
    alone,
    code_version,
    copy_to,
    disk_leader,
    first_difference,
    is_url,
    keep_at_home,
    one_line,
    run_home,
    run_inputs,
)
from train.tokens import (
    Documents,
    choose_documents,
    decoded_texts,
    held_out,
    prefix_id,
    refused,
    tokenised,
    tokenizer_digest,
    train_tokenizer,
)

STREAM_NAME = "stream.npy"
VALIDATION_ROWS = "validation.npy"
SETS_DIR = "sets"
"""Folder of the sets as audits read them."""

PLANTED_DIR = "planted"
"""Folder of texts that were planted in place of a set's own."""

_FLAG = "--prepared"
_TEXT_FIELD = "text"
# Where each row starts in the stream, in the order of training.
_STARTS_NAME = "rows.npy"
# What a run reads.
_DATA = (STREAM_NAME, _STARTS_NAME, VALIDATION_ROWS)
# Data in the making, beside those of a finished run until this one may begin.
_FRESH = "new-data"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """A model to continue training; `prefix_id` stands before each document."""

    checkpoint: Checkpoint
    prefix_id: int
    tokenizer: Any
    raw_config: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A run before its first step; `plain` is its tokenizer without special ids.

    Attributes:
        manifest: What is trained on; not yet searched for the sets.
        documents: The background that was chosen; None where the manifest is of a run
            that was prepared elsewhere, and searched.
    """

    manifest: Manifest
    documents: Documents | None
    tokenizer: Any
    plain: Tokenizer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a run trains, and where; `home`, an `epath.Path`, keeps checkpoints."""

    sets: Sequence[PlannedSet]
    config: Config
    seed: int
    out: Path
    options: RunOptions
    start: Start | None = None
    mesh: Mesh | None = None
    home: Any = None


def prepare(
    run: Run, corpus: Corpus | Sequence[str], folder: Path, *, tokenizer: Any
) -> Prepared:
    """Tokenise, lay out the stream in a folder and cut it into rows.

    Without a tokenizer that of `start` is taken, or one is trained on the corpus.
    """
    config, seed, options, start = run.config, run.seed, run.options, run.start
    keep = document_filter(config.data)
    if start is not None:
        tokenizer = start.tokenizer
    elif tokenizer is None:
        tokenizer = train_tokenizer(filter(keep, corpus), config.decoder.vocab_size)
    first_id = prefix_id(tokenizer) if start is None else start.prefix_id
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    cache = tokenised(corpus, plain, options.cache)
    canaries = [
        (
            planned,
            encode_examples(
                plain,
                planned.planted,
                separator=config.data.separator,
                max_example_tokens=config.data.max_example_tokens,
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
    refused_M = refused(corpus, keep)
    if len(refused_M) == len(cache.lengths):
        raise InputError(
            "the filter leaves out every document", hint="see train/filters.py"
        )
    out_M = np.zeros(0, np.int64)
    if options.validation_tokens is not None:
        out_M = held_out(
            cache.lengths,
            n_ids=options.validation_tokens,
            seed=seed,
            without=refused_M,
        )
    validation = validation_rows(cache.chosen(out_M), first_id, config)
    if options.validation_tokens is not None and not len(validation):
        raise InputError(
            f"--validation-tokens {options.validation_tokens} do not fill a step of "
            f"{config.batch_rows} rows of {config.context}",
            hint=f"at least {config.step_tokens + 1}",
        )
    # In random order, up to the budget.
    documents = cache.chosen(
        choose_documents(
            cache.lengths,
            budget=budget,
            seed=seed,
            epochs=epochs,
            without=np.concatenate([out_M, refused_M]),
        )
    )
    stream = build_stream(
        documents, canaries, prefix_id=first_id, seed=seed, out=folder / STREAM_NAME
    )
    starts = _starts(stream, config, seed=seed, n_most=options.steps)
    np.save(folder / _STARTS_NAME, starts)
    np.save(folder / VALIDATION_ROWS, validation)
    manifest = stream_manifest(
        canaries,
        stream,
        starts,
        config,
        seed=seed,
        code=code_version(),
        corpus_digest=cache.corpus_digest,
        n_left_out=len(refused_M),
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
        manifest=manifest, documents=documents, tokenizer=tokenizer, plain=plain
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


def _starts(
    stream: Stream, config: Config, *, seed: int, n_most: int | None
) -> np.ndarray:
    """Where rows start, in the order of training, of at most so many steps."""
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
    return starts if n_most is None else starts[: n_steps * config.batch_rows]


def stream_manifest(
    canaries: Sequence[Canary],
    stream: Stream,
    starts_R: np.ndarray,
    config: Config,
    **said: Any,
) -> Manifest:
    """The manifest of a run; `said` is what follows from nothing else."""
    n_steps = len(starts_R) // config.batch_rows
    return Manifest(
        jaxcontam=__version__,
        preset=config.name,
        separator=config.data.separator,
        max_example_tokens=config.data.max_example_tokens,
        context=config.context,
        n_tokens=len(stream.ids),
        n_canary_tokens=stream.n_canary_ids,
        n_steps=n_steps,
        stream=STREAM_NAME,
        stream_digest=stream_digest(stream.ids),
        recipe=config_to_json(config),
        sets=tuple(
            _set_record(planned, encoded, stream, starts_R, config, n_steps)
            for planned, encoded in canaries
        ),
        **said,
    )


def _set_record(
    planned: PlannedSet,
    encoded: Encoded,
    stream: Stream,
    starts_R: np.ndarray,
    config: Config,
    n_steps: int,
) -> SetRecord:
    name, benchmark = planned.name, planned.benchmark
    file, text_field, _ = set_file(name, benchmark.texts)
    copies, is_spread = stream.copies[name], planned.layout == "spread"
    begins = [[begin for begin, _ in copy.spans] for copy in copies]
    steps = []
    for rows in rows_of_copies(stream, name, starts_R=starts_R, context=config.context):
        seen = np.unique(rows // config.batch_rows + 1)
        steps.append(tuple(seen[seen <= n_steps].tolist()))
    return SetRecord(
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


def save_prepared(
    run: Run, corpus: Corpus | Sequence[str], *, tokenizer: Any
) -> Manifest:
    """Prepare a run and keep what it reads at `options.prepared`; uses no device.

    What is kept is whole once its manifest is there.
    """
    place = run.options.prepared
    assert place is not None
    out = run.out if is_url(place) else Path(place)
    make_folder(out)
    with alone(out, _FLAG):
        home = run_home(place, out, _FLAG)
        if (home / MODEL_DIR).exists() or saved_steps(home):
            raise InputError(
                f"{_FLAG} {place}: holds a run, whose manifest this would replace",
                hint="name a folder of its own for the data",
            )
        (home / MANIFEST_NAME).unlink(missing_ok=True)
        prepared = prepare(run, corpus, out, tokenizer=tokenizer)
        manifest = searched(prepared, run.sets)
        prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
        write_manifest(manifest, out / MANIFEST_NAME)
        keep_at_home(out, home, *_DATA, TOKENIZER_DIR, MANIFEST_NAME)
    return manifest


def fetch_prepared(run: Run, folder: Path) -> Prepared:
    """What `save_prepared` kept, copied to a folder.

    The corpus is not read: its digest, its budget and its tokenizer are those of what
    was prepared, and all else that a run says must be, too. The stream's length is
    checked, its digest is not: that would take as long as to write it.
    """
    place, here = run.options.prepared, epath.Path(folder)
    assert place is not None
    kept = epath.Path(place)
    with one_line(_FLAG, place, "read"):
        if not (kept / MANIFEST_NAME).exists():
            raise InputError(
                f"{_FLAG} {place}: nothing is prepared there",
                hint="the same command once with --stop-after-data",
            )
        copy_to(kept, here, [MANIFEST_NAME])
        manifest = read_manifest(folder / MANIFEST_NAME)
        _check(manifest, place, run)
        copied = [*_DATA, TOKENIZER_DIR]
        with contextlib.suppress(OSError):
            # On the same disk no bytes are copied.
            os.link(kept / STREAM_NAME, folder / STREAM_NAME)
            copied.remove(STREAM_NAME)
        copy_to(kept, here, copied)
    if len(np.load(folder / STREAM_NAME, mmap_mode="r")) != manifest.n_tokens:
        raise InputError(f"{place}: {STREAM_NAME} is not as long as its manifest says")
    tokenizer = read_run_tokenizer(folder)
    # Whoever trains again with other code must not find its own work done.
    now = dataclasses.replace(manifest, jaxcontam=__version__, code=code_version())
    return Prepared(
        manifest=now,
        documents=None,
        tokenizer=tokenizer,
        plain=plain_tokenizer(tokenizer.backend_tokenizer),
    )


def _check(manifest: Manifest, place: str, run: Run) -> None:
    """Refuse what was prepared for another run."""

    def planted(one: PlannedSet | SetRecord) -> tuple[Any, ...]:
        is_shuffled = one.shuffled or one.layout == "spread"
        return one.name, one.copies, one.when, one.layout, one.form, is_shuffled

    before = {
        "seed": manifest.seed,
        "allow_overlap": manifest.allow_overlap,
        "init": manifest.init_fingerprint,
        "recipe": run_inputs(manifest)["recipe"],
        "sets": [(*planted(row), row.fingerprint) for row in manifest.sets],
    }
    now = {
        "seed": run.seed,
        "allow_overlap": run.options.allow_overlap,
        "init": None if run.start is None else run.start.checkpoint.fingerprint,
        "recipe": config_to_json(run.config),
        "sets": [(*planted(one), one.benchmark.fingerprint) for one in run.sets],
    }
    if before != now:
        raise InputError(
            f"{_FLAG} {place}: prepared for another run "
            f"({first_difference(before, now, '')})",
            hint="its flags, its sets and its seed must be those of --stop-after-data",
        )


@contextlib.contextmanager
def prepared_once(
    out: Path, prepare: Callable[[Path], Prepared]
) -> Iterator[Prepared | None]:
    """Prepare a run on each disk; process 0 always does.

    The block decides whether the run may begin, and then calls `place_data`: else what
    was prepared is gone after it.

    Yields:
        What this process prepared; None where another one did, on the same disk.
    """
    leads, fresh = disk_leader(out) == process_index(), out / _FRESH
    if leads:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        if not _holds_finished(out):
            # A run that goes on makes its stream anew: the disk need not hold two.
            (out / STREAM_NAME).unlink(missing_ok=True)
    try:
        prepared = prepare(fresh) if leads else None
        _check_same(prepared, fresh)
        yield prepared
    finally:
        if leads:
            shutil.rmtree(fresh, ignore_errors=True)


def place_data(out: Path, prepared: Prepared | None) -> None:
    """Put stream and rows where they are read; all processes at the same time."""
    if prepared is not None:
        for name in _DATA:
            (out / _FRESH / name).replace(out / name)
    barrier("stream")


def rows_of_run(out: Path, context: int) -> Rows:
    """What is trained on, the same in every process."""
    ids = np.load(out / STREAM_NAME, mmap_mode="r")
    return Rows(ids, np.load(out / _STARTS_NAME), context)


def _holds_finished(out: Path) -> bool:
    """Whether a finished run stands here, or one of which nothing is known."""
    with contextlib.suppress(InputError):
        return read_manifest(out / MANIFEST_NAME).finished
    return (out / MANIFEST_NAME).exists()


def _check_same(prepared: Prepared | None, fresh: Path) -> None:
    own = bytes(hashlib.sha256().digest_size)
    if prepared is not None:
        inputs = json.dumps(run_inputs(prepared.manifest), sort_keys=True)
        # Inputs leave out the code, which another host may have in another version.
        rows = (fresh / _STARTS_NAME).read_bytes()
        own = hashlib.sha256(inputs.encode() + rows).digest()
    told = gather(np.frombuffer(own, np.uint8))
    for process, other in enumerate(told):
        if other.any() and (other != told[0]).any():
            raise InputError(
                f"process {process} prepared other data than process 0",
                hint="the corpus, the sets, the flags and the code must be the same "
                "on every host",
            )


if __name__ == "__main__":
    print(
        "python -m train.prepare has left: run python -m train.pretrain with the same "
        "flags and --stop-after-data",
        file=sys.stderr,
    )
    sys.exit(2)
