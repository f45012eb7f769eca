"""How much of each document looks seen, by a cut that known documents give.

Dimension key
    N  texts
    P  members
    Q  non-members
"""

from collections.abc import Sequence

import numpy as np

from jaxcontam.members.result import DocumentRate, DocumentRates
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.roc import best_threshold

_ASKED, _MEMBER, _NONMEMBER = "text", "member", "nonmember"


def document_rates(
    method: str,
    scores_N: np.ndarray,
    documents: Sequence[str],
    roles: Sequence[str],
    *,
    known_N: np.ndarray,
    asked_N: np.ndarray,
) -> DocumentRates:
    """Fit a cut on the known documents, and rate every document by it.

    A rate is no share of a document that was read: unread documents show rates above 0.

    `known_N` are the texts of known documents that can be compared, `asked_N` those in
    question, `roles` each `text`, `member` or `nonmember`; a score may be NaN. Rates
    stand in the order of the documents' first texts.

    Source:
        Shi et al., arXiv:2310.16789, section 5. Departures: the accuracy that the cut
        maximises weighs members and non-members the same, which is the paper's where
        there are as many of both; known documents are judged by the cut of the other
        known ones, since that of all was chosen on them.
    """
    role_N = np.array(roles, object)
    is_known = {
        role: known_N & (role_N == role) & np.isfinite(scores_N)
        for role in (_MEMBER, _NONMEMBER)
    }
    of_document: dict[tuple[str, str], list[int]] = {}
    for i in np.flatnonzero(known_N | asked_N).tolist():
        of_document.setdefault((roles[i], documents[i]), []).append(i)

    def cut(rest_N: np.ndarray) -> tuple[float, float]:
        sides = (scores_N[own_N & rest_N] for own_N in is_known.values())
        found = best_threshold(*sides)
        return found.value, found.accuracy

    threshold, accuracy = cut(np.ones(len(scores_N), bool))
    rates = []
    for (role, name), places in of_document.items():
        own = scores_N[places]
        scored = own[np.isfinite(own)]
        of_others = threshold
        if role != _ASKED:
            rest_N = np.ones(len(scores_N), bool)
            rest_N[places] = False
            of_others, _ = cut(rest_N)
        n_above = int(np.count_nonzero(scored >= of_others))
        low, high = (
            wilson_interval(n_above, len(scored)) if len(scored) else (None,) * 2
        )
        rates.append(
            DocumentRate(
                document=name,
                role=role,
                n_texts=len(own),
                n_scored=len(scored),
                n_above=n_above if len(scored) else None,
                rate=n_above / len(scored) if len(scored) else None,
                rate_low=low,
                rate_high=high,
                threshold=of_others,
            )
        )
    shares = {
        role: sum(row.n_above or 0 for row in rates if row.role == role) / own_N.sum()
        for role, own_N in is_known.items()
    }
    tpr, fpr = (float(share) for share in shares.values())
    return DocumentRates(
        method=method,
        threshold=threshold,
        accuracy=accuracy,
        accuracy_held_out=(tpr + 1 - fpr) / 2,
        tpr_held_out=tpr,
        fpr_held_out=fpr,
        n_members=sum(row.role == _MEMBER for row in rates),
        n_nonmembers=sum(row.role == _NONMEMBER for row in rates),
        rates=tuple(rates),
    )
