"""`jaxcontam variants`: published texts against rewrites that the user gives."""

import dataclasses
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.ownership.variants_test import (
    EFFECT_UNITS,
    METHOD,
    ScoreUnit,
    variants_result,
)
from jaxcontam.ownership.versions import load_versions
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import print_results
from jaxcontam.proof.publish import publish
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.versions import VersionSet, plan_texts, score_texts
from jaxcontam.reports.flags import (
    ReportFlags,
    ScoringFlags,
    check_min_effect,
    check_positive,
    open_for,
)
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.stats.rows import padded
from jaxcontam.terminal import Terminal, printable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variants(ScoringFlags, ReportFlags):
    """Test published texts against rewrites of each.

    Examples:
        # published against other wordings
        jaxcontam variants MODEL_DIR texts.jsonl --randomised
    """

    file: Positional[Path]
    """.jsonl or .json rows with a published text and a list of rewrites."""
    text_field: str = "text"
    """Field of the published text."""
    variants_field: str = "variants"
    """Field of its rewrites, any number each."""
    randomised: bool = False
    """Declare that the published version was drawn at random among all versions."""
    score: ScoreUnit = "token"
    """Mean log-probability a token, or the total, which prefers short versions."""
    limit: int | None = None
    """Take the first N rows, never a sample."""
    min_effect: float | None = None
    """Nats that `no evidence` must be able to find (default: 0.1 a token, 5 total)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "limit")
        check_min_effect(self._least_effect)

    @property
    def _least_effect(self) -> float:
        if self.min_effect is not None:
            return self.min_effect
        return METHOD.least_effect(EFFECT_UNITS[self.score])

    def run(self) -> dict:
        """Load, score, decide, write and print; returns the report."""
        watch = Stopwatch()
        rows, places, n_left_out = load_versions(
            self.file,
            text_field=self.text_field,
            variants_field=self.variants_field,
            limit=self.limit,
        )
        texts = VersionSet(
            name=printable(self.file.stem), rows=tuple(rows), places=tuple(places)
        )
        model = open_for(self, self.model)
        out = self.made_folder("variants", model, texts.fingerprint)
        scorer = self.scorer(model, out)
        plan = plan_texts(
            texts, model.tokenizer, prefix_id=model.prefix_id, seed=self.seed
        )
        with progress_bar("scoring versions") as progress:
            scored = score_texts(
                texts,
                plan,
                scorer,
                per_token=self.score == "token",
                progress=progress,
            )
        result = variants_result(
            texts,
            scored,
            randomised=self.randomised,
            unit=self.score,
            n_left_out=n_left_out,
            seed=self.seed,
        )
        return publish(
            self,
            ("variants", self.model, str(self.file)),
            [result],
            [Evidence(scores=padded(scored.rows), place=scored.place)],
            watch=watch,
            model=model,
            min_effect=self._least_effect,
            out=out,
            show=_print,
        )


def _print(results: list[OrderResult], console: Terminal) -> None:
    print_results(results, console)
    for warning in results[0].warnings:
        console.print(f"{warning}.")
