"""Audits along a training run: order tests and membership of every set at a step.

Together they are curves of memorisation and forgetting. They are no verdicts: the
points of a curve are tests of one model at different steps, none of them is corrected
for the others, and no pre-test looks at the order of the files. `jaxcontam audit` of
the finished model gives the verdict.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, Encoder, encode_examples
from jaxcontam.errors import InputError
from jaxcontam.members.score import ScoredText
from jaxcontam.members.scores import SCORES
from jaxcontam.models.decoder import Decoder
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import PlannedTest, plan_test, score_test
from jaxcontam.progress import Progress
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.roc import auc_delong
from train.manifest import Manifest, SetRecord
from train.report import AuditRow

MEMBERSHIP = "min_k"
"""The membership score: Min-K% with the least likely 20 % of a text's tokens."""
DEFAULT_TESTS = ("adjacency",)
# What an AUC and its standard error need of each side.
_FEWEST_TEXTS = 2
AUDIT_NUMBERS = ("p_value", "log10_p", "effect", "effect_se", "mde")
_DIVERGED = "training diverged; lower the learning rate"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditPlan:
    """What every audit of a run scores: made once, before training."""

    sets: Mapping[str, SetRecord]
    tests: tuple[PlannedTest, ...]
    texts: Mapping[str, list[np.ndarray]]
    references: Mapping[str, tuple[str, ...]]


def plan_audit(
    benchmarks: Sequence[Benchmark],
    manifest: Manifest,
    tokenizer: Tokenizer,
    *,
    prefix_id: int | None,
    context: int,
    seed: int,
    tests: Sequence[str] = DEFAULT_TESTS,
) -> AuditPlan:
    """Design the tests of every set, with one seed for all steps; asks no model."""
    encoded = {one.name: encode_planted(tokenizer, one, manifest) for one in benchmarks}
    planned = tuple(
        plan_test(
            one,
            encoded[one.name],
            order_method(name),
            prefix_id=prefix_id,
            context=context,
            seed=seed,
        )
        for one in benchmarks
        for name in tests
    )
    references = references_of(manifest.sets)
    ranked = set(references).union(*references.values())
    return AuditPlan(
        {row.name: row for row in manifest.sets},
        planned,
        {
            name: text_sequences(ids, prefix_id)
            for name, ids in encoded.items()
            if name in ranked
        },
        references,
    )


def audit_model(
    decoder: Decoder,
    plan: AuditPlan,
    *,
    step: int,
    tokens: int,
) -> list[AuditRow]:
    """Test every set and rank its texts, with the weights that a run has at a step."""
    # Other processes of the run wait at a barrier.
    scorer = local_scorer(decoder)
    rows = []
    for test in plan.tests:
        try:
            scored = score_test(test, scorer)
        except InputError as e:
            raise InputError(f"audit at step {step}: {e}", hint=_DIVERGED) from e
        result = test.result(scored, primary=False, pretests=())
        row = _row(plan.sets[test.benchmark.name], result.method, step, tokens)
        numbers = {name: getattr(result.numbers, name) for name in AUDIT_NUMBERS}
        rows.append(dataclasses.replace(row, validity=result.validity, **numbers))
    scores = {}
    for name, sequences in plan.texts.items():
        try:
            scores[name] = text_scores(scorer, sequences)
        except NonFiniteScoreError as e:
            raise InputError(
                f"audit at step {step}: {name}: example {e.sequence + 1}: the model's "
                "log-probability is not finite",
                hint=_DIVERGED,
            ) from e
    for name, reference in plan.references.items():
        unseen = np.concatenate([scores[other] for other in reference])
        auc, auc_se = auc_delong(scores[name], unseen)
        row = _row(plan.sets[name], MEMBERSHIP, step, tokens)
        rows.append(
            dataclasses.replace(row, auc=auc, auc_se=auc_se, reference=reference)
        )
    return rows


def references_of(sets: Sequence[SetRecord]) -> dict[str, tuple[str, ...]]:
    """For each set, the never-injected sets that its texts are ranked among.

    Its own held-out half if it has one: random halves differ in nothing but
    training. Else all controls but itself, which is fair only where all sets are of one
    kind. A set that leaves nothing to compare with has no entry.
    """
    found = {}
    for row in sets:
        halves = [other for other in sets if other.held_out_of == row.name]
        controls = [
            other for other in sets if other.copies == 0 and other.name != row.name
        ]
        chosen = halves or controls
        enough = min(row.n_examples, sum(one.n_examples for one in chosen))
        if enough >= _FEWEST_TEXTS:
            found[row.name] = tuple(one.name for one in chosen)
    return found


def text_sequences(encoded: Encoded, prefix_id: int | None) -> list[np.ndarray]:
    """Each example alone, after the prefix."""
    prefix = [] if prefix_id is None else [prefix_id]
    return [np.array([*prefix, *ids], np.int32) for ids in encoded.ids]


def text_scores(
    scorer: Scorer, sequences: Sequence[np.ndarray], progress: Progress | None = None
) -> np.ndarray:
    """Membership score of each text, nats per token; higher is more likely a member."""
    method = SCORES[MEMBERSHIP]
    found = scorer.tokens(sequences, progress)
    # The score reads no text, only its tokens.
    return np.array(
        [
            method.score(ScoredText(text="", ids=ids[1:], logprobs=scores[0]))
            for ids, scores in zip(sequences, found, strict=True)
        ]
    )


def encode_planted(
    tokenizer: Encoder, benchmark: Benchmark, manifest: Manifest
) -> Encoded:
    """The ids of a set as training planted them: same separator, same cut."""
    return encode_examples(
        tokenizer,
        benchmark.texts,
        separator=manifest.separator,
        max_example_tokens=manifest.max_example_tokens,
    )


def _row(planted: SetRecord, method: str, step: int, tokens: int) -> AuditRow:
    """A row without its numbers."""
    return AuditRow(
        step=step,
        tokens=tokens,
        set=planted.name,
        copies=planted.copies,
        copies_seen=copies_seen(planted, step),
        method=method,
    )


def copies_seen(planted: SetRecord, step: int) -> int:
    """Copies of which some part was trained on by a step."""
    return sum(bool(steps) and min(steps) <= step for steps in planted.steps)
