"""How many of the hits of `jaxcontam overlap` are right, on a sample with known labels?

Questions made of Python's documentation are put into a corpus of its other documents,
whole, reworded or not at all; all begin with one frame, which the corpus holds too, and
some clean ones quote 20 words of it. With --embeddings sentences of it are looked for
in other words (paraphrases.toml), half of which were put there.
Command: `python -m eval.overlap_precision`, with `--n 200 --embeddings MODEL` for both.
Hardware: any, a minute for each. Headline: docs/how_to/corpus.md.
"""

import dataclasses
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.intervals import Share, short
from eval.python_docs import read_python_docs
from eval.study import Clock, Grid, data_file, finish_study, run_study
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Segment
from jaxcontam.data.nearest import NearestSearch, StaticEmbeddings
from jaxcontam.data.ngrams import overlap_index
from jaxcontam.data.occurrences import RULES, Occurrence, forms_of, occurrences
from jaxcontam.data.overlap import OverlapSearch
from jaxcontam.models.hub import model_directory
from jaxcontam.stats.roc import auc_delong

FRAME = (
    "Which function or class of the standard library of Python does the following "
    "sentence of its documentation describe? Give its name and nothing else."
)
PLANTED = ("verbatim", "other case and marks", "without the frame", "one word in 9 new")
CLEAN = ("clean", "clean, quotes the corpus")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPrecision:
    """Precision of overlap's rules on planted and clean questions."""

    n: int = 100
    """Questions of each of six kinds."""
    seed: int = 0
    """Draws questions, places and changed words."""
    embeddings: str | None = None
    """Folder or hub name of static embeddings."""
    out: Path = Path("runs/overlap_precision")
    """Folder for the tables."""

    def run(self) -> dict:
        """Search, count, write."""
        clock = Clock.start()
        rows = searched(self.n, self.seed)
        kinds = [kind for kind in (*PLANTED, *CLEAN) for _ in range(self.n)]
        found = {"any rule, boilerplate too": [row.rule is not None for row in rows]}
        found["found"] = [row.is_found for row in rows]
        for rule in RULES:
            found[rule] = [row.is_found and rule in row.rules for row in rows]
        words = {}
        for name, hits in found.items():
            right = [k in PLANTED for k, hit in zip(kinds, hits, strict=True) if hit]
            share = Share.counted(sum(right), len(right) or 1)
            low, high = short(share.low), short(share.high)
            words[name, "precision"] = f"{short(share.value)} ({low} to {high})"
            for kind in (*PLANTED, *CLEAN):
                own = [hit for k, hit in zip(kinds, hits, strict=True) if k == kind]
                words[name, kind] = str(sum(own))
        grid = Grid.crossed(f"Hits among {self.n} of each kind", "found by", words)
        cells = {f"{name}, {column}": word for (name, column), word in words.items()}
        grids = [grid]
        if self.embeddings is not None:
            embeddings = StaticEmbeddings.load(model_directory(self.embeddings))
            rows = reworded(embeddings, self.n, self.seed)
            near = {(kind, k): v for kind, row in rows.items() for k, v in row.items()}
            grids.append(Grid.crossed("Nearest in meaning", "planted as", near))
            cells |= {
                f"{kind}, {column}": word for (kind, column), word in near.items()
            }
        files = {"clock": clock, "numbers": cells, "grids": grids}
        return finish_study("overlap_precision", self, **files)


def reworded(
    embeddings: StaticEmbeddings, n: int, seed: int
) -> dict[str, dict[str, str]]:
    """What the nearest stretches say of n sentences, half of them planted, by kind."""
    docs, rng = read_python_docs(), random.Random(seed)
    other = data_file(__file__, "paraphrases")
    known = {q.answer: q.sentence for q in docs.questions}
    pairs = {
        "other words": [(known[name], other[name]) for name in other if name in known]
    }
    rng.shuffle(pairs["other words"])
    long = [q.sentence for q in docs.questions if 9 <= len(q.sentence.split()) <= 30]
    vocabulary = " ".join(docs.documents).split()
    for step in (9, 4, 3, 2):
        kind = pairs[f"one word in {step} new"] = []
        for sentence in rng.sample(long, n):
            words = sentence.split()
            for place in range(step // 2, len(words), step):
                words[place] = rng.choice(vocabulary)
            kind.append((sentence, " ".join(words)))
    return {
        kind: _nearest_cells(embeddings, found, docs.documents, rng)
        for kind, found in pairs.items()
    }


def _nearest_cells(
    embeddings: StaticEmbeddings,
    pairs: list[tuple[str, str]],
    documents: Sequence[str],
    rng: random.Random,
) -> dict[str, str]:
    """One row: the first half of the texts is in the corpus, in its new words."""
    n, corpus = len(pairs) // 2, list(documents)
    for _, text in pairs[:n]:
        at = rng.randrange(len(corpus))
        corpus[at] = f"{corpus[at]}\n{text}\n"
    search = NearestSearch(embeddings, [sentence for sentence, _ in pairs])
    for i, document in enumerate(corpus, 1):
        search.add(0, Segment(document, i, False, None))
    cosines = search.marks.cosine
    right = 0
    for (_, text), stretch in zip(pairs[:n], search.stretches, strict=False):
        words = set(text.split())
        right += 2 * len(words & set(stretch.split())) > len(words)
    return {
        "planted": str(n),
        "is the nearest": str(right),
        "planted at .75": str((cosines[:n] >= 0.75).sum()),
        "others at .75": f"{(cosines[n:] >= 0.75).sum()} of {len(pairs) - n}",
        "AUC of the cosine": short(auc_delong(cosines[:n], cosines[n:])[0]),
    }


def searched(n: int, seed: int) -> tuple[Occurrence, ...]:
    """Results of n questions of each kind, in the order of `PLANTED` and `CLEAN`."""
    docs, rng = read_python_docs(), random.Random(seed)
    documents = list(docs.documents)
    bodies = [f"{q.sentence}? {q.answer}" for q in rng.sample(docs.questions, 6 * n)]
    quoted = [text.split() for text in documents if len(text.split()) > 40]
    for i in range(5 * n, 6 * n):
        bodies[i] = f"{' '.join(rng.choice(quoted)[10:30])}. {bodies[i]}"
    texts = [f"{FRAME} {body}" for body in bodies]
    planted = [FRAME, *texts[:n]]
    planted += [text.upper().replace(" ", " - ") for text in texts[n : 2 * n]]
    planted += bodies[2 * n : 3 * n]
    for text in texts[3 * n : 4 * n]:
        words = text.split()
        words[4::9] = ["another"] * len(words[4::9])
        planted.append(" ".join(words))
    for text in planted:
        at = rng.randrange(len(documents))
        documents[at] = f"{documents[at]}\n{text}\n"
    benchmark = Benchmark("questions", tuple(texts), (None,) * len(texts))
    forms = forms_of(benchmark, is_chosen=True)
    search = OverlapSearch(overlap_index([form.text for form in forms]))
    search.add([(0, Segment(d, i, False, None)) for i, d in enumerate(documents, 1)])
    return occurrences(forms, search, files=["corpus"])


if __name__ == "__main__":
    sys.exit(run_study("overlap_precision", OverlapPrecision))
