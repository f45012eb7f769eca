"""What a page says of the methods behind its numbers, from the tables of methods."""

from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS, score_method
from jaxcontam.methods.replication.catalogue import REPLICATION_METHODS
from jaxcontam.report.template import MethodNote

_SHI = "Shi et al. 2023, arXiv:2310.16789, section 7"
# Numbers of single commands, which no table of methods has.
_OTHERS = (
    MethodNote(
        name="matrix",
        finds="a published column that scores better than the others, row by row; "
        "knows nothing of where the numbers come from",
        source="the randomisation test of Fisher, summed over rows, p counted exactly",
    ),
    MethodNote(
        name="set_level",
        finds="a set of texts that as a whole is more familiar than the non-members, "
        "by the scores below together",
        source="Maini et al. 2024, arXiv:2406.06443; not as in the authors' code: "
        "scales come from both sides, all texts are held out once, and a permutation "
        "replaces the t-test",
    ),
    MethodNote(
        name="perplexity",
        finds="texts whose perplexity unlearning left alone; as min_k",
        source=_SHI,
    ),
    MethodNote(
        name="rouge_l_recall",
        finds="samples that share words with the text, in order",
        source=f"Lin 2004, ROUGE; its use here: {_SHI}",
    ),
    MethodNote(
        name="embedding_cosine",
        finds="samples that are like the text in meaning; common phrases, too",
        source=f"{_SHI}, with mean hidden states in place of SimCSE",
    ),
    MethodNote(
        name="judge",
        finds="samples that a chat model finds like the text",
        source=_SHI,
    ),
)


def method_notes(document: Mapping[str, Any]) -> list[MethodNote]:
    """A note for each method of a report, in the order of its rows.

    Args:
        document: As in `report.json`.
    """
    names: dict[str, None] = {}
    for row in document["results"]:
        # A set of texts is judged by several scores at once.
        names |= dict.fromkeys([row.get("method", ""), *row.get("features", ())])
    # Scores without labels stand in no row.
    if primary := (document.get("study") or {}).get("primary"):
        names.setdefault(primary)
    return [note for name in names if (note := _note(name)) is not None]


def _note(name: str) -> MethodNote | None:
    for note in _OTHERS:
        if note.name == name:
            return note
    for row in REPLICATION_METHODS:
        # BLEURT and embeddings are one row for all tests.
        if name == row.name or name.startswith(f"{row.name}_"):
            return MethodNote(
                name=name, finds=row.finds, source=_with(row.source, row.departure)
            )
    method = METHODS.get(name)
    if method is None:
        try:
            method = score_method(name)
        except InputError:
            # A study may have scores of its own.
            return None
    departure = getattr(method, "departure", "")
    return MethodNote(
        name=name, finds=method.finds, source=_with(method.source, departure)
    )


def _with(source: str, departure: str) -> str:
    if not departure:
        return source
    return f"{source}; not as in the authors' code: {departure}"
