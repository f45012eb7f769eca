"""`membership`: which texts a model saw, by scores judged against known texts.

Read and choose (`known_texts`), plan and score (here and `passes`), judge (`judging`).

Dimension key
    N  texts of a run
    M  scores
"""

import contextlib
import dataclasses
import hashlib
import inspect
import io
import json
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jaxcontam.amounts import counted, duration_words
from jaxcontam.arguments import Dtype, public, store_folder, unknown_argument
from jaxcontam.data.corpus import CorpusFile, Fault, list_corpus, read_documents
from jaxcontam.errors import InputError
from jaxcontam.members.design import MembershipDesign, Source
from jaxcontam.members.judging import judged
from jaxcontam.members.kind import text_rows
from jaxcontam.members.known_texts import (
    WEIGHTS,
    ChosenScores,
    RunTexts,
    check_sides,
    choose,
    draw_company,
    left_out,
    read_texts,
)
from jaxcontam.members.page import membership_figure, membership_page, study_of
from jaxcontam.members.passes import (
    Inputs,
    TextModel,
    count_targets,
    edited,
    fitting_shots,
    reference_targets,
    score_texts,
    text_model,
)
from jaxcontam.members.result import (
    BlindBaseline,
    MembershipStudy,
    ScorePicture,
    ScoreResult,
    Scores,
    SeenShare,
    SetResult,
    TextScores,
)
from jaxcontam.members.score import Reading
from jaxcontam.members.scores import neighbourhood_by, token_frequencies
from jaxcontam.processes import is_first
from jaxcontam.progress import Progress, default_bar, progress_bar
from jaxcontam.reports.archive import DAMAGED_ARRAY, TEXTS_NAME, texts_bytes, typed_rows
from jaxcontam.reports.page import Page
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import Writable, replace_bytes, write_files
from jaxcontam.scoring.api.budget import Budget, sending_words
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import OpenModel, check_other
from jaxcontam.scoring.run_batches import finite_scores
from jaxcontam.scoring.scorer import Scorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MembershipAnalysis(Writable):
    """A report of membership, with the scores that it rests on.

    `rows` are those of `texts.jsonl`; `pictures` are there where both sides are known.
    """

    report: Report
    rows: tuple[dict[str, Any], ...]
    table: Scores
    pictures: tuple[ScorePicture, ...]

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {auc:.2f}" for name, auc in self.auc.items())
        words = f"{len(self.rows)} texts, {self.verdict or 'not judged'}"
        words += f"; AUC: {scores}" if scores else ""
        return textwrap.fill(f"<MembershipAnalysis: {words}>", 80)

    @property
    def results(self) -> tuple[ScoreResult | SetResult, ...]:
        """One a score where both sides are known; one for a set in question."""
        kinds = ScoreResult, SetResult
        return tuple(row for row in self.report.results if isinstance(row, kinds))

    @property
    def auc(self) -> dict[str, float]:
        """Score -> probability that a member outscores a non-member."""
        return {row.method: row.auc for row in self.results}

    @property
    def blind(self) -> tuple[BlindBaseline, ...]:
        """Blind baselines: the sides told apart without the model."""
        return self.report.blind

    @property
    def verdict(self) -> str | None:
        """Verdict of the score that decides; None where no side is known."""
        return next((row.verdict for row in self.results if row.primary), None)

    @property
    def seen(self) -> SeenShare | None:
        """Share of the texts in question that was seen; None without non-members."""
        return study_of(self.report).seen

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        return write_files(
            self.report, {TEXTS_NAME: texts_bytes(self.rows)}, out, self._page
        )

    def _page(self, report: Report) -> Page:
        texts = typed_rows(self.rows, TextScores)
        return membership_page(report, self.pictures, texts)

    def plot(self) -> "Figure":
        """AUC of every score and of every blind baseline; ValueError without sides."""
        return membership_figure(self.results, self.blind)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MembershipPlan:
    """Texts that a run scores, and with what; `left_out` (N,) stand in a prefix."""

    asked: MembershipDesign
    run: RunTexts
    chosen: ChosenScores
    left_out: np.ndarray
    inputs: Inputs
    model: TextModel

    @property
    def texts(self) -> list[str]:
        """The texts that are scored."""
        return self.run.texts_of(~self.left_out)


@public
def membership(
    model: Any,
    texts: Source | None = None,
    *,
    members: Source | None = None,
    nonmembers: Source | None = None,
    sweep_k: bool = False,
    reference: Any = None,
    tokenizer: Any = None,
    corpus_counts: np.ndarray | None = None,
    neighbours: Callable[[str, int, int], list[str]] = edited,
    n_neighbours: int = 10,
    shots: int = 5,
    convention: Literal["le", "lt"] = "le",
    dtype: Dtype = "float32",
    store: str | Path | None = None,
    progress: Progress | None = None,
    **design: Any,
) -> MembershipAnalysis:
    """Score texts, and judge the scores against what is known of the texts.

    With labels, or members and non-members, every score gets an AUC, rates and a
    p-value beside blind baselines; with non-members alone every text gets a conformal
    p-value, and the set a verdict. Scores are rankings: none is a proof.

    Args:
        model: A directory, hub name, `api:URL#NAME` or model in memory; see
            `jaxcontam.scoring.load.load`.
        texts: In question, or a file with labels: strings, a path, or an hf: name. A
            folder gives 100 snippets of 512 words of each of its .txt files.
        members: Known to have been seen; with `nonmembers`.
        nonmembers: Cannot have been seen; of the same kind.
        sweep_k: Also choose k on a random half, judged on the other.
        reference: A model that saw neither side; without one at most `may rank higher`.
        tokenizer: The fast tokenizer of a model in memory.
        corpus_counts: (V,) int64 token counts of a corpus, for `dc_pdd`.
        neighbours: (text, n, seed) -> n texts that are nearly the same.
        n_neighbours: Neighbours of each text for `neighbourhood`.
        shots: Known texts in front of each, for `recall` and `con_recall`.
        convention: Whether a rate may be reached (`le`) or must stay below (`lt`).
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        store: Folder in which scores are kept, so that another call resumes there;
            None keeps none.
        progress: Called with target tokens done and in all; None draws a bar where
            someone looks, in a terminal or a notebook.
        **design: Other fields of `MembershipDesign`, the flags of `jaxcontam
            membership`: scores, k, text, fields, fpr, sample, seed, ...

    Raises:
        InputError: If texts or scores cannot be had, or too few texts have a score.

    Source:
        Shi et al. 2023, arXiv:2310.16789, for Min-K% and the protocol; each score's
        own source stands in METHODS.
    """
    watch = Stopwatch()
    fields = [field.name for field in dataclasses.fields(MembershipDesign)]
    for name in design:
        if name not in fields:
            *own, _ = inspect.signature(membership).parameters
            known = dict.fromkeys([*own, *fields])
            raise unknown_argument("membership", name, [*known])
    sources = dict(texts=texts, members=members, nonmembers=nonmembers)
    others = {"reference": reference, **design}
    asked = MembershipDesign(**sources, **others)
    for name, value in (("n_neighbours", n_neighbours), ("shots", shots)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    run = read_texts(asked)
    check_sides(run)
    folder = store_folder(store)
    target = load(model, tokenizer=tokenizer, dtype=dtype)
    other = None
    if reference is not None:
        other = text_model(
            load(reference, tokenizer=tokenizer, dtype=dtype, beside=model),
            store=None if folder is None else folder / "reference",
            no_prefix=asked.no_prefix,
        )
    available: set[Reading] = set(WEIGHTS) if target.checkpoint is not None else set()
    if target.has_moments:
        available.add("moments")
    given: dict[str, Any] = {"n_neighbours": n_neighbours}
    if corpus_counts is not None:
        available.add("corpus")
        given["corpus_counts"] = corpus_counts
    if neighbours is not edited:
        given |= {"neighbours": neighbours, "neighbours_by": "given neighbours"}
    chosen = choose(
        asked,
        run,
        available,
        rereads=target.rereads,
        sweep_k=sweep_k,
        n_shots=shots,
    )
    inputs = dataclasses.replace(inputs_of(asked, target, other), **given)
    own = text_model(target, store=folder, no_prefix=asked.no_prefix)
    plan = plan_membership(asked, run, chosen, own, inputs)
    with default_bar(progress, "scoring texts") as told:
        return score_and_judge(
            plan,
            convention=convention,
            command=("membership", target.info.name, run.name),
            watch=watch,
            progress=told,
        )


def inputs_of(
    asked: MembershipDesign,
    model: OpenModel,
    reference: TextModel | None,
    *,
    kept: Path | None = None,
) -> Inputs:
    """Inputs that flags name; token counts of a corpus are kept in a folder, if any."""
    if reference is not None:
        check_other(reference.model, model)
    found = Inputs(reference=reference)
    if asked.masked_lm is not None:
        from jaxcontam.models.masked import load_neighbours

        maker = load_neighbours(asked.masked_lm)
        made = {"neighbours": maker.replaced, "neighbours_by": maker.kind}
        found = dataclasses.replace(found, **made)
    if asked.corpus:
        counts_V = _counted_tokens(asked.corpus, model, kept)
        found = dataclasses.replace(found, corpus_counts=counts_V)
    return found


def _counted_tokens(
    corpus: Sequence[Path], model: OpenModel, out: Path | None
) -> np.ndarray:
    """(V,) token counts of text files; those of the same files are kept in `out`."""
    if model.vocab_size is None:
        raise InputError(
            "dc_pdd: tokens of its files are counted with the model's own tokenizer",
            hint="--tokenizer DIR gives the tokenizer of a served model",
        )
    files = [file for path in corpus for file in list_corpus(path, leave_out=out)[0]]
    state = [[os.path.realpath(f.path), f.size, f.modified] for f in files]
    key = hashlib.sha256(json.dumps([state, model.fingerprint]).encode("utf-8"))
    kept = None if out is None else out / f"corpus-counts-{key.hexdigest()[:16]}.npy"
    if kept is not None and kept.is_file():
        # One that is damaged is counted again.
        with contextlib.suppress(OSError, *DAMAGED_ARRAY):
            counts_V = np.load(kept, allow_pickle=False)
            if counts_V.shape == (model.vocab_size,):
                return counts_V

    with progress_bar("counting tokens", unit="bytes/s") as progress:
        counts_V = token_frequencies(
            _documents(files, progress), model.tokenizer, model.vocab_size
        )
    if kept is not None and is_first():
        buffer = io.BytesIO()
        np.save(buffer, counts_V, allow_pickle=False)
        replace_bytes(kept, buffer.getvalue())
    return counts_V


def _documents(files: Sequence[CorpusFile], progress: Progress) -> Iterator[str]:
    n_bytes, before = sum(file.size for file in files), 0
    for file in files:
        for part in read_documents(file.path, text_field="text", name=file.name):
            if isinstance(part, Fault):
                raise InputError(
                    f"{part.file}: line {part.line}: {part.reason}",
                    hint="mend or remove this record: frequencies of only a part of a "
                    "corpus would differ",
                )
            progress(before + part.n_read, n_bytes)
            yield part.text
        before += file.size


def plan_membership(
    asked: MembershipDesign,
    run: RunTexts,
    chosen: ChosenScores,
    model: TextModel,
    inputs: Inputs,
) -> MembershipPlan:
    """Fit the prefixes to the model's context, and leave their texts out."""
    by = {"neighbourhood": neighbourhood_by(inputs.neighbours_by)}
    methods = tuple(by.get(method.name, method) for method in chosen.methods)
    chosen = _fitted(run, dataclasses.replace(chosen, methods=methods), model)
    left_out_N = left_out(run, chosen.shown)
    check_sides(run, left_out_N)
    prefixes: dict[str, Any] = {
        reading: tuple(run.texts[i] for i in some)
        for reading, some in chosen.shots.items()
    }
    company = draw_company(run, left_out_N, seed=asked.seed)
    inputs = dataclasses.replace(inputs, company=company, **prefixes)
    return MembershipPlan(asked, run, chosen, left_out_N, inputs, model)


def _fitted(run: RunTexts, chosen: ChosenScores, model: TextModel) -> ChosenScores:
    """Shots that fit before the longest text; `all` goes without where none does."""
    scored = run.texts_of(~left_out(run, chosen.shown))
    if any("own_file" in method.reads for method in chosen.methods):
        longest = max(map(len, model.sequences(scored)))
        full = f"the longest text ({longest} tokens) fills the model's context"
        if longest >= model.context and "codec" in chosen.named:
            raise InputError(
                f"codec: {full}, so no other text fits before it",
                hint="cut texts with --length, or leave out codec",
            )
        if longest >= model.context:
            chosen = chosen.without("own_file", f"codec left out: {full}")
    for reading, some in chosen.shots.items():
        fits = fitting_shots([run.texts[i] for i in some], scored, model)
        names = [method.name for method in chosen.methods if reading in method.reads]
        if not fits and not chosen.named & set(names):
            chosen = chosen.without(
                reading,
                f"{' and '.join(names)} left out: no known text fits into the model's "
                "context before the longest text; --length cuts texts",
            )
        elif 0 < len(fits) < len(some):
            shots: dict[Reading, np.ndarray] = {**chosen.shots, reading: some[fits]}
            fitting = f"{len(fits)} of {len(some)} shots fit before the longest text"
            notes = (*chosen.notes, f"{fitting} for {' and '.join(names)}")
            chosen = dataclasses.replace(chosen, shots=shots, notes=notes)
    return chosen


def score_and_judge(
    plan: MembershipPlan,
    *,
    convention: Literal["le", "lt"] = "le",
    command: Sequence[str],
    watch: Stopwatch,
    progress: Progress | None = None,
) -> MembershipAnalysis:
    """Score the texts of a plan and judge the scores."""
    run, scored_N = plan.run, ~plan.left_out

    def place(n: int) -> str:
        i = int(np.flatnonzero(scored_N)[n])
        number = 1 + run.sources[:i].count(run.sources[i])
        return f"{run.sources[i]}: text {number}: a score"

    with finite_scores(place):
        table = score_texts(
            plan.texts,
            plan.chosen.methods,
            plan.model,
            inputs=plan.inputs,
            seed=plan.asked.seed,
            progress=progress,
        )
    n_tokens_N = np.zeros(len(run.texts), np.int64)
    n_tokens_N[scored_N] = table.n_tokens
    whole = table.among(scored_N)
    study = MembershipStudy(
        name=run.name,
        fingerprint=run.fingerprint,
        primary=plan.chosen.primary,
        fprs=plan.asked.fpr,
        convention=convention,
        n_texts=len(run.texts),
        n_left_out=int(plan.left_out.sum()),
        n_unscored=int((n_tokens_N[scored_N] == 0).sum()),
        tokens_scored=table.tokens_scored,
        cached_tokens=table.n_cached,
    )
    found = judged(run, whole, plan.left_out, study, seed=plan.asked.seed)
    model = plan.model.model
    warnings = (*model.notes(), *plan.chosen.notes, *found.warnings)
    study = dataclasses.replace(found.study, warnings=warnings)
    settings = {method.name: method.setting for method in plan.chosen.methods}
    results = [
        dataclasses.replace(row, setting=settings.get(row.method, ""))
        if isinstance(row, ScoreResult)
        else row
        for row in found.results
    ]
    report = watch.report(
        command,
        plan.asked.seed,
        results,
        model=model.info,
        device=model.device,
        blind=found.blind,
        thresholds=found.thresholds,
        study=dataclasses.asdict(study),
    )
    more = dict(n_tokens=n_tokens_N, left_out=plan.left_out)
    rows = tuple(text_rows(run, whole, found=found, **more))
    return MembershipAnalysis(
        report=report, rows=rows, table=whole, pictures=found.pictures
    )


def dry_run_words(plan: MembershipPlan, limits: Budget) -> str:
    """The scores, the tokens that they need, and the time at a timed batch.

    `limits` are those of what a server may cost, the reference's at the same prices.
    """
    from jaxcontam.scoring.remote import RemoteScorer

    methods, model, inputs = plan.chosen.methods, plan.model, plan.inputs
    names = ", ".join(method.name for method in methods)
    texts, seed = plan.texts, plan.asked.seed
    lines = [
        f"{counted(len(texts), 'text')}, {counted(len(methods), 'score')}: {names}"
    ]
    lines[:0] = [f"{words}." for words in plan.run.warnings]
    own = [one for one in methods if "reference" not in one.reads]
    alone = dataclasses.replace(inputs, reference=None)
    lines.append(
        _cost_words(
            model,
            texts,
            count=lambda: count_targets(texts, own, model, inputs=alone, seed=seed),
            # A run whose answers are made up counts its requests.
            send=lambda: score_texts(texts, own, model, inputs=alone, seed=seed),
            limits=limits,
        )
    )
    other = inputs.reference
    if other is not None and not other.is_same_as(model):
        words = _cost_words(
            other,
            texts,
            count=lambda: reference_targets(texts, other),
            send=lambda: other.plain.token_table(other.sequences(texts)),
            limits=limits,
            beside_local=not isinstance(model.plain, RemoteScorer),
        )
        lines.append(f"The reference, {other.model.info.name}: {words}")
    return "\n".join([*lines, "Nothing was scored."])


def _cost_words(
    model: TextModel,
    texts: Sequence[str],
    *,
    count: Callable[[], int],
    send: Callable[[], Any],
    limits: Budget,
    beside_local: bool = False,
) -> str:
    from jaxcontam.scoring.cost import batch_seconds
    from jaxcontam.scoring.remote import CountedPrompts, RemoteScorer

    scorer = model.plain
    if isinstance(scorer, RemoteScorer):
        send()
        assert isinstance(scorer.prompts, CountedPrompts)
        found = scorer.prompts.estimate(limits)
        return sending_words(found, beside_local=beside_local)
    if not isinstance(scorer, Scorer):
        raise InputError("--dry-run: the cost of this kind of model is not known")
    n_targets = count()
    lengths = [len(ids) for ids in model.sequences(texts)]
    length = max(1, min(int(np.median(lengths)), model.context))
    n_rows = max(1, scorer.batch_tokens // length)
    seconds = batch_seconds(scorer, (n_rows, length)) / (n_rows * length)
    return (
        f"{counted(n_targets, 'token')} to score, including those in the store: "
        f"{duration_words(n_targets * seconds)} at the speed of one batch now."
    )
