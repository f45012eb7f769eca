"""Known members, by copies: scale, models, and the scores of their texts."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.membership.cells import Cell, Stratum, cells
from eval.membership.texts import drawn
from eval.planted import Model, planted, resized, trained_model
from eval.python_docs import PythonDocs
from jaxcontam.members.blind import blind_baselines
from jaxcontam.members.passes import Inputs, TextModel, score_texts, text_model
from jaxcontam.members.score import ScoreMethod
from jaxcontam.members.scores import token_frequencies
from jaxcontam.methods import METHODS
from jaxcontam.scoring.opened import opened_checkpoint
from train.config import PRESETS, Config
from train.plant import PlannedSet

# A masked model and lists of documents are not at hand.
_READ_NAMES = """moments lowercase neighbours reference corpus nonmember_prefix
member_prefix gradients"""
_READS = frozenset(_READ_NAMES.split())
# Width of the reference model, as a share of the width of the scored one.
_REFERENCE_WIDTH = 0.5
_PREFIX = "known-members"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the study is.

    Attributes:
        config: Of the scored model.
        copies: How often members are planted.
        n_known: Members at each number of copies.
        n_unknown: Non-members.
        n_shots: Texts set aside for prefixes.
        known_tokens: Background.
    """

    config: Config
    copies: tuple[int, ...]
    n_known: int
    n_unknown: int
    n_shots: int
    known_tokens: int


FULL = Scale(
    config=PRESETS["tiny"],
    copies=(1, 2, 4, 10, 50),
    n_known=200,
    n_unknown=600,
    n_shots=12,
    known_tokens=200_000,
)
TINY = Scale(
    config=dataclasses.replace(
        PRESETS["pulse"],
        # A few texts and a prefix fit.
        decoder=dataclasses.replace(PRESETS["pulse"].decoder, context=256),
        row_tokens=64,
    ),
    copies=(1, 4),
    n_known=20,
    n_unknown=20,
    n_shots=2,
    known_tokens=6_000,
)
"""Seconds, and too small to detect anything."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """A scale with its texts and a folder.

    Attributes:
        scale: See `Scale`.
        pool: Documents and questions.
        seeds: Seeds of splits, streams and batches, one pair of models each.
        out: Folder of models and scores.
        any_code: Take finished models that other code trained.
    """

    scale: Scale
    pool: PythonDocs
    seeds: tuple[int, ...]
    out: Path
    any_code: bool

    def train(
        self, name: str, sets: Sequence[PlannedSet], config: Config, seed: int
    ) -> Model:
        """A model in its own folder; one that is there is not trained again."""
        return trained_model(
            self.out / "models" / name,
            self.pool.documents,
            sets,
            config,
            seed=seed,
            background_tokens=self.scale.known_tokens,
            any_code=self.any_code,
        )

    def ready(self, model: Model) -> TextModel:
        """A model with its scorers; what they score is kept under `out`."""
        return text_model(opened_checkpoint(model.checkpoint), store=self.out / "store")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the study found.

    Attributes:
        cells: Rows of its table.
        blind: Likewise, of classifiers that read the texts alone.
        facts: What was trained, in words and numbers.
    """

    cells: tuple[Cell, ...]
    blind: tuple[Cell, ...]
    facts: Mapping[str, Any]


def copies_study(bench: Bench) -> Found:
    """Every score, with blind baselines, at each number of copies."""
    strata: list[tuple[str, int, Stratum]] = []
    blind: list[tuple[str, int, Stratum]] = []
    facts: dict[str, Any] = {}
    methods = [
        method
        for method in METHODS.values()
        if isinstance(method, ScoreMethod) and set(method.reads) <= _READS
    ]
    for seed in bench.seeds:
        draw = draw_texts(bench, seed)
        model = planted_model(bench, draw, seed)
        # A smaller one that was trained on the background alone.
        small = smaller(bench.scale.config)
        reference = bench.train(f"reference-{seed}", [], small, seed)
        manifest = model.manifest
        facts = {
            "n_parameters": model.checkpoint.n_parameters,
            "n_tokens": manifest.n_tokens,
            "n_planted_tokens": manifest.n_canary_tokens,
            "n_steps": manifest.n_steps,
            "code": manifest.code,
            "n_reference_parameters": reference.checkpoint.n_parameters,
        }
        groups = {0: draw.unseen, **draw.members}
        table = score_texts(
            [text for group in groups.values() for text in group],
            methods,
            bench.ready(model),
            inputs=Inputs(
                reference=bench.ready(reference),
                nonmember_prefix=tuple(draw.shots_unseen),
                member_prefix=tuple(draw.shots_seen),
                corpus_counts=token_frequencies(
                    bench.pool.documents,
                    model.checkpoint.tokenizer,
                    model.checkpoint.config.vocab_size,
                ),
            ),
            seed=seed,
        )
        ends = np.cumsum([len(group) for group in groups.values()])[:-1]
        of_group = dict(zip(groups, np.split(table.values, ends), strict=True))
        for copies, members in draw.members.items():
            for i, method in enumerate(table.names):
                values, others = of_group[copies][:, i], of_group[0][:, i]
                strata.append((method, copies, Stratum(values, others)))
            texts = [*members, *draw.unseen]
            labels_N = np.arange(len(texts)) < len(members)
            baselines = blind_baselines(texts, labels_N, seed=seed)
            for row, values_N in zip(baselines.rows, baselines.scores.T, strict=True):
                found = Stratum(values_N[labels_N], values_N[~labels_N])
                blind.append((row.name, copies, found))
    return Found(cells=cells(strata), blind=cells(blind), facts=facts)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Texts of one seed.

    Attributes:
        members: Number of copies -> texts.
        unseen: Non-members.
        shots_seen: Planted too, and used as a prefix alone.
        shots_unseen: Likewise, not planted.
    """

    members: dict[int, list[str]]
    unseen: list[str]
    shots_seen: list[str]
    shots_unseen: list[str]


def draw_texts(bench: Bench, seed: int) -> Draw:
    """Members, non-members and shots of a seed, drawn from one pool."""
    scale = bench.scale
    n = scale.n_known * len(scale.copies)
    texts = drawn(
        [question.text for question in bench.pool.questions],
        n + scale.n_unknown + 2 * scale.n_shots,
        seed=seed,
    )
    members, rest = texts[:n], texts[n:]
    unseen, shots = rest[: scale.n_unknown], rest[scale.n_unknown :]
    return Draw(
        {
            copies: members[i * scale.n_known : (i + 1) * scale.n_known]
            for i, copies in enumerate(scale.copies)
        },
        unseen,
        shots[: scale.n_shots],
        shots[scale.n_shots :],
    )


def planted_model(bench: Bench, draw: Draw, seed: int) -> Model:
    """A model that read the members of a draw, and the known ones of prefixes."""
    config, copies = bench.scale.config, max(draw.members)
    sets = [
        *(planted(f"pydocs-{k}", texts, k) for k, texts in draw.members.items()),
        planted(_PREFIX, draw.shots_seen, copies),
    ]
    return bench.train(f"copies-{seed}", sets, config, seed)


def smaller(config: Config) -> Config:
    """A preset of fewer weights."""
    shape = config.decoder
    width, layers = round(shape.d_model * _REFERENCE_WIDTH), max(1, shape.n_layers - 1)
    return resized(config, width, layers, max(1, width // 32), 8 * round(width / 3))
