"""What do audits say of public models and public benchmark files?

Question: what does an audit, as a user runs it, say of each pair of a model and a file,
alone and beside a reference; and what did others publish? Table 2 of Oren et al.,
arXiv:2310.17623, has five models and eight benchmarks; it combines MMLU's files by
Fisher's method. `public.toml` has the published p-values.
Command: `python -m eval.public --models A B --files FILE ...`; docs/how_to/audit.md has
that of the paper's table. Hardware: that of `jaxcontam audit`, for a model and its
reference at a time; a killed run goes on where it stopped. Headline: docs/log has
two models' tables of two benchmarks.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import jaxcontam
from eval.beside import audited, shared_store
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
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import model_fingerprint
from jaxcontam.orders.design import design_of
from jaxcontam.orders.methods import methods_to_score
from jaxcontam.reports.report_files import data_digest
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.stats.multiple import fisher, holm

_Row = dict[str, Any]
_TINY_LIMIT = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Public(ResumedFlags):
    """Audit public models on public benchmark files."""

    models: tuple[str, ...]
    """Model directories, .gguf files or hub names; each of two is the other's
    reference."""
    files: tuple[Path, ...]
    """Benchmark files in their published order."""
    reference: str | None = None
    """Reference of all models (default: the other one of two; else none)."""
    tests: str | None = None
    """Order tests, comma-separated, the first decides (default: direction); sharded_t
    is the paper's."""
    order: tuple[str, ...] = ()
    """What is known of the files' order, as of `jaxcontam audit`: random; or anyway,
    which scores files that fail their checks, as the paper does."""
    limit: int = 200
    """First rows of each file (the paper: 5000)."""
    group: tuple[str, ...] = ("mmlu",)
    """Words: files whose names, or those of the two folders around them, begin with
    one are also combined, by Fisher's method."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision; bfloat16 is faster but less accurate."""
    out: Path = Path("runs/public")
    """Folder for scores, finished pairs and tables."""
    records: Path | None = None
    """Folder for the small records from which a run goes on, with --any-code on other
    machines, too (default: records in --out; ours: docs/results/public)."""

    positive = ("limit",)

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        for file in self.files:
            if not file.is_file():
                raise InputError(f"--files {file}: no such file")
        words = [*self.models]
        if self.reference is not None and self.reference not in words:
            words.append(self.reference)
        _check_once("models", map(_stem, words))
        _check_once("files", map(str, self.files))
        takes_reference = self._takes_reference  # an unknown test is refused here
        if self.reference is not None and not takes_reference:
            raise InputError(
                f"--tests {self.tests}: its first test takes no reference",
                hint="leave --reference out, or let direction decide",
            )

    def run(self) -> dict[str, Any]:
        """Audit what is missing, print the tables; returns the numbers."""
        clock = Clock.start()
        records = Records(self.records or self.out / "records", any_code=self.any_code)
        digests = {file: data_digest(file.read_bytes()) for file in self.files}
        failed: dict[str, list[str]] = {}
        found: dict[tuple[Path, str], _Row] = {}
        for model in self.models:
            # One model and its reference at a time are in memory.
            opened = functools.cache(self._opened)
            other = self._reference_of(model)
            weights = [_weights(one) for one in (model, other) if one is not None]
            for file in self.files:
                name = f"{self._kind}-{_stem(model)}-{file.stem}-{digests[file][-8:]}"
                inputs = digests[file], self._most, weights, *self._unusual
                if (kept := records.read(name, *inputs)) is None:
                    say(name)
                    with told(f"{_stem(model)}, {file}", failed):
                        kept = self._audited(file, opened, model, other)
                        records.write(name, kept, *inputs)
                if kept is not None:
                    found[file, model] = kept
            opened.cache_clear()
            gc.collect()  # weights may stand in cycles
        rows = self._rows(found)
        groups = combined(rows, self._test_names)
        return finish_study(
            "public",
            self,
            clock=clock,
            numbers={"rows": rows, "groups": groups, "failed": failed},
            grids=[*_grids(rows, self._test_names), *_group_grids(groups)],
            earlier_seconds=records.earlier_seconds,
        )

    @property
    def _most(self) -> int:
        return min(self.limit, _TINY_LIMIT) if self.tiny else self.limit

    @property
    def _design(self) -> dict[str, Any]:
        """Fields of an audit's design that are not at their defaults."""
        asked = {"tests": self.tests, "order": list(self.order), "seed": self.seed}
        return {key: value for key, value in asked.items() if value}

    @property
    def _unusual(self) -> list[dict[str, Any]]:
        """What a record depends on besides file, limit and models; [] by default."""
        dtype = {} if self.dtype == "float32" else {"dtype": self.dtype}
        more = self._design | dtype
        return [more] if more else []

    @property
    def _kind(self) -> str:
        """How names of records begin: one design does not replace those of another."""
        more = (str(one) for unusual in self._unusual for one in unusual.values())
        return re.sub(r"[^\w.]+", "-", "-".join(("public", *more))).strip("-")

    @property
    def _test_names(self) -> tuple[str, ...]:
        return design_of(**self._design).test_names

    @property
    def _takes_reference(self) -> bool:
        return methods_to_score(self._test_names)[0].words.takes_reference

    def _reference_of(self, model: str) -> str | None:
        if not self._takes_reference:
            return None
        others = (self.reference,) if self.reference is not None else self.models
        others = [one for one in others if one != model]
        return others[0] if len(others) == 1 else None

    def _opened(self, word: str) -> OpenModel | InputError:
        """A model, or why it cannot be had: it is asked for once."""
        try:
            return jaxcontam.load(word, dtype=self.dtype)
        except InputError as e:
            return e

    def _audited(
        self,
        file: Path,
        opened: Callable[[str], OpenModel | InputError],
        model: str,
        other: str | None,
    ) -> _Row:
        own = _had(opened(model))
        reference = None if other is None else _had(opened(other))
        store = shared_store(self.out / "store")
        design = {"limit": self._most, **self._design}
        return audited(own, reference, file, store, always=True, **design)

    def _rows(self, found: Mapping[tuple[Path, str], _Row]) -> list[_Row]:
        """A row a file and model, files together, with p over all rows."""
        stems = Counter(file.stem for file in self.files)
        rows = [
            {
                "model": _stem(model),
                # Repositories call each of their files `dev`, say.
                "file": f"{file.parent.name}/" * (stems[file.stem] > 1) + file.stem,
                "group": self._group_of(file),
                **found[file, model],
            }
            for file, model in itertools.product(self.files, self.models)
            if (file, model) in found
        ]
        key = f"{self._test_names[0]}_p"
        scored = [row for row in rows if key in row]
        adjusted = holm(np.array([row[key] for row in scored]))
        for row, p in zip(scored, adjusted.tolist(), strict=True):
            row["p_adjusted"] = p
        return rows

    def _group_of(self, file: Path) -> str:
        names = [name.lower() for name in file.parts[-3:]]
        begun = (
            word for word in self.group for n in names if n.startswith(word.lower())
        )
        return next(begun, "")


def combined(rows: Sequence[_Row], tests: Sequence[str]) -> list[_Row]:
    """Fisher's combination over the scored files of each group, model and test."""
    found = []
    of_group = grouped(rows, lambda row: (row["group"], row["model"]))
    for ((group, model), own), test in itertools.product(of_group.items(), tests):
        p_values = [row[f"{test}_p"] for row in own if f"{test}_p" in row]
        if group and len(p_values) > 1:
            found.append(
                {
                    "group": group,
                    "model": model,
                    "test": test,
                    "n_files": len(p_values),
                    "n_unscored": len(own) - len(p_values),
                    "p_value": fisher(np.array(p_values)),
                    "published": _published(group, model, test),
                }
            )
    return found


def _had(one: OpenModel | InputError) -> OpenModel:
    if isinstance(one, InputError):
        raise one
    return one


def _published(group: str, model: str, test: str) -> str:
    """What others printed for the same test of it; "" if nothing is known."""
    if not test.startswith("sharded_t"):
        return ""
    return data_file(__file__).get(group.lower(), {}).get(model.partition("@")[0], "")


def _check_once(what: str, names: Iterable[str]) -> None:
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise InputError(
            f"--{what}: {twice[0]!r} twice",
            hint="records go by name: leave one out, or rename it",
        )


@functools.cache
def _weights(model: str) -> str:
    """Fingerprint of a model that is here, else its name."""
    with contextlib.suppress(InputError):  # it is told of where the model is opened
        return model_fingerprint(model) if Path(model).exists() else model
    return model


def _stem(model: str) -> str:
    return Path(model).name.removesuffix(".gguf")


def _grids(rows: Sequence[_Row], tests: Sequence[str]) -> list[Grid]:
    def number(key: str) -> Callable[[_Row], str]:
        return lambda row: f"{row[key]:.2g}" if key in row else ""

    columns = {
        "file": "{r[file]}",
        "model": "{r[model]}",
        "rows": lambda row: str(row.get("n", "")),
        **{f"{test} p": number(f"{test}_p") for test in tests},
        "p over all": number("p_adjusted"),
        "effect": lambda row: f"{row['effect']:.2f}" if "effect" in row else "",
        "reference p": number("reference_p"),
        "difference p": number("difference_p"),
        "verdict": "{r[verdict]}",
        "with reference": lambda row: row.get("verdict_beside", ""),
        "refused by": lambda row: ", ".join(row["refused"]),
    }
    if not any("reference_p" in row for row in rows):
        for column in ("reference p", "difference p", "with reference"):
            del columns[column]
    title = f"Public benchmark files; p over all: Holm, of {tests[0]}"
    return [Grid.of(title, rows, columns)] if rows else []


def _group_grids(groups: Sequence[_Row]) -> list[Grid]:
    columns = {
        "files": "{r[group]}",
        "model": "{r[model]}",
        "test": "{r[test]}",
        "scored": "{r[n_files]}",
        "not scored": "{r[n_unscored]}",
        "combined p": "{r[p_value]:.2g}",
        "published": "{r[published]}",
    }
    title = "Files of one name, their p-values combined by Fisher's method"
    return [Grid.of(title, groups, columns)] if groups else []


if __name__ == "__main__":
    sys.exit(run_study("public", Public, compiles=True))
