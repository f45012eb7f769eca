"""Texts with scores, and what is said of their two sides."""

import numpy as np

from jaxcontam.members.judging import judge, judge_texts
from jaxcontam.members.result import MembershipStudy, Scores


def told(texts, labels, tell):
    """The texts, those of members changed."""
    return [tell(t) if label else t for t, label in zip(texts, labels, strict=True)]


def scores_of(values, reference=None):
    """Scores named 0, 1, ..."""
    values = values.reshape(len(values), -1)
    return Scores(tuple(map(str, range(values.shape[1]))), values, reference)


def ranked(texts, labels, scores, **changes):
    """What `judge` says of the scores, of which the first is the primary one."""
    rest = {"primary": scores.names[0], "n_boot": 50, "texts": texts} | changes
    return judge("x", "d", scores, labels, **rest)


def asked(texts, sides, scores, **changes):
    """What `judge_texts` says of one side, with the other one as the pool."""
    own, pool = ([texts[i] for i in np.flatnonzero(side)] for side in (sides, ~sides))
    rest = {"texts": own, "pool_texts": pool, "n_permutations": 99} | changes
    return judge_texts("x", "d", scores.rows(sides), scores.rows(~sides), **rest)


def study_of(**changes):
    """The counts of a run, of no meaning."""
    fields = {"name": "x", "fingerprint": "d", "primary": "0", "fprs": (0.05,)}
    fields |= dict.fromkeys(("n_texts", "n_left_out", "n_unscored"), 0)
    fields |= {"convention": "le", "tokens_scored": 0, "cached_tokens": 0}
    return MembershipStudy(**fields | changes)
