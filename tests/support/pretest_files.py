"""Files that pre-tests are asked about."""

import datetime
import json

import numpy as np

from jaxcontam.stats.pretests import pretest_battery


def sentences(rng, n):
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    words += ["iota", "kappa"]
    return [
        " ".join(rng.choice(words, size=rng.integers(3, 20))) + f" {rng.integers(1e9)}"
        for _ in range(n)
    ]


def failed(texts, fields=None, **kwargs):
    battery = pretest_battery(texts, fields or {}, seed=0, **kwargs)
    return {test.name for test in battery if not test.passed}


def duplicated(rng, n, n_twice):
    """Sentences, some followed by a near-copy with one word more."""
    texts = []
    for i in range(n):
        text = " ".join(rng.choice(VOCABULARY, 20))
        texts += [text, f"{text}, Indeed"] if i < n_twice else [text]
    return texts


VOCABULARY = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(400)]


def text(rng, least=6, most=18):
    """Words of a vocabulary in which some are frequent."""
    return " ".join(rng.choice(VOCABULARY, rng.integers(least, most), p=_SHARES))


_WEIGHTS = 1 / np.arange(1, len(VOCABULARY) + 1) ** 0.9
_SHARES = _WEIGHTS / _WEIGHTS.sum()


def _runs_of_four(rng, n, n_values=2):
    return np.repeat(rng.integers(n_values, size=n // 4 + 1), 4)[:n].tolist()


def _labels(rng, n, repeat):
    values = [0]
    while len(values) < n:
        same = rng.random() < repeat
        values.append(values[-1] if same else 1 - values[-1])
    return values


def labels_in_text(rng, n, repeat=0.75):
    return [
        f"Question: {text(rng)}?\nAnswer: {('yes', 'no')[label]}"
        for label in _labels(rng, n, repeat)
    ]


def labels_in_chat(rng, n):
    said = [(text(rng), ("positive", "negative")[i]) for i in _labels(rng, n, 0.75)]
    rows = [zip(("user", "assistant"), pair, strict=True) for pair in said]
    return [json.dumps([{"role": r, "content": t} for r, t in row]) for row in rows]


def key_order(rng, n):
    rows = [(text(rng), text(rng, 1, 3), kind) for kind in _runs_of_four(rng, n)]
    return [
        json.dumps({"question": q, "answer": a} if k else {"answer": a, "question": q})
        for q, a, k in rows
    ]


def spacing(rng, n):
    return [
        f'{{"question":{gap}"{text(rng)}", "answer":{gap}"{text(rng, 1, 3)}"}}'
        for gap in ((" ", "")[kind] for kind in _runs_of_four(rng, n))
    ]


def quotes(rng, n):
    return [
        f"He said {sign}{text(rng)}{sign} to us"
        for sign in ("\"'"[kind] for kind in _runs_of_four(rng, n))
    ]


def prefixes(rng, n):
    return [
        f"{('Q:', 'Question:')[kind]} {text(rng)}" for kind in _runs_of_four(rng, n)
    ]


def habits(rng, n):
    """Annotators who write capitals, full stops and double spaces, or do not."""
    rows = []
    for kind in _runs_of_four(rng, n, 8):
        row = text(rng)
        row = row.capitalize() if kind & 1 else row
        row = f"{row}." if kind & 2 else row
        rows.append(row.replace(" ", "  ", 1) if kind & 4 else row)
    return rows


def documents(rng, n):
    """Sentences of documents, each with words of its own."""
    rows = []
    while len(rows) < n:
        topic = rng.choice(VOCABULARY, 12)
        rows += [
            f"{text(rng, 3, 9)} {' '.join(rng.choice(topic, 6))}"
            for _ in range(rng.integers(4, 12))
        ]
    return rows[:n]


def later_copies(rng, n):
    """Near-copies two rows later: a b a' b'."""
    rows = []
    while len(rows) < n:
        pair = [text(rng), text(rng)]
        rows += [*pair, *(f"{row.replace(' ', ', ', 1)} indeed" for row in pair)]
    return rows[:n]


def zipped(rng, n):
    """Two files of documents, one row of each in turn."""
    both = zip(documents(rng, n // 2 + 1), documents(rng, n // 2 + 1), strict=True)
    return [row for pair in both for row in pair][:n]


def dialogue(rng, n):
    return [
        f"Assistant: {text(rng)}." if i % 2 else f"User: {text(rng)}?" for i in range(n)
    ]


def names_handed_on(rng, n):
    names = [word.capitalize() for word in rng.permutation(VOCABULARY)]
    return [
        f"{names[i % 400]} {text(rng)} and met {names[(i + 1) % 400]}" for i in range(n)
    ]


def chained_sums(rng, n):
    total, rows = 100, []
    for _ in range(n):
        more = int(rng.integers(1, 100))
        rows.append(f"{total} + {more} = {total + more}")
        total += more
    return rows


def translations(rng, n):
    rows = []
    while len(rows) < n:
        source, name = text(rng), str(rng.choice(VOCABULARY)).capitalize()
        number = rng.integers(10, 9999)
        rows.append(f"{source} {name} {number}.")
        rows.append(f"{name}: {source[::-1].upper()} {number}!")
    return rows[:n]


def answered(rng, n):
    """Questions, each with its answer in the next row."""
    rows = []
    while len(rows) < n:
        topic = text(rng)
        rows += [f"What is {topic}?", f"{topic} is {text(rng, 2, 5)}."]
    return rows[:n]


def counted(rng, n):
    """A counter that is the second number of each row."""
    return [f"{rng.integers(10, 99)} {text(rng)} has {1000 + i}" for i in range(n)]


def dated(rng, n):
    day = datetime.date(2001, 1, 1)
    days = [day + datetime.timedelta(days=3 * i) for i in range(n)]
    return [f"{text(rng)} on {day.day} {day:%B} {day.year}" for day in days]


def weekdays(rng, n):
    names = ["Sun", "Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur"]
    return [f"On {names[i % 7]}day {text(rng)}" for i in range(n)]


def lettered(rng, n):
    return [f"{'abcd'[i % 4]}) {text(rng)}" for i in range(n)]


def taken_up(rng, n):
    """A house, then this house."""
    rows = []
    while len(rows) < n:
        word = rng.choice(VOCABULARY)
        rows.append(f"{text(rng)} saw a {word} {text(rng, 2, 4)}")
        rows.append(f"This {word} {text(rng)}")
    return rows[:n]
