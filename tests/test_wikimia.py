"""`eval.wikimia`: which pages are kept, and what is dropped and why."""

import json

import numpy as np
import pytest

from eval.wikimia import WikiMIA
from eval.wikimia_pages import (
    BETWEEN,
    LIST_PAGE,
    NEAR_DUPLICATE,
    NOT_EVENT,
    REPEATED,
    SHORT,
    parse_created,
)
from jaxcontam.data.labelled import load_labelled
from jaxcontam.errors import InputError

OLD, BETWEEN_DAY, NEW = "2014-05-06", "2019-01-01", "2023-03-04"


def prose(seed, n_words=40):
    rng = np.random.default_rng(seed)
    return " ".join(f"{a}{b}" for a, b in rng.choice(list("abcdefgh"), (n_words, 2)))


def page(title, created, seed, *, n_words=40, **fields):
    fields = fields or {"event": True}
    return {
        "title": title,
        "text": prose(seed, n_words),
        "created": created,
        **fields,
    }


PAGES = [
    *(page(f"Old {i}", OLD, i) for i in range(6)),
    *(page(f"New {i}", NEW, 100 + i, n_words=20 + 10 * i) for i in range(4)),
    page("List of races", NEW, 200),
    page("timeline of a war", OLD, 201),
    page("A person", NEW, 202, event=False),
    page("A cup", NEW, 203, categories=["Sports", "2023 events in Asia"]),
    page("A prevention", NEW, 204, categories=["Eventual things", "Prevention"]),
    page("Middle", BETWEEN_DAY, 205),
    page("Short", NEW, 206, n_words=7),
    page("New 1", NEW, 207),
    page("Moved", NEW, 205),
    page("Old 2", NEW, 208),
]


def write_pages(path, pages):
    path.write_text("".join(json.dumps(one) + "\n" for one in pages))
    return path


def run(tmp_path, pages=PAGES, **flags):
    study = WikiMIA(
        pages=write_pages(tmp_path / "pages.jsonl", pages),
        out=tmp_path / "out",
        **{"lengths": (10, 30)} | flags,
    )
    return study.run()


def test_every_page_is_kept_or_counted(tmp_path):
    manifest = run(tmp_path)
    assert manifest["n_records"] == len(PAGES)
    assert manifest["dropped"] == {
        LIST_PAGE: 2,
        NOT_EVENT: 2,
        BETWEEN: 1,
        SHORT: 1,
        REPEATED: 1,
        NEAR_DUPLICATE: 2,
    }
    kept = manifest["n_members"] + manifest["n_nonmembers"]
    assert kept + sum(manifest["dropped"].values()) == len(PAGES)
    assert (manifest["n_members"], manifest["n_nonmembers"]) == (6, 5)


def test_files_are_wikimia_as_the_loader_knows_it(tmp_path):
    manifest = run(tmp_path)
    by_title = {one["title"]: one for one in PAGES if one["title"] != "Old 2"}
    by_title["Old 2"] = PAGES[2]
    by_title["New 1"] = PAGES[7]
    for length in (10, 30):
        name = f"WikiMIA_length{length}.jsonl"
        texts = load_labelled(tmp_path / "out" / name)
        assert len(texts) == 2 * manifest["files"][name]["n_members"]
        assert sum(bool(label) for label in texts.labels or ()) == len(texts) / 2
        titles = manifest["files"][name]["titles"]
        for text, label, title in zip(
            texts.texts, texts.labels or (), titles, strict=True
        ):
            one = by_title[title]
            assert text.split() == one["text"].split()[:length]
            assert label == (one["created"] == OLD)
    # Of the new pages one has 20 words: it is in the shorter file alone.
    counts = [row["n_nonmembers"] for row in manifest["files"].values()]
    assert counts == [5, 4]


def test_files_of_an_earlier_run_go(tmp_path):
    run(tmp_path)
    out = tmp_path / "out"
    own = out / "notes.jsonl"
    own.write_text("mine")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"] |= {"notes.jsonl": {}, "../pages.jsonl": {}}
    (out / "manifest.json").write_text(json.dumps(manifest))
    manifest = run(tmp_path, lengths=(30,))
    assert [*manifest["files"]] == ["WikiMIA_length30.jsonl"]
    assert {path.name for path in out.iterdir()} == {
        "manifest.json",
        "notes.jsonl",
        "WikiMIA_length30.jsonl",
    }


def test_the_order_of_the_records_does_not_matter(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    # Of two pages with one title the first is kept, so their order stays.
    forward = run(tmp_path / "a")
    rest = [one for one in PAGES if one["title"] != "New 1"]
    pair = [one for one in PAGES if one["title"] == "New 1"]
    backward = run(tmp_path / "b", [*rest[::-1], *pair])
    assert forward["files"] == backward["files"]


def test_the_same_seed_draws_the_same_pages(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first, again, other = (
        run(tmp_path / name, seed=seed)["files"]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert first != other


def test_a_recent_page_that_stands_in_an_old_one_goes(tmp_path):
    old = page("Old", OLD, 1, n_words=300)
    words = old["text"].split()
    inside = page("Split off", NEW, 2) | {"text": " ".join(words[90:130]).upper()}
    edited = page("Edited", NEW, 3) | {"text": " ".join([*words[200:238], "x", "y"])}
    fresh = page("Fresh", NEW, 4) | {
        "text": " ".join([*words[10:24], *prose(9, 26).split()])
    }
    manifest = run(tmp_path, [old, inside, edited, fresh], lengths=(40,))
    # `Fresh` shares 14 words in a row, as pages of one kind do.
    assert manifest["dropped"] == {NEAR_DUPLICATE: 2}
    assert manifest["files"]["WikiMIA_length40.jsonl"]["titles"].count("Fresh") == 1


@pytest.mark.parametrize(
    ("created", "day"),
    [
        ("2023-04-05", "2023-04-05"),
        ("2023-04-05T23:30:00Z", "2023-04-05"),
        ("2023-01-01T00:30:00+02:00", "2022-12-31"),
    ],
)
def test_days_are_those_of_utc(created, day):
    assert str(parse_created(created, "here")) == day


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"created": "2023-01-01T00:30:00"}, "created has no time zone"),
        ({"created": "2023-13-01"}, "created is no date"),
        ({"created": "last spring"}, "created is no date"),
        ({"created": 2023}, r"created is no text \(2023\)"),
        ({"text": None}, r"text is no text \(null\)"),
        ({"text": "\ud800"}, "text: unpaired surrogate"),
        ({"event": "yes"}, "neither event"),
    ],
)
def test_a_damaged_record_is_named_by_its_line(tmp_path, damage, message):
    with pytest.raises(InputError, match=rf"pages\.jsonl:3: {message}"):
        run(tmp_path, [*PAGES[:2], PAGES[3] | damage])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"title"', r":1: not JSON"),
        (b"[1]", r":1: expected an object, got list"),
        (b'{"title": "a"}', r":1: no field 'text' \(it has: title\)"),
        (b"\xff", r":1: not JSON"),
        (b"\n", "no records"),
    ],
)
def test_a_file_that_is_no_page_file_is_refused(tmp_path, lines, message):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(lines)
    with pytest.raises(InputError, match=message):
        WikiMIA(pages=path, out=tmp_path / "out").run()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cutoff": "2016-01-01"}, "--members-before 2017-01-01 is later"),
        ({"cutoff": "soon"}, "--cutoff must be a date"),
        ({"lengths": (0,)}, "--lengths must be numbers of words"),
        ({"cutoff": "2024-01-01"}, "no non-members are left of 20 records"),
        ({"members_before": "2001-01-01"}, "no members are left"),
    ],
)
def test_flags_that_leave_nothing_are_refused(tmp_path, flags, message):
    with pytest.raises(InputError, match=message):
        run(tmp_path, **flags)
