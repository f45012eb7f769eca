"""Progress of a corpus search, on disk: the same command resumes from it."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np

from jaxcontam.data.nearest import NearestSearch
from jaxcontam.data.overlap import OverlapSearch
from jaxcontam.data.overlap_result import NamedFault
from jaxcontam.data.records import Place
from jaxcontam.errors import InputError
from jaxcontam.report.archive import DAMAGED_ARRAY
from jaxcontam.report.report_files import replace_bytes
from jaxcontam.results.read import read_result

STATE_NAME = "search.npz"


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """Where a search stands.

    Attributes:
        file: Number of the file that it is in.
        place: Where in that file; None where it begins.
        finished: Digest of the result, once there is one.
    """

    file: int = 0
    place: Place | None = None
    n_faults: int = 0
    faults: tuple[NamedFault, ...] = ()
    finished: str | None = None


def save_state(
    out: Path,
    key: str,
    reached: Reached,
    search: OverlapSearch | None,
    nearest: NearestSearch | None = None,
) -> None:
    """Write the state, whole or not at all; no search once the result is written."""
    about = {"key": key, "reached": dataclasses.asdict(reached)}
    arrays: dict[str, np.ndarray] = {}
    if search is not None:
        about["search"] = {
            "n_documents": search.n_documents,
            "n_words": search.n_words,
            "carried": search.carried(),
        }
        if nearest is not None:
            about["stretches"] = nearest.stretches
        arrays = _arrays(search, nearest)
    buffer = io.BytesIO()
    # No text in another encoding: unpaired surrogate of a damaged record is escaped.
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    replace_bytes(out / STATE_NAME, buffer.getvalue())


def load_state(
    out: Path, key: str, search: OverlapSearch, nearest: NearestSearch | None = None
) -> Reached:
    """Take up the search of the same key in `search`; a new one starts at the top.

    A state that is damaged or belongs to another search counts as none.
    """
    try:
        with open(out / STATE_NAME, "rb") as file, np.load(file) as saved:
            about = json.loads(saved["about"].tobytes())
            if about["key"] != key:
                return Reached()
            reached = read_result(Reached, about["reached"], STATE_NAME)
            if reached.finished is not None:
                return reached
            arrays = {name: saved[name] for name in _arrays(search, nearest)}
            stretches = about["stretches"] if nearest is not None else []
    except (OSError, KeyError, RecursionError, InputError, *DAMAGED_ARRAY):
        return Reached()
    for name, array in _arrays(search, nearest).items():
        array[...] = arrays[name]
    if nearest is not None:
        nearest.stretches[:] = stretches
    search.n_documents = about["search"]["n_documents"]
    search.n_words = about["search"]["n_words"]
    search.resume(about["search"]["carried"])
    return reached


def _arrays(
    search: OverlapSearch, nearest: NearestSearch | None
) -> dict[str, np.ndarray]:
    marks = {f"ngrams_{n}": marks for n, marks in search.ngrams.items()}
    kept = marks | {"texts": search.texts}
    if nearest is not None:
        kept |= {"nearest": nearest.marks}
    return {
        f"{name}_{field.name}": getattr(one, field.name)
        for name, one in kept.items()
        for field in dataclasses.fields(one)
    }
