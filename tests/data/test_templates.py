r"""`fill_template` and `text_of_field`: plain names, `\n`, and what is refused."""

import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.templates import fill_template, text_if_any, text_of_field
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import load_labelled
from tests.support.refused import refusal

ROW = {"q": "2+2?", "a": 4, "choices": ["3", "é"], "a.b": "dotted", "none": None}
DATA = {"question": "why?", "tags": [["x", {"deep": True}]], "empty": []}
NESTED = ROW | {"data": DATA, "raw": r"{a} \n {{"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Question: {q} Answer: {a}", "Question: 2+2? Answer: 4"),
        # As a shell passes it.
        (r"Q: {q}\nA: {a}\n", "Q: 2+2?\nA: 4\n"),
        ("{q}\n{a}", "2+2?\n4"),
        # Values are never expanded.
        ("{raw}", r"{a} \n {{"),
        ("{q}{q}", "2+2?2+2?"),
        ("{choices}", '["3", "é"]'),
        ("no field", "no field"),
        ("", ""),
        ("{{{q}}} {{}}", "{2+2?} {}"),
        ("{a:}", "4"),
        ("{data.question} {choices[1]} {a.b}", "why? é dotted"),
        ("{data.tags[0][1].deep} {data.tags[0][0]}", "true x"),
    ],
)
def test_fields_in_braces_are_filled_and_doubled_braces_are_braces(template, text):
    assert fill_template(template, NESTED, "set:1") == text


HAS = "(it has: q, a, choices, a.b, none, data, raw)"
INNER = "(it has: data.question, data.tags, data.empty)"
FORMAT = "--text 'Q: {}': 'q' has a format"
BRACES = "write {question}, {data.question} or {choices[0]}; {{ and }} are braces"


@pytest.mark.parametrize(
    ("template", "message", "hint"),
    [
        # Attributes and positions are only names.
        *(
            (f"{{{field}}}", f"set:7: no field {field!r} {HAS}", "name a field that")
            for field in ("q.upper", "0", "", "__class__")
        ),
        ("{data.questin}", f"no field 'data.questin' {INNER}", "'data.question'? "),
        ("{choices[2]}", "(choices has 2 values, choices[0] to [1])", "name an index"),
        (
            "{data.empty[0]}",
            "no data.empty[0] (data.empty has no value)",
            "name an index",
        ),
        *(
            (f"Q: {place}", FORMAT.format(place), BRACES)
            for place in ("{q!r}", "{q!s}", "{q:>9}", "{q:{a}}")
        ),
        ("{q", "--text '{q': expected '}' before end of string", ""),
        ("q}", "--text 'q}': Single '}' encountered in format string", ""),
        ("{q} {", "--text '{q} {': Single '{' encountered in format string", ""),
    ],
)
def test_what_cannot_be_filled_says_where_and_what_there_is(template, message, hint):
    said, told = refusal(fill_template, template, NESTED, "set:7")
    assert message in said and hint in told


@pytest.mark.parametrize("load", [load_benchmark, load_labelled])
def test_a_template_without_a_field_is_refused(load, tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('{"data": {"question": "1?"}}\n{"data": {"question": "2?"}}\n')
    with pytest.raises(InputError, match="names no field, so all examples") as e:
        load(path, template="{{data.question}}")
    assert e.value.hint.startswith("{{ and }} are literal braces")
    assert load(path, template="{data.question}").texts == ("1?", "2?")


VALUES = ["as it is\n", "", 4, 0.5, True, "null", ["é", {"k": 1}]]
SHOWN = ["as it is\n", "", "4", "0.5", "true", "null", '["é", {"k": 1}]']


def test_a_field_whose_name_has_braces_is_that_field():
    row = {"answer {x}": "a", "x": "b"}
    assert fill_template("answer {x}", row, "set:1") == "a"
    assert fill_template("answer {x}", {"x": "b"}, "set:1") == "answer b"


def test_strings_are_taken_as_they_are_and_others_as_json():
    assert [text_of_field("f", {"f": value}, "set:1") for value in VALUES] == SHOWN


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_value_that_says_nothing_is_no_text(value):
    row = {"f": value, "in": {"g": value}}
    for field in ("f", "in.g", "f.h"):
        assert text_if_any(field, row, "set:1") is None
        assert refusal(fill_template, f"Q: {{{field}}}", row, "set:1") == (
            f"set:1: field {field!r} is null",
            'leave out the record, or write "" for an empty text',
        )
    assert text_of_field("f", {"f": [value]}, "set:1") in ("[null]", "[NaN]")
