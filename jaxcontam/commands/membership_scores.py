"""Which scores a membership run computes, and what they need beside the texts."""

import collections
import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.commands.progress import progress_bar
from jaxcontam.data.corpus import Fault, list_corpus, read_segments
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.methods import METHODS, SCORES
from jaxcontam.methods.membership.min_k import min_k_at
from jaxcontam.methods.membership.min_k_pp import min_k_pp_at
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.methods.membership.sweep import sweep_methods
from jaxcontam.processes import is_first
from jaxcontam.report.archive import DAMAGED_ARRAY
from jaxcontam.report.document import replace_bytes
from jaxcontam.scoring.api.budget import Budget
from jaxcontam.scoring.api.estimate import ApiEstimate

if TYPE_CHECKING:
    from jaxcontam.methods.membership.plan import Inputs
    from jaxcontam.methods.membership.text_model import TextModel
    from jaxcontam.scoring.opened import OpenModel

AUTO, ALL = "auto", "all"

# Readings that cost one more pass at most, or that a flag of their own asked for.
_CHEAP: frozenset[Reading] = frozenset({"moments", "lowercase", "reference", "corpus"})
_AT_K = {"min_k": min_k_at, "min_k_pp": min_k_pp_at}


def score_names(words: Sequence[str]) -> tuple[str, ...]:
    """Names after `--scores`, whether blanks or commas stand between them."""
    return tuple(part for word in words for part in word.split(",") if part)


def choose_scores(
    names: Sequence[str],
    available: Collection[Reading],
    *,
    fraction: float,
    sweep: bool = False,
) -> list[ScoreMethod]:
    """The scores that were asked for, in the order of METHODS.

    Args:
        names: Names of scores, or `AUTO` or `ALL` alone or among them.
        available: What this run can read.
        fraction: Share of tokens that the Min-K% family keeps.
        sweep: Add Min-K% at every share of the paper's sweep.

    Raises:
        InputError: If there is no name, or one of no score; suggests the nearest.
    """
    known = {
        name: method
        for name, method in METHODS.items()
        if isinstance(method, ScoreMethod)
    }
    if not names:
        raise InputError(
            "--scores names no score", hint=f"choices: {', '.join([*known, AUTO, ALL])}"
        )
    wanted: set[str] = set()
    for name in names:
        if name in (AUTO, ALL):
            usable = set(available) & _CHEAP if name == AUTO else set(available)
            wanted |= {key for key, row in known.items() if set(row.reads) <= usable}
        elif name in known:
            wanted.add(name)
        else:
            raise unknown_name("score", name, [*known, AUTO, ALL])
    chosen = [
        _AT_K[name](fraction) if name in _AT_K else row
        for name, row in known.items()
        if name in wanted
    ]
    have = {method.name for method in chosen}
    swept = [method for method in sweep_methods() if method.name not in have]
    return [*chosen, *swept] if sweep else chosen


def left_out_for_moments(names: Sequence[str], model: "OpenModel") -> tuple[str, ...]:
    """What a reader should know of scores that a served model cannot have.

    Args:
        names: As the user gave them.
        model: What is scored.
    """
    if model.has_moments or not {AUTO, ALL} & set(names):
        return ()
    lost = [row.name for row in SCORES.values() if "moments" in row.reads]
    return (
        f"{', '.join(lost)} left out: they read the distribution over the whole "
        "vocabulary, and the server gives log-probabilities of the texts alone",
    )


def primary_name(
    name: str | None, methods: Sequence[ScoreMethod], *, fraction: float
) -> str:
    """Name in the table of the score that decides.

    Args:
        name: As the user gave it; None takes Min-K%, or else the first score.
        methods: Those that are computed.
        fraction: Share of tokens that the Min-K% family keeps.

    Raises:
        InputError: If it is not among those that are computed.
    """
    names = [method.name for method in methods]
    min_k = min_k_at(fraction).name
    if name is None:
        return min_k if min_k in names else names[0]
    wanted = _AT_K[name](fraction).name if name in _AT_K else name
    if wanted not in names:
        raise InputError(
            f"--primary {name} is not among the scores ({', '.join(names)})",
            hint="name it after --scores, too, or choose one of these",
        )
    return wanted


def counted_tokens(corpus: Sequence[Path], model: "OpenModel", out: Path) -> np.ndarray:
    """(V,) token counts of text files; those of the same files are kept in `out`.

    Raises:
        InputError: If a file has a part that cannot be read: names it. If the model's
            tokenizer is not here.
    """
    from jaxcontam.methods.membership.frequencies import token_frequencies

    if model.vocab_size is None:
        raise InputError(
            "--corpus: its tokens are counted with the model's own tokenizer",
            hint="--tokenizer DIR gives that of a served model",
        )
    files = [file for path in corpus for file in list_corpus(path, leave_out=out)[0]]
    state = [[os.path.realpath(f.path), f.size, f.modified] for f in files]
    key = hashlib.sha256(
        json.dumps([state, model.fingerprint]).encode("utf-8")
    ).hexdigest()[:16]
    kept = out / f"corpus-counts-{key}.npy"
    vocab_size = model.vocab_size
    if kept.is_file():
        # One that is damaged is counted again.
        with contextlib.suppress(OSError, *DAMAGED_ARRAY):
            counts_V = np.load(kept, allow_pickle=False)
            if counts_V.shape == (vocab_size,):
                return counts_V

    n_bytes = sum(file.size for file in files)
    with progress_bar("counting tokens", unit="bytes/s") as progress:

        def documents():
            before = 0
            for file in files:
                for part in read_segments(file.path, text_field="text"):
                    if isinstance(part, Fault):
                        raise InputError(
                            f"{file.name}: line {part.line}: {part.reason}",
                            hint="mend or leave out this record: frequencies of a "
                            "part of a corpus are others",
                        )
                    if part.after is not None:
                        progress(before + part.after.stored, n_bytes)
                    yield part.text
                before += file.size

        counts_V = token_frequencies(documents(), model.tokenizer, vocab_size)
    buffer = io.BytesIO()
    np.save(buffer, counts_V, allow_pickle=False)
    if is_first():
        replace_bytes(kept, buffer.getvalue())
    return counts_V


def print_dry_run(
    texts: Sequence[str],
    methods: Sequence[ScoreMethod],
    model: "TextModel",
    inputs: "Inputs",
    seed: int,
    budget: Budget,
) -> None:
    """Print the scores, the tokens that they need, and the minutes at a timed batch.

    Raises:
        InputError: If a score needs what is not there, or nothing is known of what this
            kind of model costs.
    """
    from jaxcontam.methods.membership.plan import count_targets
    from jaxcontam.scoring.cost import batch_seconds
    from jaxcontam.scoring.remote import RemoteScorer
    from jaxcontam.scoring.scorer import Scorer

    names = ", ".join(method.name for method in methods)
    if isinstance(model.plain, RemoteScorer):
        from jaxcontam.scoring.api.planned_requests import sending_words

        found = _requests(texts, methods, model, inputs, seed, budget)
        words = sending_words(found)
        if inputs.reference is not None:
            words += " What the reference model costs is not counted."
        print(f"{len(texts):,} texts, {len(methods)} scores: {names}\n{words}")
        return
    n_targets = count_targets(texts, methods, model, inputs=inputs, seed=seed)
    if not isinstance(model.plain, Scorer):
        raise InputError("--dry-run: the cost of this kind of model is not known")
    lengths = [len(ids) for ids in model.sequences(texts)]
    length = max(1, min(int(np.median(lengths)), model.context))
    n_rows = max(1, model.plain.batch_tokens // length)
    seconds = batch_seconds(model.plain, (n_rows, length)) / (n_rows * length)
    print(
        f"{len(texts):,} texts, {len(methods)} scores: "
        f"{names}\n"
        f"{n_targets:,} tokens to score, those in the store among them: about "
        f"{n_targets * seconds / 60:.1f} minutes here at the speed of a timed batch\n"
        "nothing was scored"
    )


def _requests(
    texts: Sequence[str],
    methods: Sequence[ScoreMethod],
    model: "TextModel",
    inputs: "Inputs",
    seed: int,
    budget: Budget,
) -> ApiEstimate:
    """Requests of a run, found by a run whose answers are made up."""
    from jaxcontam.methods.membership.plan import score_texts
    from jaxcontam.scoring.api.planned_requests import planned_requests
    from jaxcontam.scoring.api.prompts import CountedPrompts

    own = [method for method in methods if "reference" not in method.reads]
    alone = dataclasses.replace(inputs, reference=None)
    score_texts(texts, own, model, inputs=alone, seed=seed)
    prompts = getattr(model.plain, "prompts", None)
    assert isinstance(prompts, CountedPrompts)
    positions = collections.Counter[tuple[int, ...]]()
    for length in prompts.lengths.values():
        positions[1, length] += length
    return planned_requests(positions, prompts, budget)
