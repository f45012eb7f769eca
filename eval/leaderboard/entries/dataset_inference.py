"""Dataset inference: a linear classifier on the scores that one pass gives."""

from eval.leaderboard.detector import Entry, Finding, Subject
from eval.leaderboard.text_scores import labelled, scores_of
from jaxcontam.methods import score_method
from jaxcontam.stats.set_level import set_level_test

_FEATURES = ("loss", "min_k", "min_k_pp", "zlib", "surp", "gap_k")


def detect(subject: Subject) -> Finding:
    """Held-out AUC of the set's texts against unseen ones, labels permuted."""
    texts, labels_N = labelled(subject)
    features_ND = scores_of(subject, texts, tuple(map(score_method, _FEATURES)))
    found = set_level_test(features_ND, labels_N, seed=subject.seed)
    return Finding(score=found.auc, p_value=found.p_value)


ENTRY = Entry(
    name="dataset_inference",
    detect=detect,
    gives="p-value",
    family="membership",
    needs=("log-probabilities", "distributions", "unseen texts"),
    about="a classifier on six scores of the set's texts against unseen ones, permuted",
    source="Maini et al. 2024, arXiv:2406.06443",
)
