"""Who is audited: the copying scorer, and transformers that were trained here."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from eval.natural_order.background import documents
from eval.natural_order.copying import (
    CONTEXT,
    PREFIX_ID,
    Bigrams,
    CopyingPairs,
    CopyingScorer,
    WordEncoder,
    fit_bigrams,
    remember,
)
from jaxcontam.data.encoding import Encoded, Encoder
from jaxcontam.scoring.opened import SequenceScorer

Model = Literal["copying", "copier", "worldly", "planted"]
"""`copying` is the scorer without weights; the others are transformers: one that read
text in which much stands twice, one that also read other files of every kind and the
list that the world knows, and one that read copies of a dozen of the audited files."""

_N_DOCUMENTS = 2_000
READERS_DIR = "readers"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Auditee:
    """A model under audit.

    Attributes:
        tokenizer: Turns examples into ids; one a file, as that of words grows.
        prefix_id: Before each text.
        context: Ids that it reads at once.
        scorer: Its scorer, for a file of these ids.
    """

    tokenizer: Callable[[], Encoder]
    prefix_id: int
    context: int
    scorer: Callable[[Encoded], SequenceScorer]


def copying_auditee(nats: float) -> Auditee:
    """The scorer without weights.

    Args:
        nats: What it gains at each boundary of the file, which it remembers; 0 is a
            scorer that never saw it.
    """
    read = background()

    def scorer(encoded: Encoded) -> CopyingScorer:
        memory = remember(encoded.ids, nats) if nats else None
        return CopyingScorer(CopyingPairs(read, memory))

    return Auditee(lambda: WordEncoder(read.words), PREFIX_ID, CONTEXT, scorer)


@functools.cache
def background() -> Bigrams:
    """What the copying scorer has read; the same in every process."""
    texts = itertools.islice(documents("copier", seed=0), _N_DOCUMENTS)
    return fit_bigrams(list(texts))


@functools.cache
def reader_auditee(path: Path) -> Auditee:
    """A transformer whose weights stand in a file."""
    from eval.natural_order.readers import CONTEXT as READER_CONTEXT
    from eval.natural_order.readers import open_reader, read_words
    from jaxcontam.scoring.local import local_scorer

    words, scorer = read_words(), local_scorer(open_reader(path))
    return Auditee(
        lambda: words.tokenizer, words.prefix_id, READER_CONTEXT, lambda _: scorer
    )


def auditee(model: Model, nats: float, folder: Path) -> Auditee:
    """A model by its name; transformers stand in a folder of the study's."""
    if model == "copying":
        return copying_auditee(nats)
    return reader_auditee(reader_path(folder, model))


def reader_path(folder: Path, model: Model) -> Path:
    """Where the weights of a transformer stand."""
    return folder / READERS_DIR / f"{model}.npz"
