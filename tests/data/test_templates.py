r"""`fill_template` and `text_of_field`: plain names, `\n`, and what is refused."""

import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.templates import fill_template, text_if_any, text_of_field
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import load_labelled

ROW = {"q": "2+2?", "a": 4, "choices": ["3", "é"], "a.b": "dotted", "none": None}
NESTED = ROW | {"data": {"question": "why?", "tags": [["x", {"deep": True}]]}}


def refusal(function, *args):
    """(message, hint) of the error that a call raises."""
    with pytest.raises(InputError) as caught:
        function(*args)
    return str(caught.value), caught.value.hint


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Question: {q} Answer: {a}", "Question: 2+2? Answer: 4"),
        ("{q}{q}", "2+2?2+2?"),
        ("{choices}", '["3", "é"]'),
        ("no field", "no field"),
        ("", ""),
        ("{{{q}}} {{}}", "{2+2?} {}"),
        ("{a:}", "4"),
        ("{data.question} {choices[1]}", "why? é"),
        ("{data.tags[0][1].deep} {data.tags[0][0]}", "true x"),
    ],
)
def test_fields_in_braces_are_filled_and_doubled_braces_are_braces(template, text):
    assert fill_template(template, NESTED, "set:1") == text


def test_backslash_n_is_a_line_feed_as_a_shell_passes_it():
    typed = r"Q: {q}\nA: {a}\n"
    assert fill_template(typed, ROW, "set:1") == "Q: 2+2?\nA: 4\n"
    assert fill_template("{q}\n{a}", ROW, "set:1") == "2+2?\n4"


def test_values_are_never_expanded():
    row = {"q": r"{a} \n {{", "a": "filled"}
    assert fill_template("{q}", row, "set:1") == r"{a} \n {{"


@pytest.mark.parametrize("field", ["q.upper", "0", "", "__class__"])
def test_attributes_and_positions_are_only_names(field):
    assert fill_template("{a.b}", ROW, "set:1") == "dotted"
    assert refusal(fill_template, f"{{{field}}}", ROW, "set.jsonl:7") == (
        f"set.jsonl:7: no field {field!r} (it has: q, a, choices, a.b, none)",
        "name a field that every record has",
    )


def test_a_place_beyond_a_list_names_its_range():
    assert refusal(fill_template, "{choices[2]}", ROW, "set.jsonl:7") == (
        "set.jsonl:7: no choices[2] (choices has 2 values, choices[0] to [1])",
        "name a place that every record has",
    )
    (message, _) = refusal(fill_template, "{c[0]}", {"c": []}, "set.jsonl:7")
    assert message == "set.jsonl:7: no c[0] (c has no value)"


@pytest.mark.parametrize("load", [load_benchmark, load_labelled])
def test_a_template_without_a_field_is_refused(load, tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('{"data": {"question": "1?"}}\n{"data": {"question": "2?"}}\n')
    with pytest.raises(InputError, match="names no field, so all examples") as e:
        load(path, template="{{data.question}}")
    assert e.value.hint.startswith("{{ and }} are literal braces")
    assert load(path, template="{data.question}").texts == ("1?", "2?")


def test_a_slip_inside_a_field_is_told_what_stands_there():
    assert refusal(fill_template, "{data.questin}", NESTED, "set.jsonl:7") == (
        "set.jsonl:7: no field 'data.questin' (it has: data.question, data.tags)",
        "did you mean 'data.question'? name a field that every record has",
    )


@pytest.mark.parametrize("place", ["{q!r}", "{q!s}", "{q:>9}", "{q:{a}}"])
def test_formats_are_refused(place):
    assert refusal(fill_template, f"Q: {place}", ROW, "set:1") == (
        f"--template 'Q: {place}': 'q' has a format",
        "write {question}, {data.question} or {choices[0]}; {{ and }} are braces",
    )


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{q", "expected '}' before end of string"),
        ("q}", "Single '}' encountered in format string"),
        ("{q} {", "Single '{' encountered in format string"),
    ],
)
def test_malformed_braces_are_named(template, fault):
    message, _ = refusal(fill_template, template, ROW, "set:1")
    assert message == f"--template {template!r}: {fault}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (4, "4"),
        (0.5, "0.5"),
        (True, "true"),
        ("null", "null"),
        (["é", {"k": 1}], '["é", {"k": 1}]'),
    ],
)
def test_strings_are_taken_as_they_are_and_others_as_json(value, text):
    assert text_of_field("f", {"f": value}, "set:1") == text


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_value_that_says_nothing_is_no_text(value):
    row = {"f": value, "in": {"g": value}}
    for field in ("f", "in.g", "f.h"):
        assert text_if_any(field, row, "set:1") is None
        assert refusal(fill_template, f"Q: {{{field}}}", row, "set:1") == (
            f"set:1: field {field!r} is null",
            'leave the record out, or write "" for an empty text',
        )
    assert text_of_field("f", {"f": [value]}, "set:1") in ("[null]", "[NaN]")


def test_missing_field_names_the_place_and_those_that_exist():
    assert refusal(text_of_field, "text", {"q": 1, "a": 2}, "set.jsonl:3") == (
        "set.jsonl:3: no field 'text' (it has: q, a)",
        "name a field that every record has",
    )


def test_plain_text_has_no_fields():
    assert refusal(text_of_field, "q", None, "set.txt:3") == (
        "set.txt:3: no field 'q' (the example is plain text)",
        "leave out --template and --text-field to use the whole line",
    )
