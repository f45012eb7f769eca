"""Draws, cuts and instructions of instances: what decides, and what is kept."""

import itertools
import json
import random

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from jaxcontam.replication.flags import ReplicationDesign
from jaxcontam.replication.instances import (
    TASKS,
    Fields,
    cut_text,
    draw_instances,
    find_fields,
    instances_fingerprint,
    load_prompts,
    sentence_starts,
    text_keys,
)
from tests.support.instances import instance

TEXT = Fields()


def find(benchmark, **flags):
    return find_fields(benchmark, ReplicationDesign(**flags))


def draw(benchmark, found, *, elsewhere=(), **flags):
    design = ReplicationDesign(**flags)
    return draw_instances(benchmark, found, design, elsewhere=elsewhere)


def plain(texts):
    return Benchmark("set", tuple(texts), (None,) * len(texts))


def records(rows):
    return Benchmark("set", tuple(str(row) for row in rows), tuple(rows))


def some_texts(n, n_sentences=6):
    return [
        " ".join(f"Row {i} has sentence {j} of some words." for j in range(n_sentences))
        for i in range(n)
    ]


def test_both_pieces_make_the_text_again():
    rng = np.random.default_rng(0)
    for text in (
        "One line.\nAnother one here.\n\nA third,\tafter a tab. And a fourth.",
        "  no sentence at all but\n\twords with  two spaces and line\nbreaks in it ",
        "two words",
        "{a} brace {b} text {label} of six",
    ):
        for seed in rng.integers(0, 1000, 40):
            first, second, _ = cut_text(text, seed=int(seed))
            assert first and second
            kept = text.strip()
            space = kept[len(first) : len(kept) - len(second)]
            assert kept == first + space + second
            assert space.isspace()


def test_cuts_at_a_sentence_when_there_are_several_and_inside_the_only_one():
    several = "Mr. Smith came in. He sat down there! Then he left us."
    for seed in range(20):
        first, second, cut = cut_text(several, seed=seed)
        assert cut == "sentence"
        assert first.endswith("in.") != second.startswith("Then")
    only = "a long line of news that holds no full stop before its end."
    assert {cut_text(only, seed=seed)[2] for seed in range(20)} == {"inside"}


def test_a_draw_depends_on_the_texts_the_seed_and_no_more_than_k():
    texts = some_texts(40)
    shuffled = random.Random(0).sample(texts, 40)
    a, b = (draw(plain(rows), TEXT, sample=10, seed=1) for rows in (texts, shuffled))
    assert a.fingerprint == b.fingerprint
    indices = [[one.index for one in of.instances] for of in (a, b)]
    assert [texts[i] for i in indices[0]] == [shuffled[i] for i in indices[1]]
    assert draw(plain(texts), TEXT, sample=30, seed=1).instances[:10] == a.instances
    assert draw(plain(texts), TEXT, sample=10, seed=2).fingerprint != a.fingerprint
    # The fingerprint sees pieces and not places, and another cut of the same texts.
    other = draw(plain(["First of all", *texts]), TEXT, sample=41, seed=0)
    kept = [i for i in other.instances if not i.first_piece.startswith("First")]
    every = [
        draw(plain(texts), TEXT, sample=40, seed=seed).fingerprint for seed in (0, 1)
    ]
    assert instances_fingerprint(kept) == every[0] != every[1]

    # The published code seeds anew for each row, so all are cut at 59 % of the words.
    rows = [" ".join(["w"] * 99 + [str(i)]) for i in range(60)]
    drawn = draw(plain(rows), TEXT, sample=60, seed=0)
    shares = {len(one.first_piece.split()) / 100 for one in drawn.instances}
    assert len(shares) > 15 and min(shares) >= 0.4 and max(shares) <= 0.7


def test_every_row_is_drawn_equally_often():
    texts = plain(some_texts(8))
    counts = np.zeros(8)
    n = 2000
    for seed in range(n):
        drawn = draw(texts, TEXT, sample=2, seed=seed)
        counts[[one.index for one in drawn.instances]] += 1
    # 5 standard errors of a share of 1/4 at n = 2000.
    assert np.abs(counts / n - 1 / 4).max() < 5 * np.sqrt(0.25 * 0.75 / n)


def test_what_is_too_short_or_stands_twice_or_elsewhere_is_counted_not_drawn():
    texts = ["two  words", "Two words", "three more words", "four more of them", "one"]
    elsewhere = text_keys(plain(["THREE more\nwords"]), TEXT)
    drawn = draw(plain([*texts, ""]), TEXT, sample=5, seed=0, elsewhere=elsewhere)
    counts = drawn.n_rows, drawn.n_duplicates, drawn.n_elsewhere, drawn.n_too_short
    assert counts == (6, 1, 1, 2)
    assert sorted(one.index for one in drawn.instances) == [1, 3]
    assert drawn.warnings == ("only 2 of 5 instances could be drawn",)


def test_a_text_that_is_null_is_not_drawn():
    rows = [{"text": None, "question": "Which field is it?", "label": float("nan")}]
    rows += [{**rows[0], "text": text} for text in (*some_texts(2), float("nan"))]
    fields = find(records(rows), task="classification")
    drawn = draw(records(rows), fields, sample=9, seed=0)
    assert (fields.texts, drawn.n_too_short, len(drawn.instances)) == (("text",), 2, 2)
    assert {one.label for one in drawn.instances} == {None}
    pairs = Fields(texts=("question", "text"))
    drawn = draw(records(rows), pairs, sample=9, seed=0)
    assert (drawn.n_too_short, len(drawn.instances)) == (2, 2)


def test_pairs_keep_both_texts_whole():
    rows = [
        {"premise": f"P {i}. More of it.", "hypothesis": f"H {i}", "label": i % 2}
        for i in range(5)
    ]
    rows.append({"premise": "P", "hypothesis": " ", "label": -1})
    rows = [row | {"book": i // 2} for i, row in enumerate(rows)]
    fields = find(records(rows), task="nli")
    assert fields.texts == ("premise", "hypothesis")
    names = ("entailment", "not_entailment")
    more = {"fields": (f"labels={','.join(names)}", "document=book")}
    drawn = draw(records(rows), fields, sample=9, seed=0, **more)
    assert drawn.n_too_short == 1 and len(drawn.instances) == 5
    for one in drawn.instances:
        row = rows[one.index]
        pieces = one.cut, one.first_piece, one.second_piece
        assert pieces == ("pair", row["premise"], row["hypothesis"])
        assert one.label == f"{row['label']} ({names[row['label']]})"
        assert one.group == str(row["book"])


@pytest.mark.parametrize(
    ("label", "names", "expected"),
    [
        (1, (), "1"),
        ("spam", (), "spam"),
        ("ham", ("spam", "ham"), "1 (ham)"),
        ("0", ("spam", "ham"), "0 (spam)"),
        (-1, ("spam", "ham"), None),
        (None, (), None),
    ],
)
def test_labels_are_written_with_their_names(label, names, expected):
    benchmark = records([{"text": "some words here", "label": label}])
    fields = find(benchmark, task="classification")
    more = {"fields": (f"labels={','.join(names)}",)} if names else {}
    drawn = draw(benchmark, fields, sample=1, seed=0, **more)
    assert drawn.instances[0].label == expected
    assert any("no label" in words for words in drawn.warnings) == (expected is None)
    # A summary is read from its own field.
    row = {"text": "The article.", "summary": "Its point in words.", "label": label}
    assert find(records([row]), task="summary").texts == ("summary",)
    assert find(records([row]), task="classification").texts == ("text",)


@pytest.mark.parametrize(
    "sentences",
    [
        ("One.", "Two.", "Three."),
        ("Dr. A. B. Smith of the U.S. Army ran.",),
        ('He said "Go!"', "Then he went."),
        ("It cost 3.50 dollars.", "Was it much? no"),
        ("A title\n", "the text"),
        ("wait... what",),
        ("Oh ...", "Then he ??", "Yes ! No"),
        ("So did I.", "Then we left."),
        ("Ende.", "Über alles."),
        ("no end",),
        # Each start of a run tried anew would take minutes here.
        ("." * 200_000 + "x",),
        ("Oh" + "!" * 200_000, "Yes"),
    ],
    ids=lambda sentences: sentences[0][:20],
)
def test_sentences_of_hand_cases(sentences):
    space = "\n" if sentences[0].endswith("\n") else " "
    text = space.join(sentences)
    starts = [0, *sentence_starts(text), len(text)]
    found = [text[a:b].strip() for a, b in itertools.pairwise(starts)]
    assert found == [one.strip() for one in sentences]
    assert sentence_starts("") == []


def one_of(first="The first piece", label="1 (yes)"):
    return instance(first, "hidden second piece", label=label)


def guided(prompts, one):
    return prompts.guided_prompt(one, dataset_name="SetName", split_name="validation")


@pytest.mark.parametrize("task", [task for task in TASKS if task != "plain"])
def test_arms_differ_by_the_name_and_show_the_same_piece(task):
    prompts = load_prompts(task)
    with_name, without = guided(prompts, one_of()), prompts.general_prompt(one_of())
    for word in ("SetName", "validation", "word for word"):
        assert word in with_name and word not in without
    for prompt in (with_name, without):
        assert prompt.count("The first piece") == prompt.count("1 (yes)") == 1
        assert "hidden" not in prompt and "{" not in prompt


@pytest.mark.parametrize("task", TASKS)
def test_without_a_label_no_line_speaks_of_one(task):
    prompts = load_prompts(task)
    assert prompts.has_arms == (task != "plain")
    one = one_of(label=None)
    for prompt in (guided(prompts, one), prompts.general_prompt(one)):
        assert "abel" not in prompt and "The first piece" in prompt
        # Without an instruction a base model reads the first piece alone.
        assert (prompt == "The first piece") == (task == "plain")
    with pytest.raises(InputError) as found:
        load_prompts("clasification")
    assert "did you mean 'classification'?" in found.value.hint


@pytest.mark.parametrize("task", ["classification", "nli"])
def test_braces_inside_texts_stay_what_they_are(task):
    prompts = load_prompts(task)
    one = one_of(first="{label} {0} {dataset_name} {{x}} %s", label="{input}")
    prompt = guided(prompts, one)
    assert "{label} {0} {dataset_name} {{x}} %s" in prompt
    assert prompt.count("{input}") == 1


def test_own_wording_gives_own_version(tmp_path):
    def loaded(name, text):
        path = tmp_path / name
        path.write_text(text)
        return load_prompts("nli", path)

    tables = {"guided": "{dataset_name}: {input}", "general": "Go on: {input}"}
    prompts = loaded("p.json", json.dumps({"name": "mine", "nli": tables}))
    assert guided(prompts, one_of()) == "SetName: The first piece"
    rows = [f"{name}='{text}'" for name, text in tables.items()]
    toml = loaded("t.toml", "\n".join(["[nli]", *rows]))
    own, same = prompts.version.split("@"), toml.version.split("@")
    assert (own[0], same[0], own[1]) == ("mine/nli", "t/nli", same[1])
    ends = loaded("e.toml", "\n".join(['stop = ["\\n\\n"]', "[nli]", *rows]))
    within = loaded("w.toml", "\n".join(["[nli]", *rows, 'stop = ["\\n\\n"]']))
    assert within.stop == ends.stop
    assert (ends.stop, prompts.stop) == (("\n\n",), ())
    assert ends.version.split("@")[1] != own[1]
    tables["general"] += "!"
    assert loaded("p.json", json.dumps({"nli": tables})).version.split("@")[1] != own[1]
