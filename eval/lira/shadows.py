"""A population in which a fair coin decides, for each model and text, who reads it.

The texts of one pool are split once, over the numbers of copies. A model that reads a
text reads it so many times, each time as its own document at a random place; what
it does not read is filled with background. Coins are independent, so that who else
read a text says nothing of whether the target did.

Dimension key
    E  texts of the pool
    M  scores
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.score import ScoredText
from train.population_forms import train_scanned
from train.population_models import last_loss
from train.population_plan import (
    Design,
    Texts,
    draw_sets,
    fill_background,
    texts_in_memory,
)
from train.stream import Canary, build_stream, training_rows

SCORE_NAMES = tuple(
    name for name, row in SCORES.items() if set(row.reads) <= {"moments"}
)
"""Membership scores of one pass over the text, in the order of METHODS."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all models of the population share.

    Attributes:
        design: `n_examples` texts at each number of copies.
        pool_seed: Seeds the draw of the texts and of their numbers of copies.
        documents: Background.
        questions: What the texts are drawn from.
    """

    design: Design
    pool_seed: int
    documents: tuple[str, ...]
    questions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """One model of the population: what it read and what it says.

    Attributes:
        seed: Seeds its coins, stream and weights.
        read: (E,) bool, texts that it was trained on.
        values: (E, M) float64, its scores, higher = more likely a member.
        loss: Mean of the last steps of training, nats per token.
        n_planted: Ids of all copies that it read.
        cpu_seconds: CPU seconds of training and scoring.
    """

    seed: int
    read: np.ndarray
    values: np.ndarray
    loss: float
    n_planted: int
    cpu_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The texts that coins are thrown for.

    Attributes:
        texts: E of them, those of one number of copies together.
        ids: Their ids, separators included.
        copies: (E,) int64, how often a model that reads a text reads it.
    """

    texts: tuple[str, ...]
    ids: tuple[np.ndarray, ...]
    copies: np.ndarray


def read_texts(job: Job) -> Texts:
    """Tokenizer, background and questions, encoded once for all models."""
    return texts_in_memory(job.documents, job.questions, job.design)


def draw_pool(job: Job, texts: Texts) -> Pool:
    """The same texts and numbers of copies for every model.

    Raises:
        InputError: If there are too few questions.
    """
    parts = draw_sets(job.design, texts.pool, seed=job.pool_seed)
    chosen = np.concatenate(parts).tolist()
    return Pool(
        tuple(texts.pool[i] for i in chosen),
        tuple(texts.encoded.ids[i] for i in chosen),
        np.repeat(job.design.copies, [len(part) for part in parts]),
    )


def coins(n: int, *, seed: int) -> np.ndarray:
    """(n,) bool: whether the model of this seed reads each text."""
    return np.random.default_rng([seed, 71]).random(n) < 0.5


def shadow_rows(
    design: Design, texts: Texts, pool: Pool, read_E: np.ndarray, *, seed: int
) -> tuple[np.ndarray, int]:
    """Training rows of a model, and how many of their ids are copies of texts.

    Raises:
        InputError: If the documents do not fill what the copies leave.
    """
    canaries = []
    for copies in design.copies:
        chosen = np.flatnonzero(read_E & (pool.copies == copies)).tolist()
        if chosen:
            ids = tuple(pool.ids[i] for i in chosen)
            encoded = dataclasses.replace(
                texts.encoded, ids=ids, n_cut_ids=np.zeros(len(ids), np.int32)
            )
            canaries.append(
                Canary(
                    name=f"{copies}", encoded=encoded, copies=copies, layout="spread"
                )
            )
    lengths_E = np.array([len(ids) for ids in pool.ids])
    n_planted = int((lengths_E * pool.copies)[read_E].sum())
    stream = build_stream(
        fill_background(design, texts, n_planted, seed=seed),
        canaries,
        prefix_id=texts.prefix_id,
        seed=seed,
    )
    # One BOS before each document and copy: a few tokens more than the steps take.
    n_rows = design.n_steps * design.preset.batch_rows
    rows, _ = training_rows(
        stream.ids,
        design.preset.context,
        seed=seed,
        planted_C2=stream.planted,
        n_trained=n_rows,
    )
    return rows[:n_rows], stream.n_canary_ids


def open_job(job: Job) -> Callable[[int], Shadow]:
    """What a process does first; returns what makes the model of a seed."""
    from jaxcontam.scoring.compiled import keep_compiled
    from train.allocator import keep_freed_memory

    keep_freed_memory()
    keep_compiled()
    return shadow_maker(job)


def shadow_maker(job: Job) -> Callable[[int], Shadow]:
    """Read the texts; returns what trains and asks the model of a seed."""
    from jaxcontam.scoring.local import local_scorer

    design, texts = job.design, read_texts(job)
    pool = draw_pool(job, texts)
    n_separator = len(texts.encoded.separator)
    prompts = [
        np.array([texts.prefix_id, *ids[: len(ids) - n_separator]], np.int32)
        for ids in pool.ids
    ]

    def make(seed: int) -> Shadow:
        start = time.process_time()
        read_E = coins(len(pool.texts), seed=seed)
        rows, n_planted = shadow_rows(design, texts, pool, read_E, seed=seed)
        decoder, losses = train_scanned(design.preset, rows, seed=seed)
        scores = local_scorer(decoder, moments=True).tokens(prompts)
        return Shadow(
            seed=seed,
            read=read_E,
            values=_values(pool.texts, prompts, scores),
            loss=last_loss(losses),
            n_planted=n_planted,
            cpu_seconds=time.process_time() - start,
        )

    return make


def _values(
    texts: Sequence[str], prompts: Sequence[np.ndarray], scores: Sequence[np.ndarray]
) -> np.ndarray:
    """(E, M) scores of what a model says of each token."""
    values_EM = np.empty((len(texts), len(SCORE_NAMES)))
    for i, (text, ids, scores_RT) in enumerate(
        zip(texts, prompts, scores, strict=True)
    ):
        logprobs_T, means_T, variances_T, tops_T = scores_RT
        scored = ScoredText(
            text=text,
            ids=ids[1:],
            logprobs=logprobs_T,
            means=means_T,
            variances=variances_T,
            tops=tops_T,
        )
        values_EM[i] = [SCORES[name].score(scored) for name in SCORE_NAMES]
    return values_EM
