"""From page records to members and non-members, one set a length.

A record is a line such as

    {"title": "...", "text": "...", "created": "2023-04-05", "categories": ["..."]}

with `event` (true or false) in place of `categories` where somebody already decided.
Pages that are no events, lists, timelines, short pages and near-duplicates are dropped
and counted; nothing else is.

Dimension key
    P  pages
"""

import dataclasses
import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxcontam.data.benchmark import Benchmark, check_text
from jaxcontam.data.chunks import count_words, cut_words
from jaxcontam.data.corpus import Segment, text_segments
from jaxcontam.data.ngrams import collapsed, overlap_index
from jaxcontam.data.occurrences import forms_of, occurrences
from jaxcontam.data.overlap import OverlapSearch
from jaxcontam.errors import InputError

NOT_EVENT = "no event"
LIST_PAGE = "title of a list or a timeline"
BETWEEN = "created between the two dates"
SHORT = "fewer words than the shortest length"
REPEATED = "text or title of another page of its side"
NEAR_DUPLICATE = "recent page that repeats an older one"
NOT_DRAWN = "not drawn, to balance"

RULES = ("exact", "words", "near-duplicate", "8-grams")
"""Rules of `jaxcontam overlap` that drop a recent page. A single run of 13 words is no
reason: pages of one kind of event share such sentences."""

_LIST_TITLE = re.compile(r"(lists? of|timelines? of)\b", re.IGNORECASE)
_EVENT = re.compile(r"\bevents?\b", re.IGNORECASE)
_BATCH_CHARACTERS = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page that may be drawn.

    Attributes:
        title: Its title.
        text: Its first words, as many as the longest length.
        created: UTC date.
        is_member: Whether it is old enough to be a member; else it is recent.
        n_words: Words of the whole page.
    """

    title: str
    text: str
    created: datetime.date
    is_member: bool
    n_words: int


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """What is left of the records, and what was dropped.

    Attributes:
        pages: In the order of the file.
        n_records: Records read.
        dropped: Reason -> pages.
    """

    pages: tuple[Page, ...]
    n_records: int
    dropped: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Members and non-members of one length, as many of each.

    Attributes:
        length: Words.
        texts: Texts of both, mixed.
        labels: True for a member.
        titles: Titles of the pages.
    """

    length: int
    texts: tuple[str, ...]
    labels: tuple[bool, ...]
    titles: tuple[str, ...]


def read_candidates(
    path: Path,
    *,
    cutoff: datetime.date,
    members_before: datetime.date,
    lengths: Sequence[int],
    limit: int | None = None,
) -> Candidates:
    """Read the records and keep events that are old or recent.

    Args:
        path: .jsonl file of records.
        cutoff: Pages created on this day or later are recent.
        members_before: Pages created before this day are old; at most `cutoff`.
        lengths: Words of the cuts; a page needs those of the shortest.
        limit: Records to read; None for all.

    Raises:
        InputError: If a record is damaged; names the line.
    """
    dropped: Counter[str] = Counter()
    seen: set[tuple[bool, bytes]] = set()
    pages: list[Page] = []
    n_records = 0
    for where, row in _records(path, limit):
        n_records += 1
        title, text = (_string(row, name, where) for name in ("title", "text"))
        created = parse_created(_string(row, "created", where), where)
        is_event = _is_event(row, where)
        is_member, is_recent = created < members_before, created >= cutoff
        names = {(is_member, d) for d in (_title(title), _digest(collapsed(text)))}
        if _LIST_TITLE.match(title.strip()):
            dropped[LIST_PAGE] += 1
        elif not is_event:
            dropped[NOT_EVENT] += 1
        elif not (is_member or is_recent):
            dropped[BETWEEN] += 1
        elif (n_words := count_words(text)) < min(lengths):
            dropped[SHORT] += 1
        elif names & seen:
            dropped[REPEATED] += 1
        else:
            seen |= names
            first = cut_words(text, max(lengths)).strip()
            pages.append(Page(title, first, created, is_member, n_words))
    if not n_records:
        raise InputError(f"{path}: no records", hint="one JSON object a line")
    return Candidates(tuple(pages), n_records, dict(dropped))


def drop_near_duplicates(
    candidates: Candidates,
    path: Path,
    *,
    cutoff: datetime.date,
    lengths: Sequence[int],
    limit: int | None = None,
) -> Candidates:
    """Drop recent pages that stand in an older page, at any of the lengths.

    They are looked for in every page that was created before the cutoff, event or not:
    a page that was split off or moved is recent by its date alone. A recent page with
    the title of an older one was made again, and goes too.

    Args:
        candidates: From `read_candidates`.
        path: The same file.
        cutoff: As there.
        lengths: As there.
        limit: As there.
    """
    recent = [page for page in candidates.pages if not page.is_member]
    texts = [
        (p, cut_words(page.text, length))
        for p, page in enumerate(recent)
        for length in lengths
        if page.n_words >= length
    ]
    if not texts:
        return candidates
    cuts = Benchmark("recent", tuple(text for _, text in texts), (None,) * len(texts))
    forms = forms_of(cuts, is_chosen=True)
    search = OverlapSearch(overlap_index([form.text for form in forms]))
    batch: list[tuple[int, Segment]] = []
    n_characters = 0
    titles: set[bytes] = set()
    for number, (where, row) in enumerate(_records(path, limit), 1):
        if parse_created(_string(row, "created", where), where) >= cutoff:
            continue
        titles.add(_title(_string(row, "title", where)))
        text = _string(row, "text", where)
        batch += [(0, part) for part in text_segments(text, number, None)]
        n_characters += len(text)
        if n_characters >= _BATCH_CHARACTERS:
            search.add(batch)
            batch, n_characters = [], 0
    search.add(batch)
    found = occurrences(forms, search, files=[path.name])
    repeats = {texts[row.id][0] for row in found if set(RULES).intersection(row.rules)}
    repeats |= {p for p, page in enumerate(recent) if _title(page.title) in titles}
    gone = {id(recent[p]) for p in repeats}
    return Candidates(
        tuple(page for page in candidates.pages if id(page) not in gone),
        candidates.n_records,
        {**candidates.dropped, NEAR_DUPLICATE: len(repeats)},
    )


def draw_cut(pages: Sequence[Page], length: int, *, seed: int) -> tuple[Cut, int]:
    """As many members as non-members with at least so many words, at random.

    Both sides are drawn by the same rule from the pages that are long enough; the
    order is random too.

    Args:
        pages: Candidates.
        length: Words.
        seed: Seeds the draw, with each page's title and text, so that the order of
            the file does not matter; lengths share what they can.

    Returns:
        The cut, and how many pages were long enough and not drawn.
    """
    sides: dict[bool, list[Page]] = {True: [], False: []}
    for page in pages:
        if page.n_words >= length:
            sides[page.is_member].append(page)
    n_each = min(map(len, sides.values()))
    drawn = [
        page
        for side in sides.values()
        for page in sorted(side, key=lambda page: _draw(page, seed))[:n_each]
    ]
    drawn.sort(key=lambda page: _draw(page, seed))
    cut = Cut(
        length,
        tuple(cut_words(page.text, length) for page in drawn),
        tuple(page.is_member for page in drawn),
        tuple(page.title for page in drawn),
    )
    return cut, sum(map(len, sides.values())) - 2 * n_each


def parse_created(value: str, where: str) -> datetime.date:
    """UTC date of `created`: a date, or a time with its zone.

    Args:
        value: Such as `2023-04-05` or `2023-04-05T23:30:00Z`.
        where: File and line, for the error.

    Raises:
        InputError: If it is neither, or a time that does not say its zone: near
            midnight the day depends on it.
    """
    words = value.strip()
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", words):
            return datetime.date.fromisoformat(words)
        moment = datetime.datetime.fromisoformat(words)
    except ValueError as e:
        raise InputError(
            f"{where}: created is no date ({value!r})", hint="write 2023-04-05"
        ) from e
    if moment.tzinfo is None:
        raise InputError(
            f"{where}: created has no time zone ({value!r})",
            hint="write 2023-04-05 alone, or end the time with Z or +02:00",
        )
    try:
        return moment.astimezone(datetime.UTC).date()
    except OverflowError as e:
        raise InputError(f"{where}: created is no date ({value!r})") from e


def _records(path: Path, limit: int | None) -> Iterator[tuple[str, dict[str, object]]]:
    """Records and where they stand; one line in memory at a time."""
    n_records = 0
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, 1):
                if limit is not None and n_records == limit:
                    return
                where = f"{path}:{number}"
                try:
                    line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                    if not line.strip():
                        continue
                    row = json.loads(line)
                except (ValueError, RecursionError) as e:
                    raise InputError(f"{where}: not JSON ({e})") from e
                if not isinstance(row, dict):
                    raise InputError(
                        f"{where}: expected an object, got {type(row).__name__}"
                    )
                n_records += 1
                yield where, row
    except OSError as e:
        raise InputError(
            f"{path}: not readable ({e.strerror})", hint="--pages names a .jsonl file"
        ) from e


def _string(row: dict[str, object], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise InputError(
            f"{where}: {name} is no text ({json.dumps(value)[:40]})"
            if name in row
            else f"{where}: no field {name!r} (it has: {', '.join(row)})",
            hint='a page is {"title", "text", "created", "event" or "categories"}',
        )
    check_text(value, f"{where}: {name}")
    return value


def _is_event(row: dict[str, object], where: str) -> bool:
    event, categories = row.get("event"), row.get("categories")
    if isinstance(event, bool):
        return event
    if isinstance(categories, list) and all(isinstance(c, str) for c in categories):
        return any(_EVENT.search(str(category)) for category in categories)
    raise InputError(
        f"{where}: neither event (true or false) nor categories (a list of names)",
        hint="only events are sure to be as recent as their pages",
    )


def _title(title: str) -> bytes:
    return _digest(collapsed(title).casefold())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _draw(page: Page, seed: int) -> bytes:
    """A random number that belongs to the page and the seed."""
    return _digest(f"{seed}\n{page.title}\n{page.text}")
