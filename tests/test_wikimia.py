"""`eval.wikimia`: which pages are kept, what is dropped and why, and paraphrases."""

import http.server
import json
import threading

import numpy as np
import pytest

from eval.wikimia import WikiMIA, main
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


@pytest.fixture
def server():
    """A chat server that writes texts backwards; some requests are at fault."""
    codes = {"unauthorised": 401, "filtered": 400}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = body["messages"][0]["content"].split("\n\n", 1)[-1]
            with lock:
                asked.append(text)
                fault = faults.get(len(asked))
            words = "" if fault == "empty" else " ".join(reversed(text.split()))
            answer = {"choices": [{"message": {"content": words}}]}
            data = json.dumps(answer).encode()
            self.send_response(codes.get(fault, 200))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    asked, faults, lock = [], {}, threading.Lock()
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield f"api:http://127.0.0.1:{running.server_port}/v1#mirror", asked, faults
    running.shutdown()
    running.server_close()
    thread.join()


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_text_is_paraphrased_once(tmp_path, server, monkeypatch):
    api, asked, _ = server
    monkeypatch.setenv("API_KEY", "sk-very-secret")
    manifest = run(tmp_path, paraphraser=api)
    out = tmp_path / "out"
    n_texts = 0
    for length in (10, 30):
        texts = rows_of(out / f"WikiMIA_length{length}.jsonl")
        found = rows_of(out / f"WikiMIA_length{length}_paraphrased.jsonl")
        assert [row["label"] for row in found] == [row["label"] for row in texts]
        assert [row["input"].split()[::-1] for row in found] == [
            row["input"].split() for row in texts
        ]
        n_texts += len(texts)
    assert len(asked) == n_texts
    assert manifest["paraphraser"]["name"] == "mirror"
    before = (out / "manifest.json").read_bytes()
    assert run(tmp_path, paraphraser=api) == manifest
    assert len(asked) == n_texts
    assert (out / "manifest.json").read_bytes() == before
    for path in out.iterdir():
        assert b"sk-very-secret" not in path.read_bytes()


def test_a_run_that_failed_goes_on_where_it_stopped(tmp_path, server):
    api, asked, faults = server
    faults[4] = "unauthorised"
    with pytest.raises(InputError, match="HTTP 401"):
        run(tmp_path, paraphraser=api)
    assert not list((tmp_path / "out").glob("*_paraphrased.jsonl"))
    assert (tmp_path / "out" / "WikiMIA_length10.jsonl").is_file()
    manifest = run(tmp_path, paraphraser=api)
    n_texts = sum(
        row["n_members"] + row["n_nonmembers"]
        for name, row in manifest["files"].items()
        if "paraphrased" not in name
    )
    # Nothing was asked for twice but the one that failed.
    assert len(asked) == n_texts + 1
    assert len(set(asked)) == n_texts


@pytest.mark.parametrize(
    ("fault", "reason"), [("filtered", "HTTP 400"), ("empty", "an empty answer")]
)
def test_a_text_that_is_refused_is_counted_and_asked_for_again_if_wanted(
    tmp_path, server, monkeypatch, fault, reason
):
    api, asked, faults = server
    faults[4] = fault
    pages = write_pages(tmp_path / "pages.jsonl", PAGES)
    words = ["--pages", str(pages), "--out", str(tmp_path / "out")]
    words += ["--lengths", "10", "30", "--paraphraser", api]
    monkeypatch.setattr("sys.argv", ["eval.wikimia", *words])
    assert main() == 3
    out = tmp_path / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    name = "WikiMIA_length10_paraphrased.jsonl"
    row, whole = manifest["files"][name], manifest["files"]["WikiMIA_length10.jsonl"]
    assert row["n_refused"] == 1
    assert reason in row["first_refusal"]
    assert len(row["titles"]) == len(rows_of(out / name)) == len(whole["titles"]) - 1
    by_title = dict(
        zip(whole["titles"], rows_of(out / "WikiMIA_length10.jsonl"), strict=True)
    )
    for title, found in zip(row["titles"], rows_of(out / name), strict=True):
        assert found["label"] == by_title[title]["label"]
        assert found["input"].split()[::-1] == by_title[title]["input"].split()
    n_asked = len(asked)
    assert main() == 3
    assert len(asked) == n_asked
    monkeypatch.setattr("sys.argv", ["eval.wikimia", *words, "--retry-refused"])
    assert main() == 0
    assert len(asked) == n_asked + 1
    assert len(rows_of(out / name)) == len(whole["titles"])


def test_a_server_that_refuses_everything_is_found_out_at_once(tmp_path, server):
    api, asked, faults = server
    faults.update(dict.fromkeys(range(100), "filtered"))
    with pytest.raises(InputError, match="whatever it is asked"):
        run(tmp_path, paraphraser=api)
    # At most the texts of the first file, and the harmless one.
    assert len(asked) <= 11
