"""The sets of one model: in which form each is planted, and what an auditor has of it.

All sets are drawn at random from one pool of questions. One of four wordings of each
question, drawn at random too, is the published one, so that the test of versions is
exact on every set; the order of the sets is drawn, so that order tests are.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Literal

import numpy as np

from eval.blind_spots.wordings import N_WORDINGS, longest_run, wordings
from eval.python_docs import Question
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from jaxcontam.methods.versions import VersionSet
from train.plan import PlannedSet

N_OPTIONS = 4
# Two wordings of a question share no longer stretch of words.
_LONGEST_RUN = 4

Text = Literal["published", "reworded", "template", "record"]
"""How the text of an example is planted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A way to plant a set.

    Attributes:
        name: Name of the set.
        words: What tables call it.
        text: See `Text`.
        shuffled: A fresh order for each copy.
        spread: Each example at a random place of its own.
        times: `all` copies, `one` of them, or `none`.
        items: Multiple-choice items, not plain questions.
    """

    name: str
    words: str
    text: Text = "published"
    shuffled: bool = False
    spread: bool = False
    times: Literal["all", "one", "none"] = "all"
    items: bool = False

    def copies(self, copies: int) -> int:
        """Copies that are planted where the others have so many."""
        return {"all": copies, "one": min(1, copies), "none": 0}[self.times]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the models of the study are.

    Attributes:
        name: Name of this part of the study.
        preset: Name of the preset.
        n_examples: Examples of each set.
        copies: Copies of the forms that are planted again and again.
        background_tokens: Tokens of documents without questions.
        n_asked: Instances of a set that replication asks for.
        new_tokens: Tokens of a completion, at most.
        n_permutations: Permutations of the test of a set's scores.
        batch_tokens: Tokens of a scorer's batch; None chooses by platform. Where there
            are many batches they have one shape, which is compiled once.
    """

    name: str
    preset: str
    n_examples: int
    copies: int
    background_tokens: int
    n_asked: int
    new_tokens: int
    n_permutations: int
    batch_tokens: int | None = None


UNSEEN = ("unseen-a", "unseen-b")
"""Never planted; each is the other's control, and both are everybody else's."""

FORMS: tuple[Form, ...] = (
    Form(name="block", words="as published"),
    Form(name="shuffled", words="shuffled", shuffled=True),
    Form(name="spread", words="one a document", spread=True),
    Form(name="reworded", words="reworded", text="reworded"),
    Form(
        name="reworded-shuffled",
        words="reworded, shuffled",
        text="reworded",
        shuffled=True,
    ),
    Form(name="template", words="another template", text="template"),
    Form(name="record", words="records, answer first", text="record"),
    Form(name="deduplicated", words="one copy left", times="one"),
    Form(name="items", words="items, shuffled", shuffled=True, items=True),
    Form(name=UNSEEN[0], words="never", times="none"),
    Form(name=UNSEEN[1], words="never, again", times="none"),
    Form(name="items-unseen", words="items, never", times="none", items=True),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FormSet:
    """A set, as it is planted and as an auditor has it.

    Attributes:
        form: How it is planted.
        planned: For training; its benchmark is what an auditor reads.
        versions: The published wording and the three others; None for
            items.
        versions_without: The same without the wording that was planted in the place of
            the published one; None where the published one was planted.
    """

    form: Form
    planned: PlannedSet
    versions: VersionSet | None
    versions_without: VersionSet | None


def eligible(questions: Sequence[Question]) -> list[Question]:
    """Questions whose four wordings are so different that each can be told."""
    found = []
    for question in questions:
        texts = wordings(question.sentence)
        pairs = [(a, b) for i, a in enumerate(texts) for b in texts[:i]]
        if all(a != b and longest_run(a, b) <= _LONGEST_RUN for a, b in pairs):
            found.append(question)
    return found


def draw_sets(
    questions: Sequence[Question], *, n_examples: int, copies: int, seed: int
) -> list[FormSet]:
    """Disjoint sets, one a form, in the order of `FORMS`.

    Args:
        questions: From `eligible`.
        n_examples: Examples of each set.
        copies: Copies of the forms that are planted again and again.
        seed: Seeds sets, orders, wordings and options.

    Raises:
        InputError: If there are too few questions.
    """
    needed = n_examples * len(FORMS)
    if len(questions) < needed:
        raise InputError(
            f"this Python installation gives {len(questions)} questions with four "
            f"wordings, {needed} needed",
            hint="use a Python whose standard library has its .py files",
        )
    rng = np.random.default_rng([seed, 71])
    order = rng.permutation(len(questions))[:needed].tolist()
    answers = sorted({question.answer for question in questions})
    sets = []
    for number, form in enumerate(FORMS):
        places = order[number * n_examples : (number + 1) * n_examples]
        drawn = [questions[i] for i in places]
        make = _items if form.items else _questions
        benchmark, planted, versions = make(form, drawn, answers, rng)
        without = None
        if versions is not None and form.text == "reworded":
            without = _without(versions, planted)
        planned = PlannedSet(
            benchmark=benchmark,
            copies=form.copies(copies),
            shuffled=form.shuffled,
            layout="spread" if form.spread else "block",
            texts_planted=None if planted == benchmark.texts else planted,
        )
        sets.append(FormSet(form, planned, versions, without))
    return sets


def question_text(sentence: str, answer: str) -> str:
    """A question as its set publishes it."""
    return f"Q: {sentence}? A: {answer}"


def _questions(
    form: Form,
    questions: Sequence[Question],
    answers: Sequence[str],
    rng: np.random.Generator,
) -> tuple[Benchmark, tuple[str, ...], VersionSet]:
    rows, planted = [], []
    for question in questions:
        texts = wordings(question.sentence)
        mine, other = rng.permutation(N_WORDINGS)[:2].tolist()
        others = [text for i, text in enumerate(texts) if i != mine]
        rows.append(
            tuple(question_text(s, question.answer) for s in (texts[mine], *others))
        )
        sentence = texts[other if form.text == "reworded" else mine]
        planted.append(_planted_text(form.text, sentence, question.answer))
    published = tuple(row[0] for row in rows)
    n = len(published)
    return (
        Benchmark(form.name, published, (None,) * n, order_provenance="seeded"),
        tuple(planted),
        VersionSet(
            name=form.name,
            rows=tuple(rows),
            places=tuple(f"{form.name}: example {i}" for i in range(1, n + 1)),
        ),
    )


def _without(versions: VersionSet, planted: Sequence[str]) -> VersionSet:
    """The versions of an auditor who does not know what was planted."""
    rows = tuple(
        tuple(text for text in row if text != other)
        for row, other in zip(versions.rows, planted, strict=True)
    )
    return dataclasses.replace(versions, rows=rows)


def _planted_text(text: Text, sentence: str, answer: str) -> str:
    match text:
        case "template":
            # The separator of the set follows, so examples stand a line apart.
            return f"Question: {sentence}\nAnswer: {answer}\n"
        case "record":
            return json.dumps({"function": answer, "does": sentence})
        case _:
            return question_text(sentence, answer)


def _items(
    form: Form,
    questions: Sequence[Question],
    answers: Sequence[str],
    rng: np.random.Generator,
) -> tuple[Benchmark, tuple[str, ...], None]:
    """Items with the right answer among three wrong ones, in a random order."""
    rows: list[dict[str, object]] = []
    for question in questions:
        drawn = rng.choice(len(answers), N_OPTIONS, replace=False).tolist()
        wrong = [answers[i] for i in drawn if answers[i] != question.answer]
        options = [question.answer, *wrong[: N_OPTIONS - 1]]
        order = rng.permutation(N_OPTIONS).tolist()
        rows.append(
            {
                "question": f"{question.sentence}?",
                "choices": [options[i] for i in order],
                "answer": order.index(0),
            }
        )
    texts = tuple(json.dumps(row) for row in rows)
    benchmark = Benchmark(form.name, texts, tuple(rows), order_provenance="seeded")
    return benchmark, texts, None
