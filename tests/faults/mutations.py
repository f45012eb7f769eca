"""Hypothesis strategies: valid files, damaged a little, as bytes or as JSON."""

import copy
import json

from hypothesis import strategies as st

# What readers stumble over: ends of lines, quotes, marks, halves of characters, numbers
# that are none or too large, brackets that nest.
CHUNKS = (
    *(b"", b"\n", b"\r\n", b"\r", b"\x00", b'"', b"'", b",", b"\t", b"{", b"}", b"["),
    *(b"]", b":", b"\\", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff"),
    *(b"\xed\xa0\x80", "\u2028".encode(), "\U0001f600".encode(), b"\x1b[2J", b"<b>"),
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 5000, b"0" * 30, b"null", b"true"),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"{q}", b"{", b"$", b"../x", b"A" * 10_000),
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2**31, -(2**63), 2**64, 10**400, 0.5, 1e308),
    *(float("nan"), float("inf"), "", "a", "\x00", "\ud800", "\x1b]0;x\x07", "<b>"),
    *(
        "[/red]",
        "$^$",
        "../x",
        "9" * 50,
        [],
        [[]],
        [None],
        {},
        {"a": 1},
        [1, "a"],
        -0.0,
    ),
)

json_values = st.recursive(
    st.sampled_from(VALUES) | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
_edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 30),
        st.sampled_from(CHUNKS) | st.binary(max_size=6),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def damaged(data):
    """Strategy of files that a few edits make of `data`: cut, doubled, overwritten."""
    return _edits.map(lambda edits: _edited(data, edits))


def _edited(data, edits):
    for place, n, chunk, cuts in edits:
        at = int(place * len(data))
        rest = b"" if cuts and n > 25 else data[at + n :]
        # A chunk that stands for itself, and for what it replaces twice.
        data = data[:at] + (chunk or data[at : at + n] * 2) + rest
    return data


def changed(document):
    """Strategy of JSON documents with some values replaced, dropped or renamed."""
    return st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(_WAYS), json_values),
        min_size=1,
        max_size=3,
    ).map(lambda edits: _changed(document, edits))


_WAYS = ("replace", "replace", "drop", "rename", "twice", "negate")


def _changed(document, edits):
    document = copy.deepcopy(document)
    # Copies: an edit may change what an edit before it put there.
    for pick, way, value in edits:
        value = copy.deepcopy(value)
        places = list(_places(document))
        if not places:
            return value
        holder, key = places[pick % len(places)]
        old = holder[key]
        if way == "replace":
            holder[key] = value
        elif way == "drop":
            del holder[key]
        elif way == "rename" and isinstance(holder, dict):
            holder[str(value)[:20]] = holder.pop(key)
        elif way == "twice" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
        elif way == "negate" and isinstance(old, int | float):
            holder[key] = -old - 1
    return document


def _places(value):
    """Every (container, key) of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in pairs:
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


def as_json(document):
    """Bytes of a document; halves of characters stay spelled out."""
    return json.dumps(document).encode()


def damaged_json(document):
    """Strategy of files: changed in their values, or in their bytes."""
    return changed(document).map(as_json) | damaged(as_json(document))
