"""The paper's ten sets, and tables of what was found beside the published figures."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from eval.intervals import Share
from eval.study import Grid, grouped
from jaxcontam.reports.numbers import p_text

Plan = Literal["published", "lower"]
"""Copies of the paper's first model, or of its second one."""

LEVELS = (0.05, 0.001)
MOST_SEEN = 0.05
"""Share of a control's lines that training may have read."""

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Canary:
    """One of the ten sets.

    Attributes:
        published: Copies in the paper's first model.
        lower: Copies in the authors' second model.
        permutation_p: p-value of the permutation test on the first model, as printed.
        sharded_p: That of the sharded test.
    """

    published: int
    lower: int
    permutation_p: str
    sharded_p: str


# Copies: the README of the authors' code (tatsu-lab/test_set_contamination) has both
# columns. p-values: table 1 of arXiv:2310.17623, whose 0.009 is the smallest that its
# permutation test could give; the paper has none of the second model.
CANARIES: Mapping[str, Canary] = {
    "boolq": Canary(1, 1, "0.099", "0.156"),
    "hellaswag": Canary(1, 1, "0.485", "0.478"),
    "openbookqa": Canary(1, 2, "0.544", "0.462"),
    "naturalquestions": Canary(10, 2, "0.009", "1e-38"),
    "mnli": Canary(10, 4, "0.009", "1.96e-11"),
    "truthfulqa": Canary(10, 4, "0.009", "3.43e-13"),
    "piqa": Canary(50, 7, "0.009", "1e-38"),
    "mmlu_professional_law": Canary(50, 7, "0.009", "1e-38"),
    "mmlu_professional_psychology": Canary(50, 10, "0.009", "1e-38"),
    "mmlu_high_school_psychology": Canary(100, 10, "0.009", "1e-38"),
}


def copies_of(plan: Plan) -> dict[str, int]:
    """Copies of each set in a plan."""
    return {name: getattr(canary, plan) for name, canary in CANARIES.items()}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One model's numbers in a report of this study.

    Attributes:
        document: The report.
        tests: Its rows, by set and method.
        planted: Copies of the planted sets.
        controls: Sets that were not planted.
        plan: Plan of the copies.
        methods: Order tests, the one that decides first.
    """

    document: Mapping[str, Any]
    tests: Mapping[tuple[str, str], Row]
    planted: Mapping[str, int]
    controls: Sequence[str]
    plan: Plan
    methods: Sequence[str]

    @property
    def seen(self) -> Mapping[str, Sequence[int]]:
        """Control -> its lines that stand in the planted part, and its lines."""
        return self.document["study"]["seen"]

    def rows(self, method: str) -> list[Row]:
        """Rows of one method."""
        return [row for (_, name), row in self.tests.items() if name == method]


def run_of(document: Mapping[str, Any], plan: Plan) -> Run:
    """The run that a report of this study tells of."""
    rows = document["results"]
    copies = {row["benchmark"]: row["copies"] for row in rows}
    planted = {name: n for name, n in copies.items() if n}
    decides = {row["method"] for row in rows if row["primary"]}
    return Run(
        document=document,
        tests={(row["benchmark"], row["method"]): row for row in rows},
        planted=planted,
        controls=[name for name, n in copies.items() if not n],
        plan=plan,
        methods=sorted(
            grouped(rows, lambda row: row["method"]), key=lambda m: m not in decides
        ),
    )


def numbers_of(run: Run) -> dict[str, Any]:
    """Numbers behind the tables, for the JSON file."""
    study = run.document["study"]
    fields = """benchmark copies method p_value log10_p validity p_floor p_adjusted
        effect effect_se mde verdict reasons reference n_examples n_cut n_strata
        n_orders tokens_scored"""
    return {
        "label": run.plan,
        "n_parameters": run.document["model"]["n_parameters"],
        "n_tokens": study["n_tokens"],
        "canary_share": study["canary_share"],
        "tests": [
            {name: row.get(name) for name in fields.split()}
            for row in run.tests.values()
        ],
        "seen": run.seen,
    }


def grids_of(run: Run) -> list[Grid]:
    """All tables."""
    return [grid for grid in (_orders(run), _controls(run), _found(run)) if grid.rows]


def _orders(run: Run) -> Grid:
    """p-values of planted sets, the paper's at the end."""
    primary, *others = run.methods
    words: dict[tuple[str, str], str] = {}
    for name, copies in run.planted.items():
        row = run.tests[name, primary]
        beside = row.get("reference")
        cells = {
            "copies": f"{copies}",
            primary: _p(row),
            "verdict": row["verdict"] or "",
            "why no more": ", ".join(row.get("reasons") or ()),
            "effect, nats a boundary": _effect(row),
            "reference": _effect(beside),
            "difference": (
                p_text(beside["difference_log10_p"], row["validity"]) if beside else ""
            ),
            **{method: _p(run.tests.get((name, method))) for method in others},
        }
        if run.plan == "published":
            cells["paper: permutation"] = CANARIES[name].permutation_p
            cells["paper: sharded t"] = CANARIES[name].sharded_p
        words |= {(name, column): word for column, word in cells.items()}
    orders = max((row["n_orders"] for row in run.rows("permutation")), default=0)
    floor = f" (permutation: {orders} orders, so p is at least {1 / (orders + 1):g})"
    study = run.document["study"]
    about = (
        f"{run.plan}: {run.document['model']['n_parameters']:,} parameters, "
        f"{study['n_tokens']:,} training tokens, {study['canary_share']:.0%} of them "
        f"planted. p-values of the planted sets{floor * bool(orders)}. Verdict: "
        f"{primary}, Holm over all sets and controls, beside a reference that read the "
        "background alone, where there is one: its effect, and p of the difference."
    )
    return Grid.crossed(about, "set", words)


def _controls(run: Run) -> Grid:
    """The same of the later lines, where a test should be silent if they are unread."""
    words: dict[tuple[str, str], str] = {}
    for name in run.controls:
        row = run.tests[name, run.methods[0]]
        seen = run.seen.get(name)
        words[name, "seen"] = "{} of {}".format(*seen) if seen else ""
        words[name, "verdict"] = row["verdict"] or ""
        for method in run.methods:
            words[name, method] = _p(run.tests.get((name, method)))
    return Grid.crossed(
        f"{run.plan}: later lines of the same files, which were not planted. `seen` "
        "also stand in the planted part, so that training read them.",
        "control",
        words,
    )


def _found(run: Run) -> Grid:
    """Number of sets that each test finds, and of controls that it accuses.

    No test should be silent on a control that training read much of.
    """
    read = [name for name, (n_seen, n) in run.seen.items() if n_seen > MOST_SEEN * n]
    words: dict[tuple[str, str], str] = {}
    for method in run.methods:
        fair = [row for row in run.rows(method) if row["benchmark"] not in read]
        for who, is_planted in (("planted", True), ("controls", False)):
            rows = [row for row in fair if bool(row["copies"]) == is_planted]
            for level in LEVELS:
                words[method, f"{who}, {level:g}"] = _share(rows, level)
    left_out = f" Left out, more than {MOST_SEEN:.0%} of lines seen: {', '.join(read)}."
    title = (
        f"{run.plan}: sets with p at most the level, 95 % Wilson interval over sets; "
        "one model, so the interval says nothing about other models."
    )
    return Grid.crossed(title + left_out * bool(read), "test", words)


def _share(rows: Sequence[Row], level: float) -> str:
    """Share of tests that reach a level, or a note that they cannot."""
    # An approximate test has no floor of its own.
    if not rows or min(row["p_floor"] or 0.0 for row in rows) > level:
        return "-"
    # A floor is a quotient in binary: 1/20 may stand a hair above 0.05.
    n = sum(row["p_value"] <= level * (1 + 1e-9) for row in rows)
    share = Share.counted(n, len(rows))
    return f"{n} of {len(rows)} ({share.low:.2f} to {share.high:.2f})"


def _p(row: Row | None) -> str:
    return "" if row is None else p_text(row["log10_p"], row["validity"])


def _effect(row: Row | None) -> str:
    if row is None or row["effect"] is None:
        return ""
    error = "" if row["effect_se"] is None else f" ± {row['effect_se']:.2f}"
    return f"{row['effect']:.2f}{error}"
