"""Are items found whose file was shuffled, by the order of their answer options?

Question: every copy of a set of multiple-choice items is planted in an item order of
its own, so no order test can see it. Does the order of the options within items?
Command: `python -m eval.options`. Hardware: 2 CPU cores, two minutes, nothing
downloaded. Headline: LOG.md.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

from eval.planted import trained
from eval.python_docs import read_python_docs
from eval.study import Grid, print_grid, run_study
from jaxcontam.commands.audit import Audit
from jaxcontam.commands.flags import check_positive, check_seed
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.report.document import make_folder, replace_bytes
from train.earlier import MODEL_DIR
from train.plan import PlannedSet
from train.prepare import RunOptions
from train.presets import PRESETS

_COPIES = (0, 1, 2, 4, 10, 30)
_N_OPTIONS = 4
_N_WORDS = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Plant shuffled multiple-choice items, then test the order of their options."""

    seed: int = 0
    """Seeds items, model and tests."""
    n_items: int = 100
    """Items of each set."""
    out: Path = Path("runs/options")
    """Folder for the items, the model and the report."""
    tiny: bool = False
    """A pulse run, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_items")

    def run(self) -> dict:
        """Train, audit, print the table; returns the audit's report."""
        docs = read_python_docs()
        words = sorted(
            {
                word
                for document in docs.questions
                for word in document.text.replace("?", " ").split()
                if word.isalpha() and 4 <= len(word) <= 10
            }
        )
        make_folder(self.out)
        rng = np.random.default_rng([self.seed, 17])
        n_items = min(self.n_items, 12) if self.tiny else self.n_items
        sets, paths = [], []
        for copies in _COPIES:
            lines = tuple(_item(rng, words) for _ in range(n_items))
            path = self.out / f"items-{copies}.jsonl"
            replace_bytes(path, "".join(f"{line}\n" for line in lines).encode())
            benchmark = Benchmark(path.stem, lines, (None,) * n_items)
            sets.append(PlannedSet(benchmark=benchmark, copies=copies, shuffled=True))
            paths.append(path)
        trained(
            docs.documents,
            sets,
            PRESETS["pulse" if self.tiny else "tiny"],
            out=self.out,
            seed=self.seed,
            options=RunOptions(background_tokens=5_000 if self.tiny else 50_000),
        )
        document = Audit(
            model=str(self.out / MODEL_DIR),
            benchmark=tuple(paths),
            tests="options,adjacency",
            seed=self.seed,
            out=self.out / "audit",
        ).run()
        print_grid(copies_grid(document), Console())
        return document


def _item(rng: np.random.Generator, words: list[str]) -> str:
    """A made-up item: its options stand in random order by construction."""
    drawn = [str(word) for word in rng.choice(words, _N_WORDS + _N_OPTIONS, False)]
    return json.dumps(
        {
            "question": " ".join(drawn[:_N_WORDS]) + "?",
            "choices": drawn[_N_WORDS:],
            "answer": int(rng.integers(_N_OPTIONS)),
        }
    )


def copies_grid(document: dict) -> Grid:
    """p-values of both tests against the number of copies."""
    rows = {(row["benchmark"], row["method"]): row for row in document["results"]}
    return Grid.of(
        "Each copy was planted in an item order of its own:",
        _COPIES,
        {
            "copies": "{r}",
            "p options": lambda n: f"{rows[f'items-{n}', 'options']['p_value']:.2g}",
            "nats an item": lambda n: f"{rows[f'items-{n}', 'options']['effect']:.2f}",
            "p adjacency": lambda n: (
                f"{rows[f'items-{n}', 'adjacency']['p_value']:.2g}"
            ),
        },
    )


def main() -> int:
    """Command line of `python -m eval.options`."""
    return run_study("options", Options, trains=True)


if __name__ == "__main__":
    sys.exit(main())
