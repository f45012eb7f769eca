"""What each method says of one set of one model."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eval.blind_spots.forms import UNSEEN, Form, FormSet, Scale
from eval.membership.bench import Scores, score_groups
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.journal import Journal
from jaxcontam.data.options import read_items
from jaxcontam.methods import METHODS, order_method
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.membership.text_model import text_model
from jaxcontam.methods.options import options_result, plan_options
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.methods.replication.fields import Fields
from jaxcontam.methods.replication.instance import Instance
from jaxcontam.methods.replication.local_judge import judge_local
from jaxcontam.methods.replication.split import draw_instances
from jaxcontam.methods.variants import variants_result
from jaxcontam.methods.versions import plan_texts, score_texts
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.results import OrderResult
from jaxcontam.scoring.completions import LocalCompleter
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.roc import auc_delong
from jaxcontam.stats.set_level import set_level_test
from jaxcontam.stats.two_rates import rate_test

ORDER_TESTS: Mapping[str, tuple[str, ...]] = {
    "adjacency": ("adjacency",),
    "stratified": ("stratified", "sharded_t"),
    "reversal": ("reversal",),
}
"""What is scored, and the tests that read its scores."""

VARIANTS_WITHOUT = "variants_3"
"""`variants` of the three wordings that were not planted, for reworded sets."""

VERSION_TESTS = ("variants", VARIANTS_WITHOUT, "options")
SCORES = ("min_k", "min_k_pp", "loss", "zlib")
SET_LEVEL, COPIED = "set_level", "replication"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One method on one set of one model; what a method does not give is None.

    Attributes:
        form: Form of the set.
        method: Name.
        log10_p: log10 p of a test.
        effect: Effect of an order test or a test of versions, in its own unit.
        auc: AUC of texts of the set against texts that were never planted.
        auc_se: DeLong's, of texts alone.
        n_copied: Instances that the model wrote out, exactly or nearly.
        n_asked: Instances of the set.
        n_copied_control: The same of sets that were never planted.
        n_asked_control: Instances of these.
        tokens: Scored or written for it, first pieces not counted; those of a test
            that reads another's scores are that one's.
    """

    form: str
    method: str
    log10_p: float | None = None
    effect: float | None = None
    auc: float | None = None
    auc_se: float | None = None
    n_copied: int | None = None
    n_asked: int | None = None
    n_copied_control: int | None = None
    n_asked_control: int | None = None
    tokens: int


def all_seen(
    sets: Sequence[FormSet],
    checkpoint: Checkpoint,
    journal: Journal,
    *,
    scale: Scale,
    seed: int,
) -> list[Seen]:
    """Every method on every set that it applies to.

    Args:
        sets: Planted in the model, and those that were not.
        checkpoint: The model.
        journal: Where finished completions are kept.
        scale: What is asked for.
        seed: Seeds tests, draws and cuts.
    """
    scorer = local_scorer(checkpoint.decoder, batch_tokens=scale.batch_tokens)
    rows = [row for one in sets for row in _tested(one, checkpoint, scorer, seed=seed)]
    rows += _ranked(sets, checkpoint, scale, seed=seed)
    return rows + _written(sets, checkpoint, journal, scale, seed=seed)


def versions_seen(
    one: FormSet, checkpoint: Checkpoint, scorer: Scorer, *, seed: int
) -> list[Seen]:
    """The tests of a set's versions; none for items.

    Raises:
        InputError: If the model gives a number that is not finite.
    """
    rows = []
    for name, texts in (
        ("variants", one.versions),
        (VARIANTS_WITHOUT, one.versions_without),
    ):
        if texts is None:
            continue
        plan = plan_texts(
            texts, checkpoint.tokenizer, prefix_id=checkpoint.prefix_id, seed=seed
        )
        scored = score_texts(texts, plan, scorer, per_token=True)
        result = variants_result(
            texts, scored, randomised=True, unit="token", n_left_out=0, seed=seed
        )
        rows.append(_seen_of(one.form, name, result))
    return rows


def _seen_of(form: Form, method: str, result: OrderResult) -> Seen:
    return Seen(
        form=form.name,
        method=method,
        log10_p=result.numbers.log10_p,
        effect=result.numbers.effect,
        tokens=result.tokens_scored + result.cached_tokens,
    )


def controls_of(form: Form) -> tuple[str, ...]:
    """Names of the sets that were never planted and have texts of the same kind."""
    names = ("items-unseen",) if form.items else UNSEEN
    return tuple(name for name in names if name != form.name)


def _tested(
    one: FormSet, checkpoint: Checkpoint, scorer: Scorer, *, seed: int
) -> list[Seen]:
    """Order tests of the published file, and the test of its versions or options."""
    benchmark, tokenizer = one.planned.benchmark, checkpoint.tokenizer
    prefix_id, context = checkpoint.prefix_id, checkpoint.config.context
    encoded = encode_examples(tokenizer, benchmark.texts, separator="\n")
    found: list[OrderResult] = []
    for scored_by, names in ORDER_TESTS.items():
        planned = plan_test(
            benchmark,
            encoded,
            order_method(scored_by),
            prefix_id=prefix_id,
            context=context,
            seed=seed,
        )
        scored = score_test(planned, scorer)
        for name in names:
            method = order_method(name)
            found.append(
                order_result(planned, scored, primary=False, pretests=(), method=method)
            )
    if one.form.items:
        items = plan_options(
            benchmark,
            read_items(benchmark),
            tokenizer,
            prefix_id=prefix_id,
            seed=seed,
        )
        scored = score_test(items, scorer)
        found.append(options_result(items, scored, primary=False))
    rows = [_seen_of(one.form, row.method, row) for row in found]
    return [*rows, *versions_seen(one, checkpoint, scorer, seed=seed)]


def _ranked(
    sets: Sequence[FormSet], checkpoint: Checkpoint, scale: Scale, *, seed: int
) -> list[Seen]:
    """AUC of each score against texts never planted, and the test of all scores."""
    methods = [METHODS[name] for name in SCORES]
    assert all(isinstance(method, ScoreMethod) for method in methods)
    model = text_model(checkpoint, store=None, batch_tokens=scale.batch_tokens)
    groups = {one.form.name: one.planned.benchmark.texts for one in sets}
    n_tokens = {
        name: sum(len(ids) - model.n_before for ids in model.sequences(texts))
        for name, texts in groups.items()
    }
    scores: Scores = score_groups(model, groups, methods, seed=seed)  # pyright: ignore[reportArgumentType]
    rows = []
    for one in sets:
        name, controls = one.form.name, controls_of(one.form)
        if not controls:
            continue
        pairs = [
            (of[name], np.concatenate([of[other] for other in controls]))
            for of in scores.values()
        ]
        for method, (own, others) in zip(scores, pairs, strict=True):
            auc, auc_se = auc_delong(own, others)
            rows.append(
                Seen(
                    form=name,
                    method=method,
                    auc=auc,
                    auc_se=auc_se,
                    tokens=n_tokens[name],
                )
            )
        features_NM = np.stack([np.concatenate(pair) for pair in pairs], axis=1)
        is_own_N = np.arange(len(features_NM)) < len(pairs[0][0])
        test = set_level_test(
            features_NM, is_own_N, n_permutations=scale.n_permutations, seed=seed
        )
        rows.append(
            Seen(
                form=name,
                method=SET_LEVEL,
                log10_p=float(np.log10(test.p_value)),
                auc=test.auc,
                tokens=n_tokens[name],
            )
        )
    return rows


def _written(
    sets: Sequence[FormSet],
    checkpoint: Checkpoint,
    journal: Journal,
    scale: Scale,
    *,
    seed: int,
) -> list[Seen]:
    """Instances that the model completes as published, shown their first piece."""
    drawn: dict[str, tuple[Instance, ...]] = {
        one.form.name: draw_instances(
            one.planned.benchmark, Fields(), k=scale.n_asked, seed=seed
        ).instances
        for one in sets
    }
    asked = [instance for instances in drawn.values() for instance in instances]
    completer = LocalCompleter(checkpoint=checkpoint, journal=journal)
    answers = completer.complete(
        [instance.first_piece for instance in asked],
        max_tokens=scale.new_tokens,
        seed=seed,
        # A base model goes on with the next line.
        stop=("\n",),
    )
    labels = judge_local(asked, [answer for (answer,) in answers]).labels
    n_found: dict[str, int] = {}
    place = 0
    for name, instances in drawn.items():
        own = labels[place : place + len(instances)]
        n_found[name] = sum(label in ("exact", "near") for label in own)
        place += len(instances)
    rows = []
    for one in sets:
        name, controls = one.form.name, controls_of(one.form)
        if not controls:
            continue
        n, n_control = len(drawn[name]), sum(len(drawn[other]) for other in controls)
        n_in_control = sum(n_found[other] for other in controls)
        p_value = rate_test(n_found[name], n, n_in_control, n_control).fisher
        rows.append(
            Seen(
                form=name,
                method=COPIED,
                log10_p=float(np.log10(p_value)),
                n_copied=n_found[name],
                n_asked=n,
                n_copied_control=n_in_control,
                n_asked_control=n_control,
                tokens=n * scale.new_tokens,
            )
        )
    return rows
