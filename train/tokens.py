"""A tokenizer, and documents as its ids in files that are mapped into memory.

Dimension key
    N  ids of all documents
    M  documents
    C  chosen documents

A cache in the making is a folder of blocks beside its place, each written under another
name and renamed, so a killed run loses one block. At the end the blocks are joined and
the folder takes its place by one rename.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import quiet_transformers, read_fast_tokenizer
from jaxcontam.progress import Progress, progress_bar
from train.data import Corpus

BOS = "<|bos|>"
SAMPLE_BYTES = 64 << 20
"""Text that a tokenizer is trained on at most, as the trainer holds its words."""

_IDS, _BOUNDS = "ids.bin", "bounds.bin"
_BOUND_TYPE = np.dtype("<i8")

# Part of each cache's key: other files or another layout are another cache.
_SCHEMA = 2
_ABOUT, _BLOCKS = "cache.json", "blocks"
_BLOCK_IDS = 1 << 24  # seconds of tokenising
# Texts are tokenised together up to this many characters or documents.
_BATCH_CHARACTERS, _BATCH_TEXTS = 1 << 20, 4096
# Documents that are turned back into text together.
_DECODED = 256


def train_tokenizer(
    documents: Iterable[str], vocab_size: int, *, sample_bytes: int = SAMPLE_BYTES
):
    """Train a byte-level BPE on documents; returns a transformers fast tokenizer.

    Any text encodes. No prefix space and no post-processor: nothing is added that was
    not asked for. The first documents are taken, up to `sample_bytes`: no random sample
    of a larger corpus, so later files do not affect the vocabulary.
    """
    quiet_transformers()
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(documents, sample_bytes), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS
    )


def read_tokenizer(directory: Path):
    """The transformers fast tokenizer of a directory; no remote code runs."""
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no such folder", hint="a folder with tokenizer.json"
        )
    tokenizer = read_fast_tokenizer(directory)
    prefix_id(tokenizer, str(directory))
    return tokenizer


def prefix_id(tokenizer, where: str = "--tokenizer") -> int:
    """Id before each document and each copy: BOS, or EOS where there is no BOS."""
    for found in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if found is not None:
            return found
    raise InputError(
        f"{where}: the tokenizer has neither a BOS nor an EOS token",
        hint="one of them stands before each document: name it in "
        "tokenizer_config.json",
    )


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 of a tokenizer's JSON, as manifests have it."""
    return f"sha256:{hashlib.sha256(tokenizer.to_str().encode()).hexdigest()}"


def _beginning(documents: Iterable[str], n_bytes: int) -> Iterator[str]:
    """First documents, until they hold `n_bytes` bytes."""
    taken = 0
    for document in documents:
        yield document
        taken += len(document.encode("utf-8"))
        if taken >= n_bytes:
            return


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

    def __reduce__(self):
        """Mapped files are mapped again where this is unpickled, not copied."""
        parts = self.ids, self.bounds, self.corpus_digest, self.digest
        if not isinstance(self.bounds, np.memmap) or self.bounds.filename is None:
            return TokenCache, parts
        place = Path(self.bounds.filename).parent.absolute()
        return _mapped, (place, self.ids.dtype, *parts[2:])

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

    def chosen(self, indices_C: np.ndarray) -> "Documents":
        """Some documents in the order of `indices_C`, not read yet."""
        # Views: each slice of a mapped array is an object that costs ten copies.
        ids_N, bounds_M1 = np.asarray(self.ids), np.asarray(self.bounds)
        begins_C = bounds_M1[indices_C]
        return Documents(ids_N, begins_C, bounds_M1[indices_C + 1] - begins_C)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Documents as stretches of one array, in an order of their own."""

    ids: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def once(self) -> "Documents":
        """Each document once, in the order of the array."""
        begins, places = np.unique(self.begins, return_index=True)
        return Documents(self.ids, begins, self.lengths[places])

    def stretches(self) -> Iterator[np.ndarray]:
        """The ids of each, views."""
        for begin, n in zip(self.begins.tolist(), self.lengths.tolist(), strict=True):
            yield self.ids[begin : begin + n]


def refused(documents: Iterable[str], keep: Callable[[str], bool] | None) -> np.ndarray:
    """Indices of the documents that a filter does not keep, int64; reads them all."""
    if keep is None:
        return np.zeros(0, np.int64)
    return np.array([i for i, text in enumerate(documents) if not keep(text)], np.int64)


def held_out(
    lengths_M: np.ndarray,
    *,
    n_ids: int,
    seed: int,
    without: np.ndarray | None = None,
) -> np.ndarray:
    """Random documents up to and with the one that reaches `n_ids`.

    They are the last ones of the order of `choose_documents`, which begins as it would
    without them. `without` is left out of both.
    """
    order_M = _order(lengths_M, seed, without)[::-1]
    n_before = np.searchsorted(np.cumsum(lengths_M[order_M]), n_ids)
    return order_M[: n_before + 1]


def _order(lengths_M: np.ndarray, seed: int, without: np.ndarray | None) -> np.ndarray:
    order_M = np.random.default_rng([seed, 0]).permutation(len(lengths_M))
    return order_M if without is None else order_M[~np.isin(order_M, without)]


def choose_documents(
    lengths_M: np.ndarray,
    *,
    budget: int | None,
    seed: int,
    epochs: int | None = 1,
    without: np.ndarray | None = None,
) -> np.ndarray:
    """Documents in a random order, up to and with the one that reaches the budget.

    What is taken is gone through `epochs` times, each time in another order; at None
    all documents are, as often as the budget wants. A seed gives one order for any
    budget.
    """
    order_M = _order(lengths_M, seed, without)

    def up_to_budget(order_C: np.ndarray) -> np.ndarray:
        if budget is None:
            return order_C
        n_before = np.searchsorted(np.cumsum(lengths_M[order_C]), budget)
        return order_C[: n_before + 1]

    once, n = order_M, 1
    if epochs is not None:
        once, n = up_to_budget(order_M), epochs
    elif budget is not None and lengths_M[order_M].any():
        n = max(1, -(-budget // int(lengths_M[order_M].sum())))
    again = [
        np.random.default_rng([seed, 0, epoch]).permutation(once)
        for epoch in range(1, n)
    ]
    order_C = np.concatenate([once, *again])
    return order_C if epochs is not None else up_to_budget(order_C)


def decoded_texts(documents: Documents, tokenizer: Tokenizer) -> Iterator[str]:
    """Each document as a text again."""
    stretches = documents.stretches()
    while batch := [ids.tolist() for ids in itertools.islice(stretches, _DECODED)]:
        yield from tokenizer.decode_batch(batch, skip_special_tokens=False)


def id_type(tokenizer: Tokenizer) -> np.dtype:
    """Two bytes an id where the vocabulary fits, else int32."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    return np.dtype("<u2" if largest < 1 << 16 else "<i4")


def tokenised(
    corpus: Corpus | Sequence[str], tokenizer: Tokenizer, folder: Path | None
) -> TokenCache:
    """The ids of a corpus: of files in a cache below `folder`, of texts in memory."""
    if not isinstance(corpus, Corpus):
        return as_cache(corpus, tokenizer)
    assert folder is not None, "files are tokenised into a cache"
    with progress_bar("tokenising", unit="bytes/s") as progress:
        return token_cache(corpus, tokenizer, folder, progress=progress)


def as_cache(documents: Sequence[str], tokenizer: Tokenizer) -> TokenCache:
    """Tokenise texts in memory, as `token_cache` does it on disk."""
    dtype = id_type(tokenizer)
    blocks = [encode(batch, tokenizer, dtype) for batch in _batches(documents)]
    ids_N = np.concatenate([np.zeros(0, dtype), *(block.ids for block in blocks)])
    lengths_M = np.concatenate([np.zeros(0, int), *(block.lengths for block in blocks)])
    bounds_M1 = np.cumsum([0, *lengths_M], dtype=_BOUND_TYPE)
    texts = hashlib.sha256(b"".join(block.texts for block in blocks))
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
    its digest each time it is opened, and made again where that fails. If two processes
    ask for it at once, one makes it and the other waits. A killed run loses at most
    `block_ids` ids. The tokenizer is a `plain_tokenizer`, which cuts and pads nothing.
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
        _write_blocks(corpus, tokenizer, partial / _BLOCKS, progress, block_ids)
        _join_blocks(partial, id_type(tokenizer))
        partial.rename(place)
        cache = _opened(place)
    if cache is None:
        raise InputError(
            f"{place}: not what was written there", hint="is the disk sound, and local?"
        )
    return cache


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Tokenised documents of a stretch of the corpus; SHA-256 of their texts."""

    ids: np.ndarray
    lengths: np.ndarray
    texts: bytes


def encode(texts: Sequence[str], tokenizer: Tokenizer, dtype: np.dtype) -> Block:
    """Tokenise texts together, each by itself, without special tokens."""
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ids = [np.array(encoding.ids, dtype) for encoding in encodings]
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in texts)
    lengths = np.array([len(found) for found in ids], _BOUND_TYPE)
    return Block(np.concatenate(ids), lengths, b"".join(digests))


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Documents in their order, some at a time; a long one alone."""
    batch, n_characters = [], 0
    for text in documents:
        batch.append(text)
        n_characters += len(text)
        if n_characters >= _BATCH_CHARACTERS or len(batch) == _BATCH_TEXTS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def _write_blocks(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    progress: Progress | None,
    block_ids: int,
) -> None:
    """Tokenise what the folder's blocks do not hold; each block is one file."""
    dtype = id_type(tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    n_blocks = n_documents = 0
    for block in _read_blocks(folder):
        n_blocks, n_documents = n_blocks + 1, n_documents + len(block.lengths)
    held: list[Block] = []
    for batch in _batches_from(corpus, n_documents, progress):
        held.append(encode(batch, tokenizer, dtype))
        if sum(len(block.ids) for block in held) >= block_ids:
            _write_block(folder, n_blocks, held)
            held, n_blocks = [], n_blocks + 1
    if held:
        _write_block(folder, n_blocks, held)


def _write_block(folder: Path, number: int, blocks: Sequence[Block]) -> None:
    path = folder / f"{number}.npz"
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            ids=np.concatenate([block.ids for block in blocks]),
            lengths=np.concatenate([block.lengths for block in blocks]),
            texts=np.frombuffer(b"".join(block.texts for block in blocks), np.uint8),
        )
    partial.replace(path)


def _read_blocks(folder: Path) -> Iterator[Block]:
    """Blocks in their order, up to one that is missing or damaged."""
    for number in itertools.count():
        try:
            with (folder / f"{number}.npz").open("rb") as file:
                found = np.load(file)
                block = Block(found["ids"], found["lengths"], found["texts"].tobytes())
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
            return
        yield block


def _join_blocks(partial: Path, dtype: np.dtype) -> None:
    """Write the files of a cache from its blocks."""
    end, texts = 0, hashlib.sha256()
    with (partial / _IDS).open("wb") as ids, (partial / _BOUNDS).open("wb") as bounds:
        bounds.write(np.zeros(1, _BOUND_TYPE).tobytes())
        for block in _read_blocks(partial / _BLOCKS):
            ids.write(block.ids.tobytes())
            ends = end + np.cumsum(block.lengths, dtype=_BOUND_TYPE)
            bounds.write(ends.tobytes())
            texts.update(block.texts)
            end = int(ends[-1])
        if bounds.tell() == _BOUND_TYPE.itemsize:
            raise InputError("the corpus has no documents")
    about = _about(partial, dtype, f"sha256:{texts.hexdigest()}")
    (partial / _ABOUT).write_text(json.dumps(about) + "\n")
    shutil.rmtree(partial / _BLOCKS)


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
    corpus: Corpus, n_done: int, progress: Progress | None
) -> Iterator[list[str]]:
    """Batches of the documents after the first `n_done`, which are read and passed."""
    n_bytes = max(sum(part.n_bytes for part in corpus.parts), 1)
    n_before = 0
    for part in corpus.parts:
        n_read = 0  # characters; of a compressed part more than its bytes
        for batch in _batches(part.read()):
            n_passed = min(n_done, len(batch))
            n_done -= n_passed
            if n_passed < len(batch):
                yield batch[n_passed:]
            n_read += sum(map(len, batch))
            if progress is not None:
                progress(n_before + min(n_read, part.n_bytes), n_bytes)
        n_before += part.n_bytes


def _opened(place: Path) -> TokenCache | None:
    """The cache of a folder; None if it has changed since it was written."""
    try:
        about = json.loads((place / _ABOUT).read_text())
        dtype = np.dtype(about["dtype"])
        if about != _about(place, dtype, about["corpus_digest"]):
            return None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return _mapped(place, dtype, about["corpus_digest"], about["digest"])


def _mapped(
    place: Path, dtype: np.dtype, corpus_digest: str, digest: str
) -> TokenCache:
    """The cache of a folder, of which its digests are known."""
    bounds = np.memmap(place / _BOUNDS, _BOUND_TYPE, mode="r")
    # Documents that are all empty have no ids, and no empty file can be mapped.
    is_empty = not bounds[-1]
    ids = np.zeros(0, dtype) if is_empty else np.memmap(place / _IDS, dtype, mode="r")
    return TokenCache(ids, bounds, corpus_digest, digest)


def _about(folder: Path, dtype: np.dtype, corpus_digest: str) -> dict[str, str]:
    """Contents of cache.json; reads each file once."""
    sums = []
    for name in (_IDS, _BOUNDS):
        with (folder / name).open("rb") as file:
            sums.append(hashlib.file_digest(file, "sha256"))
    digest = _digest(dtype, *sums)
    both = hashlib.sha256((corpus_digest + digest).encode()).hexdigest()
    return {
        "dtype": dtype.str,
        "corpus_digest": corpus_digest,
        "digest": digest,
        "checksum": f"sha256:{both}",
    }


def _digest(dtype: np.dtype, ids, bounds) -> str:
    digest = hashlib.sha256(dtype.str.encode() + ids.digest() + bounds.digest())
    return f"sha256:{digest.hexdigest()}"
