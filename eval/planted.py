"""Presets, tests and scores of planted sets: what studies that train a model share."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.study import Clock, Records, read_fields
from jaxcontam.data.benchmark import Benchmark, without_repeats
from jaxcontam.data.encoding import Encoded
from jaxcontam.models.checkpoint import (
    Checkpoint,
    load_checkpoint,
    model_fingerprint,
)
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.progress import Progress
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.result import DESIGNED, Evidence, MembershipResult, OrderResult
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.flags import flags_of
from jaxcontam.reports.report import Report, library_versions
from jaxcontam.reports.report_files import write_files
from jaxcontam.scoring.local import device_info, model_info
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.scorer import Scorer, n_targets
from jaxcontam.scoring.seam import SEAM
from jaxcontam.stats.pretests import columns, pretest_battery
from train.audits import encode_planted, text_scores, text_sequences
from train.config import PRESETS, Config, RunOptions, config_to_json
from train.data import corpus_digest
from train.manifest import Manifest, read_manifest
from train.plant import PlannedSet
from train.pretrain import read_start
from train.run import pretrain
from train.run_folder import MANIFEST_NAME, MODEL_DIR

# File beside a trained model that says what it follows from.
_RECORD = "job"
# Test -> another one of the same scores, at no cost.
_REUSED = {"adjacency": "direction", "stratified": "sharded_t"}


def in_rows(name: str, context: int, batch_rows: int) -> Config:
    """A preset whose rows hold strata of several examples."""
    preset = PRESETS[name]
    decoder = dataclasses.replace(preset.decoder, context=context)
    return dataclasses.replace(preset, decoder=decoder, batch_rows=batch_rows)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model and the record of what it was trained on."""

    checkpoint: Checkpoint
    manifest: Manifest


def trained_model(
    folder: Path,
    documents: Sequence[str],
    sets: Sequence[PlannedSet],
    config: Config,
    *,
    seed: int,
    background_tokens: int | None = None,
    start: Path | None = None,
    any_code: bool = False,
) -> Model:
    """Train a model, or take the finished one of the same inputs, or of any code.

    Random documents are taken up to `background_tokens`, all by default; `start` is the
    model to go on from, a folder or a GGUF file.

    Raises:
        KeyboardInterrupt: If training was asked to stop; its checkpoint is written.
    """
    kept = Records(folder, any_code=any_code)
    before = None
    if start and start.name == MODEL_DIR:
        before = read_fields(start.parent / f"{_RECORD}.json")
    inputs = [
        corpus_digest(documents),
        [(one.name, one.copies, one.layout, one.planted) for one in sets],
        config_to_json(config),
        seed,
        background_tokens,
        before["any_code_key"] if before else start and model_fingerprint(str(start)),
    ]
    # A record of a model that somebody removed is none.
    if kept.read(_RECORD, *inputs) is None or not (folder / MODEL_DIR).is_dir():
        # Members and non-members are drawn from one pool at random, so what the
        # background holds of them it holds of both alike.
        options = RunOptions(background_tokens=background_tokens, allow_overlap=True)
        manifest = pretrain(
            documents,
            sets,
            config,
            out=folder,
            seed=seed,
            options=options,
            start=read_start(str(start)) if start else None,
        )
        if not manifest.finished:
            raise KeyboardInterrupt
        kept.write(_RECORD, {}, *inputs)
    return Model(
        load_checkpoint(str(folder / MODEL_DIR)), read_manifest(folder / MANIFEST_NAME)
    )


def planted(name: str, texts: Sequence[str], copies: int) -> PlannedSet:
    """Texts that each stand at a random place of their own, so many times."""
    return PlannedSet(
        benchmark=Benchmark(name, tuple(texts), (None,) * len(texts)),
        copies=copies,
        layout="spread",
    )


def order_tests(
    sets: Sequence[PlannedSet],
    manifest: Manifest,
    checkpoint: Checkpoint,
    scorer: Scorer,
    *,
    n_orders: Mapping[str, int | None],
    seed: int,
    progress: Progress,
) -> tuple[list[OrderResult], list[Evidence]]:
    """Test every set, the first of equal examples alone.

    For sets whose order was drawn from a seed `adjacency` decides, for the others
    `direction`, which is computed of the same pairs, scored at the seam; `sharded_t` is
    computed of the scores of `stratified`. `n_orders` has m of each test to score,
    `adjacency` among them; None is the method's own. `progress` gets target tokens done
    and in all.

    Returns:
        Results before verdicts, and the scores of each.
    """
    kept = [without_repeats(one.benchmark) for one in sets]
    planned = [
        plan_test(
            one,
            encode_planted(checkpoint.tokenizer, one, manifest),
            order_method(name),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            seed=seed,
            n_orders=m,
            seam=SEAM,
        )
        for one in kept
        for name, m in n_orders.items()
    ]
    pretests = {
        one.name: pretest_battery(one.texts, columns(one.rows), seed=seed)
        for one in kept
    }
    truth = {row.name: row for row in manifest.sets}
    total, done = sum(test.n_targets for test in planned), 0
    results: list[OrderResult] = []
    evidence: list[Evidence] = []
    for test in planned:
        scored = score_test(
            test, scorer, lambda now, _, done=done: progress(done + now, total)
        )
        done += test.n_targets
        row = truth[test.benchmark.name]
        reused = _REUSED.get(test.method.name)
        for method in (None,) if reused is None else (None, order_method(reused)):
            result = test.result(
                scored,
                primary=False,
                pretests=pretests[row.name],
                method=method,
            )
            decides = "adjacency" if result.null == DESIGNED else "direction"
            results.append(
                dataclasses.replace(
                    result,
                    primary=result.method == decides,
                    copies=row.copies,
                    copies_shuffled=row.shuffled,
                    n_repeats=row.n_examples - result.n_examples,
                )
            )
            evidence.append(scored.evidence)
    return results, evidence


def write_report(
    name: str,
    flags: Any,
    model: Model,
    results: Sequence[OrderResult | MembershipResult],
    evidence: Sequence[Evidence | None],
    *,
    clock: Clock,
    out: Path,
    reference: ModelInfo | None = None,
    **about: Any,
) -> tuple[dict, Path]:
    """Write the report of a study of one model; returns it and its page."""
    manifest = model.manifest
    report = Report(
        command=(f"eval.{name}", *flags_of(flags)),
        seed=flags.seed,
        started=clock.started,
        wall_seconds=time.monotonic() - clock.wall,
        model=model_info(model.checkpoint),
        reference=reference,
        device=device_info(),
        versions=library_versions(),
        min_effect=MIN_EFFECT,
        results=tuple(results),
        study={
            "name": name,
            "canary_share": manifest.n_canary_tokens / manifest.n_tokens,
            "n_tokens": manifest.n_tokens,
            "corpus_digest": manifest.corpus_digest,
            **about,
        },
    )
    return write_files(report, {ARCHIVE_NAME: archive_bytes(evidence)}, out)


def scored_texts(
    encoded: Mapping[str, Encoded],
    prefix_id: int | None,
    scorer: Scorer,
    progress: Progress,
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Membership score of each text of each set, and target tokens of each set."""
    texts = {name: text_sequences(ids, prefix_id) for name, ids in encoded.items()}
    cost = {name: n_targets(sequences) for name, sequences in texts.items()}
    total, done = sum(cost.values()), 0
    scores = {}
    for name, sequences in texts.items():
        scores[name] = text_scores(
            scorer, sequences, lambda now, _, done=done: progress(done + now, total)
        )
        done += cost[name]
    return scores, cost
