"""Blind: words of the set against those of unseen texts. It must be at chance."""

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Subject
from eval.leaderboard.text_scores import labelled
from jaxcontam.methods.membership.blind import grouped_folds
from jaxcontam.methods.membership.blind_classifiers import (
    bag_of_words,
    cross_validated,
)
from jaxcontam.stats.roc import auc_delong

_FOLDS = 5


def detect(subject: Subject) -> Finding:
    """Cross-validated AUC of a bag of words."""
    texts, labels_N = labelled(subject)
    codes_N = np.arange(len(texts))
    folds_N = grouped_folds(labels_N, codes_N, n_folds=_FOLDS, seed=subject.seed)
    values_N = cross_validated(bag_of_words(texts), labels_N, folds_N)
    auc, _ = auc_delong(values_N[labels_N], values_N[~labels_N])
    return Finding(score=auc)


ENTRY = Entry(
    name="blind_words",
    detect=detect,
    gives="score",
    family="blind",
    needs=("unseen texts",),
    about="words of the set against those of unseen texts; reads no model",
    source="Das et al. 2024, arXiv:2406.16201",
)
