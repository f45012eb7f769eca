"""How alike two greedy answers of a model are, the second one asked to differ.

Dimension key
    A  tokens of an answer, the id that ends it among them
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxcontam.methods.membership.readings import (
    Found,
    Pass,
    Sequences,
    of_texts,
    sequences_of,
    token_scores,
)
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.models.chat import ChatLayout, read_chat_layout
from jaxcontam.models.generation import VERSION, Sampling, continuations
from jaxcontam.progress import Progress
from jaxcontam.scoring.completions import continuation_text
from jaxcontam.scoring.opened import SequenceScorer

MOST_TOKENS = 256
"""Longest answer; a quarter of the context where that is less."""

CRITIQUE = """{0}

One answer to this, be it right or wrong:
{1}

Answer again in another way, as unlike that one as can be:
"""
"""What asks for the second answer; the text and the first answer stand in it."""


def critique_pass(
    model: TextModel,
    scorer: SequenceScorer,
    texts: Mapping[int, str],
    own: Sequences,
) -> Pass:
    """Similarity of the entropies of two answers to each text.

    A chat template of the model's folder is used where there is one. A prompt that is
    too long keeps its end. Answers are kept in the store of `model.plain`.

    Args:
        model: With weights.
        scorer: Its scorer with moments.
        texts: Prompts by the index of their text.
        own: Sequences of the texts.
    """
    folder = model.checkpoint.folder
    chat = ChatLayout() if folder is None else read_chat_layout(folder)
    n_new = max(1, min(MOST_TOKENS, model.context // 4))
    asked = [texts[i] for i in own.owners]
    # How much will be written is not known beforehand.
    most = 2 * n_new * len(asked)

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        first, answers = _answered(model, chat, asked, n_new)
        tokenizer = model.checkpoint.tokenizer
        said = [
            continuation_text(tokenizer, prompt.tolist(), answer.tolist())
            for prompt, answer in zip(first, answers, strict=True)
        ]
        both = zip(asked, said, strict=True)
        critiques = [CRITIQUE.format(*pair) for pair in both]
        second, others = _answered(model, chat, critiques, n_new)
        pairs = zip([*first, *second], [*answers, *others], strict=True)
        rows = [np.concatenate(pair) for pair in pairs]
        plan = sequences_of(rows, own.owners * 2)
        table, n_cached = token_scores(scorer, plan, None)
        entropies = [
            -table[row.tobytes()][1, -len(answer) :].astype(np.float64)
            for row, answer in zip(rows, [*answers, *others], strict=True)
        ]
        halves = entropies[: len(asked)], entropies[len(asked) :]
        values = [similarity(*both) for both in zip(*halves, strict=True)]
        if progress is not None:
            progress(most, most)
        return {"answers": of_texts(own, values)}, min(n_cached, most)

    return Pass(most, read)


def similarity(first_A: np.ndarray, second_A: np.ndarray) -> float:
    """Cosine of two sequences of entropies, times the shorter length over the longer.

    In [0, 1]. The shorter sequence goes on with zeros. Two that have no entropy at all
    are alike, as a policy that has collapsed writes them.

    Args:
        first_A: float64, nats, at least one; rounding below 0 counts as 0.
        second_A: Likewise, of another length or the same.
    """
    shorter, longer = sorted((first_A.clip(0), second_A.clip(0)), key=len)
    ratio = len(shorter) / len(longer)
    norms = float(np.linalg.norm(shorter)), float(np.linalg.norm(longer))
    if not all(norms):
        return 0.0 if any(norms) else ratio
    return ratio * float(shorter @ longer[: len(shorter)]) / (norms[0] * norms[1])


def _answered(
    model: TextModel, chat: ChatLayout, words: Sequence[str], n_new: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ids of prompts, and of the greedy answers with what ended them."""
    checkpoint, store = model.checkpoint, model.plain.store
    room = model.context - n_new
    prompts = [
        chat.ids(checkpoint, [{"role": "user", "content": text}], room=room)
        for text in words
    ]
    sampling = Sampling(
        n_samples=1, new_tokens=n_new, temperature=0, stop_ids=checkpoint.stop_ids
    )
    kind = (VERSION, n_new, *checkpoint.stop_ids)
    keys = [
        b"" if store is None else store.row_key("answer", kind, 0, p) for p in prompts
    ]
    answers: list[np.ndarray | None] = [None] * len(prompts)
    if store is not None:
        for i, key in enumerate(keys):
            if (kept := store.values([key])) is not None:
                answers[i] = np.frombuffer(kept[0], "<i4")
    missing = [i for i, answer in enumerate(answers) if answer is None]
    written = continuations(checkpoint.decoder, [prompts[i] for i in missing], sampling)
    for place, (one,) in written:
        end = [] if one.stop_id is None else [one.stop_id]
        ids = np.array([*one.ids, *end], "<i4")
        answers[missing[place]] = ids
        if store is not None:
            store.commit([(keys[missing[place]], ids.tobytes())])
    return prompts, [ids for ids in answers if ids is not None]
