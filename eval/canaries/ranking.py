"""Min-K% AUC of each planted set against the later lines of its own file.

A ranking by presence: it proves nothing, and it means membership only where nothing
but training tells the two parts of a file apart. Two things may: a later line that
also stands in the planted part, and a file whose beginning differs from what follows.
The first is counted, and its lines are left out of a second figure; classifiers that
read the texts alone measure the other.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from eval.canaries.runs import control_of
from eval.planted import scored_texts
from jaxcontam.data.encoding import Encoded
from jaxcontam.methods.membership.blind import blind_baselines
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.progress import Progress
from jaxcontam.results import MembershipResult
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.roc import auc_delong, auc_interval
from train.audits import MEMBERSHIP, encode_planted
from train.background_check import found_in
from train.manifest import Manifest
from train.plan import PlannedSet

# Texts on each side without which there is no standard error.
_FEWEST = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """How one planted set ranks among the later lines of its file.

    Attributes:
        benchmark: Name of the set.
        copies: How often it was planted.
        n_planted: Its examples.
        n_later: Later lines of the file.
        auc: Chance that a planted line outscores a later one.
        auc_se: DeLong's error; lines that read the same after the cut are one, and
            lines that are only alike are taken as independent, which makes it too
            small where a file has many of one passage.
        auc_low: Lower end of its 95 % interval over lines, for this model and file.
        auc_high: Upper end.
        n_seen: Later lines that stand in the planted part, by the rules of `jaxcontam
            overlap` or because they read the same after the cut.
        auc_unseen: AUC without those; None where fewer than two are left.
        auc_unseen_low: Lower end of its interval.
        auc_unseen_high: Upper end.
        blind_auc: Largest AUC of the classifiers that read only the texts, cut as the
            model read them, lines that are left out excluded; a maximum of four, so
            a little above 0.5 by chance. None where there are too few lines.
        blind_low: Largest lower end of their intervals.
    """

    benchmark: str
    copies: int
    n_planted: int
    n_later: int
    auc: float
    auc_se: float
    auc_low: float
    auc_high: float
    n_seen: int
    auc_unseen: float | None = None
    auc_unseen_low: float | None = None
    auc_unseen_high: float | None = None
    blind_auc: float | None = None
    blind_low: float | None = None


def rank_sets(
    sets: Sequence[PlannedSet],
    manifest: Manifest,
    checkpoint: Checkpoint,
    scorer: Scorer,
    *,
    seed: int,
    progress: Progress,
) -> tuple[list[Ranked], list[MembershipResult]]:
    """Score every line that was planted or kept out, and rank each set.

    Args:
        sets: Planted sets and controls; a set without a control is left out.
        manifest: Says how lines were cut and what ended them.
        checkpoint: The trained model.
        scorer: Its scorer.
        seed: Seeds the folds of the blind classifiers.
        progress: Called with target tokens done and in all.

    Returns:
        What was found, and the same as rows of a report, which have the AUC of all
        lines.
    """
    pairs = [
        (one, control)
        for one in sets
        if one.copies and (control := control_of(one.name, sets)) is not None
    ]
    encoded = {
        one.name: encode_planted(checkpoint.tokenizer, one.benchmark, manifest)
        for pair in pairs
        for one in pair
    }
    scores, cost = scored_texts(encoded, checkpoint.prefix_id, scorer, progress)
    ranked, rows = [], []
    for one, control in pairs:
        found = rank(
            one,
            control,
            scores=(scores[one.name], scores[control.name]),
            encoded=(encoded[one.name], encoded[control.name]),
            read=lambda ids: [checkpoint.tokenizer.decode(row.tolist()) for row in ids],
            seed=seed,
        )
        if found is None:
            continue
        ranked.append(found)
        rows.append(
            MembershipResult(
                benchmark=one.name,
                fingerprint=one.benchmark.fingerprint,
                n_examples=len(one.benchmark),
                method=MEMBERSHIP,
                auc=found.auc,
                auc_se=found.auc_se,
                reference=(control.name,),
                tokens_scored=cost[one.name],
                copies=one.copies,
                copies_shuffled=one.shuffled,
            )
        )
    return ranked, rows


def rank(
    one: PlannedSet,
    control: PlannedSet,
    *,
    scores: tuple[np.ndarray, np.ndarray],
    encoded: tuple[Encoded, Encoded],
    read: Callable[[Sequence[np.ndarray]], list[str]],
    seed: int,
) -> Ranked | None:
    """Rank one set's lines among the later lines of its file.

    Args:
        one: The planted set.
        control: The later lines.
        scores: (n_planted,) and (n_later,), higher = more likely a member.
        encoded: Ids of both as the model read them.
        read: Texts of such ids, for the blind classifiers.
        seed: Seeds their folds.

    Returns:
        None where a side has fewer than two lines, and so no standard error.
    """
    planted_P, later_Q = scores
    if min(len(planted_P), len(later_Q)) < _FEWEST:
        return None
    ids_P, ids_Q = ([ids.tobytes() for ids in side.ids] for side in encoded)
    auc, se, low, high = _auc(planted_P, later_Q, ids_P, ids_Q)
    known = set(ids_P)
    seen = {i for i, key in enumerate(ids_Q) if key in known}
    seen.update(found_in(control, one))
    ranked = Ranked(
        benchmark=one.name,
        copies=one.copies,
        n_planted=len(planted_P),
        n_later=len(later_Q),
        auc=auc,
        auc_se=se,
        auc_low=low,
        auc_high=high,
        n_seen=len(seen),
    )
    left = [i for i in range(len(later_Q)) if i not in seen]
    if len(left) < _FEWEST:
        return ranked
    auc, _, low, high = _auc(planted_P, later_Q[left], ids_P, [ids_Q[i] for i in left])
    blind = blind_baselines(
        [*read(encoded[0].ids), *read([encoded[1].ids[i] for i in left])],
        np.arange(len(ids_P) + len(left)) < len(ids_P),
        seed=seed,
    )
    return dataclasses.replace(
        ranked,
        auc_unseen=auc,
        auc_unseen_low=low,
        auc_unseen_high=high,
        blind_auc=blind.auc,
        blind_low=max((row.auc_low for row in blind.rows), default=None),
    )


def _auc(
    planted_P: np.ndarray,
    later_Q: np.ndarray,
    ids_P: Sequence[bytes],
    ids_Q: Sequence[bytes],
) -> tuple[float, float, float, float]:
    """AUC, its error and its interval; lines of the same ids count as one."""
    number = {key: i for i, key in enumerate(dict.fromkeys([*ids_P, *ids_Q]))}
    codes_P, codes_Q = (
        np.array([number[key] for key in keys]) for keys in (ids_P, ids_Q)
    )
    n = min(len(set(ids_P)), len(set(ids_Q)))
    # Lines that all read the same leave nothing to estimate an error from.
    clusters = (codes_P, codes_Q) if n >= _FEWEST else None
    auc, se = auc_delong(planted_P, later_Q, clusters=clusters)
    return auc, se, *auc_interval(auc, se, n=n)
