"""What of a planted order does a public pretrained model keep?

A model of `eval.real_models` goes on training on documentation, in which sets of
questions or of paragraphs stand 0 to 16 times in one random order. Then each set is
audited beside the untouched model, its pairs are scored with less and less of the two
examples, and its texts are ranked against unread ones.
"""

import dataclasses
import itertools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxcontam
from eval.planted import Model, trained_model
from eval.python_docs import read_python_docs
from eval.study import Clock, Grid, Records, grouped, say
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.models.checkpoint import (
    model_parts,
    read_config_fields,
    read_decoder_config,
)
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import plan_test
from jaxcontam.reports.report_files import make_folder, replace_bytes
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.seam import Seam
from jaxcontam.stats.direction import needed_pairs
from train.audits import encode_planted
from train.config import Config
from train.optimizer import Optimizer
from train.plant import PlannedSet
from train.run_folder import MODEL_DIR

_Row = dict[str, Any]
COPIES = (0, 1, 2, 4, 8, 16)
RATES = (1e-4, 3e-5)
# Examples of a set, and about how many characters one has: 20 and 120 tokens.
LENGTHS = {"short": (80, 80), "long": (48, 480)}
CONTEXTS = (0, 96)
"""Last tokens of the example before that are read; 0 is all."""
FIRST = (1, 2, 4, 8, 16, 24, 32, 48, 10_000)
"""First tokens of an example that are summed; the last is all."""
SCORES = ("loss", "zlib", "min_k", "min_k_pp", "reference")
# Background of a run, in tokens of all of its sets.
_BACKGROUND = 10
_ROW_TOKENS, _BATCH_ROWS = 256, 4


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One model to train."""

    length: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its record."""
        return f"planted-{self.length}-{self.rate:g}-{self.seed}"


def cells(seeds: Sequence[int]) -> list[Cell]:
    """Models of the study: those of short examples, which cost least, first."""
    places = itertools.product(LENGTHS, seeds, RATES)
    return [Cell(length, rate, seed) for length, seed, rate in places]


def planted_rows(
    path: Path, cell: Cell, records: Records, out: Path, *, tiny: bool
) -> list[_Row]:
    """A row a set of one model, made or read; each has a record of its own."""
    copies = (0, 2) if tiny else COPIES
    inputs = (path.name, dataclasses.asdict(cell), tiny)
    found = {n: records.read(f"{cell.name}-{n}", *inputs) for n in copies}
    if missing := [n for n, row in found.items() if row is None]:
        say(cell.name)
        clock, folder = Clock.start(), out / cell.name
        how = {"tiny": tiny, "any_code": records.any_code}
        row_of = _trained(path, cell, copies, folder, **how)
        for n in missing:
            row = row_of(n) | {"cpu_seconds": clock.cost()["cpu_seconds"]}
            records.write(f"{cell.name}-{n}", row, *inputs)
            found[n], clock = row, Clock.start()
        # A model is half a gigabyte, and its seed makes it again.
        shutil.rmtree(folder)
    return [
        {"copies": n, **dataclasses.asdict(cell), **row}
        for n, row in found.items()
        if row is not None
    ]


def _trained(
    path: Path,
    cell: Cell,
    copies: Sequence[int],
    out: Path,
    *,
    tiny: bool,
    any_code: bool,
) -> Callable[[int], _Row]:
    """Train the model of a cell; returns what asks it about the set of such copies."""
    n, (texts, background) = LENGTHS[cell.length][0], _texts(cell)
    n = 8 if tiny else n
    sets = {
        number: drawn_set(f"copies-{number}", texts[i * n : (i + 1) * n], number)
        for i, number in enumerate(copies)
    }
    unread = texts[len(sets) * n :][: 2 * n]
    encoded = load(str(path)).tokenizer.encode_batch(
        texts[: len(sets) * n], add_special_tokens=False
    )
    n_tokens = sum(len(one.ids) for one in encoded)
    manifest = trained_further(
        path,
        background,
        [*sets.values()],
        rate=cell.rate,
        background_tokens=500 if tiny else _BACKGROUND * n_tokens,
        seed=cell.seed,
        out=out,
        tiny=tiny,
        any_code=any_code,
    ).manifest
    model, reference = load(str(out / MODEL_DIR)), load(str(path))
    written = {one.benchmark.name: one.benchmark.texts for one in sets.values()}
    files = written_texts(out / "files", written)
    (others,) = written_texts(out / "files", {"unread": unread}).values()

    def row_of(number: int) -> _Row:
        one = sets[number]
        ids = encode_planted(model.tokenizer, one.benchmark, manifest)
        file = files[one.benchmark.name]
        ranked = {
            key: jaxcontam.membership(
                model,
                members=file,
                nonmembers=others,
                reference=reference,
                scores=SCORES,
                no_prefix=key == "auc_no_prefix",
                # Unread texts are scored once for all sets.
                store=out / "store",
            )
            for key in ("auc", "auc_no_prefix")
        }
        aucs = {
            key: {name: round(auc, 4) for name, auc in found.auc.items()}
            for key, found in ranked.items()
        }
        z = dict(_curve(model, one.benchmark, ids))
        return {"z": z, **aucs, **_audit(model, reference, file)}

    return row_of


def drawn_set(name: str, texts: Sequence[str], copies: int) -> PlannedSet:
    """Texts in an order that was drawn at random."""
    one = Benchmark(name, tuple(texts), (None,) * len(texts), "seeded")
    return PlannedSet(benchmark=one, copies=copies)


def trained_further(
    path: Path,
    documents: Sequence[str],
    sets: Sequence[PlannedSet],
    *,
    rate: float,
    background_tokens: int,
    seed: int,
    out: Path,
    tiny: bool,
    any_code: bool = False,
) -> Model:
    """The model of a folder or GGUF file after it read the sets among documents."""
    _, directory, _ = model_parts(str(path))
    config = Config(
        name=path.stem,
        decoder=read_decoder_config(directory)[1],
        model_type=read_config_fields(directory)["model_type"],
        batch_rows=1 if tiny else _BATCH_ROWS,
        row_tokens=16 if tiny else _ROW_TOKENS,
        optimizer=Optimizer(peak_rate=rate, schedule="constant"),
    )
    return trained_model(
        out,
        documents,
        sets,
        config,
        seed=seed,
        background_tokens=background_tokens,
        start=path,
        any_code=any_code,
    )


def _texts(cell: Cell) -> tuple[list[str], list[str]]:
    """Texts of the length in an order of the seed, and documents without them."""
    docs = read_python_docs()
    texts, documents = [one.text for one in docs.questions], list(docs.documents)
    if cell.length == "long":
        # The beginning of each document: neighbours share none.
        size = LENGTHS[cell.length][1]
        flat = [" ".join(text.split()) for text in docs.documents]
        heads = [text[: text.rfind(" ", 0, size)] for text in flat if len(text) > size]
        texts, documents = heads, [text[size:] for text in flat if len(text) > size]
    texts = list(dict.fromkeys(texts))
    order = np.random.default_rng([cell.seed, 50]).permutation(len(texts))
    return [texts[i] for i in order.tolist()], documents


def _curve(
    model: OpenModel, benchmark: Benchmark, encoded: Any
) -> Iterator[tuple[str, list[float]]]:
    """Z of direction by how much of the example before is read, and `FIRST`."""
    method = order_method("direction")
    scorer = model.make_scorer(store=None)
    longest = int(encoded.lengths.max())
    for context in CONTEXTS:
        if context >= longest:
            continue
        planned = plan_test(
            benchmark,
            encoded,
            method,
            prefix_id=model.prefix_id,
            context=model.context,
            seed=0,
            seam=Seam(context_tokens=context),
        )
        plan = planned.layout.plan
        assert isinstance(plan, PairPlan) and scorer.pairs is not None
        found = scorer.pairs.logprobs(plan.groups).logprobs
        values = []
        for n in FIRST:
            cut = [[ids[:n] for ids in group] for group in found]
            numbers = planned.numbers(planned.layout.pair_evidence(cut))
            values.append(_z(numbers.effect, numbers.effect_se))
        yield str(context or "all"), values


def _audit(model: OpenModel, reference: OpenModel, file: Path) -> _Row:
    """What a user is told beside the untouched model, and the pairs it rests on."""
    found = jaxcontam.audit(model, file, reference=reference, order="anyway")
    direction, evidence = found["direction"], found.evidence[0]
    beside = direction.reference
    alone = jaxcontam.audit(model, file, tests="adjacency", order="anyway")
    assert beside is not None and evidence is not None
    assert evidence.pairs is not None and evidence.reference_pairs is not None
    assert evidence.runs is not None
    # Strata have eight examples each.
    needed_KSS = np.stack([needed_pairs(runs_S) for runs_S in evidence.runs])
    pairs_P2 = np.stack(
        [evidence.pairs[needed_KSS], evidence.reference_pairs[needed_KSS]], axis=1
    )
    return {
        "verdict": found.verdict,
        "direction_p": direction.p_value,
        "adjacency_p": alone["adjacency"].p_value,
        "effect": direction.effect,
        "reference_p": beside.p_value,
        "difference_p": beside.difference_p,
        "half_p": beside.half_p,
        "refused": [test.name for test in direction.refusals],
        # Of the model and of the reference: what another rule is tried on.
        "pairs": np.round(pairs_P2, 2).tolist(),
    }


def planted_grids(rows: Sequence[_Row]) -> list[Grid]:
    """Verdicts by copies, z by what was scored, AUC of scores."""
    places = grouped(rows, lambda row: (row["length"], row["rate"], row["copies"]))
    columns = {
        "examples, rate, copies": "{r[0][0]}, {r[0][1]:g}, {r[0][2]}",
        "models": lambda one: str(len(one[1])),
        "direction p, median": lambda one: _median(one[1], "direction_p"),
        "adjacency p, median": lambda one: _median(one[1], "adjacency_p"),
        "difference p, median": lambda one: _median(one[1], "difference_p"),
        "contaminated": lambda one: _said(one[1], "contaminated"),
        "suspected": lambda one: _said(one[1], "suspected"),
    }
    grids = [Grid.of("Sets planted in a pretrained model", places.items(), columns)]
    for length, own in grouped(rows, lambda row: row["length"]).items():
        z = {
            (f"{copies} copies, {context} read", f"first {first}"): f"{mean:.2f}"
            for copies, same in grouped(own, lambda row: row["copies"]).items()
            for context in same[0]["z"]
            for first, mean in zip(
                FIRST, np.mean([row["z"][context] for row in same], axis=0), strict=True
            )
        }
        title = f"Mean z of direction by tokens read and scored, {length} examples"
        grids.append(Grid.crossed(title, "", z))
    for key, how in (("auc", ""), ("auc_no_prefix", ", --no-prefix")):
        aucs = {
            (f"{length}, {rate:g}, {copies}", name): f"{np.mean(values):.3f}"
            for (length, rate, copies), own in places.items()
            if copies
            for name in own[0][key]
            for values in [[row[key][name] for row in own]]
        }
        title = f"AUC of scores against unread texts{how}"
        grids.append(Grid.crossed(title, "", aucs))
    return grids


def written_texts(folder: Path, texts: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Write texts as the lines of files; returns the files by name."""
    make_folder(folder)
    paths = {name: folder / f"{name}.txt" for name in texts}
    for name, path in paths.items():
        replace_bytes(path, "".join(f"{text}\n" for text in texts[name]).encode())
    return paths


def _z(effect: float | None, se: float | None) -> float:
    return round(effect / se, 3) if effect is not None and se else math.nan


def _median(rows: Sequence[_Row], key: str) -> str:
    return f"{np.median([row[key] for row in rows]):.1g}"


def _said(rows: Sequence[_Row], verdict: str) -> str:
    return str(sum(row["verdict"] == verdict for row in rows))
