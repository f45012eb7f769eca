"""What all studies of membership share: their scale, their texts, their base model."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from eval.membership.texts import Pool, Task, python_tasks
from eval.planted import Model, trained_model
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.plan import Inputs, score_texts
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.methods.membership.text_model import TextModel, text_model
from jaxcontam.models.config import llama_shape
from train.plan import PlannedSet
from train.presets import PRESETS, Preset

Scores = Mapping[str, Mapping[str, np.ndarray]]
"""Score -> group of texts -> one float64 per text."""

MODELS_DIR = "models"
_BASE, _BASE_SEED = "base", 7


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the studies are. Shi et al.'s own numbers stand behind each line.

    Attributes:
        preset: Preset of the base model and of the known-member study. LLaMA 7B.
        base_share: Share of the documents that the base model is trained on.
        n_examples: Members of a task, and as many non-members. 200.
        corpus_tokens: Background of outliers. 0.17, 0.27, 2.6 and 26 M.
        main_tokens: Background of the main table and of the other ablations. 27 M.
        main_rate: Constant learning rate of continued training. 1e-4.
        rates: Learning rates compared. 1e-5 and 1e-4.
        corpus_pieces: Texts of an in-distribution corpus. 1,000, 5,000 and 10,000.
        piece_words: Words of each; a text was 770 tokens.
        n_pieces: Members among them, and as many non-members. 100.
        mean_copies: Mean of the Poisson law of occurrences.
        most_copies: Occurrences from here on are one group.
        many_copies: Copies of the members in one more setting of the study of accuracy.
        copies: Copies in the known-member study.
        n_known: Members at each number of copies.
        n_unknown: Non-members of that study.
        n_shots: Texts set aside for prefixes.
        known_tokens: Background of that study.
        widths: (d_model, layers) of the models whose sizes are compared. 2.7 to 66 B.
        size_tokens: Background of these models.
        size_rate: Peak learning rate of these models.
        n_long: Members of that study, and as many non-members.
        lengths: Words that a text is cut to, ascending. 32, 64, 128 and 256.
        long_copies: How often its members are planted.
    """

    preset: Preset
    base_share: float
    n_examples: int
    corpus_tokens: tuple[int, ...]
    main_tokens: int
    main_rate: float
    rates: tuple[float, ...]
    corpus_pieces: tuple[int, ...]
    piece_words: int
    n_pieces: int
    mean_copies: float
    most_copies: int
    many_copies: int
    copies: tuple[int, ...]
    n_known: int
    n_unknown: int
    n_shots: int
    known_tokens: int
    widths: tuple[tuple[int, int], ...]
    size_tokens: int
    size_rate: float
    n_long: int
    lengths: tuple[int, ...]
    long_copies: int


FULL = Scale(
    preset=PRESETS["tiny"],
    base_share=0.2,
    n_examples=200,
    corpus_tokens=(170_000, 270_000, 900_000),
    main_tokens=170_000,
    main_rate=1e-3,
    rates=(1e-5, 1e-4, 1e-3, 3e-3),
    corpus_pieces=(1_000, 5_000, 10_000),
    piece_words=14,
    n_pieces=400,
    mean_copies=3.0,
    most_copies=6,
    many_copies=10,
    copies=(1, 2, 4, 10, 50),
    n_known=200,
    n_unknown=600,
    n_shots=12,
    known_tokens=200_000,
    widths=((32, 2), (64, 2), (96, 3), (128, 4)),
    size_tokens=130_000,
    size_rate=3e-3,
    n_long=200,
    lengths=(16, 32, 64, 128),
    long_copies=1,
)
"""Ten minutes of one core a study, or less."""

_TINY_PRESET = dataclasses.replace(
    PRESETS["pulse"],
    # A few texts and a prefix fit.
    decoder=dataclasses.replace(PRESETS["pulse"].decoder, context=256),
    row_tokens=64,
)
TINY = Scale(
    preset=_TINY_PRESET,
    base_share=0.02,
    n_examples=20,
    corpus_tokens=(6_000, 12_000),
    main_tokens=6_000,
    main_rate=3e-3,
    rates=(1e-4, 3e-3),
    corpus_pieces=(60, 120),
    piece_words=8,
    n_pieces=20,
    mean_copies=1.0,
    most_copies=2,
    many_copies=4,
    copies=(1, 4),
    n_known=20,
    n_unknown=20,
    n_shots=2,
    known_tokens=6_000,
    widths=((16, 1), (32, 2)),
    size_tokens=6_000,
    size_rate=3e-3,
    n_long=20,
    lengths=(8, 16),
    long_copies=2,
)
"""Seconds, and too small to detect anything."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """A scale with its texts and a folder.

    Attributes:
        scale: See `Scale`.
        pool: Documents and questions.
        tasks: Given by the user; none makes them of the questions.
        seeds: Seeds of splits, streams and batches, one set of models each.
        out: Folder of models and scores.
        any_code: Take finished models that other code trained.
    """

    scale: Scale
    pool: Pool
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    out: Path
    any_code: bool

    def documents(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Documents of the base model, and those of continued training."""
        order = np.random.default_rng([_BASE_SEED, 5]).permutation(
            len(self.pool.documents)
        )
        cut = round(self.scale.base_share * len(order))
        mixed = tuple(self.pool.documents[i] for i in order.tolist())
        return mixed[:cut], mixed[cut:]

    def split_tasks(self, seed: int) -> dict[str, tuple[Task, Task]]:
        """Seen and unseen examples of each task, drawn at random from one pool.

        Raises:
            InputError: If a task has too few.
        """
        n = self.scale.n_examples
        found = {}
        for number, task in enumerate(
            self.tasks or python_tasks(self.pool.questions, seed=seed)
        ):
            if len(task.items) < 2 * n:
                raise InputError(
                    f"{task.name}: {len(task.items)} examples, {2 * n} needed for "
                    "members and non-members"
                )
            rng = np.random.default_rng([seed, 47, number])
            drawn = [task.items[i] for i in rng.permutation(len(task.items)).tolist()]
            found[task.name] = (
                Task(task.name, tuple(drawn[:n])),
                Task(task.name, tuple(drawn[n : 2 * n])),
            )
        return found

    def base(self) -> Model:
        """The model that continued training starts from."""
        documents, _ = self.documents()
        return self.train(_BASE, documents, [], self.scale.preset, _BASE_SEED)

    def continued(
        self,
        name: str,
        documents: Sequence[str],
        sets: Sequence[PlannedSet],
        *,
        seed: int,
        rate: float | None = None,
        tokens: int | None = None,
    ) -> Model:
        """The base model, trained on with texts planted, at a constant rate."""
        preset = dataclasses.replace(
            self.scale.preset,
            peak_rate=rate or self.scale.main_rate,
            schedule="constant",
        )
        self.base()
        return self.train(
            name,
            documents,
            sets,
            preset,
            seed,
            tokens=tokens,
            start=self.out / MODELS_DIR / _BASE,
        )

    def train(
        self,
        name: str,
        documents: Sequence[str],
        sets: Sequence[PlannedSet],
        preset: Preset,
        seed: int,
        *,
        tokens: int | None = None,
        start: Path | None = None,
    ) -> Model:
        """A model in its own folder; one that is there is not trained again."""
        return trained_model(
            self.out / MODELS_DIR / name,
            documents,
            sets,
            preset,
            seed=seed,
            background_tokens=tokens,
            start=start,
            any_code=self.any_code,
        )

    def ready(self, model: Model) -> TextModel:
        """A model with its scorers; what they score is kept under `out`."""
        return text_model(model.checkpoint, store=self.out / "store")


def resized(preset: Preset, width: int, layers: int, *, rate: float) -> Preset:
    """A preset with another number of weights and the same vocabulary and rows."""
    shape = preset.decoder
    return dataclasses.replace(
        preset,
        name=f"{preset.name}-d{width}-l{layers}",
        peak_rate=rate,
        decoder=llama_shape(
            vocab_size=shape.vocab_size,
            d_model=width,
            n_layers=layers,
            n_heads=max(1, width // 32),
            d_ff=8 * round(width / 3),
            context=shape.context,
        ),
    )


def score_methods(*readings: Reading) -> tuple[ScoreMethod, ...]:
    """Scores that need one pass over the text, or one of these readings besides."""
    allowed = {"moments", *readings}
    return tuple(
        method
        for method in METHODS.values()
        if isinstance(method, ScoreMethod) and set(method.reads) <= allowed
    )


def score_groups(
    model: TextModel,
    groups: Mapping[str, Sequence[str]],
    methods: Sequence[ScoreMethod],
    *,
    inputs: Inputs | None = None,
    seed: int = 0,
) -> Scores:
    """Every text of every group, scored together."""
    texts = [text for group in groups.values() for text in group]
    table = score_texts(texts, methods, model, inputs=inputs, seed=seed)
    ends = np.cumsum([len(group) for group in groups.values()])[:-1]
    return {
        name: dict(zip(groups, np.split(values_N, ends), strict=True))
        for name, values_N in zip(table.names, table.values.T, strict=True)
    }
