"""Blocks of tokenised documents, appended to files that a journal vouches for.

Three files grow together: ids, bounds and the digests of the texts. The journal has a
line for each block that is whole in all three; what stands behind the last such line is
cut off when a killed run goes on.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

IDS, BOUNDS, TEXTS = "ids.bin", "bounds.bin", "texts.bin"
JOURNAL = "journal.jsonl"
BOUND_TYPE = np.dtype("<i8")
TEXT_BYTES = hashlib.sha256().digest_size
# Texts are tokenised together up to so many characters or documents.
_BATCH_SIGNS, _BATCH_TEXTS = 1 << 20, 4096
_READ_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Documents of a stretch of the corpus.

    Attributes:
        ids: Of all of them, one after another.
        ends: int64, where each ends, counted from the first id of the whole corpus.
        texts: SHA-256 of each text, one after another.
    """

    ids: np.ndarray
    ends: np.ndarray
    texts: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """How far a cache has come.

    Attributes:
        part: Index of the part to go on in.
        skip: Documents of that part that are done.
        n_documents: Documents that are done.
        n_ids: Their ids.
    """

    part: int = 0
    skip: int = 0
    n_documents: int = 0
    n_ids: int = 0


def id_type(tokenizer: Tokenizer) -> np.dtype:
    """Two bytes an id where the vocabulary fits, else int32."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    return np.dtype("<u2" if largest < 1 << 16 else "<i4")


def encode(
    texts: Sequence[str], tokenizer: Tokenizer, dtype: np.dtype, n_before: int
) -> Block:
    """Tokenise texts together, each by itself, without special tokens.

    Args:
        texts: At least one.
        tokenizer: See `token_cache`.
        dtype: See `id_type`.
        n_before: Ids of the corpus before these texts.
    """
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ids = [np.array(encoding.ids, dtype) for encoding in encodings]
    lengths = np.array([len(found) for found in ids], BOUND_TYPE)
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in texts)
    return Block(np.concatenate(ids), n_before + np.cumsum(lengths), b"".join(digests))


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Documents in their order, some at a time; a long one alone."""
    batch, n_signs = [], 0
    for text in documents:
        batch.append(text)
        n_signs += len(text)
        if n_signs >= _BATCH_SIGNS or len(batch) == _BATCH_TEXTS:
            yield batch
            batch, n_signs = [], 0
    if batch:
        yield batch


def append_blocks(
    folder: Path,
    done: Done,
    batches: Iterable[tuple[list[str], Done]],
    tokenizer: Tokenizer,
    *,
    block_ids: int,
) -> Done:
    """Tokenise batches and append them, a journal line about every `block_ids` ids.

    Args:
        folder: As `whole_blocks` left it.
        done: What it returned.
        batches: Texts, and the part and place in it after them.
        tokenizer: See `token_cache`.
        block_ids: What a killed run loses at most, but for the length of a batch.

    Returns:
        How far it came: to the end.
    """
    dtype, n_ids, n_documents = id_type(tokenizer), done.n_ids, done.n_documents
    held: list[Block] = []
    reached = done
    for texts, after in batches:
        block = encode(texts, tokenizer, dtype, n_ids)
        n_ids, n_documents = n_ids + len(block.ids), n_documents + len(texts)
        held.append(block)
        reached = dataclasses.replace(after, n_documents=n_documents, n_ids=n_ids)
        if n_ids - done.n_ids >= block_ids:
            _append(folder, held, reached)
            held, done = [], reached
    if held:
        _append(folder, held, reached)
    return reached


def _append(folder: Path, blocks: Sequence[Block], reached: Done) -> None:
    files = {
        IDS: b"".join(block.ids.tobytes() for block in blocks),
        BOUNDS: b"".join(block.ends.tobytes() for block in blocks),
        TEXTS: b"".join(block.texts for block in blocks),
    }
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(data)
        with (folder / name).open("ab") as store:
            store.write(data)
    row = {**dataclasses.asdict(reached), "sha256": digest.hexdigest()}
    with (folder / JOURNAL).open("a") as journal:
        journal.write(json.dumps(row) + "\n")


def whole_blocks(folder: Path, dtype: np.dtype) -> Done:
    """Make the files fit to be appended to: cut off what is not whole.

    Args:
        folder: Of a cache in the making; made if missing.
        dtype: See `id_type`.

    Returns:
        How far the blocks go that the journal names and that are as it says.
    """
    folder.mkdir(exist_ok=True)
    for name in (IDS, BOUNDS, TEXTS, JOURNAL):
        (folder / name).touch()
    with (folder / BOUNDS).open("r+b") as handle:
        handle.write(bytes(BOUND_TYPE.itemsize))
    done, n_journal = Done(), 0
    for line in (folder / JOURNAL).read_bytes().splitlines(keepends=True):
        reached = _vouched(folder, line, done, dtype)
        if reached is None:
            break
        done, n_journal = reached, n_journal + len(line)
    for name, size in {**_sizes(done, dtype), JOURNAL: n_journal}.items():
        with (folder / name).open("r+b") as handle:
            handle.truncate(size)
    return done


def _vouched(folder: Path, line: bytes, done: Done, dtype: np.dtype) -> Done | None:
    """How far a journal line goes; None if it or its block is not whole."""
    try:
        row = json.loads(line)
        stated = row.pop("sha256")
        reached = Done(**row)
        begins, ends = _sizes(done, dtype), _sizes(reached, dtype)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    digest = hashlib.sha256()
    for name, begin in begins.items():
        hash_file(folder / name, digest, begin, ends[name])
    return reached if digest.hexdigest() == stated and line.endswith(b"\n") else None


def _sizes(done: Done, dtype: np.dtype) -> dict[str, int]:
    return {
        IDS: done.n_ids * dtype.itemsize,
        BOUNDS: (done.n_documents + 1) * BOUND_TYPE.itemsize,
        TEXTS: done.n_documents * TEXT_BYTES,
    }


def hash_file(path: Path, digest, begin: int = 0, end: int | None = None):
    """Add a file's bytes from `begin` to `end` to a digest, as many as there are."""
    with path.open("rb") as handle:
        handle.seek(begin)
        left = itertools.repeat(_READ_BYTES)
        if end is not None:
            whole, rest = divmod(max(end - begin, 0), _READ_BYTES)
            left = itertools.chain(itertools.repeat(_READ_BYTES, whole), [rest])
        for size in left:
            if not (data := handle.read(size)):
                break
            digest.update(data)
    return digest
