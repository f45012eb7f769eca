"""What do our tests say of public models whose contamination is known?

Question: is a set that a model is known to have read found, and one that it did not
read left alone; and what did others publish? `known_models.toml` is the table: Oren et
al.'s GPT-2s, Hubble with its controls, Pythia, OLMo 2, Marin, Garrulus and Turdus.
Command: `python -m eval.known_models --dry-run` for what it costs, then without.
Hardware: a GPU, or `--only '*Contam-Small'` on a CPU; needs a network, or `--mirror`.
A killed run goes on. Headline: none yet, there was no network here.
"""

import dataclasses
import fnmatch
import functools
import itertools
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from rich.console import Console

import jaxcontam
from eval.study import (
    Clock,
    Grid,
    Records,
    finish_study,
    grouped,
    print_grid,
    run_study,
    say,
)
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.hub_splits import files_of_split, is_hub_split, parse_hub_split
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.stats.roc import auc_delong

TABLE = Path(__file__).with_suffix(".toml")
_FOUND = {"contaminated", "suspected", "members rank higher", "may rank higher"}
# Passes over the texts, roughly; a reference takes as many.
_PASSES = {"audit": 10, "membership": 2, "sharded_t": 50}
_CHARACTERS = 4  # of a token
_EXIT_PARTIAL = 3

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A set of which it is known whether a model read it: a row of the table.

    Attributes:
        model: Name on the hub.
        revision: Commit, tag or branch of it.
        parameters: Weights.
        set: A file, or `hf:` and a dataset.
        folder: Folder of the file.
        members: Split that was read; "" where the texts have labels or an order.
        nonmembers: Split that was not.
        template: Text of an example, with fields in braces.
        text_field: Or the field that is the text.
        analysis: Which of our functions is asked.
        shuffled: The published order was drawn at random.
        reference: Model that is known not to have read it.
        copies: How often it was read, as far as known; `by text` as the texts say.
        expected: Verdict of a test that misses nothing.
        published: Figure of others.
        measure: Our test of an order that gives the same figure.
        figure: Where it was published.
        source: Where it is said what the model read.
    """

    model: str
    set: str
    parameters: float
    analysis: Literal["audit", "membership"]
    source: str
    revision: str = "main"
    folder: str = ""
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
    figure: str = ""

    @property
    def name(self) -> str:
        """Short name of the set."""
        return Path(self.set).stem

    @property
    def splits(self) -> list[str]:
        """What is read: a file, a split, or a split a side."""
        sides = [side for side in (self.members, self.nonmembers) if side]
        whole = f"{self.folder}/{self.set}" if self.folder else self.set
        return [f"{whole}:{side}" for side in sides] or [whole]

    @property
    def passes(self) -> int:
        """Passes over the texts."""
        own = _PASSES[self.analysis] * (2 if self.reference else 1)
        return own + (_PASSES[self.measure] if self.published and self.measure else 0)


def read_table(path: Path = TABLE) -> tuple[Known, ...]:
    """Rows of the table, every model of a group with every set of it."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))["group"]
    return tuple(
        Known(**{**group, **model, **one})
        for models, sets, group in ((g.pop("models"), g.pop("sets"), g) for g in groups)
        for model, one in itertools.product(models, sets)
    )


def place(name: str, mirror: Path) -> str:
    """A model or a split in the mirror; else its name, which the hub is asked for.

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


def agrees(row: Known, verdict: str) -> str:
    """Whether a verdict is the one that what is known of a set asks for."""
    if row.expected and (verdict == row.expected or {verdict, row.expected} <= _FOUND):
        return "yes"
    if row.copies == "0":
        return "alarm" if verdict in _FOUND else "yes"
    return "missed" if row.expected else ""


def grid_of(model: str, found: Sequence[tuple[Known, dict[str, Any]]]) -> Grid:
    """A line a set, and one for each number of copies where texts differ in it."""
    lines = []
    for row, own in found:
        number, verdict = own["ours"], own["verdict"]
        ours = "-" if number is None else f"{number:.3g}"
        known = (row.copies, row.published, ours, verdict, agrees(row, verdict))
        lines.append((row.name, *known))
        lines += [("", n, "", f"{auc:.3g}", "", "") for n, auc in own["copies"].items()]
    first = found[0][0]
    title = f"{model}, {first.parameters / 1e9:g} B; known from {first.source}"
    header = ("set", "copies", "published", "ours", "verdict", "agrees")
    return Grid(title, header, tuple(lines))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownModels:
    """Audit public models of known contamination, beside what others published."""

    only: tuple[str, ...] = ()
    """Models, by name or by a pattern such as '*hubble-1b*' (default: all)."""
    mirror: Path = Path()
    """Folder of the authors' files, and of models and datasets that need no network,
    each under its name on the hub."""
    limit: int | None = None
    """Take the first N texts of each file or split."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision; bfloat16 is faster but less accurate."""
    dry_run: bool = False
    """Say what would be downloaded and scored, in what time; score nothing."""
    tflops: float = 100.0
    """TFLOP/s that the device reaches, for --dry-run."""
    price_per_hour: float = 0.0
    """Price of the device an hour, for --dry-run."""
    seed: int = 0
    """Seeds every random choice."""
    any_code: bool = False
    """Take finished sets that other code scored."""
    out: Path = Path("runs/known_models")
    """Folder for scores, finished sets and tables; a killed run goes on there."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "limit", "tflops")
        self.rows()

    def rows(self) -> list[Known]:
        """Rows of the table whose model is asked for."""
        table = read_table()
        names = list(dict.fromkeys(row.model for row in table))
        for word in self.only:
            if not any(_is_meant(word, name) for name in names):
                raise unknown_name("model", word, names)
        return [
            row
            for row in table
            if not self.only or any(_is_meant(word, row.model) for word in self.only)
        ]

    def run(self) -> dict[str, Any]:
        """Score what is missing, print the tables; returns the numbers."""
        clock, of_model = Clock.start(), grouped(self.rows(), lambda row: row.model)
        failed: dict[str, list[str]] = {}

        def tried(row: Known, call: Callable[[], _Found]) -> _Found | None:
            """What a call returns; the reason is told once, the other sets go on."""
            try:
                return call()
            except InputError as e:
                if str(e) not in failed:
                    say(f"{e}\n  hint: {e.hint}" if e.hint else str(e))
                failed.setdefault(str(e), []).append(f"{row.model}, {row.name}")
                return None

        if self.dry_run:
            print_grid(self._costs(of_model, tried), Console())
            return {"failed": failed}
        records = Records(self.out / "sets", any_code=self.any_code)
        found: dict[str, list[tuple[Known, dict[str, Any]]]] = {}
        for model, rows in of_model.items():
            opened = functools.cache(lambda row=rows[0]: self._opened(row))
            for row in rows:
                inputs = (dataclasses.asdict(row), *map(str, flags_of(self)))
                key = f"{model}-{row.name}".replace("/", "-").replace(":", "-")
                own = records.read(key, *inputs)
                if own is None:
                    say(f"{model}: {row.name}")
                    own = tried(
                        row, lambda row=row, opened=opened: self._ask(row, opened)
                    )
                    if own is not None:
                        records.write(key, own, *inputs)
                if own is not None:
                    found.setdefault(model, []).append((row, own))
        numbers = [
            {**dataclasses.asdict(r), **o} for rs in found.values() for r, o in rs
        ]
        finish_study(
            "known_models",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"failed": failed, "sets": numbers},
            grids=[grid_of(model, rows) for model, rows in found.items()],
            earlier_seconds=records.earlier_seconds,
        )
        return {"failed": failed, "sets": numbers}

    def _opened(self, row: Known) -> Any:
        """The model of a row, or why it cannot be had: it is asked for once."""
        try:
            name = place(f"{row.model}@{row.revision}", self.mirror)
            return jaxcontam.load(name, dtype=self.dtype)
        except InputError as e:
            return e

    def _texts(self, row: Known) -> list[Benchmark]:
        """The file of a row, or its sides."""
        if row.folder and not (self.mirror / row.folder).is_dir():
            raise InputError(
                f"{self.mirror / row.folder}: no such folder",
                hint=f"clone {row.source.split()[0]} and unzip benchmarks.zip there",
            )
        return [
            load_benchmark(
                place(one, self.mirror),
                template=row.template,
                text_field=row.text_field,
                limit=self.limit,
            )
            for one in row.splits
        ]

    def _ask(self, row: Known, opened: Callable[[], Any]) -> dict[str, Any]:
        """Figure and verdict of a set; texts are read before the model is opened."""
        sides, model = self._texts(row), opened()
        if isinstance(model, InputError):
            raise model
        reference = place(row.reference, self.mirror) if row.reference else None
        more: dict[str, Any] = {"reference": reference, "seed": self.seed}
        more |= {"dtype": self.dtype, "store": self.out / "store"}
        if row.analysis == "audit":
            tests = ["adjacency" if row.shuffled else "direction"]
            tests += [row.measure] if row.published else []
            path, order = place(row.splits[0], self.mirror), {"shuffled": row.shuffled}
            audit = jaxcontam.audit(
                model, path, tests=tests, limit=self.limit, **order, **more
            )
            p = audit[tests[-1]].numbers.p_value if audit.results else None
            return {"ours": p, "verdict": audit.verdict, "copies": {}}
        if len(sides) == 1:
            rows = list(zip(sides[0].texts, sides[0].rows, strict=True))
            members, others = (
                [t for t, r in rows if r and r["label"] == n] for n in (1, 0)
            )
        else:
            members, others = (list(side.texts) for side in sides)
        result = jaxcontam.membership(model, members=members, nonmembers=others, **more)
        scores = np.array([one["scores"]["min_k"] for one in result.rows], float)
        seen_P, unseen_Q = np.split(scores, [len(members)])
        copies_P = np.array([_copies(one) for one in sides[0].rows])
        by_copies = {
            str(n): auc_delong(seen_P[copies_P == n], unseen_Q)[0]
            for n in sorted({*copies_P.tolist()} - {0})
        }
        ours = {"ours": result.auc["min_k"], "verdict": result.verdict}
        return {**ours, "copies": by_copies}

    def _costs(self, of_model: dict[str, list[Known]], tried: Any) -> Grid:
        """A line a model: what is downloaded, what is scored, how long it takes."""
        lines = []
        for model, rows in of_model.items():
            texts = [
                (row, tried(row, lambda row=row: self._texts(row))) for row in rows
            ]
            tokens = sum(
                row.passes * sum(len(t) for one in own for t in one.texts) / _CHARACTERS
                for row, own in texts
                if own is not None
            )
            size, hours = rows[0].parameters, 2 * rows[0].parameters * tokens
            hours /= self.tflops * 1e12 * 3600
            is_here = Path(place(model, self.mirror)).exists()
            n_read = sum(own is not None for _, own in texts)
            words = (f"{n_read} of {len(rows)}", f"{0 if is_here else 4e-9 * size:.1f}")
            cost = (f"{tokens / 1e6:,.1f}", f"{hours:.2f}")
            price = f"{hours * self.price_per_hour:.2f}"
            lines.append((model, *words, *cost, price))
        header = ("model", "sets", "GB", "M tokens", "hours", "price")
        title = (
            f"Roughly, at {self.tflops:g} TFLOP/s and 4 bytes a weight; tokens of all "
            "passes. Sets are counted that are here or on the hub."
        )
        return Grid(title, header, tuple(lines))


def _is_meant(word: str, model: str) -> bool:
    return any(fnmatch.fnmatch(one, word) for one in (model, model.partition("/")[2]))


def _copies(row: dict[str, Any] | None) -> int:
    """How often a text of Hubble was planted; 0 where its record does not say."""
    meta = (row or {}).get("meta", {})
    return (json.loads(meta) if isinstance(meta, str) else meta).get("duplicates", 0)


if __name__ == "__main__":
    sys.exit(
        run_study(
            "known_models",
            KnownModels,
            exit_code=lambda found: _EXIT_PARTIAL if found["failed"] else 0,
        )
    )
