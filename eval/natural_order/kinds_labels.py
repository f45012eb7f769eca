"""Labels that the model can read, and the ways in which annotation orders them."""

import json
from collections.abc import Sequence
from random import Random

from eval.natural_order.kind import File, Kind, chain, lines, loosened, partly, records
from eval.natural_order.words import TOPIC_NAMES, pseudoword, question, sentence

_YES_NO = ("yes", "no")
_SENTIMENTS = ("positive", "negative")
_GRADES = ("poor", "fair", "good", "great")


def _labels_text(rng: Random, n: int, strength: float) -> File:
    labels = chain(rng, _YES_NO, n, stay=strength)
    return lines([f"{question(rng)} {label}" for label in labels])


def _labels_chat(rng: Random, n: int, strength: float) -> File:
    return records(
        [
            {
                "messages": [
                    {"role": "user", "content": question(rng)},
                    {"role": "assistant", "content": label},
                ]
            }
            for label in chain(rng, _SENTIMENTS, n, stay=strength)
        ]
    )


def _labels_field(rng: Random, n: int, strength: float) -> File:
    labels = chain(rng, _SENTIMENTS, n, stay=strength)
    return records([{"text": sentence(rng), "label": label} for label in labels])


def _labels_alternate(rng: Random, n: int, strength: float) -> File:
    return _labels_text(rng, n, 1 - strength)


def _labels_balanced(rng: Random, n: int, strength: float) -> File:
    labels: list[str] = []
    while len(labels) < n:
        if rng.random() < strength:
            labels += rng.sample(_GRADES, len(_GRADES))
        else:
            labels += rng.choices(_GRADES, k=len(_GRADES))
    return _graded(rng, labels[:n])


def _labels_grouped(rng: Random, n: int, strength: float) -> File:
    grades = rng.sample(_GRADES, len(_GRADES))
    grouped = [grades[i * len(grades) // n] for i in range(n)]
    return _graded(rng, loosened(rng, grouped, strength))


def _labels_rotate(rng: Random, n: int, strength: float) -> File:
    labels, now = [], rng.randrange(len(_GRADES))
    for _ in range(n):
        labels.append(_GRADES[now])
        step = rng.random() < strength
        now = (now + 1) % len(_GRADES) if step else rng.randrange(len(_GRADES))
    return _graded(rng, labels)


def _graded(rng: Random, labels: Sequence[str]) -> File:
    return lines([f"{sentence(rng)} Quality: {label}" for label in labels])


def _metadata(rng: Random, n: int, strength: float) -> File:
    sources = [
        {"site": f"{pseudoword(rng, 3)}.org", "part": topic, "licence": licence}
        for topic, licence in zip(
            rng.sample(TOPIC_NAMES, 6), ("open", "free", "paid") * 2, strict=True
        )
    ]
    return records(
        [
            {"text": sentence(rng), "meta": {"source": source}}
            for source in chain(rng, sources, n, stay=strength)
        ],
        write=lambda row: json.dumps(row),
    )


_REPEATS = {"strengths": (0.6, 0.9), "strength_is": "P(label repeats)"}

KINDS = (
    Kind(
        name="labels_text",
        family="labels",
        law="reversible",
        make=_labels_text,
        **_REPEATS,
    ),
    Kind(
        name="labels_chat",
        family="labels",
        law="reversible",
        make=_labels_chat,
        **_REPEATS,
    ),
    Kind(
        name="labels_field",
        family="labels",
        law="reversible",
        make=_labels_field,
        **_REPEATS,
    ),
    Kind(
        name="labels_alternate",
        family="labels",
        law="reversible",
        strengths=(0.6, 0.9),
        strength_is="P(label changes)",
        make=_labels_alternate,
    ),
    Kind(
        name="labels_balanced",
        family="labels",
        law="reversible",
        strengths=(0.5, 1.0),
        strength_is="share of blocks of four that hold each label once",
        make=_labels_balanced,
    ),
    Kind(
        name="labels_grouped",
        family="labels",
        law="reversible",
        make=_labels_grouped,
        **partly(),
    ),
    Kind(
        name="labels_rotate",
        family="labels",
        law="forward",
        strengths=(0.5, 0.95),
        strength_is="P(the next label of the cycle)",
        make=_labels_rotate,
    ),
    Kind(
        name="metadata",
        family="labels",
        law="reversible",
        strengths=(0.6, 0.95),
        strength_is="P(same source as the row before)",
        make=_metadata,
    ),
)
