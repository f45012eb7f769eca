"""Documents as token ids in files that are mapped into memory, made once.

Dimension key
    N  ids of all documents
    M  documents

A cache in the making grows in a folder beside its place, block by block, so that a
killed run goes on; the folder takes its place by one rename when all is there.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import tokenizers
from tokenizers import Tokenizer

from jaxcontam.errors import InputError
from train.sources import Corpus
from train.token_blocks import (
    BOUND_TYPE,
    BOUNDS,
    IDS,
    JOURNAL,
    TEXTS,
    Done,
    append_blocks,
    batches,
    encode,
    hash_file,
    id_type,
    whole_blocks,
)

# In the key of each cache: another layout of the files is another cache.
_SCHEMA = 1
_ABOUT = "cache.json"
_BLOCK_IDS = 1 << 24  # seconds of tokenising

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TokenCache:
    """Token ids of documents, one after another, without any special token.

    Attributes:
        ids: (N,) uint16 where the vocabulary fits, else int32; mapped or in memory.
        bounds: (M + 1,) int64; document i is `ids[bounds[i] : bounds[i + 1]]`.
        corpus_digest: SHA-256 over the documents' SHA-256 in their order.
        digest: SHA-256 over ids and bounds; the same whether on disk or in memory.
    """

    ids: np.ndarray
    bounds: np.ndarray
    corpus_digest: str
    digest: str

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def n_ids(self) -> int:
        """Ids of all documents."""
        return int(self.bounds[-1])

    @property
    def lengths(self) -> np.ndarray:
        """(M,) int64, ids of each document."""
        return np.diff(self.bounds)

    def document(self, index: int) -> np.ndarray:
        """Ids of one document, int32, a copy."""
        if not 0 <= index < len(self):
            raise IndexError(f"no document {index} of {len(self)}")
        begin, end = self.bounds[index : index + 2]
        return self.ids[begin:end].astype(np.int32)

    def chosen(self, indices: np.ndarray) -> "ChosenDocuments":
        """Some documents in the order of `indices`, none of them read yet."""
        return ChosenDocuments(self, indices)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ChosenDocuments(Sequence[np.ndarray]):
    """Documents of a cache, read when asked for.

    Attributes:
        cache: The cache.
        indices: Which documents of it, in which order.
    """

    cache: TokenCache
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> "ChosenDocuments": ...
    def __getitem__(self, index: int | slice) -> "np.ndarray | ChosenDocuments":
        """Ids of one document, int32; a slice gives those that it names, unread."""
        if isinstance(index, slice):
            return ChosenDocuments(self.cache, self.indices[index])
        return self.cache.document(int(self.indices[index]))


def choose_documents(
    lengths_M: np.ndarray, *, budget: int | None, seed: int
) -> np.ndarray:
    """Documents in a random order, up to and with the one that reaches the budget.

    Args:
        lengths_M: Ids of each document.
        budget: Ids to take; None takes all documents.
        seed: The same seed gives the same order, whatever the budget.
    """
    order_M = np.random.default_rng([seed, 0]).permutation(len(lengths_M))
    if budget is None:
        return order_M
    n_before = np.searchsorted(np.cumsum(lengths_M[order_M]), budget)
    return order_M[: n_before + 1]


def as_cache(documents: Sequence[str], tokenizer: Tokenizer) -> TokenCache:
    """Tokenise texts in memory, as `token_cache` does it on disk.

    Args:
        documents: Texts.
        tokenizer: See `token_cache`.
    """
    dtype = id_type(tokenizer)
    ids, bounds = [np.zeros(0, dtype)], [np.zeros(1, BOUND_TYPE)]
    texts = hashlib.sha256()
    for batch in batches(documents):
        block = encode(batch, tokenizer, dtype, int(bounds[-1][-1]))
        ids.append(block.ids)
        bounds.append(block.ends)
        texts.update(block.texts)
    ids_N, bounds_M1 = np.concatenate(ids), np.concatenate(bounds)
    sums = hashlib.sha256(ids_N.tobytes()), hashlib.sha256(bounds_M1.tobytes())
    return TokenCache(
        ids=ids_N,
        bounds=bounds_M1,
        corpus_digest=f"sha256:{texts.hexdigest()}",
        digest=_digest(dtype, *sums),
    )


def token_cache(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    progress: Progress | None = None,
    block_ids: int = _BLOCK_IDS,
) -> TokenCache:
    """The cached ids of a corpus, made where there are none.

    A cache is named after its corpus and its tokenizer, read through and compared with
    its digest each time it is opened, and made again where that fails. Of two processes
    that ask for it at once, one makes it and the other waits.

    Args:
        corpus: Where the documents come from.
        tokenizer: As made by `plain_tokenizer`: it cuts and pads nothing.
        folder: Of all caches; each has a folder of its own in it.
        progress: Called with bytes of the corpus done (an estimate) and in all.
        block_ids: Ids that a killed run loses at most; a document is never divided.

    Raises:
        InputError: At a text that cannot be read, or if there is no document.
        ValueError: If the tokenizer cuts or pads texts.
    """
    if tokenizer.truncation or tokenizer.padding:
        raise ValueError("tokenizer must neither cut nor pad texts")
    place = folder / _key(corpus, tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_suffix(".lock")):
        if place.exists():
            if (cache := _opened(place)) is not None:
                return cache
            print(f"{place}: damaged, tokenised again", file=sys.stderr)
            shutil.rmtree(place)
        partial = place.with_suffix(".partial")
        dtype = id_type(tokenizer)
        done = whole_blocks(partial, dtype)
        todo = _batches_from(corpus, done, progress)
        done = append_blocks(partial, done, todo, tokenizer, block_ids=block_ids)
        if not done.n_documents:
            raise InputError("the corpus has no documents")
        (partial / _ABOUT).write_text(json.dumps(_about(partial, dtype)) + "\n")
        partial.rename(place)
        (place / JOURNAL).unlink()
        cache = _opened(place)
    if cache is None:
        raise InputError(
            f"{place}: not what was written there", hint="is the disk sound, and local?"
        )
    return cache


def _key(corpus: Corpus, tokenizer: Tokenizer) -> str:
    about = [_SCHEMA, tokenizers.__version__, corpus.identity, tokenizer.to_str()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the file; a killed one holds nothing."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as e:
            raise InputError(
                f"{path}: cannot be locked ({e.strerror})",
                hint="put the token cache on a local disk",
            ) from e
        yield


def _batches_from(
    corpus: Corpus, done: Done, progress: Progress | None
) -> Iterator[tuple[list[str], Done]]:
    """Batches that are not done, with the place after each; none spans two parts."""
    sizes = [part.n_bytes for part in corpus.parts]
    left = corpus.limit_documents
    left = None if left is None else left - done.n_documents
    skip = done.skip
    for index, part in enumerate(corpus.parts[done.part :], done.part):
        # What is done is read once more, which is far cheaper than tokenising it.
        stop = None if left is None else skip + left
        texts = itertools.islice(corpus.documents(part), skip, stop)
        n_taken, n_signs = 0, 0
        for batch in batches(texts):
            n_taken += len(batch)
            yield batch, Done(part=index, skip=skip + n_taken)
            if progress is not None:
                # Of a compressed part the texts are more than its bytes.
                n_signs += sum(map(len, batch))
                read = sum(sizes[:index]) + min(n_signs, sizes[index])
                progress(read, max(sum(sizes), 1))
        left = None if left is None else left - n_taken
        if left == 0:
            return
        skip = 0


def _opened(place: Path) -> TokenCache | None:
    """The cache of a folder; None if it is not as it was written."""
    try:
        about = json.loads((place / _ABOUT).read_text())
        dtype = np.dtype(about["dtype"])
        if about != _about(place, dtype):
            return None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    bounds = np.memmap(place / BOUNDS, BOUND_TYPE, mode="r")
    # Documents that are all empty have no ids, and no empty file can be mapped.
    is_empty = not bounds[-1]
    ids = np.zeros(0, dtype) if is_empty else np.memmap(place / IDS, dtype, mode="r")
    return TokenCache(ids, bounds, about["corpus_digest"], about["digest"])


def _about(folder: Path, dtype: np.dtype) -> dict[str, str]:
    """What the files are, each read through once."""
    ids, bounds, texts = (
        hash_file(folder / name, hashlib.sha256()) for name in (IDS, BOUNDS, TEXTS)
    )
    return {
        "dtype": dtype.str,
        "corpus_digest": f"sha256:{texts.hexdigest()}",
        "digest": _digest(dtype, ids, bounds),
    }


def _digest(dtype: np.dtype, ids, bounds) -> str:
    digest = hashlib.sha256(dtype.str.encode() + ids.digest() + bounds.digest())
    return f"sha256:{digest.hexdigest()}"
