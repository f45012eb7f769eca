"""What is left of five methods' power once a model was tuned on other text?

Question: small models read question files 0 to 50 times in one order, and keyed rows 1
to 16 times as chats or plain lines, then 0 to 2,000 steps of chats about other things.
Do direction and adjacency still find the order, Min-K% and `replicate` the text, and
`canary --chat` the values? How often does that accuse on rows that no model read?
Command: `python -m eval.tuned`. Hardware: 2 CPU cores, 20 minutes; a killed run goes
on. Headline: docs/results/tuned.md. Truth: what a model read is drawn from its seed.
Tuning is of text, without RL, at a tenth of the learning rate and half of the rows a
step, in rounds with a schedule each.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.intervals import Share
from eval.planted import Model, order_tests, planted, scored_texts, trained_model
from eval.python_docs import read_python_docs
from eval.study import (
    Clock,
    Grid,
    Records,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.ownership.keyed_canary import keyed_canary, make_keyed_rows
from jaxcontam.replication.control import JudgeResult
from jaxcontam.replication.run import replicate
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.prompted_model import open_prompted
from jaxcontam.stats.roc import auc_delong
from train.audits import encode_planted
from train.config import PRESETS
from train.plant import PlannedSet
from train.run_folder import MODEL_DIR

_FORMS = {
    "chat": "<|user|>\n{question}\n<|assistant|>\n",
    "plain": "Question: {question}\nAnswer: ",
}
_LEVELS = (0.05, 0.01, 0.001)
_KNOWN = "canary --chat: share of groups known (models found at 0.001), by steps"
_LEFT = "Median p of orders (found at 0.001), mean AUC, mean share copied, by steps"
_Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of models, files, keyed rows and tuning; copies of 0 are controls."""

    preset: str
    n_examples: int
    file_copies: tuple[int, ...]
    n_groups: int
    keyed_copies: tuple[int, ...]
    steps: tuple[int, ...]
    n_clean: int
    any_code: bool = False


_STEPS = (0, 125, 250, 500, 1000, 2000)
FULL = Scale("tiny", 125, (0, 0, 4, 10, 50), 32, (1, 2, 4, 8, 16), _STEPS, 50)
TINY = Scale("tiny", 30, (0, 2), 4, (1, 2), (0, 5), 2)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(ResumedFlags):
    """Ask models for what they read, before and after they were tuned."""

    models: int = 2
    """Models, each with files, keys and values of its own."""
    out: Path = Path("runs/tuned")
    """Folder for models, records and tables."""

    def run(self) -> dict:
        """Train, tune, ask, print the tables."""
        clock, scale = Clock.start(), TINY if self.tiny else FULL
        scale = dataclasses.replace(scale, any_code=self.any_code)
        seeds = range(self.seed, self.seed + self.models)
        rows = [row for i in seeds for row in _rows(scale, i, self.out / f"model-{i}")]
        files = {"numbers": {"rows": rows}, "grids": _grids(rows)}
        return finish_study("tuned", self, clock=clock, **files)


def _rows(scale: Scale, seed: int, out: Path) -> Iterable[_Row]:
    """Train a model and tune it; a row for each method, set and step of tuning."""
    docs, n = read_python_docs(), scale.n_examples
    order = np.random.default_rng([seed, 27]).permutation(len(docs.questions))
    drawn = [docs.questions[i] for i in order.tolist()]
    files = []
    for i, copies in enumerate(scale.file_copies):
        texts = tuple(one.text for one in drawn[i * n : (i + 1) * n])
        one = Benchmark(f"file-{i}", texts, (None,) * n, order_provenance="seeded")
        files.append(PlannedSet(benchmark=one, copies=copies))
    chats = [
        _FORMS["chat"].format(question=f"{one.sentence}?") + one.answer
        for one in drawn[len(files) * n :]
    ]
    kinds = {f"chat-{copies}": copies for copies in scale.keyed_copies}
    kinds[f"plain-{scale.keyed_copies[-1]}"] = scale.keyed_copies[-1]
    keyed = [planted(k, _keyed(scale, seed, out, k), n) for k, n in kinds.items()]
    sets = [*files, *keyed, planted("followed", chats[: 3 * n], 1)]
    train = functools.partial(trained_model, seed=seed, any_code=scale.any_code)
    preset, folder = PRESETS[scale.preset], out / "before"
    model = train(folder, docs.documents, sets, preset, background_tokens=400 * n)
    records = Records(out / "records", any_code=scale.any_code)
    encoded = model.checkpoint.tokenizer.encode_batch(chats)
    n_tokens = float(np.mean([len(one.ids) for one in encoded]))
    tuning = preset.changed(peak_rate=preset.optimizer.peak_rate / 10, batch_rows=2)
    rng, start = np.random.default_rng([seed, 28]), folder / MODEL_DIR
    for done, steps in itertools.pairwise((0, *scale.steps)):
        if steps:
            n_drawn = int((steps - done) * tuning.step_tokens / n_tokens)
            drawn = rng.choice(chats[3 * n :], n_drawn).tolist()
            sets, to = [planted("tuning", drawn, 1)], out / f"to-{steps}"
            train(
                to, docs.documents, sets, tuning, background_tokens=1_000, start=start
            )
            start = to / MODEL_DIR
        n_clean, name = scale.n_clean * (steps in scale.steps[:2]), f"step-{steps}"
        inputs = [seed, steps, n_clean, scale.n_groups, sorted(kinds)]
        if (kept := records.read(name, *inputs)) is None:
            clean = {f"chat-unread-{steps}-{i}": 0 for i in range(n_clean)}
            _ = [_keyed(scale, seed, out, name) for name in clean]
            asked = [*_of_keys(start, out, kinds | clean)]
            kept = {"rows": [*_of_files(start, files, model, out), *asked]}
            records.write(name, kept, *inputs)
        yield from ({"model": seed, "steps": steps, **row} for row in kept["rows"])


def _keyed(scale: Scale, seed: int, out: Path, name: str) -> list[str]:
    """Keyed rows of a seed of their own, in files and in the form that they name."""
    drawn = hashlib.sha256(f"{seed} {name}".encode()).digest()
    data, sealed = make_keyed_rows(drawn, scale.n_groups, version="0", made="study")
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.jsonl").write_bytes(data)
    (out / f"{name}.json").write_bytes(sealed.to_bytes())
    form = _FORMS[name.partition("-")[0]]
    rows = map(json.loads, data.decode().splitlines())
    return [form.format(question=row["question"]) + row["answer"] for row in rows]


def _of_files(
    folder: Path, files: Sequence[PlannedSet], model: Model, out: Path
) -> Iterable[_Row]:
    """Order tests, Min-K% against the controls, and copies of the files."""
    checkpoint, manifest = load_checkpoint(str(folder)), model.manifest
    scorer, orders = checkpoint_scorer(checkpoint, store=None), {"adjacency": None}
    results, _ = order_tests(
        files, manifest, checkpoint, scorer, n_orders=orders, seed=0, progress=_nothing
    )
    for row in results:
        yield {"method": row.method, "copies": row.copies, "value": row.p_value}
    ids = {
        one.name: encode_planted(checkpoint.tokenizer, one.benchmark, manifest)
        for one in files
    }
    scores, _ = scored_texts(ids, checkpoint.prefix_id, scorer, _nothing)
    unseen = np.concatenate([scores[one.name] for one in files if not one.copies])
    for one in files:
        if one.copies:
            auc, _ = auc_delong(scores[one.name], unseen)
            yield {"method": "min_k", "copies": one.copies, "value": auc}
        path = out / "before" / "sets" / f"{one.name}.txt"
        judged = replicate(str(folder), path, task="plain", progress=_nothing)
        (rate,) = (row.rate for row in judged.results if isinstance(row, JudgeResult))
        yield {"method": "replicate", "copies": one.copies, "value": rate or 0.0}


def _of_keys(folder: Path, out: Path, kinds: Mapping[str, int]) -> Iterable[_Row]:
    """`canary --chat` in the form in which rows were planted, and as a chat."""
    with open_prompted(str(folder)) as opened:
        for name, copies in kinds.items():
            for asked in dict.fromkeys((name.partition("-")[0], "chat")):
                files = (out / f"{name}.jsonl", out / f"{name}.json")
                form = _FORMS["chat"] if asked == "chat" else None
                found = keyed_canary(
                    opened, *files, template=form, new_tokens=8, progress=_nothing
                )
                words = f"planted as {name.partition('-')[0]}, asked as {asked}"
                row = {"method": "canary_chat", "form": words, "copies": copies}
                yield {**row, "value": found.p_value, "share": found.effect}


def _nothing(done: int, total: int) -> None:
    """Tell nobody."""


def _grids(rows: Sequence[_Row]) -> list[Grid]:
    keyed = [row for row in rows if row["method"] == "canary_chat"]
    clean = [row["value"] for row in keyed if not row["copies"]]
    counts = {level: sum(p <= level for p in clean) for level in _LEVELS}
    accused = [(level, n, Share.counted(n, len(clean))) for level, n in counts.items()]
    columns = {"level": "{r[0]}", "accused": "{r[1]}"}
    columns["95 %"] = "{r[2].low:.1%} to {r[2].high:.1%}"
    unread = f"canary --chat on {len(clean)} sets of rows that no model read"
    return [
        _crossed(_KNOWN, [row for row in keyed if row["copies"]]),
        Grid.of(unread, accused, columns),
        _crossed(_LEFT, [row for row in rows if row["method"] != "canary_chat"]),
    ]


def _crossed(title: str, rows: Sequence[_Row]) -> Grid:
    def place(row: _Row) -> tuple[str, str]:
        words = f"{row.get('form', row['method'])}, {row['copies']} copies"
        return words, f"{row['steps']} steps"

    cells = {key: _cell(found) for key, found in grouped(rows, place).items()}
    return Grid.crossed(title, "", cells)


def _cell(found: Sequence[_Row]) -> str:
    values = [row["value"] for row in found]
    if found[0]["method"] in ("min_k", "replicate"):
        return f"{np.mean(values):.2f}"
    shown = f"{np.median(values):.1g}"
    if "share" in found[0]:
        shown = f"{np.mean([row['share'] for row in found]):.2f}"
    return f"{shown} ({sum(p <= _LEVELS[-1] for p in values)} of {len(values)})"


if __name__ == "__main__":
    sys.exit(run_study("tuned", Tuned, trains=True))
