"""Examples to token ids: one function for training and for scoring.

Each example is tokenised alone and its separator alone, so the tokenizer never sees
the joined string, and any order of the examples has exactly the same ids.
"""

import contextlib
import dataclasses
import functools
import json
import mmap
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from tokenizers import AddedToken, Tokenizer, processors

from jaxcontam.data.files import read_json_object
from jaxcontam.errors import InputError, first_line

# Bytes of text that are encoded at once, and what a tokenizer may take for them.
_PART_BYTES = 1 << 20
_MOST_MEMORY, _MOST_SECONDS = 1 << 30, 300.0
_WATCH_SECONDS = 0.02
# Characters of a token of English.
_CHARACTERS = 4


class Encoder(Protocol):
    """Interface of a tokenizer, such as the result of `plain_tokenizer`."""

    def encode(self, sequence: Any, /, *, add_special_tokens: bool) -> Any:
        """Encode one text; the result has `ids`."""
        ...

    def encode_batch(self, input: Any, /, *, add_special_tokens: bool) -> Sequence[Any]:
        """Encode each text."""
        ...


# Without slots, which leave no place for a cached property.
@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """A benchmark as token ids.

    Attributes:
        ids: One int32 array an example, its separator at the end.
        n_cut_ids: (n_examples,) int32, ids removed by `--max-example-tokens`.
        token_size: Ids that count as a token: more than one where ids are characters.
    """

    ids: tuple[np.ndarray, ...]
    separator: np.ndarray
    n_cut_ids: np.ndarray
    token_size: int = 1

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(n_examples,) int64, ids of each example with its separator."""
        return np.array([len(ids) for ids in self.ids], np.int64)

    def cut(self, index: int, length: int | None) -> np.ndarray:
        """Ids of one example, truncated to `length` but with its separator."""
        ids = self.ids[index]
        if length is None or len(ids) <= length:
            return ids
        return np.concatenate([ids[: length - len(self.separator)], self.separator])


def encode_examples(
    tokenizer: Encoder,
    texts: Sequence[str],
    *,
    separator: str = "\n",
    max_example_tokens: int | None = None,
) -> Encoded:
    """Tokenise examples one by one: no special tokens, no dummy prefix space.

    `tokenizer` is made by `plain_tokenizer`. The separator belongs to the example
    before it; an example longer than `max_example_tokens` with it is cut.
    """
    (separator_ids,) = encode_texts(tokenizer, [separator])
    if max_example_tokens is not None and max_example_tokens <= len(separator_ids):
        raise InputError(
            f"--max-example-tokens must exceed the separator's {len(separator_ids)} "
            f"tokens, got {max_example_tokens}"
        )
    ids, n_cut_ids = [], []
    for index, encoding in enumerate(_encodings(tokenizer, texts)):
        content = np.array(encoding.ids, np.int32)
        keep = len(content)
        if max_example_tokens is not None:
            keep = min(keep, max_example_tokens - len(separator_ids))
        if keep + len(separator_ids) == 0:
            raise InputError(f"example {index + 1}: no tokens in {texts[index]!r}")
        ids.append(np.concatenate([content[:keep], separator_ids]))
        n_cut_ids.append(len(content) - keep)
    size = _CHARACTERS if isinstance(tokenizer, CharacterTokenizer) else 1
    return Encoded(tuple(ids), separator_ids, np.array(n_cut_ids, np.int32), size)


def encode_texts(
    tokenizer: Encoder,
    texts: Sequence[str],
    *,
    after: int | None = None,
    begins: bool = False,
) -> list[np.ndarray]:
    """Ids of each text alone, without special tokens; an empty text has none.

    `after` is the id that will stand before each text; see `own_ids`. What `begins` a
    sequence gets the space that a tokenizer of sentencepiece puts there, as in the
    released code of Min-K% and in harnesses.
    """
    if begins and isinstance(tokenizer, Spaced):
        tokenizer = tokenizer.beginning
    found = (np.array(one.ids, np.int32) for one in _encodings(tokenizer, texts))
    return [own_ids(ids, after) for ids in found]


def own_ids(ids: np.ndarray, prefix_id: int | None) -> np.ndarray:
    """Ids of a text but for the one before it, which it may bring along (a BOS)."""
    return ids[1:] if len(ids) and ids[0] == prefix_id else ids


def ids_before(prefix_id: int | None, texts: Sequence[np.ndarray]) -> np.ndarray:
    """int32 id before joined texts; none where each of them brings it along itself."""
    brought = all(len(own_ids(ids, prefix_id)) < len(ids) for ids in texts)
    return np.array([] if prefix_id is None or brought else [prefix_id], np.int32)


def take_file(loaded: Any, path: Path) -> None:
    """Let a tokenizer of transformers read what its tokenizer.json says, if it has one.

    Its class may build other ids out of the file. Names of special tokens that the file
    has no id for are none; the chat template stays.
    """
    if not path.is_file():
        return
    loaded._tokenizer = tokenizer = file_tokenizer(path)
    for name, token in loaded.special_tokens_map.items():
        if tokenizer.token_to_id(str(token)) is None:
            setattr(loaded, name, None)


def file_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json, and what tokenizer_config.json alone says beside it.

    That is: tokens whose id is the next one, and a BOS (`add_bos_token`) where the file
    adds nothing first. Raises what `tokenizers` raises for a file that is none.
    """
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if getattr(tokenizer.model, "dropout", None) is not None:
        # Random merges would give a text other ids each time.
        tokenizer.model.dropout = None
    config = path.with_name("tokenizer_config.json")
    fields = read_json_object(config) if config.is_file() else {}
    more = {int(i): one for i, one in fields.get("added_tokens_decoder", {}).items()}
    added: dict[str, AddedToken] = {}
    n_known = tokenizer.get_vocab_size()
    for index, token in sorted(more.items()):
        text = token["content"]
        is_new = text and text not in added and tokenizer.token_to_id(text) is None
        if is_new and index == n_known + len(added):
            added[text] = AddedToken(**token)
    # Together: each call builds its search of all added tokens anew.
    tokenizer.add_tokens([*added.values()])
    bos = fields.get("bos_token")
    bos = bos.get("content") if isinstance(bos, dict) else bos
    if fields.get("add_bos_token") is True and isinstance(bos, str):
        add_first(tokenizer, bos)
    return tokenizer


def add_first(tokenizer: Tokenizer, token: str) -> None:
    """Let the tokenizer put a token of its own before a text, if it puts none there."""
    token_id, own = tokenizer.token_to_id(token), tokenizer.post_processor
    if token_id is None or first_added(tokenizer) is not None:
        return
    before = processors.TemplateProcessing(
        single=[f"{token}:0", "$A:0"], special_tokens=[(token, token_id)]
    )
    several = [own, before]
    tokenizer.post_processor = before if own is None else processors.Sequence(several)


def first_added(tokenizer: Tokenizer) -> int | None:
    """Id that the tokenizer itself puts before a text, or None."""
    (found,) = _encoded(tokenizer, lambda: tokenizer.encode_batch(["a"]))
    return found.ids[0] if found.special_tokens_mask[:1] == [1] else None


def plain_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that adds no prefix space, pads nothing and truncates nothing.

    A dummy prefix space before every example of a concatenation would put a token
    between examples that no training text has.
    """
    return _steady(_without_prefix(json.loads(tokenizer.to_str())))


def text_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """The plain tokenizer, which remembers the prefix space of texts that begin."""
    fields = json.loads(tokenizer.to_str())
    plain = plain_tokenizer(tokenizer)
    if _without_prefix(fields) == fields:
        return plain
    return cast(Tokenizer, Spaced(plain, _steady(fields)))


def _steady(fields: dict[str, Any]) -> Tokenizer:
    if "dropout" in fields["model"]:
        # Random merges would give a text other ids each time.
        fields["model"]["dropout"] = None
    made = Tokenizer.from_str(json.dumps(fields))
    made.no_padding()
    made.no_truncation()
    return made


def parts(texts: Sequence[str]) -> Iterator[slice]:
    """Places of texts that are handed over at once: a MiB of them, or a single one."""
    sizes = np.cumsum([len(text.encode("utf-8", "replace")) for text in texts])
    start = 0
    while start < len(texts):
        most = _PART_BYTES + (sizes[start - 1] if start else 0)
        stop = max(start + 1, int(np.searchsorted(sizes, most, side="right")))
        yield slice(start, stop)
        start = stop


def watched(
    run: Callable[[], Any], what: str, *, hint: str, process: int | None = None
) -> Any:
    """Result of a stranger's work, unless it takes too long or too much memory.

    A thread is left alone with it, which is possible only where it lets go of Python's
    lock. `what` does the work, in this process or in that of a number; `hint` says what
    may be wrong with it.
    """
    found: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

    def work() -> None:
        try:
            found.put((run(), None))
        except BaseException as e:  # A panic in Rust is no Exception.
            found.put((None, e))

    before, end = _resident_bytes(process), time.monotonic() + _MOST_SECONDS
    threading.Thread(target=work, daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            result, error = found.get(timeout=_WATCH_SECONDS)
            if error is None:
                return result
            if isinstance(error, InputError):
                raise error
            raise InputError(f"{what} fails ({first_line(error)})") from error
        taken = _resident_bytes(process) - before
        if taken > _MOST_MEMORY or time.monotonic() > end:
            raise too_much(what, hint)


def too_much(what: str, hint: str) -> InputError:
    """Refusal of what takes more time or memory than it may."""
    return InputError(
        f"{what} took over {_MOST_SECONDS:g} s, or {_MOST_MEMORY >> 20:,} MiB of "
        "memory, for a part of the texts",
        hint=hint,
    )


def _encodings(tokenizer: Encoder, texts: Sequence[str]) -> Iterator[Any]:
    """Encodings of texts, a part at once: they take 230 bytes of memory an id."""
    for part in map(texts.__getitem__, parts(texts)):
        yield from _encoded(
            tokenizer,
            lambda part=list(part): tokenizer.encode_batch(
                part, add_special_tokens=False
            ),
        )


def _encoded(tokenizer: Encoder, run: Callable[[], Any]) -> Any:
    """Result of a tokenizer's work, which may have no end; see `watched`."""
    if isinstance(tokenizer, CharacterTokenizer):
        return run()
    return watched(
        run,
        "the tokenizer",
        hint="check its tokenizer.json: rules may lengthen texts, or try too many ways "
        "to split them",
    )


def _resident_bytes(process: int | None) -> int:
    """Memory of this process or another; 0 where no file says it."""
    try:
        pages = Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * mmap.PAGESIZE


def _without_prefix(node: Any) -> Any:
    """The tokenizer's JSON with every prefix-space switch turned off."""
    if isinstance(node, list):
        return [_without_prefix(item) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if kind == "Sequence":
        for key in ("normalizers", "pretokenizers"):
            if key in node:
                kept = [part for part in node[key] if part.get("type") != "Prepend"]
                node = {**node, key: [_without_prefix(part) for part in kept]}
        return node
    if kind == "Metaspace":
        return {**node, "prepend_scheme": "never"}
    if kind == "ByteLevel":
        return {**node, "add_prefix_space": False}
    return {
        key: None
        if key == "normalizer" and (value or {}).get("type") == "Prepend"
        else _without_prefix(value)
        if key in ("normalizer", "pre_tokenizer")
        else value
        for key, value in node.items()
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Characters:
    """An encoded text: its code points."""

    ids: list[int]


class CharacterTokenizer:
    """An `Encoder` whose ids are code points, for models without a local tokenizer.

    The scorer of such a model turns ids back into text, so that plans, windows and
    orders consist of ids for every kind of model.
    """

    def encode(self, sequence: Any, /, *, add_special_tokens: bool) -> Characters:
        """Code points of a text; there are no special tokens."""
        del add_special_tokens
        return Characters([ord(character) for character in sequence])

    def encode_batch(
        self, input: Any, /, *, add_special_tokens: bool
    ) -> Sequence[Characters]:
        """Code points of each text."""
        return [
            self.encode(text, add_special_tokens=add_special_tokens) for text in input
        ]


class Spaced:
    """A plain tokenizer, and the one of `beginning`, which adds a prefix space."""

    def __init__(self, plain: Tokenizer, beginning: Tokenizer):
        """Hold both; what is not asked of `beginning` is the plain one's."""
        self._plain, self.beginning = plain, beginning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


class WithinRows:
    """A tokenizer that refuses a text with an id that the model has no row for.

    Published tokenizers hold such tokens, such as those of images, that no text uses.
    """

    def __init__(self, tokenizer: Tokenizer, n_rows: int):
        """Hold a tokenizer of which only ids below `n_rows` may come up."""
        self._tokenizer, self._n_rows = tokenizer, n_rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, sequence: Any, /, **how: Any) -> Any:
        """Encode one text."""
        return self._checked(self._tokenizer.encode(sequence, **how))

    def encode_batch(self, input: Any, /, **how: Any) -> list[Any]:
        """Encode each text."""
        return [*map(self._checked, self._tokenizer.encode_batch(input, **how))]

    def _checked(self, encoding: Any) -> Any:
        if (largest := max(encoding.ids, default=0)) >= self._n_rows:
            token = self._tokenizer.id_to_token(largest)
            raise InputError(
                f"a text holds the token {token!r}, whose id is {largest}; the model "
                f"has {self._n_rows} rows",
                hint="leave out that text",
            )
        return encoding


def within_rows(tokenizer: Tokenizer, n_rows: int) -> Tokenizer:
    """The tokenizer, which refuses ids from `n_rows` up if it has any."""
    if max(tokenizer.get_vocab().values(), default=0) < n_rows:
        return tokenizer
    within: Any = WithinRows(tokenizer, n_rows)
    if isinstance(tokenizer, Spaced):
        within = Spaced(
            within, cast(Tokenizer, WithinRows(tokenizer.beginning, n_rows))
        )
    return within


def text_of(ids: np.ndarray | Iterable[int]) -> str:
    """The text of code points."""
    return "".join(map(chr, ids))
