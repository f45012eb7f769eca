"""Words, rolling hashes and the table that finds n-grams exactly."""

import unicodedata

import numpy as np
import pytest

from jaxcontam.data.ngrams import (
    joined_words,
    ngram_hashes,
    ngram_table,
    same_words,
    word_ids,
    word_keys,
    words_of,
)


def naive_words(text):
    """Letter by letter; Unicode knows what is hidden (Cf) and what is a mark (M)."""
    hidden = {c for c in text if unicodedata.category(c) == "Cf"} | {"\u034f"}
    shown = "".join(c for c in text if c not in hidden)
    words, joins = [], False
    for c in unicodedata.normalize("NFKC", shown).lower():
        is_mark = unicodedata.category(c).startswith("M") and c < "\u2000"
        if joins and (is_mark or c.isalnum() or c == "_"):
            words[-1] += c
        elif joins := c.isalnum() or c == "_":
            words.append(c)
    return words


@pytest.mark.parametrize(
    "block",
    [
        *(range(0x80), range(0x250), range(0x250, 0x600), range(0x900, 0xE00)),
        *(range(0x1E00, 0x2000), range(0x2000, 0x2100), range(0xFB00, 0xFB50)),
    ],
)
def test_words_are_the_same_on_every_path(block):
    """ASCII, typographic and other texts take different ways to the same words."""
    signs = [chr(code) for code in block]
    for text in ["a".join(signs), "".join(signs), *(f"On{sign}E x" for sign in signs)]:
        assert words_of(text) == naive_words(text)
        assert words_of(f"{text} \u5b57") == [*naive_words(text), "\u5b57"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ＴＨＥ “Quick”—brown\tfox!", "the quick brown fox"),  # noqa: RUF001
        ("snake_case 3.14 don't", "snake_case 3 14 don t"),
        ("北京大学ATP2024年，answer是C。", "北 京 大 学 atp2024 年 answer 是 c"),  # noqa: RUF001
        ("日本の々〇コーヒー、ｶﾞｽ㍿", "日 本 の 々 〇 コ ー ヒ ー ガ ス 株 式 会 社"),  # noqa: RUF001
        ("𠮷野家", "𠮷 野 家"),
        ("ประเทศไทยเป็นที่น้ำ", "ป ระ เท ศ ไท ย เป็ น ที่ น้ํา"),
        ("ປະເທດລາວ", "ປະ ເທ ດ ລາ ວ"),
        ("ព្រះរាជាណាចក្រ", "ព្រះ រា ជា ណា ច ក្រ"),
        ("မြန်မာနိုင်ငံသည်", "မြ န် မာ နို င် ငံ သ ည်"),
        ("བོད་ལྗོངས་ནི།", "བོ ད ལྗོ ང ས ནི"),
        ("हिन्दी में, 한국어 문장", "हिन्दी में 한국어 문장"),
        ("con\u00adtami\u200bna\u2060ted \ufeffs\u200det", "contaminated set"),
        ("R&amp;D &quot;x&quot;&nbsp;y &#39;&#x5317;", "r d x y 北"),
        ("AT&T &amp;quot;z&amp;quot; a&b", "at t z a b"),
        ("f(&copy) ?a=1&lt=2 &nothing;", "f copy a 1 lt 2 nothing"),
    ],
)
def test_a_sign_of_a_script_without_spaces_is_a_word(text, words):
    assert words_of(text) == unicodedata.normalize("NFKC", words).split()
    assert words_of(joined_words(words_of(text))) == words_of(text)


def test_hash_is_the_polynomial_of_the_keys():
    keys = word_keys(40)[np.random.default_rng(0).integers(0, 41, 60)]
    assert [len(ngram_hashes(keys[:n], [13])[13]) for n in (0, 12, 13)] == [0, 0, 1]
    found = ngram_hashes(keys, range(1, 15))
    for n, hashes in found.items():
        assert len(hashes) == 60 - n + 1
        for i in range(60 - n + 1):
            value = 0
            for key in keys[i : i + n].tolist():
                value = (value * 0x9E3779B97F4A7C15 + key) % 2**64
            assert value == hashes[i]


@pytest.mark.parametrize("n_keys", [7, 2, 1])
def test_found_ngrams_are_those_of_a_dictionary(n_keys):
    """Where words share their keys many hashes agree, and none is believed."""
    rng = np.random.default_rng(1)
    n, held = 3, rng.integers(1, 5, 200).astype(np.int32)
    text = rng.integers(0, 6, 300).astype(np.int32)
    keys = word_keys(6)[np.arange(7) % n_keys]
    starts = np.flatnonzero(rng.random(198) < 0.2)
    table = ngram_table(held, starts, n, keys)
    wanted = {tuple(held[i : i + n].tolist()) for i in starts}
    assert len(table) == len(wanted)
    places, ngrams = table.find(ngram_hashes(keys[text], [n])[n], text)
    expected = [i for i in range(298) if tuple(text[i : i + n].tolist()) in wanted]
    assert places.tolist() == expected
    assert same_words(text, places, held, table.shown_at[ngrams], n).all()


def test_all_places_of_an_ngram_are_known():
    held = word_ids(["a", "b", "a", "b", "c", "a", "b"], {"a": 1, "b": 2, "c": 3})
    keys = word_keys(3)
    table = ngram_table(held, np.arange(6), 2, keys)
    text = np.array([1, 2], np.int32)
    _, ngrams = table.find(ngram_hashes(keys[text], [2])[2], text)
    at, rows = table.held(ngrams)
    assert sorted(table.starts[at].tolist()) == [0, 2, 5]
    assert rows.tolist() == [0, 0, 0]
