"""Scores of texts in a file, `jaxcontam score`'s or another engine's, as a model."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.scoring.asked import Request
from jaxcontam.scoring.in_memory import UNBOUNDED, opened_asked
from jaxcontam.scoring.opened import OpenModel

# Ids are places in the file, counted from 1: this one stands before each text.
_BEFORE = 0
_WANTED = "a row a text, with `text` and `logprobs`, a number a token in nats"


@dataclasses.dataclass(frozen=True, slots=True)
class _Ids:
    """Ids of a text, as an encoder gives them."""

    ids: list[int]


class _Rows:
    """An `Encoder` of the texts of a file: their ids are the places of their scores."""

    def __init__(self, name: str, rows: Mapping[str, range]):
        """Hold the places of each text."""
        self._name, self._rows = name, rows

    def encode(self, sequence: Any, /, *, add_special_tokens: bool) -> _Ids:
        """Places of a text's scores; InputError if there are none."""
        del add_special_tokens
        if sequence not in self._rows:
            shown = f"{sequence[:40]}..." if len(sequence) > 40 else sequence
            raise InputError(
                f"{self._name}: no scores of the text {shown!r}",
                hint="score every text as it is read here; what reads other texts, as "
                "recall and order tests do, needs the model",
            )
        return _Ids(list(self._rows[sequence]))

    def encode_batch(
        self, input: Any, /, *, add_special_tokens: bool
    ) -> Sequence[_Ids]:
        """Places of each text's scores."""
        each = functools.partial(self.encode, add_special_tokens=add_special_tokens)
        return [each(text) for text in input]


def open_score_file(path: Path) -> OpenModel:
    """Log-probabilities that a file holds, one row a text.

    A first log-probability that is null is of a token without a context; either all
    rows begin so, or none does. No other text can be scored.

    Raises:
        InputError: If a row has no text or no numbers, names the row; or two rows give
            one text other numbers.
    """
    places: dict[str, int] = {}
    values = [np.zeros(1)]
    starts_null = None
    for number, (text, row) in enumerate(_records(path), 1):
        where = f"{path}: row {number}"
        found = _numbers(row.get("logprobs"), where)
        if len(found):
            is_null = bool(np.isnan(found[0]))
            if starts_null is not None and is_null != starts_null:
                raise InputError(
                    f"{where}: its first log-probability is "
                    f"{'' if is_null else 'not '}null, unlike those before",
                    hint="score all texts by one engine with the same settings",
                )
            starts_null = is_null
        if text not in places:
            places[text] = len(values)
            values.append(found)
        elif not np.array_equal(values[places[text]], found, equal_nan=True):
            raise InputError(f"{where}: other numbers for a text that came before")
    flat_V = np.concatenate(values)
    ends = np.cumsum([len(one) for one in values]).tolist()
    rows = {text: range(ends[i - 1], ends[i]) for text, i in places.items()}

    def ask(requests: Sequence[Request]) -> list[np.ndarray]:
        for before, own in requests:
            # The id before a text, or its own first one, which has no score.
            if len(before) > 1 or any(i not in (_BEFORE, own[0] - 1) for i in before):
                raise InputError(
                    f"{path}: holds scores of texts alone, not of one after another",
                    hint="name the model, or scores of one pass: --scores min_k,loss",
                )
        return [flat_V[own] for _, own in requests]

    opened = opened_asked(
        ask,
        name=path.name,
        fingerprint=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        tokenizer=_Rows(path.name, rows),
        prefix_id=None if starts_null else _BEFORE,
        context=UNBOUNDED,
        has_tokens=True,
    )
    return dataclasses.replace(opened, rereads=False)


def _numbers(logprobs: Any, where: str) -> np.ndarray:
    """float64 log-probabilities of a row, of which a null first one is NaN."""
    fault = InputError(f"{where}: no numbers in `logprobs`", hint=_WANTED)
    if not isinstance(logprobs, list):
        raise fault
    own = logprobs[1:] if logprobs[:1] == [None] else logprobs
    # A bool is an int to Python, and a text of digits a number to NumPy.
    are_numbers = all(type(one) in (int, float) for one in own)
    if not are_numbers or not np.isfinite(own).all():
        raise fault
    return np.array(logprobs, np.float64)


def _records(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Text and fields of each row."""
    file = load_benchmark(path)
    found = []
    for number, row in enumerate(file.rows, 1):
        text = None if row is None else row.get("text")
        if not isinstance(text, str):
            raise InputError(f"{path}: row {number}: no `text`", hint=_WANTED)
        found.append((text, row))
    return found
