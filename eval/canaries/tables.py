"""Tables of the canary study: ours beside the published figures."""

from collections.abc import Sequence
from typing import Any

from eval.canaries.runs import CANARIES, MOST_SEEN, Row, Run
from eval.intervals import Share
from eval.study import Column, Grid
from jaxcontam.reports.numbers import p_text

LEVELS = (0.05, 0.001)
_NONE = ""


def grids_of(run: Run) -> list[Grid]:
    """All tables."""
    return [grid for grid in (_orders(run), _controls(run), _found(run)) if grid.rows]


def numbers_of(run: Run) -> dict[str, Any]:
    """What the tables are made of, for the JSON file."""
    fields = ("benchmark", "copies", "method", "p_value", "log10_p", "validity")
    more = ("p_floor", "p_adjusted", "effect", "effect_se", "mde")
    decided = ("verdict", "reasons", "reference")
    scored = ("n_examples", "n_cut", "n_strata", "n_orders", "tokens_scored")
    return {
        "label": run.label,
        "n_parameters": run.n_parameters,
        "n_tokens": run.n_tokens,
        "canary_share": run.canary_share,
        "tests": [
            {name: row.get(name) for name in (*fields, *more, *decided, *scored)}
            for row in run.tests.values()
        ],
        "seen": run.seen,
    }


def _orders(run: Run) -> Grid:
    """p-values of planted sets, the paper's at the end."""
    primary, *others = run.methods
    decides = {name: run.tests.get((name, primary)) for name in run.planted}
    columns: dict[str, Column] = {
        "set": "{r}",
        "copies": lambda name: str(run.planted[name]),
        primary: lambda name: _p(decides[name]),
        "verdict": lambda name: _verdict(decides[name]),
        "why no more": lambda name: ", ".join(
            (decides[name] or {}).get("reasons") or ()
        ),
        "effect, nats a boundary": lambda name: _effect(decides[name]),
        "reference": lambda name: _effect((decides[name] or {}).get("reference")),
        "difference": lambda name: _difference(decides[name] or {}),
    }
    for method in others:
        columns[method] = lambda name, method=method: _p(run.tests.get((name, method)))
    if run.plan == "published":
        columns["paper: sharded t"] = lambda name: CANARIES[name].sharded_p or _NONE
    about = (
        f"{run.label}: {run.n_parameters:,} parameters, {run.n_tokens:,} training "
        f"tokens, {run.canary_share:.0%} of them planted. p-values of the planted sets"
        f"{_orders_words(run)}. Verdict: {primary}, Holm over all sets and controls, "
        "beside a reference that read the background alone, where there is one: its "
        "effect, and p of the difference."
    )
    return Grid.of(about, run.planted, columns)


def _orders_words(run: Run) -> str:
    """How many orders the whole-file test had, which bounds its p."""
    orders = max((row["n_orders"] for row in _rows(run, "permutation")), default=0)
    if not orders:
        return ""
    return f" (permutation: {orders} orders, so p is at least {1 / (orders + 1):g})"


def _controls(run: Run) -> Grid:
    """The same of the later lines, where a test should be silent if they are unread."""
    columns: dict[str, Column] = {
        "control": "{r}",
        "seen": lambda name: (
            "{} of {}".format(*run.seen[name]) if name in run.seen else _NONE
        ),
        "verdict": lambda name: _verdict(run.tests.get((name, run.methods[0]))),
    }
    for method in run.methods:
        columns[method] = lambda name, method=method: _p(run.tests.get((name, method)))
    return Grid.of(
        f"{run.label}: later lines of the same files, which were not planted. `seen` "
        "also stand in the planted part, so that training read them.",
        run.controls,
        columns,
    )


def _found(run: Run) -> Grid:
    """How many sets each test finds, and how many controls it accuses."""

    def cell(planted: bool, level: float) -> Column:
        def words(method: str) -> str:
            rows = [r for r in _fair(run, method) if bool(r["copies"]) == planted]
            return _share(rows, level)

        return words

    columns: dict[str, Column] = {"test": "{r}"} | {
        f"{who}, {level:g}": cell(planted, level)
        for who, planted in (("planted", True), ("controls", False))
        for level in LEVELS
    }
    left_out = ", ".join(run.read_controls)
    return Grid.of(
        f"{run.label}: sets with p at most the level, 95 % Wilson interval over sets; "
        "one model, so the interval says nothing about other models."
        + f" Left out, more than {MOST_SEEN:.0%} of lines seen: {left_out}."
        * bool(left_out),
        run.methods,
        columns,
    )


def _share(rows: Sequence[Row], level: float) -> str:
    """How many of some tests reach a level, or that they cannot."""
    # An approximate test has no floor of its own.
    if not rows or min(row["p_floor"] or 0.0 for row in rows) > level:
        return "-"
    # A floor is a quotient in binary: 1/20 may stand a hair above 0.05.
    n = sum(row["p_value"] <= level * (1 + 1e-9) for row in rows)
    share = Share.counted(n, len(rows))
    return f"{n} of {len(rows)} ({share.low:.2f} to {share.high:.2f})"


def _rows(run: Run, method: str) -> list[Row]:
    return [row for (_, name), row in run.tests.items() if name == method]


def _fair(run: Run, method: str) -> list[Row]:
    """Without the controls that training read much of."""
    read = run.read_controls
    return [row for row in _rows(run, method) if row["benchmark"] not in read]


def _p(row: Row | None) -> str:
    return _NONE if row is None else p_text(row["log10_p"], row["validity"])


def _verdict(row: Row | None) -> str:
    return _NONE if row is None else row["verdict"] or _NONE


def _difference(row: Row) -> str:
    found = row.get("reference")
    return p_text(found["difference_log10_p"], row["validity"]) if found else _NONE


def _effect(row: Row | None) -> str:
    if row is None or row["effect"] is None:
        return _NONE
    error = "" if row["effect_se"] is None else f" ± {row['effect_se']:.2f}"
    return f"{row['effect']:.2f}{error}"
