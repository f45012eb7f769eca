"""Models that go on training on text with examples of tasks, and what scores say."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.planted import planted, trained_model
from eval.python_docs import Question as Described
from eval.python_docs import read_python_docs
from eval.real_planted import trained_further
from jaxcontam.data.benchmark import load_benchmark, without_repeats
from jaxcontam.data.questions import Question, read_questions
from jaxcontam.data.templates import QuestionFields
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import cut_words
from jaxcontam.members.passes import score_texts, text_model
from jaxcontam.members.scores import SCORES
from jaxcontam.models.checkpoint import model_fingerprint
from jaxcontam.models.config import llama_shape
from jaxcontam.score_gap.items import choice_scores
from jaxcontam.scoring.load import load
from train.config import PRESETS, Config
from train.data import corpus_digest, read_documents
from train.plant import PlannedSet, drawn_copies
from train.run_folder import MODEL_DIR

TABLE_SCORES = ("min_k", "loss", "zlib", "lowercase", "neighbourhood")
"""Scores of tables 3 and 7, those of one pass first."""
ONE_PASS = TABLE_SCORES[:3]
_KINDS = ("names", "sentences", "truth")
_N_OPTIONS = 4
# Answers of a file that has no more of them than these are its options.
_MOST_LABELS = 5
_BASE_SHARE, _BASE_SEED = 0.2, 7
# Fewer tokens that are scored at once make fewer shapes to compile.
_TINY_TOKENS = 32
# More than any corpus has.
_ALL = 10**12

Sides = tuple[Sequence[Any], Sequence[Any]]
"""Examples, texts or answers of members and of non-members."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of what is trained and planted.

    Attributes:
        n: Members of a task, and as many non-members; also of the models of each size.
        tokens: Background, but for figures 5a and 5b.
        many: Copies in table 8, beside one.
        mean: Copies of figure 5c on average; from `most` on they are one group.
        corpora: Texts of figure 5b, of `words` words, `n_texts` of them members.
        widths: Width and layers of the models of figure 2a.
        lengths: Words of figure 2b; the last is that of figure 2a.
    """

    preset: str
    n: int
    tokens: int
    many: int
    mean: float
    most: int
    corpora: tuple[int, ...]
    n_texts: int
    words: int
    widths: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]


FULL = Scale(
    preset="tiny",
    n=200,
    tokens=170_000,
    many=10,
    mean=3.0,
    most=6,
    corpora=(1_000, 5_000, 10_000),
    n_texts=400,
    words=14,
    widths=((32, 2), (64, 2), (96, 3), (128, 4)),
    lengths=(16, 32, 64, 128),
)
TINY = Scale(
    "pulse", 20, 4_000, 2, 1.0, 2, (60, 90), 20, 8, ((16, 1), (32, 2)), (8, 16)
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model to train.

    Attributes:
        kind: `before` further training; with examples of `tasks`; with `texts` that are
            like the rest; or of a `size`, from the beginning.
        n: Tokens of background, texts of the corpus, or the place of the size.
        copies: 0 draws them from a Poisson distribution.
    """

    kind: str
    seed: int
    rate: float = 0.0
    n: int = 0
    copies: int = 1

    @property
    def name(self) -> str:
        """Name of its record."""
        return f"{self.kind}-{self.seed}-{self.rate:g}-{self.n}-{self.copies}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What models are made of, and where.

    Attributes:
        start: The model to go on from; None trains one on `base`.
        base: Documents; `rest` has none of them.
        questions: What tasks are made of, unless `tasks` holds them.
        digest: Of all that a record follows from beside its job and the scale.
        main_rate: Learning rate at which all scores are computed.
    """

    scale: Scale
    start: Path | None
    base: tuple[str, ...]
    rest: tuple[str, ...]
    questions: tuple[Described, ...]
    tasks: Mapping[str, list[Question]]
    digest: str
    main_rate: float
    out: Path
    tiny: bool
    any_code: bool

    def made(self, job: Job) -> dict[str, Any]:
        """Train a model, score its members and non-members, let it answer."""
        if job.kind in ("texts", "size"):
            return self._of_texts(job)
        tasks = self._tasks(job.seed)
        if job.kind == "before":
            return self._found(self._base(), {}, tasks, job)
        texts: dict[str, Sides] = {
            name: ([*map(text_of, seen)], [*map(text_of, unseen)])
            for name, (seen, unseen) in tasks.items()
        }
        sets = [planted(name, own[0], job.copies or 1) for name, own in texts.items()]
        groups = {("", name): own for name, own in texts.items()}
        if not job.copies:
            groups, whole, sets = {}, sets, []
            for one in whole:
                parts = drawn_copies(one, self.scale.mean)
                sets += parts
                for part in parts:
                    if part.copies:
                        key = _copies_words(part.copies, self.scale.most), one.name
                        seen, unseen = groups.get(key, ((), texts[one.name][1]))
                        groups[key] = [*seen, *part.planted], unseen
        model = self._trained(job, self.rest, sets, tokens=job.n)
        return self._found(model, groups, tasks, job)

    def _of_texts(self, job: Job) -> dict[str, Any]:
        """Members that are like the rest of the corpus."""
        scale, is_size = self.scale, job.kind == "size"
        n = scale.n if is_size else scale.n_texts
        n_words = scale.lengths[-1] if is_size else scale.words
        # Corpora of one seed are nested, with the same members.
        end = n if is_size else max(scale.corpora)
        drawn = self._pieces(n_words, end + n, job.seed)
        seen, unseen = drawn[:n], drawn[end : end + n]
        rest = drawn[end + n :] if is_size else drawn[n : job.n]
        model = self._trained(
            job,
            rest,
            [planted("members", seen, 1)],
            tokens=scale.tokens if is_size else None,
        )
        groups: dict[tuple[str, str], Sides] = {
            (job.name if is_size else "", f"{words} words"): (
                [cut_words(text, words) for text in seen],
                [cut_words(text, words) for text in unseen],
            )
            for words in (scale.lengths if is_size else (n_words,))
        }
        return self._found(model, groups, {}, job)

    def _tasks(self, seed: int) -> dict[str, Sides]:
        """Seen and unseen examples of each task, drawn from one pool."""
        n, rng = self.scale.n, np.random.default_rng([seed, 47])
        found: dict[str, Sides] = {}
        for name, items in self.tasks.items():
            own = [items[i] for i in rng.permutation(len(items))[: 2 * n].tolist()]
            found[name] = own[:n], own[n:]
        if self.tasks:
            return found
        order = rng.permutation(len(self.questions)).tolist()
        for place, kind in enumerate(_KINDS):
            own = [self.questions[i] for i in order[2 * n * place :][: 2 * n]]
            # Wrong options are right ones of other examples of the same side, so that
            # they were read as often.
            found[kind] = _asked(kind, own[:n], rng), _asked(kind, own[n:], rng)
        return found

    def _pieces(self, n_words: int, n: int, seed: int) -> list[str]:
        """Texts of so many words in random order, at least n."""
        pieces: dict[str, None] = {}
        for document in self.rest:
            words = document.split()
            for i in range(0, len(words) - n_words + 1, n_words):
                pieces[" ".join(words[i : i + n_words])] = None
        texts = list(pieces)
        if len(texts) < n:
            raise InputError(
                f"the corpus gives {len(texts):,} texts of {n_words} words, "
                f"{n:,} needed",
                hint="a larger --corpus",
            )
        order = np.random.default_rng([seed, 41]).permutation(len(texts))
        return [texts[i] for i in order.tolist()]

    def _base(self) -> Path:
        """The model that training goes on from."""
        if self.start is not None:
            return self.start
        folder, preset, seed = self.out / "base", PRESETS[self.scale.preset], _BASE_SEED
        trained_model(folder, self.base, [], preset, seed=seed, any_code=self.any_code)
        return folder / MODEL_DIR

    def _trained(
        self,
        job: Job,
        documents: Sequence[str],
        sets: Sequence[PlannedSet],
        *,
        tokens: int | None,
    ) -> Path:
        """A model that read the sets among documents, at a constant rate if further."""
        out, start = self.out / "train" / job.name, None
        if self.start is not None:
            model = trained_further(
                self.start,
                documents,
                sets,
                rate=job.rate,
                background_tokens=tokens or _ALL,
                seed=job.seed,
                out=out,
                tiny=self.tiny,
            )
        else:
            config = PRESETS[self.scale.preset].changed(peak_rate=job.rate)
            if job.kind == "size":
                config = _resized(config, *self.scale.widths[job.n])
            else:
                config, start = config.changed(schedule="constant"), self._base()
            model = trained_model(
                out,
                documents,
                sets,
                config,
                seed=job.seed,
                background_tokens=tokens,
                start=start,
            )
        manifest = model.manifest
        n_read = manifest.n_tokens - manifest.n_canary_tokens
        if tokens is not None and n_read < tokens:
            raise InputError(
                f"the corpus gives {n_read:,} tokens of background, {tokens:,} needed",
                hint="a larger --corpus, or less --background",
            )
        return out / MODEL_DIR

    def _found(
        self,
        model: Path,
        groups: Mapping[tuple[str, str], Sides],
        tasks: Mapping[str, Sides],
        job: Job,
    ) -> dict[str, Any]:
        """Scores of the texts of each (group, task), and who is answered rightly."""
        opened = load(str(model))
        batch_tokens = _TINY_TOKENS if self.tiny else None
        reader = text_model(opened, store=None, batch_tokens=batch_tokens)
        rows = []
        main = Job(
            kind="tasks", seed=job.seed, rate=self.main_rate, n=self.scale.tokens
        )
        every = [text for own in groups.values() for side in own for text in side]
        place = {text: i for i, text in enumerate(dict.fromkeys(every))}
        methods = [SCORES[name] for name in (TABLE_SCORES if job == main else ONE_PASS)]
        if groups:
            table = score_texts([*place], methods, reader, seed=job.seed)
            for (group, task), own in groups.items():
                for name, values_N in zip(table.names, table.values.T, strict=True):
                    seen, unseen = (values_N[[place[t] for t in side]] for side in own)
                    row = {"group": group, "task": task, "method": name}
                    scores = {"members": seen.tolist(), "nonmembers": unseen.tolist()}
                    rows.append(row | scores)
        right = {}
        for name, own in tasks.items():
            if all(one.choices for side in own for one in side):
                right[name] = [
                    choice_scores(side, opened, reader.plain, per_byte=False).tolist()
                    for side in own
                ]
        n = opened.info.n_parameters
        return {"n_parameters": n, "rows": rows, "right": right}


def read_bench(
    scale: Scale,
    *,
    corpus: Sequence[str],
    tasks: Sequence[Path],
    templates: Sequence[str],
    start: Path | None,
    **given: Any,
) -> Bench:
    """Read corpus and tasks; `given` are fields of `Bench`."""
    docs = read_python_docs()
    documents = read_documents(corpus) if corpus else docs.documents
    order = np.random.default_rng([_BASE_SEED, 5]).permutation(len(documents)).tolist()
    mixed, cut = [documents[i] for i in order], round(_BASE_SHARE * len(order))
    found: dict[str, list[Question]] = {}
    for path, template in zip(tasks, templates or [None] * len(tasks), strict=True):
        if path.stem in found:
            raise InputError(
                f"--tasks {path}: a second file named {path.stem!r}", hint="rename it"
            )
        found[path.stem] = own = _read_task(path, template)
        if len(own) < 2 * scale.n:
            raise InputError(
                f"{path}: {len(own)} examples, {2 * scale.n} needed for members and "
                "non-members"
            )
    asked = [one for own in found.values() for one in own]
    texts = [text for one in asked for text in (text_of(one), *one.choices)]
    texts = texts or [one.text for one in docs.questions]
    weights = None if start is None else model_fingerprint(str(start))
    named = [str(weights), str(given["main_rate"])]
    return Bench(
        scale=scale,
        start=start,
        base=tuple(mixed[:cut]),
        rest=tuple(mixed[cut:]),
        questions=docs.questions,
        tasks=found,
        digest=corpus_digest([*documents, *texts, *named]),
        **given,
    )


def text_of(question: Question) -> str:
    """An example as it is planted: with its right answer."""
    if question.choices:
        return question.prompt + question.choices[question.answer]
    return f"{question.prompt} {question.written[0]}"


def _read_task(path: Path, template: str | None) -> list[Question]:
    """Questions of a file; where all have one of few answers, these are options."""
    file = without_repeats(load_benchmark(path))
    questions = read_questions(file, QuestionFields(text=template))
    labels = sorted({text for one in questions for text in one.written})
    if len(labels) > _MOST_LABELS or any(one.choices for one in questions):
        return questions
    choices = tuple(f" {label}" for label in labels)
    return [
        dataclasses.replace(
            one, choices=choices, answer=labels.index(one.written[0]), written=()
        )
        for one in questions
    ]


def _asked(
    kind: str, described: Sequence[Described], rng: np.random.Generator
) -> list[Question]:
    """Multiple-choice questions about functions, with options of one another.

    `names`: whose description is this? `sentences`: what does this do? `truth`: a
    description, right or wrong, to be answered by yes or no.
    """
    found = []
    for i, one in enumerate(described):
        around = [described[(i + k) % len(described)] for k in range(_N_OPTIONS)]
        right = int(rng.integers(2 if kind == "truth" else _N_OPTIONS))
        around[0], around[right] = around[right], around[0]
        if kind == "names":
            prompt = f"Q: {one.sentence}? A:"
            choices = [f" {other.answer}" for other in around]
        elif kind == "sentences":
            prompt = f"{one.answer} does this:"
            choices = [f" {other.sentence}." for other in around]
        else:
            # The first of the two is this one if `right` is 0.
            prompt = f"{one.sentence}. Is this about {around[0].answer}?"
            choices = [" yes", " no"]
        found.append(Question(str(i), prompt, tuple(choices), right))
    return found


def _copies_words(copies: int, most: int) -> str:
    if copies >= most:
        return f"{most} copies or more"
    return f"{copies} cop{'y' if copies == 1 else 'ies'}"


def _resized(config: Config, width: int, layers: int) -> Config:
    """The same vocabulary and rows with another number of parameters."""
    decoder = llama_shape(
        vocab_size=config.decoder.vocab_size,
        d_model=width,
        n_layers=layers,
        n_heads=max(1, width // 32),
        d_ff=8 * round(width / 3),
        context=config.decoder.context,
    )
    return dataclasses.replace(config, name=f"width-{width}", decoder=decoder)
