"""Membership in plain words: one sentence to paste, and what it rests on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

RANKING_MEANING = (
    "A score ranks texts by how familiar they look to the model. It separates members "
    "from non-members only as far as nothing else does: other topics, years or lengths "
    "on the two sides move every score, which is why a blind baseline, that never asks "
    "the model, stands beside every AUC. Only a split drawn at random rules that out. "
    "Texts that are only less fluent rank lower with every model: a reference model "
    "that saw neither side (--reference) shows that, and without one the verdict is at "
    "most suspected."
)
SUSPECTS_MEANING = (
    "The p-value of a text is the share of known non-members that look at least as "
    "familiar to the model. It holds on average over texts that come from where the "
    "non-members come from; it is no proof for a single text, and it is wrong for "
    "texts of another kind."
)
SCORES_MEANING = (
    "Scores alone: higher looks more familiar to the model. Without known non-members "
    "there is no threshold, no p-value and no verdict."
)


def meaning(document: Mapping[str, Any]) -> str:
    """What the numbers of this report can and cannot show."""
    rows = document["results"]
    if not rows:
        return SCORES_MEANING
    return SUSPECTS_MEANING if "features" in rows[0] else RANKING_MEANING


def membership_sentence(
    row: Mapping[str, Any], blind: Sequence[Mapping[str, Any]]
) -> str:
    """One sentence about the row that decides, which can be pasted anywhere."""
    if "features" in row:
        return _set_sentence(row, blind)
    name, verdict = row["benchmark"], row["verdict"]
    found = f"by {row['method']}, AUC {auc_words(row)}"
    if verdict == "confounded":
        best = max(blind, key=lambda one: one["auc"])
        return (
            f"{name}: confounded: without this model, {blind_name(best['name'])} tells "
            f"the two sides apart with AUC {auc_words(best)}; {found}, so what the "
            "score sees need not come from training."
        )
    p = f"p {p_words(row['p_value'])}"
    if verdict in ("contaminated", "suspected"):
        without = "no blind baseline was made"
        if blind:
            best = max(blind, key=lambda one: one["auc"])
            without = f"the best blind baseline reaches {auc_words(best)}"
        return (
            f"{name}: {verdict}: members rank above non-members {found}, {p}; "
            f"{without}."
        )
    if verdict == "no evidence":
        return (
            f"{name}: no evidence that members are more familiar {found}, {p}; the "
            f"interval rules out an AUC above {row['auc_high']:.2f}."
        )
    return f"{name}: inconclusive {found}, {p}; too few texts to tell."


def _set_sentence(row: Mapping[str, Any], blind: Sequence[Mapping[str, Any]]) -> str:
    name, verdict = row["benchmark"], row["verdict"]
    found = f"cross-fitted AUC {row['auc']:.2f}, p {p_words(row['p_value'])}"
    if verdict == "confounded":
        best = max(blind, key=lambda one: one["auc"])
        return (
            f"{name}: confounded: {blind_name(best['name'])} alone tells these texts "
            f"from the non-members with AUC {auc_words(best)}, so they do not come "
            "from one source, and what the model adds cannot be read off."
        )
    if verdict in ("contaminated", "suspected"):
        return (
            f"{name}: {verdict}: as a set, these texts are more familiar than the "
            f"non-members, {found}."
        )
    if verdict == "no evidence":
        return (
            f"{name}: no evidence: as a set, these texts look like non-members, "
            f"{found}."
        )
    return f"{name}: inconclusive: as a set, {found}; too few texts to tell."


def auc_words(row: Mapping[str, Any]) -> str:
    """An AUC with its interval."""
    if row.get("auc_low") is None:
        return f"{row['auc']:.2f}"
    return f"{row['auc']:.2f} ({row['auc_low']:.2f} to {row['auc_high']:.2f})"


def p_words(p: float | None) -> str:
    """A p-value to two digits, rounded up, as 0.012 or 1.3e-05."""
    if p is None:
        return "-"
    if p >= 0.01:
        # Never rounded below a level that it does not reach.
        return f"{math.ceil(p * 1000 - 1e-9) / 1000:.3f}"
    exponent = math.floor(math.log10(p))
    mantissa = math.ceil(p / 10.0**exponent * 10 - 1e-9) / 10
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.1f}e{exponent:03d}"


def blind_name(name: str) -> str:
    """A blind baseline in words."""
    return {
        "bag_of_words": "a bag of words",
        "length": "length, compression",
        "numbers": "dates, numbers",
        "ngram": "an n-gram model of each side",
        "fluency": "an n-gram model of both sides",
        "reference": "the reference model",
    }.get(name, name)


def method_words(row: Mapping[str, Any]) -> str:
    """A method with its setting."""
    return row["method"] + (f" {row['setting']}" if row.get("setting") else "")


def tpr_words(point: Mapping[str, Any], *, interval: bool = True) -> str:
    """A true-positive rate with its interval; a dash where there is none."""
    if point["tpr"] is None:
        return "-"
    if point["tpr_low"] is None or not interval:
        return f"{point['tpr']:.2f}"
    return f"{point['tpr']:.2f} ({point['tpr_low']:.2f} to {point['tpr_high']:.2f})"


def increment_words(row: Mapping[str, Any], *, interval: bool = True) -> str:
    """What a score adds to the blind baseline, with its interval."""
    if row.get("increment") is None:
        return "-"
    if row["increment_low"] is None or not interval:
        return f"{row['increment']:+.2f}"
    return (
        f"{row['increment']:+.2f} ({row['increment_low']:+.2f} to "
        f"{row['increment_high']:+.2f})"
    )


def sweep_sentence(sweep: Mapping[str, Any]) -> str:
    """Which share of tokens was chosen, and what it is worth."""
    tried = ", ".join(f"{n} {auc:.2f}" for n, auc in sweep["held_out_aucs"].items())
    return (
        f"Sweep over k on a random half of the texts (AUC {tried}) chooses "
        f"{sweep['chosen']}: AUC {sweep['auc']:.2f} ± {sweep['auc_se']:.2f} on the "
        "other half."
    )


def operating_header(point: Mapping[str, Any]) -> str:
    """Header of a column of true-positive rates."""
    sign = "≤" if point["convention"] == "le" else "<"
    return f"TPR at FPR {sign} {point['fpr']:.3g}"
