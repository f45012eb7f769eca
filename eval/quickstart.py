"""Plant contamination in a tiny model, then prove it.

Question: do the order tests find test sets that were planted 10 and 50 times, stay
silent on sets that were never planted or planted in shuffled orders, is a file in its
natural order, which was never planted, left alone, and does a membership score rank
what order tests cannot see?
Command: `python -m eval.quickstart`. Hardware: 2 CPU cores, about 50 seconds.
Headline: docs/log has the table of seeds 0 to 9.

An easy setting on purpose: 85 % of the training text is planted. It shows that
the tool works, not how strong it is on large models.
"""

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from eval.planted import (
    Model,
    order_tests,
    scored_texts,
    trained_model,
    write_report,
)
from eval.python_docs import Question, read_python_docs
from eval.study import Clock, StudyFlags, run_study
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.files import Provenance
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_bar
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.outcome import print_results
from jaxcontam.proof.result import MembershipResult, OrderResult
from jaxcontam.proof.verdict import decide
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.roc import auc_delong
from train.audits import MEMBERSHIP, encode_planted, references_of
from train.config import PRESETS
from train.plant import PlannedSet
from train.run_folder import MODEL_DIR

# (name, copies, shuffled): two controls, five duplication counts, and one set whose
# copies all have orders of their own.
_SETS = (
    ("pydocs-0a", 0, False),
    ("pydocs-0b", 0, False),
    ("pydocs-1", 1, False),
    ("pydocs-2", 2, False),
    ("pydocs-4", 4, False),
    ("pydocs-10", 10, False),
    ("pydocs-50", 50, False),
    ("pydocs-shuffled", 10, True),
)
# Never planted: entries in alphabetical order, some modules' in one style and some in
# another. Other entries of the second style are read, so that a model knows both.
_NATURAL, _STYLE = "pydocs-natural", "pydocs-style"
_STYLE_COPIES = 4
# With more columns the effect would not fit into 80 characters.
_SHOWN = ("adjacency", "direction", MEMBERSHIP)
# Config, examples of a set, background.
_FULL, _PULSE = ("tiny", 125, 50_000), ("pulse", 30, 5_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart(StudyFlags):
    """Plant contamination in a tiny model, then prove it."""

    out: Path = Path("runs/quickstart")
    """Folder for the model, the sets and report.json."""

    def run(self) -> dict:
        """Train, test, print the table; returns the report."""
        clock, console = Clock.start(), Console()
        preset, n_examples, background_tokens = _PULSE if self.tiny else _FULL
        console.print("Reading the documentation of this Python installation ...")
        docs = read_python_docs()
        drawn, natural, style = _sets(docs.questions, n_examples, self.seed)
        sets = [*drawn, natural]
        model = trained_model(
            self.out,
            docs.documents,
            [*sets, style],
            PRESETS[preset],
            seed=self.seed,
            background_tokens=background_tokens,
        )
        scorer = local_scorer(model.checkpoint.decoder)
        with progress_bar("testing orders") as progress:
            results, evidence = order_tests(
                sets,
                model.manifest,
                model.checkpoint,
                scorer,
                n_orders={"adjacency": None, "stratified": None},
                seed=self.seed,
                progress=progress,
            )
        with progress_bar("scoring texts") as progress:
            ranked = _membership(drawn, model, scorer, progress)
        decided = decide(results, min_effect=MIN_EFFECT)
        document, page = write_report(
            "quickstart",
            self,
            model,
            (*decided, *ranked),
            [*evidence, *[None] * len(ranked)],
            clock=clock,
            out=self.out,
            n_documents=len(docs.documents),
            n_questions=len(docs.questions),
        )
        print_headline((*decided, *ranked), console)
        _print_reading(document, self.out, page, console)
        return document


def _sets(
    questions: Sequence[Question], n_examples: int, seed: int
) -> tuple[list[PlannedSet], PlannedSet, PlannedSet]:
    """Disjoint sets: in a seeded random order, in natural order, and for its style.

    The first are exchangeable by construction. In the natural one neighbours are of one
    class or module and look alike.
    """
    needed = n_examples * (len(_SETS) + 2)
    if len(questions) < needed:
        raise InputError(
            f"this Python installation gives {len(questions)} questions, "
            f"{needed} needed",
            hint="use a Python whose standard library has its .py files",
        )
    order = np.random.default_rng([seed, 3]).permutation(len(questions))
    drawn, left = np.split(order, [n_examples * len(_SETS)])
    sets = [
        _set(name, [questions[i].text for i in part], copies, shuffled=shuffled)
        for (name, copies, shuffled), part in zip(
            _SETS, np.split(drawn, len(_SETS)), strict=True
        )
    ]
    styled = [_entry(questions[i]) for i in left[:n_examples]]
    listed = sorted((questions[i] for i in left[n_examples:]), key=lambda q: q.answer)
    start = np.random.default_rng([seed, 4]).integers(len(listed) - n_examples + 1)
    entries = listed[start : start + n_examples]
    parents = [entry.answer.rpartition(".")[0] for entry in entries]
    number = {parent: k for k, parent in enumerate(dict.fromkeys(parents))}
    texts = [
        _entry(entry) if number[parent] % 2 else entry.text
        for entry, parent in zip(entries, parents, strict=True)
    ]
    return (
        sets,
        _set(_NATURAL, texts, 0, order_provenance="published"),
        _set(_STYLE, styled, _STYLE_COPIES, shuffled=True),
    )


def _entry(question: Question) -> str:
    """A question as an entry of a reference."""
    return f"{question.answer}: {question.sentence}."


def _set(
    name: str,
    texts: Sequence[str],
    copies: int,
    *,
    order_provenance: Provenance = "seeded",
    shuffled: bool = False,
) -> PlannedSet:
    benchmark = Benchmark(
        name, tuple(texts), (None,) * len(texts), order_provenance=order_provenance
    )
    return PlannedSet(benchmark=benchmark, copies=copies, shuffled=shuffled)


def _membership(
    sets: list[PlannedSet],
    model: Model,
    scorer: Scorer,
    progress: Progress,
) -> list[MembershipResult]:
    """Min-20 % AUC of each drawn set against the never-injected ones among them."""
    names = {one.name for one in sets}
    encoded = {
        one.benchmark.name: encode_planted(
            model.checkpoint.tokenizer, one.benchmark, model.manifest
        )
        for one in sets
    }
    scores, cost = scored_texts(encoded, model.checkpoint.prefix_id, scorer, progress)
    # Neighbours in the documentation are another kind of set, no fair reference.
    references = references_of(
        [row for row in model.manifest.sets if row.name in names]
    )
    results = []
    for one in sets:
        name = one.benchmark.name
        unseen = np.concatenate([scores[other] for other in references[name]])
        auc, auc_se = auc_delong(scores[name], unseen)
        results.append(
            MembershipResult(
                benchmark=name,
                fingerprint=one.benchmark.fingerprint,
                n_examples=len(one.benchmark),
                method=MEMBERSHIP,
                auc=auc,
                auc_se=auc_se,
                reference=references[name],
                tokens_scored=cost[name],
                copies=one.copies,
                copies_shuffled=one.shuffled,
            )
        )
    return results


def print_headline(
    results: Sequence[OrderResult | MembershipResult], console: Console
) -> None:
    """Both tests of neighbours, the verdict, and the ranking; all else is reported."""
    print_results([row for row in results if row.method in _SHOWN], console)


def _print_reading(document: dict, out: Path, page: Path, console: Console) -> None:
    """Print how to read the table, and what to type next."""
    study = document["study"]
    largest_se = max(row.get("auc_se", 0.0) for row in document["results"])
    console.print(
        f"\n{study['canary_share']:.0%} of the {study['n_tokens']:,} training tokens "
        "are planted: an easy case, which shows that the tool works, not how sensitive "
        "it is on large models.\np: probability of so high a score for the published "
        "order if the model had never seen it; * decides. Order tests prove that the "
        "published order was seen: pydocs-shuffled shows no effect, although its texts "
        "were seen 10 times, each time in another order. Adjacency requires an order "
        "that was drawn at random. All were, except that of pydocs-natural, which is "
        "alphabetical and was never planted: its neighbours are alike, and what is as "
        "expected backwards proves nothing, so direction decides.\nAUC: a ranking by "
        f"presence in any order, which proves nothing; 0.5 ± {2 * largest_se:.2f} is "
        f"noise.\nPython {document['versions']['python']}, corpus "
        f"{study['corpus_digest'][:19]}..., seed {document['seed']}, "
        f"{document['wall_seconds']:.0f} s.\n",
        highlight=False,
    )
    program = _program()
    console.print(
        f"report:      {page}\n"
        f"check it:    {program} verify {out}\n"
        f"audit a set: {program} audit {out / MODEL_DIR} {out / 'sets/pydocs-10.txt'}"
        " --order random",
        highlight=False,
        soft_wrap=True,
    )


def _program() -> str:
    """Command that runs `jaxcontam` here: its name, or its path beside this Python."""
    if shutil.which("jaxcontam"):
        return "jaxcontam"
    program = Path(sys.executable).parent / "jaxcontam"
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return str(program)


if __name__ == "__main__":
    sys.exit(run_study("quickstart", Quickstart, trains=True))
