"""`jaxcontam membership`: which texts a model saw, with what uncertainty."""

import collections
import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from tyro.conf import Positional

from jaxcontam.data.corpus import Fault, list_corpus, read_segments
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import (
    AUTO,
    WEIGHTS,
    MembershipPlan,
    check_ranges,
    check_sides,
    check_sources,
    choose,
    plan_membership,
    read_texts,
)
from jaxcontam.members.page import (
    auc_words,
    beside_words,
    blind_name,
    decisive_row,
    increment_words,
    membership_sentence,
    operating_header,
    rate_sentence,
    rate_table,
    share_sentences,
    study_of,
    sweep_sentence,
    tpr_words,
)
from jaxcontam.members.result import BlindBaseline, ScoreResult
from jaxcontam.members.score import Reading
from jaxcontam.processes import is_first
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table, first_that_fits, print_table
from jaxcontam.proof.publish import earlier_reports, shown
from jaxcontam.reports.archive import DAMAGED_ARRAY, TEXTS_NAME
from jaxcontam.reports.flags import (
    ReportFlags,
    ScoringFlags,
    TextFlags,
    check_positive,
    flags_of,
    open_for,
    runs_here,
)
from jaxcontam.reports.numbers import plain_p
from jaxcontam.reports.page import looks_sentence
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import replace_bytes
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.scoring.api.prompts import ApiEstimate
from jaxcontam.terminal import Terminal, printable

if TYPE_CHECKING:
    from jaxcontam.members.plan import Inputs
    from jaxcontam.members.text_model import TextModel
    from jaxcontam.scoring.opened import OpenModel

# Documents of the printed table, as in table 2 of Shi et al.; the page has all.
_PRINTED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Membership(ScoringFlags, TextFlags, ReportFlags):
    """Say which texts a model saw, by scores that are judged against known texts.

    Examples:
        jaxcontam membership MODEL_DIR wikimia.jsonl  # a file with labels
        # two files
        jaxcontam membership MODEL_DIR --members seen.txt --nonmembers unseen.txt
        # texts in question
        jaxcontam membership MODEL_DIR texts.txt --nonmembers unseen.txt
        # a rate for each book of a folder
        jaxcontam membership MODEL_DIR books/ --members old/ --nonmembers new/
        # beyond `may rank higher`
        jaxcontam membership MODEL_DIR wikimia.jsonl --reference OTHER_DIR
    """

    texts: Positional[str | None] = None
    """File of texts, hf:ORG/NAME:SPLIT, or folder of .txt files, each a document."""
    members: str | None = None
    """Texts that are known to have been seen."""
    nonmembers: str | None = None
    """Texts that cannot have been seen, of the same kind."""
    label_field: str | None = None
    """Field of 1 for members, 0 for others (default: label beside input or snippet)."""
    document_field: str | None = None
    """Field that names the document a text was cut from; its texts count as one, and
    beside known documents of both kinds it has a rate."""
    length: int | None = None
    """Cut each text to its first N words; words of a folder's snippets (else 512)."""
    limit: int | None = None
    """Take N records of each file, drawn by what they hold; snippets of each file of a
    folder (else 100)."""
    scores: tuple[str, ...] = (AUTO,)
    """Names of scores, blanks or commas between; or auto (one pass or two), or all."""
    primary: str | None = None
    """The score that decides (default: min_k, or the first); choose it beforehand."""
    k: float = 20.0
    """Percentage of least likely tokens that the Min-K% family keeps."""
    reference: str | None = None
    """Model that saw neither side; without one the verdict is at
    most `may rank higher`."""
    corpus: tuple[Path, ...] = ()
    """Text files whose token frequencies the score `dc_pdd` reads."""
    masked_lm: Path | None = None
    """Folder of a masked language model for neighbours (default: edits of words)."""
    fpr: tuple[float, ...] = (0.05, 0.01)
    """False-positive rates at which to say how many members are found."""
    dry_run: bool = False
    """Say which scores from how many tokens, and how long that takes; score nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "length")
        check_ranges(self.k, self.fpr)
        if self.masked_lm is not None and not self.masked_lm.is_dir():
            raise InputError(
                f"--masked-lm {self.masked_lm}: no such folder",
                hint="a folder with config.json, model.safetensors and tokenizer.json",
            )
        check_sources(self.texts, self.members, self.nonmembers, self.label_field)

    def run(self) -> dict[str, Any] | None:
        """Score, judge, write and print; returns the report, or None for a dry run."""
        watch = Stopwatch()
        run = read_texts(
            self.texts,
            members=self.members,
            nonmembers=self.nonmembers,
            template=self.template,
            text_field=self.text_field,
            no_header=self.no_header,
            label_field=self.label_field,
            document_field=self.document_field,
            limit=self.limit,
            length=self.length,
            seed=self.seed,
        )
        check_sides(run, np.zeros(len(run.texts), bool))
        available: set[Reading] = set(WEIGHTS) if runs_here(self.model) else set()
        available |= {"reference"} if self.reference is not None else set()
        available |= {"corpus"} if self.corpus else set()
        chosen = choose(
            run,
            self.scores,
            available,
            primary=self.primary,
            k=self.k,
            seed=self.seed,
        )
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.members.run import score_and_judge

        opened = open_for(self, self.model, plan_only=self.dry_run)
        out = self.made_folder("membership", opened, run.fingerprint)
        model = self._text_model(opened, out)
        plan = plan_membership(
            run, chosen, model, self._inputs(opened, out), seed=self.seed
        )
        if self.dry_run:
            print(planned_words(plan, self))
            return None
        words = [self.model] if self.texts is None else [self.model, self.texts]
        with progress_bar("scoring texts") as progress:
            analysis = score_and_judge(
                plan,
                fprs=self.fpr,
                command=("membership", *words, *flags_of(self)),
                watch=watch,
                progress=progress,
            )
        if self.out is None:
            earlier = earlier_reports(analysis.report, out)
            report = dataclasses.replace(analysis.report, earlier=earlier)
            analysis = dataclasses.replace(analysis, report=report)

        def show(console: Terminal) -> None:
            print_membership(analysis.report, console)
            console.say(f"\nscores: {printable(out / TEXTS_NAME)}")

        return shown(lambda: analysis.written(out), show, as_json=self.json)

    def _text_model(self, model: "OpenModel", out: Path) -> "TextModel":
        from jaxcontam.members.text_model import text_model

        store = self.store_of(model, out)
        return text_model(model, store=store, batch_tokens=self.batch_tokens)

    def _inputs(self, opened: "OpenModel", out: Path) -> "Inputs":
        from jaxcontam.members.neighbours import edited
        from jaxcontam.members.plan import Inputs

        neighbours, reference = edited, None
        if self.reference is not None:
            other = open_for(
                self, self.reference, plan_only=self.dry_run, beside=opened
            )
            reference = self._text_model(other, out)
        if self.masked_lm is not None:
            from jaxcontam.models.masked import MaskedModel

            neighbours = MaskedModel.load(self.masked_lm).replaced
        counts_V = counted_tokens(self.corpus, opened, out) if self.corpus else None
        return Inputs(
            reference=reference,
            corpus_counts=counts_V,
            neighbours=neighbours,
        )


def counted_tokens(corpus: Sequence[Path], model: "OpenModel", out: Path) -> np.ndarray:
    """(V,) token counts of text files; those of the same files are kept in `out`."""
    from jaxcontam.members.token_scores import token_frequencies

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


def planned_words(plan: MembershipPlan, command: Membership) -> str:
    """The scores, the tokens that they need, and the minutes at a timed batch."""
    from jaxcontam.members.plan import count_targets
    from jaxcontam.scoring.cost import batch_seconds
    from jaxcontam.scoring.remote import RemoteScorer
    from jaxcontam.scoring.scorer import Scorer

    methods, model, inputs = plan.chosen.methods, plan.model, plan.inputs
    names = ", ".join(method.name for method in methods)
    first = f"{len(plan.texts):,} texts, {len(methods)} scores: {names}\n"
    if isinstance(model.plain, RemoteScorer):
        from jaxcontam.scoring.api.prompts import sending_words

        words = sending_words(_requests(plan, command))
        if inputs.reference is not None:
            words += " What the reference model costs is not counted."
        return first + words
    n_targets = count_targets(plan.texts, methods, model, inputs=inputs, seed=plan.seed)
    if not isinstance(model.plain, Scorer):
        raise InputError("--dry-run: the cost of this kind of model is not known")
    lengths = [len(ids) for ids in model.sequences(plan.texts)]
    length = max(1, min(int(np.median(lengths)), model.context))
    n_rows = max(1, model.plain.batch_tokens // length)
    seconds = batch_seconds(model.plain, (n_rows, length)) / (n_rows * length)
    return first + (
        f"{n_targets:,} tokens to score, those in the store among them: about "
        f"{n_targets * seconds / 60:.1f} minutes here at the speed of a timed batch\n"
        "nothing was scored"
    )


def _requests(plan: MembershipPlan, command: Membership) -> ApiEstimate:
    """Requests of a run, found by a run whose answers are made up."""
    from jaxcontam.members.plan import score_texts
    from jaxcontam.scoring.api.prompts import CountedPrompts, planned_requests

    own = [one for one in plan.chosen.methods if "reference" not in one.reads]
    alone = dataclasses.replace(plan.inputs, reference=None)
    score_texts(plan.texts, own, plan.model, inputs=alone, seed=plan.seed)
    prompts = getattr(plan.model.plain, "prompts", None)
    assert isinstance(prompts, CountedPrompts)
    positions = collections.Counter[tuple[int, ...]]()
    for length in prompts.lengths.values():
        positions[1, length] += length
    return planned_requests(positions, prompts, command.api_options.limits)


def print_membership(report: Report, console: Terminal) -> None:
    """The scores with blind baselines below them, and the sentence that decides."""
    study, decisive, blind = study_of(report), decisive_row(report), report.blind
    ranked = [row for row in report.results if isinstance(row, ScoreResult)]
    if ranked:
        # Intervals go first, then the gain, then rates; the page has them all.
        n = len(ranked[0].operating_points)
        shown = ((True, True, n), (False, True, n), (False, False, n))
        tables = [_ranking(ranked, blind, *one) for one in (*shown, (False, False, 1))]
        console.print(first_that_fits(tables, console)[0], crop=False)
    elif blind:
        header = ("texts against non-members, blind", "AUC (95 %)")
        rows = [(blind_name(one.name), auc_words(one)) for one in blind]
        console.print(bare_table(header, rows, gap=2))
    for row in report.thresholds:
        if row.threshold is not None:
            console.print(
                f"{row.method} above {row.threshold:.4g}: {row.n_above} "
                f"texts, at a false-positive rate of {row.fpr:.3g} (on new "
                f"non-members {row.fpr_low:.3f} to {row.fpr_high:.3f}); "
                f"{row.n_discoveries} by Benjamini-Hochberg at {row.fpr:.3g}."
            )
    console.print(
        f"{study.n_texts:,} texts, {study.tokens_scored:,} tokens scored"
        + (f", {study.n_unscored} texts without a token" * (study.n_unscored > 0))
        + (f", {study.n_left_out} left out as prefix" * (study.n_left_out > 0))
        + "."
    )
    if study.sweep is not None:
        console.print(sweep_sentence(study.sweep))
    if study.documents is not None:
        asked = rate_table(study.documents, "text")
        if asked.rows:
            print_table(asked, console, most=_PRINTED)
        console.print(rate_sentence(study.documents))
    if report.earlier:
        console.print(looks_sentence(report.earlier))
    for sentence in (*beside_words(decisive), *share_sentences(study)):
        console.print(sentence)
    for warning in (*study.warnings, *(decisive.warnings if decisive else ())):
        console.print(f"{warning}.")
    if decisive is not None:
        console.print()
        console.print(membership_sentence(decisive, blind))


def _ranking(
    rows: Sequence[ScoreResult],
    blind: Sequence[BlindBaseline],
    intervals: bool,
    has_gain: bool,
    n_rates: int,
) -> Table:
    points = rows[0].operating_points
    rates = (operating_header(point) for point in points[:n_rates])
    gain = ["gain over\nblind"] * has_gain
    header = ("score", "AUC (95 %)", *rates, "p", *gain)
    header = [name.replace(" at FPR ", "\nFPR ") for name in header]
    table = bare_table(header, gap=2)
    for row in rows:
        table.add_row(
            row.method,
            auc_words(row),
            *(tpr_words(p, interval=intervals) for p in row.operating_points[:n_rates]),
            plain_p(row.p_value),
            *(increment_words(row, interval=intervals) for _ in gain),
            style="bold" if row.primary else None,
        )
    for one in blind:
        table.add_row(f"blind: {blind_name(one.name)}", auc_words(one), style="dim")
    if n_rates < len(points):
        table.caption = "the other rates stand in the report"
        table.caption_justify = "left"
    return table
