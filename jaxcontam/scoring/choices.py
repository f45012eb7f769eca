"""Multiple choice: which of several texts a model finds likeliest after a prompt."""

from collections.abc import Sequence

import numpy as np

from jaxcontam.data.encoding import encode_texts
from jaxcontam.data.questions import Question
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.opened import OpenModel, SequenceScorer
from jaxcontam.scoring.pair_plan import PairGroup


def choice_groups(questions: Sequence[Question], model: OpenModel) -> list[PairGroup]:
    """A prompt with its choices each; a prompt that is too long keeps its end.

    Prompt and choices become ids each by itself, as everywhere in this package.
    """
    prefix = [] if model.prefix_id is None else [model.prefix_id]
    start = np.array(prefix, np.int32)
    asked = [one.prompt for one in questions]
    prompts = encode_texts(model.tokenizer, asked, after=model.prefix_id)
    flat = [text for one in questions for text in one.choices]
    choices = iter(encode_texts(model.tokenizer, flat))
    groups = []
    for one, prompt in zip(questions, prompts, strict=True):
        own = tuple(next(choices) for _ in one.choices)
        # The last id of a choice is a target that is not read.
        room = model.context + 1 - len(start) - max(map(len, own))
        if not all(map(len, own)) or room < 1 or not len(start) + len(prompt):
            raise InputError(
                f"item {one.item!r}: its prompt or a choice has no token, or a choice "
                f"fills the context of {model.context}"
            )
        ids = np.concatenate([start, prompt[max(0, len(prompt) - room) :]])
        groups.append(PairGroup(ids, own, 0, tuple(range(1, 1 + len(own)))))
    return groups


def choice_scores(
    questions: Sequence[Question],
    model: OpenModel,
    scorer: SequenceScorer,
    *,
    per_byte: bool,
    progress: Progress | None = None,
) -> np.ndarray:
    """(n_questions,) float64: 1 if the right choice is likeliest; of k as likely 1 / k.

    `per_byte` divides the log-probability of a choice by its length in UTF-8.
    """
    if scorer.pairs is None:
        raise InputError(f"{model.info.name}: scores whole texts alone, no choices")
    found = scorer.pairs.logprobs(choice_groups(questions, model), progress)
    scores = np.zeros(len(questions))
    for i, (one, values) in enumerate(zip(questions, found.logprobs, strict=True)):
        sums = np.array([own.sum(dtype=np.float64) for own in values])
        if per_byte:
            sums /= [len(text.strip().encode()) or 1 for text in one.choices]
        best = sums >= sums.max()
        scores[i] = best[one.answer] / best.sum()
    return scores
