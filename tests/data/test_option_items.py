"""Options found in the shapes of public benchmarks, moved without touching the rest."""

import json

import pytest

from jaxcontam.data.answer_options import read_items
from jaxcontam.data.benchmark import load_benchmark
from tests.support.refused import refusal

Q = {"question": "Q?"}
MMLU = Q | {"subject": "s", "choices": [*"wxyz"], "answer": 2}
ARC = {"id": 7} | Q | {"choices": {"text": [*"wxyz"], "label": [*"ABCD"]}}
ARC |= {"answerKey": "C"}
STEM, TURNED = (
    {"stem": "Q?", "choices": [{"label": label, "text": text} for label, text in rows]}
    for rows in (("Aw", "Bx", "Cy"), ("Ay", "Bx", "Cw"))
)
COMMONSENSE = {"answerKey": "B", "id": 7, "question": STEM}
HELLASWAG = {"ind": 24, "ctx": "Q", "label": 3, "endings": [*"wxyz"], "source_id": "a"}
MEDQA = Q | {"answer": "y", "options": {"A": "w", "B": "x", "C": "y"}}
MEDMCQA = {"q": "Q", "opa": "w", "opb": "x", "opc": "y", "opd": "z", "cop": 2}
SIQA = {"context": "Q", "answerA": "w", "answerB": "x", "answerC": "y", "correct": "C"}
PIQA = {"goal": "Q", "sol1": "w", "sol2": "x", "label": 1}
WINO = {"sentence": "Q _", "option1": "w", "option2": "x", "answer": "2"}


def items_of(tmp_path, rows, *, name="x.jsonl", **flags):
    path = tmp_path / name
    if not isinstance(rows, str):
        rows = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(rows)
    return read_items(load_benchmark(path), **flags)


@pytest.mark.parametrize(
    ("row", "answer", "text"),
    [
        (MMLU, 2, '"question": "Q?", "subject": "s", "choices": ["z", "y", "x", "w"'),
        (ARC, 2, '"id": 7, "question": "Q?", "choices": {"text": ["z", "y", "x", "w"'),
        (COMMONSENSE, 1, f'"id": 7, "question": {json.dumps(TURNED)[:-3]}'),
        (HELLASWAG, 3, '"ind": 24, "ctx": "Q", "endings": ["z", "y", "x", "w"'),
        (MEDQA, 2, '"question": "Q?", "options": {"A": "y", "B": "x", "C": "w"'),
        (MEDMCQA, 2, '"q": "Q", "opa": "z", "opb": "y", "opc": "x", "opd": "w"'),
        (SIQA, 2, '"context": "Q", "answerA": "y", "answerB": "x", "answerC": "w"'),
        (PIQA, 1, '"goal": "Q", "sol1": "x", "sol2": "w"'),
        (WINO, 1, '"sentence": "Q _", "option1": "x", "option2": "w"'),
    ],
)
def test_public_benchmarks_are_found_and_turned(tmp_path, row, answer, text):
    (item,) = items_of(tmp_path, [row])
    n = len(item.options)
    assert item.options == tuple("wxyz"[:n])
    assert item.answer == answer
    # The source up to the last option; nothing after it, and no answer before it.
    assert item.text(range(n)[::-1]) == "{" + text


def test_published_order_gives_the_published_source(tmp_path):
    line = '{ "q":"caf\\u00e9" ,"choices":[ "a\\"b","\\ttwo" , "3" ],"answer":0}'
    (item,) = items_of(tmp_path, line + "\n")
    assert line.startswith(item.text([0, 1, 2]))
    assert item.text([0, 1, 2]).endswith('"3"')
    assert item.text([2, 0, 1]) == (
        '{ "q":"caf\\u00e9" ,"choices":[ "3","a\\"b" , "\\ttwo"'
    )


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_cells_of_tables_are_moved_with_their_quotes(tmp_path, delimiter):
    rows = ["question,A,B,C,answer", '"Q, ""so""?",one,"t,wo",three,B']
    text = "\n".join(rows).replace(",", delimiter) + "\n"
    name = {",": "x.csv", "\t": "x.tsv"}[delimiter]
    (item,) = items_of(tmp_path, text, name=name)
    two = f"t{delimiter}wo"
    assert item.options == ("one", two, "three")
    assert item.answer == 1
    assert item.text([2, 1, 0]) == delimiter.join(
        [f'"Q{delimiter} ""so""?"', "three", f'"{two}"', "one"]
    )


@pytest.mark.parametrize(
    ("values", "places"),
    [
        (["A", "b", "D"], [0, 1, 3]),
        ([0, 3, 1], [0, 3, 1]),
        ([1, 4, 2], [0, 3, 1]),  # from 1, since 4 is one and 0 none
        (["1", "4"], [0, 3]),
        ([2, 3], [2, 3]),
        (["x", "z"], [1, 3]),  # the option itself
        ([[0, 0, 1, 0], [1, 0, 0, 0]], [2, 0]),
        (["A", "Q"], [None, None]),  # no place in every record: not the answer
        ([7, 0], [None, None]),
    ],
)
def test_right_option_is_read_from_numbers_letters_and_texts(tmp_path, values, places):
    rows = [{"q": "Q", "choices": [*"wxyz"], "answer": value} for value in values]
    assert [item.answer for item in items_of(tmp_path, rows)] == places


def test_field_that_names_a_place_is_cut_whatever_its_name(tmp_path):
    rows = [
        {"secret_key": key, "answer": "B is right", "choices": [*"wxyz"]}
        for key in "ADB"
    ]
    for item in items_of(tmp_path, rows):
        assert item.text(range(4)) == '{"choices": ["w", "x", "y", "z"'
        assert item.answer is None
    found = items_of(tmp_path, rows, answer_field="secret_key")
    assert [item.answer for item in found] == [0, 3, 1]


def test_quotes_that_are_characters_move_with_their_option(tmp_path):
    rows = [['2"?', '"one', "two", "1"], ["3?", 'three"', '"four"', "2"]]
    lines = ["\t".join(row) for row in [["q", "option_a", "option_b", "key"], *rows]]
    first, second = items_of(tmp_path, "\n".join(lines), name="x.tsv")
    assert first.text([1, 0]) == '2"?\ttwo\t"one'
    assert second.text([1, 0]) == '3?\t"four"\tthree"'


def test_records_with_fewer_than_two_options_are_left_out(tmp_path):
    few = [[], ["w"], ["w", None, "y"]]
    rows = [MMLU, *(MMLU | {"choices": options} for options in few), MMLU]
    assert [item.number for item in items_of(tmp_path, rows)] == [1, 5]
    # Empty ones at the end are none.
    row = {"q": "Q", "A": "w", "B": "x", "C": "y", "D": "", "E": None}
    (item,) = items_of(tmp_path, [row])
    assert item.options == ("w", "x", "y")


@pytest.mark.parametrize("field", ["other", "p,r", "deep.l"])
def test_named_fields_are_taken_before_usual_ones(tmp_path, field):
    row = MMLU | {"other": [*"mn"], "p": "m", "r": "n", "deep": {"l": [*"mn"]}}
    (item,) = items_of(tmp_path, [row], options_field=field)
    assert item.options == ("m", "n")


@pytest.mark.parametrize(
    ("row", "template", "order", "text"),
    [
        (MMLU, "{question}\\n{options}", [2, 3, 0, 1], "Q?\nA. y\nB. z\nC. w\nD. x"),
        (MMLU, "{question} {choices}!", [0, 2, 1, 3], "Q? A. w\nB. y\nC. x\nD. z!"),
        (PIQA, "{goal}: {sol2} / {sol1}", [0, 1], "Q: x / w"),
        (PIQA, "{goal}: {sol2} / {sol1}", [1, 0], "Q: w / x"),
    ],
)
def test_template_renders_options_in_an_order(tmp_path, row, template, order, text):
    (item,) = items_of(tmp_path, [row], template=template)
    assert item.text(order) == text


OPTIONS = "--fields options=NAME names the field, or options=A,B,C,D several"
HAS = "(it has: question, subject, choices, answer)"


@pytest.mark.parametrize(
    ("row", "flags", "message", "hint"),
    [
        (Q, {}, "example 1: no list of options (it has: question)", OPTIONS),
        (MMLU, {"options_field": "o"}, f"example 1: no list of 'o' {HAS}", OPTIONS),
        (MMLU, {"answer_field": "key"}, f"example 1: no field 'key' {HAS}", "name a"),
        (MMLU, {"template": "{options} {answer}"}, "'answer' names a place", "another"),
        (PIQA, {"template": "{goal} {sol1}"}, "are missing", "{options} stands"),
    ],
)
def test_items_that_cannot_be_read_say_why(tmp_path, row, flags, message, hint):
    said, told = refusal(items_of, tmp_path, [row], **flags)
    assert message in said and hint in told


@pytest.mark.parametrize(
    ("value", "is_hidden"),
    [
        (lambda letter, i: letter if i else "", True),
        (lambda letter, i: letter if i else None, True),
        (lambda letter, i: letter if i else "see page 7", True),
        (lambda letter, i: f"It is said by all, so {letter} is right.", True),
        (lambda letter, i: f"A man who knows says: ({letter}).", True),
        (lambda letter, i: f"Ans. is '{letter.lower()}' by rule", True),
        (lambda letter, i: f"Choice {'ABCD'.index(letter) + 1} is right", True),
        (lambda letter, i: "the second option is right" if i < 2 else "see", True),
        (lambda letter, i: "A theorem of G and H, Vitamin K", False),
        (lambda letter, i: f"topic {i}", False),
    ],
)
def test_a_field_that_names_the_place_is_hidden(tmp_path, value, is_hidden):
    """What names it would turn a clean model that knows the subject into a suspect."""
    rows = []
    for i in range(12):
        options = [f"word{i}{j}" for j in range(4)]
        row = {"question": f"which {i}?", "note": value("ABCD"[i % 4], i)}
        rows.append(row | {"options": options})
    items = items_of(tmp_path, rows)
    assert ("note" in items[0].hidden) == is_hidden
    assert all(("note" in item.text(range(4))) != is_hidden for item in items)


def test_what_is_asked_stays_though_it_names_letters(tmp_path):
    options = [[f"w{i}{j}" for j in "12"] for i in range(12)]
    rows = [{"question": "Point B lies?", "options": words} for words in options]
    assert all("B lies" in item.text(range(2)) for item in items_of(tmp_path, rows))
