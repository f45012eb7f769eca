"""What do our tests say of public models whose contamination is known?

Question: is a set that a model is known to have read found, and one that it did not
read left alone; and what did others publish? `known_models.toml` is the table: Oren et
al.'s GPT-2s, Hubble with its controls, Pythia, OLMo 2, Marin, Garrulus and Turdus.
Command: `python -m eval.known_models`. Hardware: a GPU, or `--only Contam-Small` on a
CPU; needs a network, or `--mirror`. A killed run goes on. Headline: none yet,
there was no network here.
"""

import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import jaxcontam
from eval.study import (
    Clock,
    Grid,
    Records,
    ResumedFlags,
    data_file,
    finish_study,
    grouped,
    run_study,
    say,
    told,
)
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.hub_splits import files_of_split, is_hub_split, parse_hub_split
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.members.result import ScoreResult
from jaxcontam.stats.roc import auc_delong

_FOUND = {"contaminated", "suspected", "members rank higher", "may rank higher"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A row of the table, which says what each field means."""

    model: str
    set: str
    parameters: float
    analysis: Literal["audit", "membership"]
    source: str
    revision: str = "main"
    members: str = ""
    nonmembers: str = ""
    template: str | None = None
    text_field: str | None = None
    shuffled: bool = True
    reference: str = ""
    copies: str = ""
    expected: str = ""
    published: str = ""
    measure: str = ""
    published_scores: dict[str, str] = dataclasses.field(default_factory=dict)
    neighbours: str = ""

    @property
    def name(self) -> str:
        """Short name of the set, with its split if one is named."""
        return Path(self.set).stem

    @property
    def sources(self) -> list[str]:
        """A file, a split, or a split a side."""
        sides = [side for side in (self.members, self.nonmembers) if side]
        return [f"{self.set}:{side}" for side in sides] or [self.set]

    def agrees(self, verdict: str) -> str:
        """True if the verdict agrees with what is known of the model."""
        if verdict == self.expected or {verdict, self.expected} <= _FOUND:
            return "yes"
        if self.copies == "0":
            return "alarm" if verdict in _FOUND else "yes"
        return "missed" if self.expected else ""


Outcome = dict[str, Any]
"""`ours` (p-value or AUC; None if nothing was scored), `verdict`, AUC by `copies`; and
for `scores`, each with its parameter, AUC and TPR at 5 % FPR."""


def read_table() -> tuple[Known, ...]:
    """Every model of each group with every set of it."""
    return tuple(
        Known(**{**group, **model, **one})
        for group in data_file(__file__)["group"]
        for models, sets in [(group.pop("models"), group.pop("sets"))]
        for model, one in itertools.product(models, sets)
    )


def place(name: str, mirror: Path) -> str:
    """A model, file or split in the mirror; else its name, for the hub to find.

    Raises:
        InputError: If the mirror has the dataset, but not the split as one file.
    """
    if not is_hub_split(name):
        local = mirror / name.partition("@")[0]
        return str(local) if local.exists() else name
    split = parse_hub_split(name)
    local = mirror / split.dataset
    if not local.is_dir():
        return name
    paths = [str(p.relative_to(local)) for p in local.rglob("*") if p.is_file()]
    if len(found := files_of_split(paths, split)) != 1:
        raise InputError(f"{local}: {len(found)} files of {name}, one is needed")
    return str(local / found[0])


def grid_of(model: str, found: Sequence[tuple[Known, Outcome]]) -> Grid:
    """A line a set, and one for each number of copies, or each score, that it has."""
    lines = []
    for row, own in found:
        ours = "-" if own["ours"] is None else f"{own['ours']:.3g}"
        # An approximate p-value is not known below.
        ours = "< 1e-15" if row.measure and (own["ours"] or 1) < 1e-15 else ours
        known = (row.name, row.copies, row.published, ours)
        lines.append((*known, own["verdict"], row.agrees(own["verdict"])))
        lines += [("", n, "", f"{auc:.3g}", "", "") for n, auc in own["copies"].items()]
        for score, (auc, tpr) in own["scores"].items():
            theirs = row.published_scores[score.split(" ")[0]]
            lines.append((score, "", theirs, f"{auc:.2f}, {tpr:.1%}", "", ""))
    title = f"{model}, {found[0][0].parameters / 1e9:g} B; {found[0][0].source}"
    header = ("set", "copies", "published", "ours", "verdict", "agrees")
    return Grid(title, header, tuple(lines))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownModels(ResumedFlags):
    """Audit public models of known contamination, beside what others published."""

    only: tuple[str, ...] = ()
    """Models whose names hold one of these words, such as hubble-1b (default: all)."""
    mirror: Path = Path()
    """Folder of the authors' files, and of models and datasets that need no network,
    each under its name on the hub."""
    limit: int | None = None
    """Take the first N texts of each file or split; --tiny takes 20."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision; bfloat16 is faster but less accurate."""
    out: Path = Path("runs/known_models")
    """Folder for scores, finished sets and tables; a killed run goes on there."""

    positive = ("limit",)

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        self.chosen()

    def chosen(self) -> dict[str, list[Known]]:
        """Models that are asked for, and rows of each."""
        table = grouped(read_table(), lambda row: row.model)
        if lost := [w for w in self.only if not any(w in name for name in table)]:
            raise unknown_name("model", lost[0], table)
        words = self.only or ("",)
        return {k: own for k, own in table.items() if any(w in k for w in words)}

    def run(self) -> dict[str, Any]:
        """Score what is missing, print the tables; returns the numbers."""
        clock = Clock.start()
        records = Records(self.out / "sets", any_code=self.any_code)
        failed: dict[str, list[str]] = {}
        found: dict[str, list[tuple[Known, Outcome]]] = {}
        for model, rows in self.chosen().items():
            opened = functools.cache(self._opened)
            for row in rows:
                key = f"{model}-{row.name}".translate(dict.fromkeys(b"/:", "-"))
                inputs = dataclasses.asdict(row), str(self.mirror), self._most
                inputs = *inputs, self.dtype, self.seed
                own = records.read(key, *inputs)
                if own is None:
                    say(f"{model}: {row.name}")
                    with told(f"{row.model}, {row.name}", failed):
                        own = self._ask(row, self._texts(row), opened)
                        records.write(key, own, *inputs)
                if own is not None:
                    found.setdefault(model, []).append((row, own))
        sets = [dataclasses.asdict(r) | o for own in found.values() for r, o in own]
        return finish_study(
            "known_models",
            self,
            clock=clock,
            numbers={"failed": failed, "sets": sets},
            grids=[grid_of(model, own) for model, own in found.items()],
            earlier_seconds=records.earlier_seconds,
        )

    @property
    def _most(self) -> int | None:
        return 20 if self.tiny else self.limit

    def _opened(self, name: str) -> Any:
        """A model, or why it cannot be had: it is asked for once."""
        try:
            return jaxcontam.load(place(name, self.mirror), dtype=self.dtype)
        except InputError as e:
            return e

    def _texts(self, row: Known) -> list[Benchmark]:
        """The file of a row, or its sides."""
        folder = (self.mirror / row.set).parent
        if not is_hub_split(row.set) and not folder.is_dir():
            zip_ = f"detection_challenge_benchmarks/{folder.name}/benchmarks.zip"
            hint = f"unzip {zip_} of {row.source.split()[0]} there"
            raise InputError(f"{folder}: no such folder", hint=hint)
        form = {"template": row.template, "text_field": row.text_field}
        read = functools.partial(load_benchmark, limit=self._most, **form)
        if not is_hub_split(row.set):
            return [read(self.mirror / row.set)]
        return [read(place(one, self.mirror)) for one in row.sources]

    def _ask(
        self, row: Known, sides: Sequence[Benchmark], opened: Callable[[str], Any]
    ) -> Outcome:
        """Figure and verdict of a set."""
        if isinstance(model := opened(f"{row.model}@{row.revision}"), InputError):
            raise model
        reference = place(row.reference, self.mirror) if row.reference else None
        more: dict[str, Any] = {"reference": reference, "store": self.out / "store"}
        more |= {"seed": self.seed, "dtype": self.dtype}
        if row.analysis == "audit":
            tests = ["adjacency" if row.shuffled else "direction"]
            tests += [row.measure] if row.published else []
            order = ("random",) * row.shuffled
            more |= {"tests": tests, "order": order, "limit": self._most}
            audit = jaxcontam.audit(model, place(row.set, self.mirror), **more)
            p = audit[tests[-1]].numbers.p_value if audit.results else None
            return {"ours": p, "verdict": audit.verdict, "copies": {}, "scores": {}}
        members, others = (list(side.texts) for side in (sides[0], sides[-1]))
        if len(sides) == 1:
            is_member = [row is not None and row["label"] == 1 for row in sides[0].rows]
            others = [t for t, seen in zip(members, is_member, strict=True) if not seen]
            members = [*itertools.compress(members, is_member)]
        if row.published_scores:
            folder = self.mirror / row.neighbours
            by = f":{folder}" if row.neighbours and folder.is_dir() else ""
            made_by = {"neighbourhood": f"neighbourhood{by}"}
            more["scores"] = [made_by.get(name, name) for name in row.published_scores]
        result = jaxcontam.membership(model, members=members, nonmembers=others, **more)
        found = {"ours": result.auc["min_k"], "verdict": result.verdict, "copies": {}}
        found["scores"] = {
            f"{one.method} {one.setting}".strip(): (
                one.auc,
                one.operating_points[0].tpr,
            )
            for one in result.results
            if row.published_scores and isinstance(one, ScoreResult)
        }
        if row.copies == "by text":
            scores = [one["scores"]["min_k"] for one in result.rows]
            seen_P, unseen_Q = np.split(np.array(scores, float), [len(members)])
            copies_P = np.array([*map(_copies, sides[0].rows)])
            found["copies"] = {
                str(n): auc_delong(seen_P[copies_P == n], unseen_Q)[0]
                for n in np.unique(copies_P).tolist()
                if (copies_P == n).sum() > 1
            }
        return found


def _copies(row: dict[str, Any] | None) -> int:
    """Copies of a text of Hubble in training; 0 where its record does not say."""
    meta = (row or {}).get("meta", {})
    return (json.loads(meta) if isinstance(meta, str) else meta).get("duplicates", 0)


if __name__ == "__main__":
    sys.exit(run_study("known_models", KnownModels))
