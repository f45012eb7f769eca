"""Plan: the scores of a membership run, its prefixes, and what is left to score.

`choose` needs no model, so that what cannot be run is refused before one is opened.

Dimension key
    N  texts of a run
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.analyses.known_texts import (
    MEMBER,
    NONMEMBER,
    RunTexts,
    check_sides,
    draw_company,
    draw_shots,
    left_out,
)
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.methods.membership.sweep import sweep_methods
from jaxcontam.methods.membership.token_scores import AT_K, min_k_at

if TYPE_CHECKING:
    from jaxcontam.methods.membership.plan import Inputs
    from jaxcontam.methods.membership.text_model import TextModel

AUTO, ALL = "auto", "all"
WEIGHTS: frozenset[Reading] = frozenset({"moments", "gradients"})
"""Readings of a model whose weights are here."""

# Readings that cost one more pass at most, or that their own flag asked for.
_CHEAP: frozenset[Reading] = frozenset({"moments", "lowercase", "reference", "corpus"})
_PREFIXES: tuple[tuple[Reading, str], ...] = (
    ("nonmember_prefix", NONMEMBER),
    ("member_prefix", MEMBER),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChosenScores:
    """What a run computes.

    Attributes:
        shots: Prefix -> indices of the texts that stand in it.
        named: Scores that were asked for by their own names.
    """

    methods: tuple[ScoreMethod, ...]
    primary: str
    shots: Mapping[Reading, np.ndarray]
    named: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> list[int]:
        """Indices of all texts that stand in a prefix."""
        return [int(i) for some in self.shots.values() for i in some]

    def without(self, reading: Reading, note: str) -> "ChosenScores":
        """The same without the scores of a prefix."""
        return dataclasses.replace(
            self,
            methods=tuple(m for m in self.methods if reading not in m.reads),
            shots={key: some for key, some in self.shots.items() if key != reading},
            notes=(*self.notes, note),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MembershipPlan:
    """What a run scores, and with what; `left_out` (N,) are texts of a prefix."""

    run: RunTexts
    chosen: ChosenScores
    left_out: np.ndarray
    inputs: "Inputs"
    model: "TextModel"
    seed: int

    @property
    def texts(self) -> list[str]:
        """The texts that are scored."""
        return self.run.texts_of(~self.left_out)


def check_ranges(k: float, fprs: Sequence[float]) -> None:
    """Refuse a share of tokens, or false-positive rates, that are none."""
    if not 0 < k <= 100:
        raise InputError(f"--k must be above 0 and at most 100, got {k:g}")
    if len(set(fprs)) < len(fprs):
        raise InputError(f"--fpr names a rate twice {tuple(fprs)}")
    for rate in fprs:
        if not 0 < rate < 1:
            raise InputError(f"--fpr must lie between 0 and 1, got {rate:g}")


def choose(
    run: RunTexts,
    scores: Sequence[str],
    available: Collection[Reading],
    *,
    primary: str | None = None,
    k: float = 20.0,
    sweep_k: bool = False,
    n_shots: int = 5,
    seed: int = 0,
) -> ChosenScores:
    """Choose scores, the one that decides, and the texts of prefixes.

    A word of `scores` may hold several names with commas between; `AUTO` is one pass or
    two. `available` is what the run can read besides the texts themselves. The score
    that decides is `primary`, else min_k, else the first; `k` is a percentage.
    """
    names = tuple(part for word in scores for part in word.split(",") if part)
    readings: set[Reading] = {"lowercase", "neighbours", *available}
    if draw_company(run, np.zeros(len(run.texts), bool), seed=seed):
        readings.add("own_file")
    readings |= {reading for reading, role in _PREFIXES if run.with_role(role).any()}
    methods = _methods(names, readings, k / 100, sweep=sweep_k)
    chosen = _primary(primary, methods, k / 100)
    if sweep_k and not (run.with_role(MEMBER).any() and run.with_role(NONMEMBER).any()):
        raise InputError(
            "sweep_k needs members and non-members",
            hint="give labels, or --members and --nonmembers",
        )
    shots: dict[Reading, np.ndarray] = {
        reading: draw_shots(run, role, n_shots, seed=seed)
        for reading, role in _PREFIXES
        if any(reading in method.reads for method in methods)
    }
    notes = ()
    if "moments" not in available and {AUTO, ALL} & set(names):
        lost = [row.name for row in SCORES.values() if "moments" in row.reads]
        notes = (
            f"{', '.join(lost)} left out: they read the distribution over the whole "
            "vocabulary, and the server gives log-probabilities of the texts alone",
        )
    return ChosenScores(
        methods=tuple(methods),
        primary=chosen,
        shots=shots,
        named=frozenset({*names} | ({primary} if primary else set())),
        notes=notes,
    )


def _methods(
    names: Sequence[str], readings: Collection[Reading], fraction: float, *, sweep: bool
) -> list[ScoreMethod]:
    if not names:
        raise InputError(
            "--scores names no score",
            hint=f"choices: {', '.join([*SCORES, AUTO, ALL])}",
        )
    wanted: set[str] = set()
    for name in names:
        if name in (AUTO, ALL):
            usable = set(readings) & _CHEAP if name == AUTO else set(readings)
            wanted |= {key for key, row in SCORES.items() if set(row.reads) <= usable}
        elif name in SCORES:
            wanted.add(name)
        else:
            raise unknown_name("score", name, [*SCORES, AUTO, ALL])
    chosen = [
        AT_K[name](fraction) if name in AT_K else row
        for name, row in SCORES.items()
        if name in wanted
    ]
    have = {method.name for method in chosen}
    swept = [method for method in sweep_methods() if method.name not in have]
    return [*chosen, *swept] if sweep else chosen


def _primary(name: str | None, methods: Sequence[ScoreMethod], fraction: float) -> str:
    """Name of the score that decides, as a user gives it: `min_k` at any share."""
    names = [method.name for method in methods]
    min_k = min_k_at(fraction).name
    if name is None:
        return min_k if min_k in names else names[0]
    wanted = AT_K[name](fraction).name if name in AT_K else name
    if wanted not in names:
        raise InputError(
            f"--primary {name} is not among the scores ({', '.join(names)})",
            hint="name it after --scores, too, or choose one of these",
        )
    return wanted


def plan_membership(
    run: RunTexts,
    chosen: ChosenScores,
    model: "TextModel",
    inputs: "Inputs",
    *,
    seed: int,
) -> MembershipPlan:
    """Fit the prefixes to the model's context, and leave their texts out."""
    chosen = _fitted(run, chosen, model)
    left_out_N = left_out(run, chosen.shown)
    check_sides(run, left_out_N)
    prefixes = {
        reading: tuple(run.texts[i] for i in some)
        for reading, some in chosen.shots.items()
    }
    inputs = dataclasses.replace(
        inputs,
        nonmember_prefix=prefixes.get("nonmember_prefix", ()),
        member_prefix=prefixes.get("member_prefix", ()),
        company=draw_company(run, left_out_N, seed=seed),
    )
    return MembershipPlan(
        run=run,
        chosen=chosen,
        left_out=left_out_N,
        inputs=inputs,
        model=model,
        seed=seed,
    )


def _fitted(run: RunTexts, chosen: ChosenScores, model: "TextModel") -> ChosenScores:
    """Shots that fit before the longest text; `all` goes without where none does."""
    from jaxcontam.methods.membership.readings import fitting_shots

    scored = run.texts_of(~left_out(run, chosen.shown))
    if any("own_file" in method.reads for method in chosen.methods):
        longest = max(map(len, model.sequences(scored)))
        full = f"the longest text ({longest} tokens) fills the model's context"
        if longest >= model.context and "codec" in chosen.named:
            raise InputError(
                f"codec: {full}, so that none fits before it",
                hint="cut texts with --length, or leave codec out",
            )
        if longest >= model.context:
            chosen = chosen.without("own_file", f"codec left out: {full}")
    for reading, some in chosen.shots.items():
        fits = fitting_shots([run.texts[i] for i in some], scored, model)
        names = [method.name for method in chosen.methods if reading in method.reads]
        if not fits and not chosen.named & set(names):
            chosen = chosen.without(
                reading,
                f"{' and '.join(names)} left out: no known text fits the model's "
                "context before the longest text; --length would cut it",
            )
        elif 0 < len(fits) < len(some):
            shots: dict[Reading, np.ndarray] = {**chosen.shots, reading: some[fits]}
            note = (
                f"{len(fits)} of {len(some)} shots fit before the longest text for "
                f"{' and '.join(names)}"
            )
            chosen = dataclasses.replace(
                chosen, shots=shots, notes=(*chosen.notes, note)
            )
    return chosen
