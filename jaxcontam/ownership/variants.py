"""`jaxcontam variants`: published texts against rewrites that the user gives."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxcontam.data.benchmark import check_text, load_benchmark
from jaxcontam.data.templates import field_of, text_of_field
from jaxcontam.errors import InputError
from jaxcontam.ownership.flags import Variants
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import print_results
from jaxcontam.proof.publish import publish
from jaxcontam.proof.result import DESIGNED, Evidence, OrderResult
from jaxcontam.proof.versions import (
    ScoredVersions,
    VersionMethod,
    VersionSet,
    plan_texts,
    score_texts,
)
from jaxcontam.reports.flags import (
    open_for,
)
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.terms import Null, ProofWords
from jaxcontam.stats.rows import padded
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel, SequenceScorer

DECLARED: Null = "exchangeability of versions (declared)"
"""Null of rewrites that were made after publication: nothing vouches for it."""

ScoreUnit = Literal["token", "total"]
EFFECT_UNITS = {"token": "nats per token", "total": "nats per text"}


def _least_effect(command: Variants) -> float:
    if command.min_effect is not None:
        return command.min_effect
    return METHOD.least_effect(EFFECT_UNITS[command.score])


def test(command: Variants) -> dict:
    """Load, score, decide, write and print; returns the report."""
    watch = Stopwatch()
    rows, places, n_left_out = load_versions(
        command.file,
        text_field=command.named("text") or "text",
        variants_field=command.named("variants") or "variants",
        limit=command.limit,
    )
    texts = VersionSet(
        name=printable(command.file.stem), rows=tuple(rows), places=tuple(places)
    )
    model = open_for(command, command.model)
    out = command.made_folder("variants", model, texts.fingerprint)
    per_token = command.score == "token"
    scored = score_versions(
        texts, model, command.scorer(model, out), command.seed, per_token=per_token
    )
    result = variants_result(
        texts,
        scored,
        randomised=command.randomised,
        unit=command.score,
        n_left_out=n_left_out,
        seed=command.seed,
    )
    return publish(
        command,
        ("variants", command.model, str(command.file)),
        [result],
        [Evidence(scores=padded(scored.rows), place=scored.place)],
        watch=watch,
        model=model,
        min_effect=_least_effect(command),
        out=out,
        show=_print,
    )


def score_versions(
    texts: VersionSet,
    model: "OpenModel",
    scorer: "SequenceScorer",
    seed: int,
    *,
    per_token: bool,
    bar: str = "scoring versions",
) -> ScoredVersions:
    """Score all versions under a bar, in places that the seed draws."""
    plan = plan_texts(texts, model.tokenizer, prefix_id=model.prefix_id, seed=seed)
    with progress_bar(bar) as progress:
        return score_texts(texts, plan, scorer, per_token=per_token, progress=progress)


def _print(results: list[OrderResult], console: Terminal) -> None:
    print_results(results, console)
    for warning in results[0].warnings:
        console.print(f"{warning}.")


def load_versions(
    path: Path,
    *,
    text_field: str = "text",
    variants_field: str = "variants",
    limit: int | None = None,
) -> tuple[list[tuple[str, ...]], list[str], int]:
    """Read rows such as `{"text": "...", "variants": ["...", "..."]}`.

    Returns:
        The versions of each row, the published one first; the place of each row; and
        the number of rows left out because no rewrite differs from the text.
    """
    benchmark = load_benchmark(path, limit=limit)
    rows, places, n_left_out = [], [], 0
    for number, row in enumerate(benchmark.rows, 1):
        where = f"{path}: row {number}"
        text = text_of_field(text_field, row, where)
        hint = "name the list of rewrites with --fields variants=NAME"
        variants = field_of(row, variants_field, where, hint=hint)
        if isinstance(variants, str):
            variants = [variants]
        if not isinstance(variants, list) or not all(
            isinstance(variant, str) for variant in variants
        ):
            raise InputError(
                f"{where}: {variants_field!r} is not a list of strings",
                hint='write "variants": ["first rewrite", "second rewrite"]',
            )
        for version in [text, *variants]:
            check_text(version, where)
            if not version.strip():
                raise InputError(f"{where}: a version is blank")
        if all(variant == text for variant in variants):
            n_left_out += 1
            continue
        rows.append((text, *variants))
        places.append(where)
    if not rows:
        raise InputError(f"{path}: no row has a rewrite that differs from its text")
    return rows, places, n_left_out


def variants_result(
    texts: VersionSet,
    scored: ScoredVersions,
    *,
    randomised: bool,
    unit: ScoreUnit,
    n_left_out: int,
    seed: int,
) -> OrderResult:
    """Test that the model prefers the published versions, before verdicts are given.

    Null hypothesis: within each row every version was equally likely to be the
    published one. That holds by design where the owner drew it at random among
    versions that were all written before (`randomised`); otherwise a model may prefer
    one style to another without having seen either, so the result is `heuristic`.

    Source:
        The paired comparison of STAMP and of PaCoST (Zhang et al. 2024), with the
        exact law of the sum in place of a t-test.
    """
    warnings = []
    if n_left_out:
        warnings.append(f"{n_left_out} rows have no rewrite that differs from the text")
    if not randomised:
        warnings.append(
            "the published versions were not drawn at random: a model that never saw "
            "them may prefer their style, so the verdict is at most suspected"
        )
    return OrderResult(
        benchmark=texts.name,
        fingerprint=texts.fingerprint,
        content_digest=texts.content_digest,
        order_provenance="declared",
        n_examples=len(texts.rows) + n_left_out,
        method=METHOD.name,
        primary=True,
        null=DESIGNED if randomised else DECLARED,
        validity="exact" if randomised else "heuristic",
        n_strata=len(texts.rows),
        n_dropped=n_left_out,
        n_orders=max(map(len, texts.rows)) - 1,
        tokens_scored=scored.n_scored,
        cached_tokens=scored.n_cached,
        numbers=METHOD.analyse(scored.rows, seed),
        effect_unit=EFFECT_UNITS[unit],
        warnings=tuple(warnings),
    )


METHOD = VersionMethod(
    name="variants",
    command="variants",
    null=f"{DESIGNED}, or {DECLARED}",
    validity="exact if the published versions were drawn at random",
    # A text of 50 tokens is then 150 times likelier than its rewrites, as a secret is
    # in `canary`.
    least_effects={EFFECT_UNITS["token"]: 0.1, EFFECT_UNITS["total"]: 5.0},
    cost="each version once",
    finds="texts that were seen in their published wording",
    source="as STAMP; PaCoST, Zhang et al. 2024",
    words=ProofWords(
        row="text",
        version="version",
        versions="versions",
        seen="published wording seen, other wordings not tested",
        unseen="that the published wording was seen",
        more="more texts or more rewrites are needed",
        meaning="A small p-value says that the model prefers the published wording to "
        "rewrites of it. If the published version was drawn at random among all "
        "versions, a model that never saw it does so only by chance; if it was not, "
        "its style may be the whole reason.",
        silence="",
        assumed={
            DESIGNED: "that the published version of each text was drawn at random "
            "among all its versions, as declared",
            DECLARED: "that a model that never saw the published versions finds no "
            "version likelier for its style: nothing guarantees this",
        },
        unchecked="since only their owner knows how the versions were made",
        chance="in each of {n_strata} texts the published version would be as likely "
        "as any of its rewrites (up to {n_orders}) to score best; the summed score "
        "would reach the observed one with probability {p}",
        null_caption="Sum of the published scores over texts, and the same sum with a "
        "random version in place of the published one.",
        evidence_caption="Where the evidence is: the score of each text, in the order "
        "of the file.",
        limits="versions",
    ),
)
