"""Membership scores as entries: the set's mean, or its texts against unseen ones."""

import functools

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Need, Subject
from jaxcontam.methods import score_method
from jaxcontam.methods.membership.plan import Inputs, count_targets, score_texts
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.roc import auc_delong

_NEEDS: dict[Reading, Need] = {
    "moments": "distributions",
    "reference": "reference model",
    "corpus": "corpus",
    "nonmember_prefix": "unseen texts",
}
# Of a neighbourhood, where the budget allows as many.
_MOST_NEIGHBOURS = 10


def mean_entry(name: str) -> Entry:
    """Sets ranked by the mean of a score over their texts; no p-value.

    Args:
        name: Of a row of METHODS.
    """
    method = score_method(name)
    return Entry(
        name=name,
        detect=functools.partial(_mean, method),
        gives="score",
        family="membership",
        needs=_needs(method),
        about=f"mean over the set; {method.finds}",
        source=method.source,
    )


def unseen_entry(name: str) -> Entry:
    """A set's texts against unseen ones, by labels drawn again at random.

    Exact where set and unseen texts are random draws from one pool, as they are here.

    Args:
        name: Of a row of METHODS.
    """
    method = score_method(name)
    return Entry(
        name=f"{name}_unseen",
        detect=functools.partial(_against_unseen, method),
        gives="p-value",
        family="membership",
        needs=tuple(dict.fromkeys((*_needs(method), "unseen texts"))),
        about=f"{name} of the set's texts against those of unseen texts, permuted",
        source=method.source,
    )


def scores_of(
    subject: Subject, texts: tuple[str, ...], methods: tuple[ScoreMethod, ...]
) -> np.ndarray:
    """(N, M) float64, scores of texts.

    Raises:
        OverBudgetError: If they cost more than there is left.
    """
    inputs = _inputs(subject, texts, methods)
    table = score_texts(texts, methods, subject.model, inputs=inputs, seed=subject.seed)
    return table.values


def labelled(subject: Subject) -> tuple[tuple[str, ...], np.ndarray]:
    """The set's texts with the unseen ones after them, and which are the set's."""
    texts = (*subject.texts, *subject.unseen)
    return texts, np.arange(len(texts)) < len(subject.texts)


def _mean(method: ScoreMethod, subject: Subject) -> Finding:
    values_NM = scores_of(subject, subject.texts, (method,))
    return Finding(score=float(values_NM.mean()))


def _against_unseen(method: ScoreMethod, subject: Subject) -> Finding:
    texts, labels_N = labelled(subject)
    values_N1 = scores_of(subject, texts, (method,))
    auc, _ = auc_delong(values_N1[labels_N, 0], values_N1[~labels_N, 0])
    (p_value,) = auc_p_values(values_N1, labels_N, seed=subject.seed)
    return Finding(score=auc, p_value=float(p_value))


def _inputs(
    subject: Subject, texts: tuple[str, ...], methods: tuple[ScoreMethod, ...]
) -> Inputs:
    """What the scores may read beside the texts; neighbours as the budget allows."""
    inputs = Inputs()
    for n_neighbours in range(_MOST_NEIGHBOURS, 0, -1):
        inputs = Inputs(
            reference=subject.reference,
            nonmember_prefix=subject.unseen,
            corpus_counts=subject.corpus_counts,
            n_neighbours=n_neighbours,
        )
        if "neighbours" not in {name for method in methods for name in method.reads}:
            break
        cost = count_targets(
            texts, methods, subject.model, inputs=inputs, seed=subject.seed
        )
        if cost <= subject.budget.left:
            break
    return inputs


def _needs(method: ScoreMethod) -> tuple[Need, ...]:
    more: list[Need] = [_NEEDS[name] for name in method.reads if name in _NEEDS]
    return ("log-probabilities", *more)
