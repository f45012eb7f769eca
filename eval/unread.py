"""Windows of text that no published model has read: this project's own, in order.

Lines of its sources, sentences of its pages: both are younger than the models.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).resolve().parent.parent
# Kind -> files, and fewest and most rows of a window.
_KINDS = {
    "code": ("jaxcontam/**/*.py", 120, 250),
    "prose": ("docs/**/*.md", 60, 120),
}
_SHORTEST = 20
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Texts in the order of a document; `kind` is code or prose."""

    name: str
    kind: str
    texts: tuple[str, ...]


def unread_windows(seed: int, *, n: int = 44) -> Iterator[Window]:
    """At most n windows of each kind that share no row, the kinds by turns."""
    rng = np.random.default_rng([seed, 51])
    of_kind = []
    for kind in _KINDS:
        windows = [*_windows(kind, rng)]
        of_kind.append([windows[i] for i in rng.permutation(len(windows))[:n].tolist()])
    for place in range(n):
        yield from (own[place] for own in of_kind if place < len(own))


def _windows(kind: str, rng: np.random.Generator) -> Iterator[Window]:
    files, fewest, most = _KINDS[kind]
    for path in sorted(_ROOT.glob(files)):
        texts = _lines(path) if kind == "code" else _sentences(path)
        start, stem = 0, "-".join(path.relative_to(_ROOT).with_suffix("").parts)
        while len(texts) - start >= fewest:
            own = texts[start : start + int(rng.integers(fewest, most + 1))]
            yield Window(f"{stem}-{start}", kind, tuple(own))
            start += len(own)


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(line for line in lines if line.strip()))


def _sentences(path: Path) -> list[str]:
    """Sentences of paragraphs; tables, lists and headings are none."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    kept = [line for line in text.splitlines() if not line.startswith(("|", "#", "- "))]
    found: dict[str, None] = {}
    for paragraph in "\n".join(kept).split("\n\n"):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if len(sentence) >= _SHORTEST:
                found[sentence] = None
    return list(found)
