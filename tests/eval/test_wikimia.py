"""A new WikiMIA: dates of changelogs, sides of a date, a table by a model."""

import datetime
import json
from collections import Counter

import pytest

from eval.wikimia import Dated, WikiMIA, draw, read_dated, sections
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import load_labelled
from tests.support.studies import dated_texts

pytestmark = pytest.mark.unoptimised

CUTOFF = datetime.date(2025, 1, 1)
CHANGELOGS = {
    "a.md": "# News\n## 2.0 - 2025-03-04\nb c\n\n## [1.0] (2024-02-03)\nd\n",
    "b.rst": "News\n====\n1.1 (May 6, 2023)\n-----------------\n\ne f\n",
    "c.rst": (
        ".. changelog::\n    :version: 3.1\n\n    .. change::\n        not yet\n"
        ".. changelog::\n    :released: November 16, 2026\n"
        "    .. change::\n        :tags: orm\n\n        :func:`g` is\n        new.\n"
        "    .. change::\n        h\n"
    ),
}


def test_each_change_has_the_date_of_its_version(tmp_path):
    for name, text in CHANGELOGS.items():
        (tmp_path / name).write_text(text)
    found = [(one.text, str(one.date), one.source) for one in read_dated(tmp_path)]
    assert found == [
        ("b c", "2025-03-04", "a.md"),
        ("d", "2024-02-03", "a.md"),
        ("e f", "2023-05-06", "b.rst"),
        (":func:`g` is new.", "2026-11-16", "c.rst"),
        ("h", "2026-11-16", "c.rst"),
    ]
    assert list(sections("## 2025-13-40\nx")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# News\n## 2.0 - 2025-03-04\na\n## 1.9\nb\n## 1.8 - 2020-01-02\nc\n", "ac"),
        # A version below another; titles within a version, which are no texts.
        ("## 2.0 - 2025-03-04\na\n### 1.9.1\nb\n", "a"),
        ("## 2.0 - 2025-03-04\n### Added\na\n### Fixed\nb\n## 1.9\nc", ["a b"]),
        ("## 2.0 - 2025-03-04\n```\n# no title\n```\na\n", ["``` # no title ``` a"]),
        (
            "N\n===\n2.0 (2025-03-04)\n---\na\n\n===\nOld\n===\nb\n\n1.0\n---\nc\n",
            "a",
        ),
        (":released: 2025-03-04\n.. change::\na\n:released: no\n.. change::\nb\n", "a"),
    ],
)
def test_a_title_without_a_date_ends_the_version_before_it(text, found):
    assert [one.text for one in sections(text)] == [*found]


def test_another_model_in_the_same_folder_is_asked_again(model, tmp_path, monkeypatch):
    _, path, *_ = dated_texts(tmp_path)
    asked = []
    row = {"method": "loss", "auc": 0.5, "tpr": 0.0}
    monkeypatch.setattr("eval.wikimia._asked", lambda *_: asked.append(1) or [row])
    for fingerprint in ("one", "one", "other"):
        monkeypatch.setattr(
            "eval.wikimia.model_fingerprint", lambda _, f=fingerprint: f
        )
        monkeypatch.setattr("eval.study.code_version", lambda: "a commit")
        WikiMIA(texts=path, lengths=(10,), model=model, out=tmp_path / "out").run()
    assert len(asked) == 2


def test_a_source_gives_as_many_texts_to_either_side_and_what_is_equal_none():
    days = [CUTOFF + datetime.timedelta(days=d) for d in (-900, -1, 0, 300)]
    texts = [
        Dated(f"{source} {i} has words\nand more", day, source)
        for source, n in (("x", 12), ("y", 5))
        for i, day in enumerate(days[:1] * 2 * n + days[1:] * n)
    ]
    texts += [Dated("the same words here again", days[k], "x") for k in (0, 3)]
    chosen, labels = draw(texts, 4, cutoff=CUTOFF, seed=0)
    dates = {one.text.rpartition("\n")[0]: one.date for one in texts}
    assert all((dates[text] < CUTOFF) == y for text, y in zip(chosen, labels, strict=1))
    sides = Counter(zip((text[0] for text in chosen), labels, strict=True))
    assert sides == {(s, y): n for s, n in (("x", 24), ("y", 10)) for y in (0, 1)}
    assert draw(texts, 4, cutoff=CUTOFF, seed=0) == (chosen, labels)
    assert draw(texts, 4, cutoff=CUTOFF, seed=1)[0] != chosen
    assert draw(texts, 7, cutoff=CUTOFF, seed=0) == ([], [])


def test_a_model_that_knows_the_older_texts_ranks_them_and_the_texts_alone_do_not(
    model, tmp_path
):
    _, path, *_ = dated_texts(tmp_path)
    asked = {"texts": path, "lengths": (10,), "methods": ("min_k",)}
    study = WikiMIA(**asked, model=model, out=tmp_path / "out")
    document = study.run()
    (found,) = document["files"]
    *blind, row = found["rows"]
    assert row["method"] == "min_k" and row["auc"] > 0.9 and row["tpr"] > 0.5
    assert len(blind) == 5 and all(one["auc"] < 0.8 for one in blind)
    texts = load_labelled(tmp_path / "out/WikiMIA_length10.jsonl")
    assert sum(texts.labels) == found["n_a_side"] == len(texts) / 2 == 24
    assert "| min_k |" in (tmp_path / "out/wikimia.md").read_text()
    # What is finished is not asked again.
    assert WikiMIA(**asked, model=model, out=tmp_path / "out").run()["files"] == [found]


@pytest.mark.parametrize(
    ("flags", "row", "message"),
    [
        ({"cutoff": "soon"}, {}, "--cutoff must be a date such as .*'soon'"),
        ({"lengths": ()}, {}, "--lengths must be numbers of words"),
        ({}, {"text": "a"}, "dated.jsonl:1: no record with text and date"),
        ({}, {"text": "a", "date": "x"}, "dated.jsonl:1: date must be a date"),
        ({}, {"text": "a", "date": "2020-01-01"}, "no length has 20 texts of each"),
    ],
)
def test_what_cannot_be_made_is_one_line(tmp_path, flags, row, message):
    (tmp_path / "dated.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=message):
        WikiMIA(texts=tmp_path / "dated.jsonl", out=tmp_path, **flags).run()


def test_files_that_cannot_be_read_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"lost\.jsonl: not readable"):
        read_dated(tmp_path / "lost.jsonl")
    (tmp_path / "a.md").write_bytes(b"## 2025-01-02\n\xff")
    with pytest.raises(InputError, match=r"a\.md: byte 14: not UTF-8"):
        read_dated(tmp_path)
