"""Power of every order test at equal cost, on a population of planted models.

Question: how often does each order test find a set that was planted 1, 2, 4 or 10
times, how often one that never was, and what does it cost?
Command: `python -m eval.power`. Hardware: one CPU core, half an hour; a killed run goes
on where it stopped. Headline: LOG.md has the table.

Fixed before any test result of these seeds was looked at:

- `ladder`: 40 models of 0.16 M parameters, seeds 1000 to 1039, 126,464 training tokens
  in rows of 128, half of them planted: five disjoint sets of 120 examples at 0, 1, 2, 4
  and 10 copies, examples cut to 31 tokens. Power at 0.001 and 0.05, Wilson intervals.
- `long`: 8 models of that size, seeds 2000 to 2007, 260,096 tokens in rows of 256, half
  of them planted: sets of 300 at 0, 4 and 10 copies. Target: on every set at 4 and 10
  copies the exact p-values at 8 and 10 passes are not above the t-test's at 251 (50
  shards, as in the paper), both cut at 1e-12.
- `quickstart`: 10 models of the quickstart's 0.73 M parameters, seeds 3000 to 3009,
  sets of 125 at 0, 1, 2, 4, 10 and 50 copies: for the reference curve.
- Tests with the settings that `audit` gives them: `adjacency` in strata of 8 with all
  orders (8 passes), its normal approximation at no more cost, `stratified` with 9
  orders (10), `reversal` (2); `sharded_t` with 9 and with 250 orders in 50
  shards, and once more on the strata of `stratified`, where shards are not as short as
  50 shards of a small set. A pass is counted in tokens that the model scored: orders
  that coincide are scored once.

Learning rates and row lengths were tried on seeds 90000 to 90005, which are not used.
An easy setting: half of the training text is planted. It ranks tests on one kind of
small model; it is not their power on large ones.
"""

import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path

from rich.console import Console

from eval.population import (
    ModelRecord,
    Outcome,
    Study,
    Variant,
    planted_model,
    read_texts,
)
from eval.power_table import compare, power_table, print_power
from eval.python_docs import read_python_docs
from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.report.document import make_folder
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.scoring.identity import cpu_name
from train.allocator import keep_freed_memory
from train.earlier import code_version
from train.population_plan import Texts
from train.presets import PRESETS, Preset
from train.sources import corpus_digest

RECORDS_DIR = "models"
TABLE_NAME = "power.json"

EXACT = ("stratified", "adjacency")
PAPER = "t, 50 shards, 250 orders"
# Deeper p-values are not compared: the assumptions of neither test carry so far.
CUT = 1e-12

_STRATIFIED = Variant(
    scored="stratified",
    n_orders=9,
    names=(("stratified", "stratified"), ("t, same strata, 9 orders", "sharded_t")),
)
_ADJACENCY = Variant(
    scored="adjacency",
    n_orders=None,
    names=tuple((name, name) for name in ("adjacency", "adjacency_normal")),
)
_REVERSAL = Variant(scored="reversal", n_orders=None, names=(("reversal", "reversal"),))
_SHORT_T = Variant(
    scored="sharded_t", n_orders=9, names=(("t, 50 shards, 9 orders", "sharded_t"),)
)
_PAPER_T = Variant(scored="sharded_t", n_orders=250, names=((PAPER, "sharded_t"),))
_LONG_T = Variant(
    scored="stratified",
    n_orders=250,
    names=(("t, same strata, 250 orders", "sharded_t"),),
)


def _small(context: int) -> Preset:
    """0.16 M parameters; one row a step, long enough for strata of several examples."""
    preset = PRESETS["0.16m"]
    decoder = dataclasses.replace(preset.decoder, context=context)
    return dataclasses.replace(preset, decoder=decoder, batch_rows=1)


LADDER = Study(
    name="ladder",
    preset=_small(128),
    n_examples=120,
    copies=(0, 1, 2, 4, 10),
    n_steps=988,
    variants=(_ADJACENCY, _STRATIFIED, _REVERSAL, _SHORT_T, _PAPER_T, _LONG_T),
    max_example_tokens=31,
)
LONG = Study(
    name="long",
    preset=_small(256),
    n_examples=300,
    copies=(0, 4, 10),
    n_steps=1016,
    variants=(
        _ADJACENCY,
        _STRATIFIED,
        _REVERSAL,
        _SHORT_T,
        dataclasses.replace(_PAPER_T, fewest_copies=4),
    ),
    max_example_tokens=31,
)
QUICKSTART = Study(
    name="quickstart",
    preset=PRESETS["tiny"],
    n_examples=125,
    copies=(0, 1, 2, 4, 10, 50),
    n_steps=664,
    variants=(_ADJACENCY, _STRATIFIED, _REVERSAL),
    max_example_tokens=31,
)
_PULSE = Study(
    name="pulse",
    preset=PRESETS["pulse"],
    n_examples=24,
    copies=(0, 10),
    n_steps=40,
    variants=(_ADJACENCY, _STRATIFIED, _REVERSAL),
    max_example_tokens=31,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Train populations of planted models and tabulate the power of every order test.

    Question: how often is a set found that was planted 0, 1, 2, 4 or 10 times, and at
    what cost? Hardware: one CPU core, half an hour (--tiny: 20 seconds).
    """

    seed: int = 1000
    """Of the first model; other populations begin 1000 and 2000 later."""
    models: int = 40
    """Models of 0.16 M parameters; a fifth and a quarter as many of the other two."""
    out: Path = Path("runs/power")
    """Folder for a record of each model and power.json; finished models are kept."""
    tiny: bool = False
    """A pulse run of seconds, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models")

    def run(self) -> dict:
        """Train and test what is missing, print the table; returns power.json."""
        started, clock = utc_now(), time.monotonic()
        console = Console()
        make_folder(self.out / RECORDS_DIR)
        console.print("Reading the documentation of this Python installation ...")
        docs = read_python_docs()
        questions = [question.text for question in docs.questions]
        corpus = corpus_digest([*docs.documents, *questions])
        texts: dict[tuple[int, int], Texts] = {}
        records: list[ModelRecord] = []
        planned = self._planned()
        code = code_version()
        for design, seed in planned:
            path = self.out / RECORDS_DIR / f"{design.name}-{seed}.json"
            key = record_key(design, seed, corpus=corpus, code=code)
            # Where git cannot tell the code, an old record may be another code's.
            record = None if code is None else read_record(path, key)
            if record is None:
                kind = (design.preset.decoder.vocab_size, design.max_example_tokens)
                if kind not in texts:
                    texts[kind] = read_texts(docs.documents, questions, design)
                record = planted_model(design, texts[kind], seed=seed)
                write_record(path, key, record)
                print(
                    f"{len(records) + 1} of {len(planned)}: {design.name} {seed}, "
                    f"loss {record.loss:.2f}, trained {record.train_seconds:.1f} s, "
                    f"tested {record.test_seconds:.1f} s",
                    file=sys.stderr,
                )
            records.append(record)
        table = power_table(records)
        long = [record for record in records if record.design == LONG.name]
        target = [
            found
            for test in EXACT
            for found in compare(long, test, PAPER, fewest_copies=4, cut=CUT)
        ]
        document = {
            "command": ["eval.power", *flags_of(self)],
            "seed": self.seed,
            "started": started,
            "wall_seconds": time.monotonic() - clock,
            "model_seconds": sum(r.train_seconds + r.test_seconds for r in records),
            "cpu": cpu_name(),
            "versions": library_versions(),
            "corpus_digest": corpus,
            "populations": _populations(records),
            "power": [dataclasses.asdict(row) for row in table],
            "target": [dataclasses.asdict(row) for row in target],
        }
        (self.out / TABLE_NAME).write_text(json.dumps(document, indent=1) + "\n")
        print_power(table, target, document["populations"], console)
        return document

    def _planned(self) -> list[tuple[Study, int]]:
        """Every model of every population."""
        if self.tiny:
            return [(_PULSE, self.seed + i) for i in range(min(self.models, 2))]
        return [
            (design, self.seed + later + i)
            for design, later, n_models in (
                (LADDER, 0, self.models),
                (LONG, 1000, max(1, self.models // 5)),
                (QUICKSTART, 2000, max(1, self.models // 4)),
            )
            for i in range(n_models)
        ]


def record_key(design: Study, seed: int, *, corpus: str, code: str | None) -> str:
    """Digest of all that a record follows from, but for the machine."""
    text = json.dumps(
        [dataclasses.asdict(design), seed, corpus, code, cpu_name()], sort_keys=True
    )
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_record(path: Path, key: str | None) -> ModelRecord | None:
    """A finished model's record, if it stands there under this key; None takes any."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields.pop("key") != key and key is not None:
            return None
        rows = tuple(Outcome(**row) for row in fields.pop("rows"))
        return ModelRecord(rows=rows, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(path: Path, key: str, record: ModelRecord) -> None:
    """Write a record whole or not at all."""
    partial = path.with_suffix(".partial")
    fields = {"key": key, **dataclasses.asdict(record)}
    partial.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    partial.replace(path)


def _populations(records: list[ModelRecord]) -> list[dict[str, object]]:
    """What was trained, by population."""
    by_name: dict[str, list[ModelRecord]] = {}
    for record in records:
        by_name.setdefault(record.design, []).append(record)
    return [
        {
            "name": name,
            "seeds": [record.seed for record in found],
            "n_parameters": found[0].n_parameters,
            "n_tokens": found[0].n_tokens,
            "canary_share": _mean([r.n_canary_tokens / r.n_tokens for r in found]),
            "loss": _mean([r.loss for r in found]),
            "train_seconds": _mean([r.train_seconds for r in found]),
            "test_seconds": _mean([r.test_seconds for r in found]),
        }
        for name, found in by_name.items()
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    """Command line of `python -m eval.power`."""
    keep_freed_memory()
    return run_command(
        lambda: parse(Power, sys.argv[1:], prog="python -m eval.power").run(),
        name="eval.power",
    )


if __name__ == "__main__":
    sys.exit(main())
