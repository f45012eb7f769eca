"""Blocks: runs of examples that belong together and are permuted as one.

Questions on one passage are adjacent in any order that a publisher could have chosen.
Passages can be exchangeable where questions are not, so a block is permuted like one
example, and its inner order is kept.

Dimension key
    B  blocks
"""

import dataclasses

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError


def block_starts(benchmark: Benchmark, field: str) -> np.ndarray:
    """Index of the first example of each run of equal values, (B,) int64.

    Refuses a value in two separate runs: other orders of such blocks would join them,
    so the published order is not one of the orders that it is compared with.
    """
    values = benchmark.groups(field, flag="--block-field")
    starts = [i for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
    seen: dict[object, int] = {}
    for start in starts:
        if (first := seen.setdefault(values[start], start)) != start:
            raise InputError(
                f"{benchmark.name}: {field} is {values[start]!r} in two separate runs, "
                f"at examples {first + 1} and {start + 1}",
                hint="blocks must be whole; to permute within equal values use "
                f"--group-field {field}",
            )
    return np.array(starts, np.int64)


def whole_blocks(benchmark: Benchmark, field: str, limit: int) -> Benchmark:
    """The first examples, up to the last block that ends within the limit.

    A truncated block would always be last in the published order, and anywhere in
    another one.
    """
    ends = np.append(block_starts(benchmark, field)[1:], len(benchmark))
    kept = ends[ends <= limit]
    if not len(kept):
        raise InputError(
            f"{benchmark.name}: the first block of {field} has {ends[0]} examples",
            hint=f"--limit {ends[0]} or more",
        )
    n = int(kept[-1])
    return dataclasses.replace(
        benchmark, texts=benchmark.texts[:n], rows=benchmark.rows[:n]
    )


def as_blocks(benchmark: Benchmark, starts_B: np.ndarray) -> Benchmark:
    """A benchmark whose examples are blocks, with the fields that a block shares."""
    texts, rows = [], []
    for part in _runs(starts_B, len(benchmark)):
        texts.append("\n".join(benchmark.texts[i] for i in part))
        rows.append(_shared([benchmark.rows[i] for i in part]))
    return dataclasses.replace(benchmark, texts=tuple(texts), rows=tuple(rows))


def encoded_blocks(encoded: Encoded, starts_B: np.ndarray) -> Encoded:
    """Ids of blocks: those of their examples, each with its separator."""
    parts = list(_runs(starts_B, len(encoded.ids)))
    return Encoded(
        ids=tuple(np.concatenate([encoded.ids[i] for i in part]) for part in parts),
        separator=encoded.separator,
        n_cut_ids=np.array(
            [int(encoded.n_cut_ids[part].sum()) for part in parts], np.int32
        ),
    )


def _runs(starts_B: np.ndarray, n: int) -> list[np.ndarray]:
    return np.split(np.arange(n), starts_B[1:])


def _shared(
    rows: list[dict[str, object] | None],
) -> dict[str, object] | None:
    """Fields with the same value in all records of a block."""
    first = rows[0]
    if first is None:
        return None
    return {
        name: value
        for name, value in first.items()
        if all(row is not None and row.get(name) == value for row in rows)
    }
