"""Samples of suspicious texts and of a control, and how like the truth they are."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.analyses.unlearning_texts import Screened
from jaxcontam.data.journal import Journal
from jaxcontam.data.rouge import rouge_l
from jaxcontam.errors import InputError
from jaxcontam.methods.unlearning import Similarities
from jaxcontam.progress import Progress
from jaxcontam.report.archive import number_or_none
from jaxcontam.results.unlearning import CHUNKS

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Checkpoint
    from jaxcontam.models.generation import Sampling
    from jaxcontam.scoring.similarity_judge import JudgedSamples

ROUGE, COSINE, JUDGE = "rouge_l_recall", "embedding_cosine", "judge"
"""Measures of how alike a sample and the truth are."""

ELSEWHERE = "_elsewhere"
"""Follows the name of a measure that was taken against another text's truth."""

# Tokens of an answer unless the user says more; of a continuation as many as the truth.
_ANSWER_TOKENS = 64


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sampled:
    """What the unlearned model wrote.

    Attributes:
        selected: Indices of the suspicious texts that were sampled from.
        unselected: Indices of the control texts that were sampled from.
        samples: Index -> K samples.
        truths: Index -> what they are compared with, cut to the length of a sample.
        n_cut_prompts: Prompts that lost their beginning for want of room.
    """

    selected: np.ndarray
    unselected: np.ndarray
    samples: dict[int, tuple[str, ...]]
    truths: dict[int, str]
    n_cut_prompts: int


def sample_arms(
    screened: Screened,
    arms: tuple[np.ndarray, np.ndarray],
    checkpoint: "Checkpoint",
    *,
    sampling: Callable[[int], "Sampling"],
    new_tokens: int | None,
    journal: Journal,
    progress: Progress | None = None,
) -> Sampled:
    """Let a model go on from the prompts of both arms.

    Args:
        screened: The texts.
        arms: Indices of suspicious texts and of the control.
        checkpoint: The unlearned model.
        sampling: Most new tokens -> how to sample.
        new_tokens: Most tokens of a sample; None: as many as the longest truth has,
            and at most half the context.
        journal: Where finished prompts are kept.
        progress: Receives finished prompts and their total.

    Raises:
        InputError: If `new_tokens` leaves no room for a prompt.
    """
    from jaxcontam.scoring.completions import complete_texts

    items, tokenizer = screened.items, checkpoint.tokenizer
    context = checkpoint.config.context
    chosen = sorted({*arms[0].tolist(), *arms[1].tolist()})
    truths = tokenizer.encode_batch(
        [item.truth for item in items], add_special_tokens=False
    )
    if new_tokens is None:
        longest = max((len(one.ids) for one in truths), default=1)
        wanted = longest if screened.task == CHUNKS else _ANSWER_TOKENS
        new_tokens = max(1, min(wanted, context // 2))
    prefix = 0 if checkpoint.prefix_id is None else 1
    room = context - new_tokens - prefix
    if room < 1:
        raise InputError(
            f"--new-tokens {new_tokens} leaves no room for a prompt in a context of "
            f"{context}",
            hint=f"at most {context - prefix - 1}",
        )
    prompts = [items[i].prompt for i in chosen]
    lengths = [
        len(one.ids)
        for one in tokenizer.encode_batch(prompts, add_special_tokens=False)
    ]
    found = complete_texts(checkpoint, prompts, sampling(new_tokens), journal, progress)
    return Sampled(
        selected=arms[0],
        unselected=arms[1],
        samples=dict(zip(chosen, found, strict=True)),
        truths={i: _cut(items[i].truth, truths[i].offsets, new_tokens) for i in chosen},
        n_cut_prompts=sum(length > room for length in lengths),
    )


def rouge_similarities(sampled: Sampled) -> Similarities:
    """ROUGE-L recall: the share of the truth's words that a sample repeats in order."""
    return measured(
        ROUGE,
        sampled,
        lambda i, j: [
            rouge_l(sampled.truths[j], sample).recall for sample in sampled.samples[i]
        ],
    )


def cosine_similarities(sampled: Sampled, checkpoint: "Checkpoint") -> Similarities:
    """Cosine of the embeddings of the truth and of a sample."""
    from jaxcontam.scoring.embedding import text_embeddings

    indices = list(sampled.samples)
    truths_AD = text_embeddings(checkpoint, [sampled.truths[i] for i in indices])
    samples_ND = text_embeddings(
        checkpoint, [text for i in indices for text in sampled.samples[i]]
    )
    of_truth = dict(zip(indices, truths_AD, strict=True))
    parts = np.split(samples_ND, len(indices)) if indices else []
    of_samples = dict(zip(indices, parts, strict=True))
    return measured(
        COSINE, sampled, lambda i, j: (of_samples[i] @ of_truth[j]).tolist()
    )


def judge_similarities_of(
    screened: Screened,
    sampled: Sampled,
    judge: Callable[[Sequence[tuple[str, str, str]]], "JudgedSamples"],
) -> Similarities:
    """Numbers from 1 to 5 that a chat model gives; NaN where it gives none."""
    triples = [
        (screened.items[i].prompt, sampled.truths[i], sample)
        for i, samples in sampled.samples.items()
        for sample in samples
    ]
    found = judge(triples)
    numbers = iter(found.numbers)
    of_text = {
        i: [np.nan if (n := next(numbers)) is None else float(n) for _ in samples]
        for i, samples in sampled.samples.items()
    }
    # The same samples against another truth would double what the judge costs.
    return dataclasses.replace(
        measured(JUDGE, sampled, lambda i, _: of_text[i], elsewhere=False),
        n_refused=len(found.refusals),
        refusal=next(iter(found.refusals), ""),
        note=found.note,
    )


def sample_fields(
    index: int, sampled: Sampled, found: Sequence[Similarities]
) -> dict[str, Any]:
    """Fields of a text's row in `texts.jsonl`; empty for texts without samples."""
    if index not in sampled.samples:
        return {}
    fields: dict[str, Any] = {
        "truth": sampled.truths[index],
        "samples": list(sampled.samples[index]),
    }
    is_selected = index in sampled.selected
    arm = sampled.selected if is_selected else sampled.unselected
    (a,) = np.flatnonzero(arm == index)
    for one in found:
        values_AK = one.selected_AK if is_selected else one.unselected_AK
        fields[one.method] = list(map(number_or_none, values_AK[a]))
        if is_selected and one.elsewhere_AK is not None:
            fields[one.method + ELSEWHERE] = list(
                map(number_or_none, one.elsewhere_AK[a])
            )
    return fields


def measured(
    method: str,
    sampled: Sampled,
    measure: Callable[[int, int], Sequence[float]],
    *,
    elsewhere: bool = True,
) -> Similarities:
    """A measure over both arms.

    Args:
        method: Its name.
        sampled: The samples.
        measure: (a text, a text) -> the values of the samples of the first one, K,
            against the truth of the second one; texts by their indices.
        elsewhere: Also measure suspicious texts against the next one's truth.
    """
    n_samples = len(next(iter(sampled.samples.values()), ()))
    selected, unselected = sampled.selected.tolist(), sampled.unselected.tolist()

    def table(pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        values = [measure(i, j) for i, j in pairs]
        return np.array(values, np.float64).reshape(len(pairs), n_samples)

    following = selected[1:] + selected[:1]
    return Similarities(
        method=method,
        selected_AK=table([(i, i) for i in selected]),
        unselected_AK=table([(i, i) for i in unselected]),
        elsewhere_AK=table(list(zip(selected, following, strict=True)))
        if elsewhere and len(selected) > 1
        else None,
    )


def _cut(text: str, offsets: Sequence[tuple[int, int]], n_tokens: int) -> str:
    """A text cut after its first `n_tokens` tokens."""
    return text if len(offsets) <= n_tokens else text[: offsets[n_tokens - 1][1]]
