"""Contamination of downstream tasks by continued training, as in Shi et al. section 6.

Members are planted one by one at random places of the background, each as often as the
study says; as many examples of the same pool are kept out. Every study trains the base
model on, at a constant rate.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eval.membership.bench import Bench, Scores, score_groups, score_methods
from eval.membership.cells import (
    AccuracyRow,
    Answered,
    Cell,
    Strata,
    Trend,
    accuracy_rows,
    right_answers,
)
from eval.membership.texts import Task, drawn, pieces
from eval.planted import Model, planted
from jaxcontam.methods.membership.blind import blind_baselines
from jaxcontam.methods.membership.score import Reading

_SIDES = ("seen", "unseen")
_TASK_READS: tuple[Reading, ...] = ("lowercase", "neighbours")
Run = Callable[[int], tuple[Model, list[str], Scores]]
"""Seed -> the model, the names of its tasks, and the scores of their texts."""
SplitTasks = Mapping[str, tuple[Task, Task]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a study found.

    Attributes:
        cells: Rows of its table.
        trends: Last setting against first.
        accuracy: Rows of the study of task accuracy.
        blind: Rows as of `cells`, of classifiers that read the texts alone.
        facts: What was trained, in words and numbers.
    """

    cells: tuple[Cell, ...] = ()
    trends: tuple[Trend, ...] = ()
    accuracy: tuple[AccuracyRow, ...] = ()
    blind: tuple[Cell, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def tasks_study(bench: Bench) -> Found:
    """AUC and TPR of each score on each task, as in tables 3 and 7."""
    methods = score_methods(*_TASK_READS)
    strata, blind = Strata("tasks"), Strata("tasks")
    facts: dict[str, Any] = {}
    scored = []
    for seed in bench.seeds:
        split = bench.split_tasks(seed)
        model = contaminated(bench, split, seed=seed)
        facts = model_facts(model)
        scores = score_groups(bench.ready(model), _texts(split), methods, seed=seed)
        scored.append((split, scores))
        for seen, unseen in split.values():
            texts = [item.text for item in (*seen.items, *unseen.items)]
            add_blind(blind, "all", 0.0, texts, len(seen.items), seed=seed)
    names = list(dict.fromkeys(name for split, _ in scored for name in split))
    parts = [*((name, [name]) for name in names), ("all", names)]
    for method in (method.name for method in methods):
        for x, (task, chosen) in enumerate(parts):
            for name in chosen:
                for _, scores in scored:
                    sides = (scores[method][f"{name} {word}"] for word in _SIDES)
                    strata.add(method, task, float(x), *sides, task=task)
    return Found(cells=strata.cells(), blind=blind.cells(), facts=facts)


def corpus_study(bench: Bench) -> Found:
    """Outliers in more and more background, as in figure 5a."""
    return _settings(
        bench,
        "corpus",
        {
            f"{tokens:,} tokens": (
                float(tokens),
                lambda seed, tokens=tokens: _scored_tasks(
                    bench, bench.split_tasks(seed), seed=seed, tokens=tokens
                ),
            )
            for tokens in bench.scale.corpus_tokens
        },
        paper="rises",
    )


def rate_study(bench: Bench) -> Found:
    """The same background at several learning rates, as in table 4."""
    return _settings(
        bench,
        "rate",
        {
            f"{rate:g}": (
                rate,
                lambda seed, rate=rate: _scored_tasks(
                    bench, bench.split_tasks(seed), seed=seed, rate=rate
                ),
            )
            for rate in bench.scale.rates
        },
        paper="rises",
    )


def indistribution_study(bench: Bench) -> Found:
    """Members that are like the rest of a corpus of several sizes, as in figure 5b.

    Corpora of one seed are nested, and their members are the same texts.
    """
    return _settings(
        bench,
        "indistribution",
        {
            f"{n:,} texts": (
                float(n),
                lambda seed, n=n: _scored_pieces(bench, seed=seed, n=n),
            )
            for n in bench.scale.corpus_pieces
        },
        paper="falls",
    )


def occurrence_study(bench: Bench) -> Found:
    """Each example as often as a Poisson law says, as in figure 5c."""
    scale = bench.scale
    methods = score_methods()
    found: list[tuple[int, str, np.ndarray, np.ndarray]] = []
    facts: dict[str, Any] = {}
    for seed in bench.seeds:
        split = bench.split_tasks(seed)
        rng = np.random.default_rng([seed, 53])
        sets, groups = [], {}
        for name, (seen, unseen) in split.items():
            counts = rng.poisson(scale.mean_copies, len(seen.items))
            groups[f"{name} 0"] = [item.text for item in unseen.items]
            for copies in np.unique(counts[counts > 0]).tolist():
                texts = [
                    item.text
                    for item, count in zip(seen.items, counts, strict=True)
                    if count == copies
                ]
                sets.append(planted(f"{name}-{copies}", texts, copies))
                group = f"{name} {min(copies, scale.most_copies)}"
                groups[group] = [*groups.get(group, []), *texts]
        _, documents = bench.documents()
        model = bench.continued(
            f"occurrence-{seed}", documents, sets, seed=seed, tokens=scale.main_tokens
        )
        facts = model_facts(model)
        scores = score_groups(bench.ready(model), groups, methods)
        for method, of_groups in scores.items():
            for name in split:
                for copies in range(1, scale.most_copies + 1):
                    members = of_groups.get(f"{name} {copies}")
                    if members is not None and len(members) >= 2:
                        unseen = of_groups[f"{name} 0"]
                        found.append((copies, method, members, unseen))
    strata = Strata("occurrence")
    for copies, method, *sides in sorted(found, key=lambda one: one[0]):
        setting = f"{copies}{' or more' * (copies == scale.most_copies)}"
        strata.add(method, setting, float(copies), *sides)
    return Found(
        cells=strata.cells(),
        trends=strata.trends(paper="rises", paired=False),
        facts=facts,
    )


def accuracy_study(bench: Bench) -> Found:
    """Accuracy on seen and unseen examples at each learning rate, as in table 8."""
    scale = bench.scale
    settings: list[tuple[str, float | None, int]] = [
        ("before", None, 0),
        *((f"{rate:g}", rate, 1) for rate in scale.rates),
        (f"{scale.main_rate:g}, {scale.many_copies} copies", None, scale.many_copies),
    ]
    rows: list[AccuracyRow] = []
    before: Answered = {}
    for setting, rate, copies in settings:
        answered: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for seed in bench.seeds:
            split = bench.split_tasks(seed)
            model = (
                contaminated(bench, split, seed=seed, rate=rate, copies=copies)
                if copies
                else bench.base()
            )
            scored = bench.ready(model)
            for name, both in split.items():
                seen, unseen = (right_answers(scored, task.items) for task in both)
                answered.setdefault(name, []).append((seen, unseen))
        before = before or answered
        rows += accuracy_rows(setting, answered, before)
    return Found(accuracy=tuple(rows))


def contaminated(
    bench: Bench,
    split: SplitTasks,
    *,
    seed: int,
    tokens: int | None = None,
    rate: float | None = None,
    copies: int = 1,
) -> Model:
    """The base model after a corpus that holds the seen examples of every task."""
    scale = bench.scale
    tokens, rate = tokens or scale.main_tokens, rate or scale.main_rate
    _, documents = bench.documents()
    return bench.continued(
        f"tasks-{seed}-{tokens}-{rate:g}" + f"-{copies}" * (copies > 1),
        documents,
        [
            planted(name, [item.text for item in seen.items], copies)
            for name, (seen, _) in split.items()
        ],
        seed=seed,
        rate=rate,
        tokens=tokens,
    )


def model_facts(model: Model) -> dict[str, Any]:
    """What the last model of a study was trained on."""
    manifest = model.manifest
    return {
        "n_parameters": model.checkpoint.n_parameters,
        "n_tokens": manifest.n_tokens,
        "n_planted_tokens": manifest.n_canary_tokens,
        "n_steps": manifest.n_steps,
        "code": manifest.code,
    }


def add_blind(
    strata: Strata,
    setting: str,
    x: float,
    texts: Sequence[str],
    n_members: int,
    *,
    seed: int,
) -> None:
    """Add blind baselines of texts, members first, to the strata."""
    labels_N = np.arange(len(texts)) < n_members
    blind = blind_baselines(texts, labels_N, seed=seed)
    for row, values_N in zip(blind.rows, blind.scores.T, strict=True):
        strata.add(row.name, setting, x, values_N[labels_N], values_N[~labels_N])


def _texts(split: SplitTasks) -> dict[str, list[str]]:
    return {
        f"{name} {word}": [item.text for item in task.items]
        for name, both in split.items()
        for word, task in zip(_SIDES, both, strict=True)
    }


def _scored_tasks(
    bench: Bench, split: SplitTasks, *, seed: int, **job: Any
) -> tuple[Model, list[str], Scores]:
    model = contaminated(bench, split, seed=seed, **job)
    scores = score_groups(bench.ready(model), _texts(split), score_methods())
    return model, list(split), scores


def _scored_pieces(
    bench: Bench, *, seed: int, n: int
) -> tuple[Model, list[str], Scores]:
    scale = bench.scale
    most, n_members = max(scale.corpus_pieces), scale.n_pieces
    texts = drawn(
        pieces(bench.documents()[1], scale.piece_words),
        most + n_members,
        seed=seed,
        what=f"texts of {scale.piece_words} words",
    )
    members, unseen = texts[:n_members], texts[most:]
    model = bench.continued(
        f"pieces-{seed}-{n}",
        texts[n_members:n],
        [planted("members", members, 1)],
        seed=seed,
    )
    groups = {"pieces seen": members, "pieces unseen": unseen}
    return model, ["pieces"], score_groups(bench.ready(model), groups, score_methods())


def _settings(
    bench: Bench,
    study: str,
    settings: Mapping[str, tuple[float, Run]],
    *,
    paper: str,
) -> Found:
    """Every setting with every seed; the same texts are scored in each."""
    strata, facts = Strata(study), {}
    for setting, (x, run) in settings.items():
        for seed in bench.seeds:
            model, names, scores = run(seed)
            facts[setting] = model_facts(model)
            for method, of_groups in scores.items():
                for name in names:
                    sides = (of_groups[f"{name} {word}"] for word in _SIDES)
                    strata.add(method, setting, x, *sides)
    return Found(
        cells=strata.cells(),
        trends=strata.trends(paper=paper, paired=True),
        facts=facts,
    )
