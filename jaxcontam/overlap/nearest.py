"""The stretch of a corpus that is nearest to each text in meaning.

Texts are compared by static embeddings, a vector a token whatever its context: the mean
vector of any stretch follows from two running sums, so that a search costs little more
than the tokens.

Dimension key
    V  tokens of the vocabulary
    D  numbers of a vector
    F  texts that are looked for, or those of one size
    B  blocks of tokens in a part of the corpus
    W  stretches of it
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Encoding, Tokenizer

from jaxcontam.data.corpus import Document
from jaxcontam.data.model_files import check_tensor_names, check_tokenizer_files
from jaxcontam.errors import InputError, first_line
from jaxcontam.overlap.index import Counts, Form, Hit, pieces
from jaxcontam.overlap.occurrences import Nearest, Occurrence

# Tokens of a block; blocks of the shortest and the longest stretch.
_BLOCK = 8
_SIZES = 2, 128


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StaticEmbeddings:
    """A vector for each token of a tokenizer, whose ids are below V.

    `table_VD` is (V, D) float32; `fingerprint` is the digest of both files.
    """

    tokenizer: Tokenizer
    table_VD: np.ndarray
    fingerprint: str

    @classmethod
    def load(cls, folder: Path) -> "StaticEmbeddings":
        """Read a tokenizer and the one table beside it."""
        check_tokenizer_files(folder)
        path = folder / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as e:  # the library raises nothing more specific
            raise InputError(f"{path}: not a tokenizer ({first_line(e)})") from e
        path = folder / "model.safetensors"
        try:
            check_tensor_names(path)
            tensors = load_file(path)
        except (OSError, SafetensorError) as e:
            raise InputError(f"{path}: no weights to read ({first_line(e)})") from e
        # A second tensor, such as model2vec's mapping, would change what a row means.
        tables = list(tensors.values())
        n_ids = max(tokenizer.get_vocab().values(), default=-1) + 1
        if len(tables) != 1 or tables[0].ndim != 2 or len(tables[0]) < n_ids:
            held = ", ".join(f"{name} {list(t.shape)}" for name, t in tensors.items())
            raise InputError(
                f"{folder}: not static embeddings, one row for each of {n_ids} tokens "
                f"({held})",
                hint="such as minishlab/potion-base-8M",
            )
        table_VD = tables[0].astype(np.float32)
        if not np.isfinite(table_VD).all():
            raise InputError(f"{folder}: embeddings that are not finite")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        digest = hashlib.sha256(tokenizer.to_str().encode() + table_VD.tobytes())
        return cls(tokenizer, table_VD, digest.hexdigest())

    def encode(self, text: str) -> Encoding:
        """Tokens of a text, without special ones."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def running_sums(self, ids: Sequence[int]) -> np.ndarray:
        """(B + 1, D) float64 sums of the vectors before each block, and of all."""
        begins = np.arange(0, len(ids), _BLOCK)
        sums_BD = np.zeros((len(begins) + 1, self.table_VD.shape[1]))
        if len(ids):
            sums_BD[1:] = np.add.reduceat(self.table_VD[ids], begins, axis=0)
        return sums_BD.cumsum(axis=0)


class NearestSearch:
    """Search of documents for the stretches that are nearest to some texts.

    A stretch has 16, 32, 64, ... tokens, as many as fit the text's own number best, and
    begins half a stretch after the one before it. A document above 65,536 characters is
    read in parts, as is a .txt file by lines, and no stretch crosses their borders.
    """

    def __init__(self, embeddings: StaticEmbeddings, texts: Sequence[str]):
        self.embeddings = embeddings
        self._cosine_F = np.full(len(texts), -np.inf)
        self._wanted_FD = np.zeros((len(texts), embeddings.table_VD.shape[1]))
        n_tokens = np.zeros(len(texts), np.int64)
        for i, text in enumerate(texts):
            ids = embeddings.encode(text).ids
            n_tokens[i] = len(ids)
            self._wanted_FD[i] = embeddings.running_sums(ids)[-1]
        self._wanted_FD = _unit(self._wanted_FD)
        sizes = 2.0 ** np.round(np.log2(np.clip(n_tokens / _BLOCK, *_SIZES)))
        self._sizes = np.where(n_tokens, sizes, 0).astype(np.int64)

    def add(self, documents: Sequence[Document]) -> Counts:
        """The nearest in these documents, where nearer than any before."""
        nearest: dict[int, Hit] = {}
        for document in documents:
            for line, text in pieces(document):
                self._add(document.file, line, text, nearest)
        return Counts(nearest=nearest)

    def _add(self, file: str, line: int, text: str, nearest: dict[int, Hit]) -> None:
        encoding = self.embeddings.encode(text)
        sums_BD = self.embeddings.running_sums(encoding.ids)
        if not (n_blocks := len(sums_BD) - 1):
            return
        offsets: list[tuple[int, int]] | None = None
        for size in np.unique(self._sizes[self._sizes > 0]).tolist():
            texts = np.flatnonzero(self._sizes == size)
            last = max(0, n_blocks - size)
            begins = np.append(np.arange(0, last, size // 2), last)
            ends = np.minimum(begins + size, n_blocks)
            stretches_WD = _unit(sums_BD[ends] - sums_BD[begins])
            cosines_WF = stretches_WD @ self._wanted_FD[texts].T
            best_F = cosines_WF.argmax(axis=0)
            cosine_F = cosines_WF[best_F, np.arange(len(texts))]
            for j in np.flatnonzero(cosine_F > self._cosine_F[texts]).tolist():
                i, w = int(texts[j]), int(best_F[j])
                self._cosine_F[i] = cosine_F[j]
                offsets = offsets or encoding.offsets
                held = offsets[begins[w] * _BLOCK : ends[w] * _BLOCK]
                found = text[held[0][0] : held[-1][1]]
                nearest[i] = Hit((-float(cosine_F[j]),), file, line, found)


def with_nearest(
    rows: Sequence[Occurrence], forms: Sequence[Form], hits: Mapping[int, Hit]
) -> tuple[Occurrence, ...]:
    """Rows with `nearest`, over the forms of each example."""
    best: dict[int, Nearest] = {}
    for f, hit in hits.items():
        found = Nearest(
            cosine=-hit.order[0],
            file=hit.file,
            line=hit.line,
            example=forms[f].text,
            corpus=" ".join(hit.around.split()),
        )
        for i in forms[f].examples:
            if i not in best or found.cosine > best[i].cosine:
                best[i] = found
    return tuple(
        dataclasses.replace(row, nearest=best.get(row.id)) if row.id in best else row
        for row in rows
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths; a row of zeros stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
