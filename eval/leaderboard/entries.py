"""The detectors of the leaderboard, and those from files that the user names."""

import dataclasses
import hashlib
import importlib.util
import inspect
import operator
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from eval.leaderboard.detector import Entry, Finding, Subject, finding_of_p
from eval.leaderboard.methods import (
    affordable_orders,
    labelled,
    mean_entry,
    order_entry,
    order_numbers,
    scores_of,
    unseen_entry,
)
from eval.study import data_file
from jaxcontam.errors import InputError, check_names
from jaxcontam.members.blind import bag_of_words, cross_validated, grouped_folds
from jaxcontam.members.scores import score_method
from jaxcontam.orders.methods import SHARDED_T, STRATIFIED
from jaxcontam.stats import conformal
from jaxcontam.stats.relabelling import set_level_test
from jaxcontam.stats.roc import auc_delong

_INFERENCE_FEATURES = ("loss", "min_k", "min_k_pp", "zlib", "surp", "gap_k")
_BLIND_FOLDS = 5
# Nats; a token that ties with the likeliest one counts as written.
_TIE = 1e-5


def _blind_length(subject: Subject) -> Finding:
    """Mean number of characters."""
    return Finding(score=float(np.mean([len(text) for text in subject.texts])))


def _blind_words(subject: Subject) -> Finding:
    """Cross-validated AUC of a bag of words."""
    texts, labels_N = labelled(subject)
    codes_N = np.arange(len(texts))
    folds_N = grouped_folds(labels_N, codes_N, n_folds=_BLIND_FOLDS, seed=subject.seed)
    values_N = cross_validated(bag_of_words(texts), labels_N, folds_N)
    auc, _ = auc_delong(values_N[labels_N], values_N[~labels_N])
    return Finding(score=auc)


def _codec(subject: Subject) -> Finding:
    """Share of texts that the model reads no better after another one of the set."""
    values_N1 = scores_of(subject, subject.texts, (score_method("codec"),))
    return Finding(score=float((values_N1 > 0).mean()))


def _coin(subject: Subject) -> Finding:
    """A uniform p-value, drawn for this model and these texts."""
    p_value = 1 - np.random.default_rng(subject.seed).random()
    return finding_of_p(float(np.log10(p_value)))


def _dataset_inference(subject: Subject) -> Finding:
    """Held-out AUC of the set's texts against unseen ones, labels permuted."""
    texts, labels_N = labelled(subject)
    methods = tuple(map(score_method, _INFERENCE_FEATURES))
    features_ND = scores_of(subject, texts, methods)
    found = set_level_test(features_ND, labels_N, seed=subject.seed)
    return Finding(score=found.auc, p_value=found.p_value)


def _first_pieces(subject: Subject) -> Finding:
    """Mean share of second halves that greedy decoding copies without a miss.

    Nothing is generated: greedy decoding copies a text as long as each next token is
    the likeliest one after the tokens before it, which one forward pass shows.
    """
    reader = subject.model.with_moments
    if reader is None:
        raise ValueError("distributions were not given")
    sequences = subject.model.sequences(subject.texts)
    shares = []
    scores = reader.token_table(sequences).scores
    for ids, scores_RT in zip(sequences, scores, strict=True):
        logprobs_T, _, _, tops_T = scores_RT
        half = len(ids) // 2
        hit = logprobs_T[half:] >= tops_T[half:] - _TIE
        run = len(hit) if hit.all() else int(np.argmin(hit))
        shares.append(run / len(hit))
    return Finding(score=float(np.mean(shares)))


def _share_seen(subject: Subject) -> Finding:
    """Bound of the share of texts whose Min-K% is above that of unseen texts."""
    texts, labels_N = labelled(subject)
    values_N = scores_of(subject, texts, (score_method("min_k"),))[:, 0]
    low, _ = conformal.share_seen(values_N[labels_N], values_N[~labels_N])
    return Finding(score=low, p_value=1 - conformal.LEVEL if low > 0 else 1.0)


def _t_same_strata(subject: Subject) -> Finding:
    """One-sided t-test on the strata of `stratified` instead of fifty shards.

    Fifty shards of a small file hold two examples each; these hold as many as fit.
    """
    n_orders = affordable_orders(subject, STRATIFIED)
    numbers = order_numbers(subject, STRATIFIED, n_orders=n_orders, read_by=SHARDED_T)
    return finding_of_p(numbers.log10_p)


_DETECTORS = (
    *(_blind_length, _blind_words, _codec, _coin, _dataset_inference),
    *(_first_pieces, _share_seen, _t_same_strata),
)
_OWN = {detect.__name__.removeprefix("_"): detect for detect in _DETECTORS}
_TABLE = data_file(__file__)
ENTRIES: tuple[Entry, ...] = (
    *map(order_entry, _TABLE["orders"]),
    *map(mean_entry, _TABLE["means"]),
    *map(unseen_entry, _TABLE["against_unseen"]),
    *(
        Entry(**{**row, "needs": tuple(row["needs"]), "detect": _OWN[row["name"]]})
        for row in _TABLE["entry"]
    ),
)
"""The built-in detectors."""


@dataclasses.dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry and the digest of its code, by which a changed one is told."""

    entry: Entry
    digest: str


def built_in_entries() -> dict[str, FoundEntry]:
    """`ENTRIES` by name."""
    entries = sorted(ENTRIES, key=operator.attrgetter("name"))
    return _by_name([FoundEntry(entry, _code_digest(entry)) for entry in entries])


def entry_of_file(path: Path) -> FoundEntry:
    """The entry of a file that the user names, which stands alone; runs the file."""
    if not path.is_file() or path.suffix != ".py":
        raise InputError(
            f"{path}: no such Python file",
            hint="--entry names a file that holds an ENTRY; see "
            "docs/how_to/own_method.md",
        )
    # Files of one name in two folders are two modules.
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    name = f"_entry_{path.stem}_{place[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look the module of their annotations up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    entry = getattr(module, "ENTRY", None)
    if not isinstance(entry, Entry):
        raise InputError(
            f"{path}: holds no ENTRY",
            hint="ENTRY = Entry(...) from eval.leaderboard.detector; see "
            "docs/how_to/own_method.md",
        )
    return FoundEntry(entry, hashlib.sha256(path.read_bytes()).hexdigest())


def chosen_entries(
    files: Sequence[Path], only: Sequence[str]
) -> Mapping[str, FoundEntry]:
    """Entries that a run compares: `ENTRIES` and the user's, or those of some names."""
    found = _by_name([*built_in_entries().values(), *map(entry_of_file, files)])
    check_names("entry", only, found)
    return {name: found[name] for name in found if not only or name in only}


def _code_digest(entry: Entry) -> str:
    """Digest of what this module adds to the code that all trials follow from."""
    # A row of METHODS adds nothing but its name.
    code = inspect.getsource(entry.detect) if inspect.isfunction(entry.detect) else ""
    return hashlib.sha256(f"{entry.name} {entry.needs} {code}".encode()).hexdigest()


def _by_name(found: Sequence[FoundEntry]) -> dict[str, FoundEntry]:
    by_name: dict[str, FoundEntry] = {}
    for one in found:
        if by_name.setdefault(one.entry.name, one) is not one:
            raise InputError(
                f"two entries are named {one.entry.name!r}",
                hint="give yours another name",
            )
    return by_name
