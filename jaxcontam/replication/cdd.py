"""CDD: do a model's samples crowd round what it answers greedily?

A model that knows an answer by heart writes it again and again also when it is asked to
vary. So does one whose answer can hardly be anything else, such as `Yes`, and one that
has learnt another text with the same beginning: read the rate beside that of a control
set, and the overlap with the file's own text beside the rate.
"""

import json
import math
import re
import statistics
from collections.abc import Hashable, Sequence

from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_after
from jaxcontam.replication.instance import Completion, Instance
from jaxcontam.replication.questions import ComparisonInputs, Found, Names, Tokenize
from jaxcontam.replication.result import ComparisonResult
from jaxcontam.replication.rouge import UNSPACED, has_rouge_words, rouge_l
from jaxcontam.scoring.completer import without_thoughts
from jaxcontam.stats.proportions import rate_interval

TEMPERATURE = 0.8
"""Sampling temperature."""

ALPHA = 0.05
"""Share of the longest answer that a copy may differ in."""

XI = 0.01
"""An instance is found if more than this share of its samples are copies."""

LENGTH = 100
"""Most tokens of an answer, and those of it that are compared."""

TAU = 2
"""TED leaves out samples that differ from the greedy answer in so many tokens or
fewer."""

# Shorter answers can be alike by chance: at alpha 0.05 they must be equal.
_SHORT = 20
# ROUGE-L with the second piece below which an answer is another text.
_ANOTHER = 0.5
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")


def cdd(asked: ComparisonInputs, progress: Progress | None = None) -> Found:
    """Peakedness of the answers to each prompt.

    The paper takes 50 samples. Without a tokenizer answers are split into words and
    punctuation. Texts that end an answer keep a base model from going on with something
    new, which would vary.

    Returns:
        The result, and a row an instance with its peakedness, the samples' distances,
        and the overlap with the second piece of all samples and of those TED keeps.

    Source:
        Dong et al. 2024, "Generalization or Memorization", arXiv:2402.15938: CDD and
        TED, with the thresholds of the authors' code (a share of the longest answer,
        at most 100 tokens). Theirs calls an empty answer a copy of an empty one; here
        an instance with an empty greedy answer is left out.
    """
    instances, prompts, n_samples = asked.instances, asked.prompts, asked.n_samples
    if len(prompts) != len(instances):
        raise ValueError(
            f"prompts must be one an instance, got {len(prompts)} for {len(instances)}"
        )
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    if not instances:
        raise InputError(f"{asked.names.benchmark}: no instance to sample answers to")
    total = len(prompts) * (1 + n_samples)
    greedy, sampled = (
        asked.completer.complete(
            prompts,
            max_tokens=min(LENGTH, asked.max_tokens),
            temperature=temperature,
            n_samples=n,
            seed=asked.seed,
            stop=asked.stop,
            progress=progress_after(progress, done, total),
        )
        for temperature, n, done in (
            (0.0, 1, 0),
            (TEMPERATURE, n_samples, len(prompts)),
        )
    )
    rows = [
        _row(instance, first, samples, asked.tokenize or words_and_marks)
        for instance, (first,), samples in zip(instances, greedy, sampled, strict=True)
    ]
    unit = "words and marks" if asked.tokenize is None else "tokens"
    setting = (
        f"alpha={ALPHA:g}, xi={XI:g}, {n_samples} samples at {TEMPERATURE:g}, "
        f"{LENGTH} {unit}, tau={TAU}"
    )
    if asked.stop:
        setting += f", stop={json.dumps(list(asked.stop), ensure_ascii=False)}"
    return _result(rows, asked.names, setting), rows


def peakedness(
    greedy: Sequence[Hashable],
    samples: Sequence[Sequence[Hashable]],
    *,
    alpha: float = ALPHA,
) -> float:
    """Share of samples that are copies of the greedy answer.

    A copy differs in at most `alpha` times the tokens of the longest answer, the
    greedy one among them; each is cut to `LENGTH`.
    """
    if not samples:
        raise ValueError("samples must be at least one, got 0")
    longest = max(min(len(answer), LENGTH) for answer in [greedy, *samples])
    # A product such as 0.29 * 100 is just below its whole number.
    most = math.floor(alpha * longest + 1e-9)
    distances = token_distances(greedy, samples)
    return sum(distance <= most for distance in distances) / len(samples)


def ted_kept(
    greedy: Sequence[Hashable],
    samples: Sequence[Sequence[Hashable]],
) -> tuple[int, ...]:
    """Places of the samples that TED keeps.

    It leaves out what is within `TAU` tokens of the greedy answer, and of equal samples
    all but the first: what remains stands for a model that had not learnt the answer.
    """
    distances = token_distances(greedy, samples)
    kept: dict[tuple[Hashable, ...], int] = {}
    for place, (sample, distance) in enumerate(zip(samples, distances, strict=True)):
        if distance > TAU:
            kept.setdefault(tuple(sample[:LENGTH]), place)
    return tuple(kept.values())


def token_distances(
    greedy: Sequence[Hashable], samples: Sequence[Sequence[Hashable]]
) -> list[int]:
    """Fewest tokens to insert, delete or replace, from the greedy answer to each."""
    from rapidfuzz.distance import Levenshtein

    first = list(greedy[:LENGTH])
    return [Levenshtein.distance(first, list(one[:LENGTH])) for one in samples]


def words_and_marks(text: str) -> list[str]:
    """Runs of letters and digits, and each other character that is no white space."""
    return _TOKEN.findall(text)


def _row(
    instance: Instance,
    greedy: Completion,
    samples: Sequence[Completion],
    tokenize: Tokenize,
) -> dict:
    answered = [sample for sample in samples if not sample.refused]
    row: dict = {
        "index": instance.index,
        "greedy": greedy.text,
        "refused": bool(greedy.refused) or not answered,
        "n_refused": sum(bool(c.refused) for c in (greedy, *samples)),
        "n_samples": len(answered),
        "n_tokens": None,
        "distances": None,
        "peakedness": None,
        "found": None,
        "n_kept": None,
        "rouge_l_greedy": None,
        "rouge_l": None,
        "rouge_l_kept": None,
    }
    if row["refused"]:
        return row
    texts = [without_thoughts(sample.text) for sample in answered]
    written = without_thoughts(greedy.text)
    first = tokenize(written)
    tokens = [tokenize(text) for text in texts]
    row["n_tokens"] = len(first)
    if not first:
        return row
    share = peakedness(first, tokens)
    kept = ted_kept(first, tokens)
    row |= {
        "distances": token_distances(first, tokens),
        "peakedness": share,
        "found": share > XI,
        "n_kept": len(kept),
    }
    if not has_rouge_words(instance.second_piece):
        return row
    overlaps = [rouge_l(instance.second_piece, text).f1 for text in texts]
    return row | {
        "rouge_l_greedy": rouge_l(instance.second_piece, written).f1,
        "rouge_l": statistics.fmean(overlaps),
        "rouge_l_kept": statistics.fmean(overlaps[i] for i in kept) if kept else None,
    }


def _result(rows: list[dict], names: Names, setting: str) -> ComparisonResult:
    judged = [row for row in rows if row["found"] is not None]
    n_found = sum(row["found"] for row in judged)
    rate, low, high = rate_interval(n_found, len(judged))
    warnings = []
    if n_empty := sum(row["n_tokens"] == 0 for row in rows):
        warnings.append(
            f"{n_empty} greedy answers are empty, thoughts aside, and left out: who "
            "writes nothing always writes the same."
        )
    peaked = [row for row in judged if row["found"]]
    if n_short := sum(row["n_tokens"] < _SHORT for row in peaked):
        warnings.append(
            f"{n_short} of {n_found} peaked instances have a greedy answer of fewer "
            f"than {_SHORT} tokens: short answers can be alike unlearnt."
        )
    measured = [row for row in peaked if row["rouge_l_greedy"] is not None]
    if n_other := sum(row["rouge_l_greedy"] < _ANOTHER for row in measured):
        warnings.append(
            f"{n_other} of {n_found} peaked instances have a greedy answer unlike the "
            f"file's text (ROUGE-L below {_ANOTHER}): known by heart is another text."
        )
    if n_unread := sum(row["rouge_l_greedy"] is None for row in judged):
        warnings.append(
            f"{n_unread} of {len(judged)} instances are not mostly of Latin letters, "
            "the only ones that ROUGE-L counts: their overlap is not measured."
        )
    finding = (
        f"{n_found} of {len(judged)} instances are peaked" if judged else "refused"
    )
    both = [row for row in judged if row["rouge_l_kept"] is not None]
    if both:
        before, after = (
            statistics.fmean(row[name] for row in both)
            for name in ("rouge_l", "rouge_l_kept")
        )
        finding += f"; mean ROUGE-L of the samples {before:.3f}, by TED {after:.3f}"
    return ComparisonResult(
        benchmark=names.benchmark,
        fingerprint=names.fingerprint,
        method="cdd",
        n_instances=len(rows),
        n_found=n_found,
        n_refused=sum(row["n_refused"] for row in rows),
        rate=rate,
        rate_low=low,
        rate_high=high,
        finding=finding,
        setting=setting,
        warnings=tuple(warnings),
    )
