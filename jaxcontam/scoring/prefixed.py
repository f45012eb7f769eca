"""Scores of texts after a shared prefix, with one prefill of the prefix per batch.

Dimension key
    I  devices
    P  ids of the prefix
    K  texts of a device
    T  ids of a text
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.progress import Progress
from jaxcontam.scoring.opened import PairSource
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.run_batches import (
    NonFiniteScoreError,
    Work,
    bucket_lengths,
    by_bucket,
    parts,
)
from jaxcontam.scoring.shares import divided_batches
from jaxcontam.scoring.store import RowKeys


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PrefixedSums:
    """Log-probabilities of texts after a prefix, over ids after the first `skip`.

    `loglik` is (n_texts,) in nats, `n_scored` the number in each sum; `n_cached` ids
    were in the store.
    """

    loglik: np.ndarray
    n_cached: int
    n_scored: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class PrefixedBatch:
    """Indices of at most I times K texts; the shape is (I, K, P, T), padding in it."""

    texts: tuple[int, ...]
    shape: tuple[int, int, int, int]

    def __str__(self) -> str:
        n_devices, K, P, T = self.shape
        return f"{n_devices * K} rows of {T} ids after a prefix of {P}"

    def halves(self) -> list["PrefixedBatch"]:
        """The same texts, half as many at once; none where a device has one."""
        n_devices, K, P, T = self.shape
        if K == 1:
            return []
        K = -(-K // 2)
        shape = (n_devices, K, P, T)
        return [PrefixedBatch(some, shape) for some in parts(self.texts, n_devices * K)]


def prefixed_sums(
    scorer: PairSource,
    prefix_P: np.ndarray,
    texts: Sequence[np.ndarray],
    *,
    n_heads: int = 1,
    skip: int = 0,
    progress: Progress | None = None,
) -> PrefixedSums:
    """Sum the log-probabilities of each text after the prefix.

    A `PairScorer` prefills the prefix once per batch; other sources score one group.
    Memory is proportional to `n_heads`, the model's query heads. The first `skip` ids
    of each text are read but not summed. Progress is in ids.
    """
    if not len(prefix_P) or not all(len(ids) for ids in texts):
        raise ValueError("the prefix and every text must have at least one id")
    if not isinstance(scorer, PairScorer):
        group = PairGroup(prefix_P, tuple(texts), 0, tuple(range(1, 1 + len(texts))))
        return _group_sums(scorer, [group] if texts else [], skip, progress)
    longest = max((len(ids) for ids in texts), default=0)
    if len(prefix_P) + longest > scorer.context + 1:
        raise ValueError(
            f"{len(prefix_P)} + {longest} ids exceed the context of {scorer.context}"
        )

    def keys(batch: PrefixedBatch, store: RowKeys) -> list[bytes]:
        first = len(prefix_P) + skip
        read = [np.concatenate([prefix_P, texts[i]]) for i in batch.texts]
        return [store.row_key("prefixed", batch.shape, first, ids) for ids in read]

    def inputs(batch: PrefixedBatch) -> tuple[np.ndarray, ...]:
        n_devices, K, _, T = batch.shape
        ids_NT = np.zeros((n_devices * K, T), np.int32)
        for row, i in enumerate(batch.texts):
            ids_NT[row, : len(texts[i])] = texts[i]
        prefixes_IP = np.tile(prefix_P.astype(np.int32), (n_devices, 1))
        lengths_I = np.full(n_devices, len(prefix_P), np.int32)
        return prefixes_IP, lengths_I, ids_NT.reshape(n_devices, K, T)

    def values(batch: PrefixedBatch, scores: Any) -> list[np.ndarray]:
        n_devices, K, _, T = batch.shape
        logprobs_NT = np.asarray(scores).reshape(n_devices * K, T)
        found = []
        for row, i in enumerate(batch.texts):
            own = logprobs_NT[row, : len(texts[i])]
            bad = np.flatnonzero(~np.isfinite(own))
            if len(bad):
                raise NonFiniteScoreError(i, int(bad[0]))
            found.append(own[skip:].sum(dtype=np.float64, keepdims=True))
        return found

    work = Work[PrefixedBatch, np.ndarray](
        keys=keys,
        start=lambda batch: scorer.forward(*inputs(batch), 1),
        finish=values,
        to_bytes=lambda value: value.astype("<f8", copy=False).tobytes(),
        from_bytes=lambda _, __, data: np.frombuffer(data, "<f8"),
        halves=PrefixedBatch.halves,
    )
    loglik, n_cached, done = np.zeros(len(texts)), 0, 0
    lengths = list(map(len, texts))
    total = sum(lengths)
    batches = plan_prefixed(scorer, len(prefix_P), lengths, n_heads=n_heads)
    for batch, found, cached in divided_batches(
        batches, work, scorer.store, scorer.division
    ):
        n_ids = sum(lengths[i] for i in batch.texts)
        done += n_ids
        if cached:
            n_cached += n_ids
        for i, (value,) in zip(batch.texts, found, strict=True):
            loglik[i] = value
        if progress is not None:
            progress(done, total)
    return PrefixedSums(loglik, n_cached, np.array(lengths, np.int64) - skip)


def paired_sums(
    scorer: PairSource,
    prefixes: Sequence[np.ndarray],
    texts: Sequence[np.ndarray],
    *,
    skip: int = 0,
    progress: Progress | None = None,
) -> PrefixedSums:
    """Sum the log-probabilities of each text after a prefix of its own."""
    pairs = zip(prefixes, texts, strict=True)
    groups = [PairGroup(prefix, (ids,), 0, (1,)) for prefix, ids in pairs]
    return _group_sums(scorer, groups, skip, progress)


def _group_sums(
    scorer: PairSource,
    groups: Sequence[PairGroup],
    skip: int,
    progress: Progress | None,
) -> PrefixedSums:
    """Sums of all continuations, from any source."""
    if not groups:
        return PrefixedSums(np.zeros(0), 0, np.zeros(0, np.int64))
    found = scorer.logprobs(groups, progress)
    own = list(itertools.chain(*found.logprobs))
    loglik = np.array([values[skip:].sum(dtype=np.float64) for values in own])
    if found.n_scored is None:
        counts = [len(values) - skip for values in own]
    else:
        # What begins at the first character of a text counts as one token.
        counts = [
            n - int((values[:skip] != 0).any())
            for n, values in zip(itertools.chain(*found.n_scored), own, strict=True)
        ]
    return PrefixedSums(loglik, found.n_cached, np.array(counts, np.int64))


def plan_prefixed(
    scorer: PairScorer, n_prefix: int, lengths: Sequence[int], *, n_heads: int = 1
) -> list[PrefixedBatch]:
    """Batches of few shapes, determined by the lengths alone."""
    buckets = bucket_lengths(scorer.context, few_shapes=scorer.few_shapes)
    batches = []
    for bucket, members in by_bucket(lengths, buckets).items():
        # Attention scores from a batch's ids to the prefix, all heads, take 256 MiB.
        fit = (1 << 28) // (4 * n_heads * (n_prefix + bucket))
        # With four times the prefix's ids prefills cost at most a quarter more.
        ids = min(fit, max(scorer.batch_tokens, 4 * n_prefix))
        K = max(1, ids // bucket)
        if not scorer.few_shapes:
            K = min(K, -(-len(members) // scorer.n_devices))
        shape = (scorer.n_devices, K, n_prefix, bucket)
        rows = parts(members, scorer.n_devices * K)
        batches += [PrefixedBatch(some, shape) for some in rows]
    return batches
