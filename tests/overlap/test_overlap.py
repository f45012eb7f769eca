"""What a search finds, against sets and loops."""

import dataclasses
import functools
import io
import json
import math
import random
import re
import tracemalloc

import numpy as np
import pytest

from jaxcontam.data import ngrams
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Document
from jaxcontam.errors import InputError
from jaxcontam.overlap import index as indexing
from jaxcontam.overlap.counts import (
    Counts,
    Hit,
    counts_bytes,
    merged,
    read_counts,
    read_tasks,
)
from jaxcontam.overlap.index import example_index, forms_of
from jaxcontam.overlap.occurrences import occurrences
from tests.support.overlap_texts import sentence


def index_of(examples):
    benchmark = Benchmark("b", tuple(examples), (None,) * len(examples))
    return example_index(forms_of(benchmark, is_chosen=False))


def found_in(documents, examples, *, batch=1):
    """Rows of plain examples, with documents one a batch unless said otherwise."""
    index = index_of(examples)
    numbered = [Document(text, "docs", i) for i, text in enumerate(documents, 1)]
    parts = [numbered[i : i + batch] for i in range(0, len(numbered), batch)]
    return occurrences(index, merged(index.find(part) for part in parts))


def part(i, j, changed=()):
    """Words i to j - 1 of one text, some of them changed."""
    words = sentence(107).split()
    for place in changed:
        words[place] = "changed"
    return " ".join(words[i:j])


ALL = ("exact", "words", "13-gram", "near-duplicate", "8-grams")
TURNED = [part(i, i + 8) for i in range(70)]
SCATTERED = sentence(100, 5000).join(f" {part(i, i + 12)} " for i in range(0, 60, 8))
FRAME = sentence(500, 10_000)
FIVE, EIGHT, MIDDLE = part(0, 5), part(0, 8), part(20, 33)
UNCONTAINED, near = {"containment": None}, functools.partial(pytest.approx, abs=1e-6)


@pytest.mark.parametrize(
    ("documents", "example", "found"),
    [
        ([part(0, 40)], part(0, 40), {"rules": ALL, "share_8grams": 1, "line": 1}),
        ([FRAME, f"x, {part(0, 13)}; y"], part(0, 13), {"rules": ALL, "line": 2}),
        ([FRAME, f"x, {part(0, 99)}; y"], part(0, 99), {"rules": ALL, "line": 2}),
        ([FRAME], part(0, 30), {"rules": (), "share_8grams": 0, "file": None}),
        ([f"x {part(20, 32)} y"], part(0, 60), {"rules": ()}),
        ([f"x {MIDDLE} y"], part(0, 60), {"rules": ("13-gram",), "matched": MIDDLE}),
        # Below 13 words an example counts as a whole.
        ([f"x {part(0, 4)} y"], part(0, 4), {"rules": ("words", "13-gram")}),
        ([f"x {FIVE}. y"], FIVE, {"rules": ALL[:3], "matched": FIVE} | UNCONTAINED),
        ([f"x {part(0, 11)} x"], part(0, 12), {"rule": "8-grams"}),
        # Each 8-gram in a document of its own, so that no other rule has a say.
        (TURNED, part(0, 107), {"rules": ("8-grams",), "share_8grams": 0.7}),
        (TURNED[:69], part(0, 107), {"rules": (), "share_8grams": 0.69}),
        # 24 words have 17 8-grams: the repeated one twice, others and seams 15 times.
        ([EIGHT], f"{EIGHT} {EIGHT} {part(20, 28)}", {"share_8grams": near(2 / 17)}),
        # A changed word inside a text costs 5 of its 56 shingles.
        *(
            (
                [f"{FRAME} {part(0, 60, range(10, 11 + 13 * i, 13))}"],
                part(0, 60),
                {"containment": near((51 - 5 * i) / 56)}
                | {"rules": ("13-gram", *ALL[3:])[: 3 - i]},
            )
            for i in range(3)
        ),
        ([SCATTERED], part(0, 60), {"rule": None}),
        # Every place of one fits every place of the other.
        (["la " * 3_000], "la " * 600, {"rules": ("13-gram", "8-grams")}),
    ],
)
def test_rules_are_met_where_they_say(documents, example, found):
    (row,) = found_in(documents, [example])
    assert {name: getattr(row, name) for name in found} == found


SENTENCES = {
    "Chinese": "我们今天上午在北京大学的图书馆里看到了一位老教授正在讲解量子力学",
    "Japanese": "明治維新の後、日本政府は富国強兵を目標に掲げて鉄道や郵便制度を整えた",
    "Thai": "ประเทศไทยเป็นประเทศที่ตั้งอยู่ในเอเชียตะวันออกเฉียงใต้และมีน้ำทะเลล้อมรอบ",
    "Lao": "ປະເທດລາວຕັ້ງຢູ່ໃນເຂດອາຊີຕາເວັນອອກສ່ຽງໃຕ້ແລະບໍ່ມີທາງອອກສູ່ທະເລ",
    "Khmer": "ព្រះរាជាណាចក្រកម្ពុជាជាប្រទេសមួយនៅអាស៊ីអាគ្នេយ៍ដែលមានប្រវត្តិយូរលង់",
    "Burmese": "မြန်မာနိုင်ငံသည်အရှေ့တောင်အာရှတွင်တည်ရှိသောနိုင်ငံတစ်ခုဖြစ်သည်",
    "Tibetan": "བོད་ལྗོངས་ནི་ས་ཆ་མཐོ་ཤོས་ཤིག་ཡིན་པས་འཛམ་གླིང་གི་ཡང་རྩེ་ཞེས་འབོད།",
    "Hindi": "भारत दक्षिण एशिया में स्थित एक विशाल देश है जिसकी राजधानी नई दिल्ली कहलाती है",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_example_inside_running_text_without_spaces_is_exact(language):
    text = SENTENCES[language]
    gap = " " if language == "Hindi" else ""
    # What stands around it is of the same signs.
    signs = ngrams.words_of(text)
    around, half = gap.join(signs[::-1]), len(signs) // 2
    turned = gap.join([*signs[half:], *signs[:half]])
    documents = [around, gap.join([around, turned, around])]
    (row,) = found_in(documents, [text])
    assert row.rule not in ("exact", "words")
    (row,) = found_in([*documents, gap.join([around, text, around])], [text])
    assert (row.rule, row.line) == ("exact", 3)
    assert row.matched == ngrams.joined_words(signs[:13])
    shown = text if language == "Hindi" else text[: len(row.matched)]
    assert row.example is not None and row.example.startswith(f"[{shown[:9]}")


@pytest.mark.parametrize(
    ("example", "document", "rule"),
    [
        ("x contamination {}", "y x con\u00adtami\u200bna\u2060tion \ufeff{}", "exact"),
        ("x con\u200btamination {}", "y x contamination {} y", "exact"),
        ('R&D "x" don\'t {}', "y R&amp;D &quot;x&quot; don&#39;t&nbsp;{} y", "exact"),
        ("R&amp;D {}", "y R&D {} y", "exact"),
        ("R&amp;D &lt;{}", "y R&amp;amp;D &amp;lt;{} y", "exact"),
        # White space alone is no difference, other signs are one.
        ("a bc d {}", "x a\n\nbc\td {} y", "exact"),
        ("a bc d {}", "x A BC d {} y", "words"),
        ("a bc d {}", "x a, “bc, “d, “{}! y", "words"),
    ],
)
def test_what_nobody_sees_is_no_difference(example, document, rule):
    text, other = (one.format(sentence(20)) for one in (example, document))
    (row,) = found_in([other], [text])
    assert row.rule == rule


@pytest.mark.parametrize("gap", ["", " "])
def test_a_cut_of_a_long_document_splits_no_sign_and_no_word(monkeypatch, gap):
    monkeypatch.setattr(indexing, "_PIECE", 40)
    texts = [*SENTENCES.values()][:7]
    whole = gap.join(f"{text}{gap}ATP{gap}" for text in texts * 5)
    cut = [text for _, text in indexing.pieces(Document(whole))]
    assert "".join(cut) == whole
    assert [word for text in cut for word in ngrams.words_of(text)] == (
        ngrams.words_of(whole)
    )
    assert max(map(len, cut)) <= 40


def naive_words(text):
    return re.findall(r"\w+", text.lower())


def naive_grams(words, n):
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def naive_row(example, documents):
    """Rules by sets of tuples, and the best stretch by a loop over all starts."""
    words, seen = naive_words(example), [naive_words(text) for text in documents]

    def holders(n, own):
        wanted = set(naive_grams(own, n))
        return sum(bool(wanted & set(naive_grams(words, n))) for words in seen)

    everywhere = {gram for one in seen for gram in naive_grams(one, 8)}
    grams, wanted = naive_grams(words, 8), set(naive_grams(words, 5))
    share = sum(gram in everywhere for gram in grams) / len(grams) if grams else None
    best = 0
    # No stretch is longer than 1.625 times the text, none that counts is shorter.
    for one in seen if len(words) >= 13 else []:
        for i in range(len(one)):
            stretch = one[i : i + len(words) + len(words) // 8 + len(words) // 2]
            best = max(best, len(wanted & set(naive_grams(stretch, 5))))
    contained = best / len(wanted) if len(words) >= 13 else None
    n_documents, n_whole = (holders(min(n, len(words)), words) for n in (13, 10**9))
    return n_documents, share, n_whole, contained


@pytest.mark.parametrize("seed", range(4))
def test_rules_are_those_of_sets_of_tuples(seed):
    rng = random.Random(seed)
    vocabulary = [f"v{i}" for i in range(30)]
    examples = [
        " ".join(rng.choices(vocabulary, k=rng.randint(1, 50))) for _ in range(25)
    ]
    documents = []
    for _ in range(60):
        words = rng.choices(vocabulary, k=rng.randint(0, 120))
        for example in rng.sample(examples, 2):
            copied = example.split()
            begin = rng.randrange(len(copied))
            copied = copied[begin : begin + rng.randint(1, 50)]
            if rng.random() < 0.5:
                copied[rng.randrange(len(copied))] = "other"
            at = rng.randint(0, len(words))
            words[at:at] = copied
        documents.append(" ".join(words))
    rows = found_in(documents, examples, batch=rng.randint(1, 60))
    kinds = set()
    for row, example in zip(rows, examples, strict=True):
        n_documents, share, n_whole, containment = naive_row(example, documents)
        assert ("13-gram" in row.rules) == (n_documents > 0)
        assert ("words" in row.rules) == (n_whole > 0)
        assert row.share_8grams == (None if share is None else pytest.approx(share))
        assert ("8-grams" in row.rules) == (share is not None and share >= 0.7)
        if containment is not None and row.containment is not None:
            assert row.containment <= containment + 1e-6
            # Every stretch that holds 80 % shares 8 words in a row with the text.
            assert (containment >= 0.8) == (row.containment >= 0.8)
        if len(example.split()) < 13 and n_documents:
            assert row.matched_documents == n_documents
        kinds.update(row.rules or ["none"])
    assert {"none", "13-gram", "8-grams", "words"} <= kinds


@pytest.mark.parametrize("batch_size", [1, 5])
def test_words_over_and_over_cost_no_more_than_their_number(batch_size):
    """Every place of the documents fits every place of the text."""
    documents = ["LA " * 2_000] * 5
    tracemalloc.start()
    (row,) = found_in(documents, ["la " * 60], batch=batch_size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (row.rule, row.line, row.matched_documents) == ("words", 1, 5)
    # 10,000 places fit 53 places each; all pairs at once would be above 60 MB.
    assert peak < 40_000_000


def test_frame_of_many_examples_starts_no_comparison():
    frame = sentence(20)
    examples = [f"{frame} {sentence(20, 100 * i)}" for i in range(1, 150)]
    rows = found_in([frame, examples[70]], examples)
    assert [row.rule for row in rows].count("13-gram") == 148
    assert {row.containment for row in rows} == {0.0, 1.0}
    assert rows[70].rule == "exact"


def test_documents_that_hold_the_rarest_matched_words_are_counted():
    frame = sentence(20)
    examples = [f"{frame} {sentence(20, 100 * i)}" for i in range(1, 4)]
    documents = [f"{examples[0]} {examples[0]}", "no", examples[0]]
    for batch in (1, 3):
        rows = found_in(documents, examples, batch=batch)
        assert [row.rule for row in rows] == ["exact", "13-gram", "13-gram"]
        assert [row.matched_examples for row in rows] == [1, 3, 3]
        assert [row.matched_documents for row in rows] == [2, 2, 2]


def test_record_is_looked_for_as_line_and_as_strings():
    record = {"goal": sentence(9), "steps": [sentence(9, 50), {"n": 3}], "id": 4}
    line = json.dumps(record)
    benchmark = Benchmark("b", (line,), (record,))
    index = example_index(forms_of(benchmark, is_chosen=False))
    for text, form in [
        (line, "line"),
        (f"{sentence(9)}\n{sentence(9, 50)}", "strings"),
    ]:
        (row,) = occurrences(index, index.find([Document(text)]))
        assert (row.rule, row.form) == ("exact", form)


@pytest.mark.parametrize("line", ["\n", "---\n"])
def test_lines_without_words_are_not_searched_again_and_again(line, monkeypatch):
    text = sentence(20)
    cut = text.index(" ", 60)
    document = Document(
        f"{text}\n{line * 3_000}{text[:cut]}\n{text[cut:]}", "f", 1, True
    )
    (whole,) = occurrences(index := index_of([text]), index.find([document]))
    n_parts = []

    class CountedWindow(indexing._Window):
        def __init__(self, parts, n_carried):
            n_parts.append(len(parts))
            super().__init__(parts, n_carried)

    monkeypatch.setattr(indexing, "_Window", CountedWindow)
    monkeypatch.setattr(indexing, "BATCH", 500)
    (row,) = occurrences(index, index.find([document]))
    assert (row.rules, row.file, row.line) == (whole.rules, "f", 1)
    assert row.rule == "exact"
    assert len(n_parts) > 5 and sum(n_parts) < 1.2 * 3_000


def test_counts_that_contradict_each_other_do_not_fit():
    texts = [sentence(20), sentence(9, 500)]
    index = index_of(texts)
    good = index.find([Document(" ".join(texts))])
    assert index.fits(good) and index.fits(Counts())
    match, stretch, short = good.matches[0], good.stretches[0], good.ngrams[8]
    wrong = [
        *({"ngrams": {**good.ngrams, n: short}} for n in (7, 13)),
        *(
            {"ngrams": {**good.ngrams, 8: np.add(short, [[by], [0]])}}
            for by in (10**9, -3)
        ),
        *({"ngrams": {**good.ngrams, 8: np.add(short, [[0], [by]])}} for by in (1, -1)),
        {"ngrams": {}},
        {"n_documents": 0},
        *({"matches": {**good.matches, f: match}} for f in (-1, 1, 2)),
        *(
            {"matches": {**good.matches, 0: match._replace(order=order)}}
            for order in [(), (1, 2), (10**400,), (math.inf,), (math.nan,), (-1,)]
        ),
        *(
            {"stretches": {0: stretch._replace(order=order)}}
            for order in [(), (0,), (1, 0), (-21, 0), (0, -3), (math.nan, 0)]
        ),
        {"stretches": {2: stretch}},
        *({"nearest": {f: match}} for f in (-1, 2)),
        {"nearest": {0: stretch}},
    ]
    for fields in wrong:
        assert not index.fits(dataclasses.replace(good, **fields)), fields


@pytest.mark.parametrize("order", [(None,), ("ab",), ([1],), (True,), "packed"])
def test_packed_counts_and_hits_without_a_number_are_damage(order, tmp_path):
    hits = {} if order == "packed" else {0: Hit(order, "f", 1, "")}
    data = counts_bytes(Counts(matches=hits), {})
    if order == "packed":
        with np.load(io.BytesIO(data)) as saved:
            np.savez_compressed(file := io.BytesIO(), **saved)
        data = file.getvalue()
    with pytest.raises(InputError, match="x: damaged counts"):
        read_counts(io.BytesIO(data), "x")
    # So are those without a task.
    path = tmp_path / "0.counts.npz"
    for task in ([0], {}, "0", None, False):
        about = {"index": "i", "task": task, "n_tasks": 1}
        path.write_bytes(counts_bytes(Counts(), about))
        with pytest.raises(InputError, match=r"0\.counts\.npz: damaged counts"):
            read_tasks([path], "i")
