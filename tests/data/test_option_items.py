"""Options found in the shapes of public benchmarks, moved without touching the rest."""

import json

import pytest

from jaxcontam.data.answer_options import read_items
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError

MMLU = {"question": "Q?", "subject": "s", "choices": ["w", "x", "y", "z"], "answer": 2}
ARC = {
    "id": "q-1",
    "question": "Q?",
    "choices": {"text": ["w", "x", "y", "z"], "label": ["A", "B", "C", "D"]},
    "answerKey": "C",
}
COMMONSENSE = {
    "answerKey": "B",
    "id": "q-1",
    "question": {
        "stem": "Q?",
        "choices": [
            {"label": "A", "text": "w"},
            {"label": "B", "text": "x"},
            {"label": "C", "text": "y"},
        ],
    },
}
HELLASWAG = {
    "ind": 24,
    "ctx": "Q",
    "label": 3,
    "endings": ["w", "x", "y", "z"],
    "source_id": "a",
}
MEDQA = {"question": "Q?", "answer": "y", "options": {"A": "w", "B": "x", "C": "y"}}
MEDMCQA = {"question": "Q?", "opa": "w", "opb": "x", "opc": "y", "opd": "z", "cop": 2}
SIQA = {"context": "Q", "answerA": "w", "answerB": "x", "answerC": "y", "correct": "C"}
PIQA = {"goal": "Q", "sol1": "w", "sol2": "x", "label": 1}
WINO = {"sentence": "Q _", "option1": "w", "option2": "x", "answer": "2"}


def items_of(tmp_path, rows, *, name="x.jsonl", **flags):
    path = tmp_path / name
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(rows)
    return read_items(load_benchmark(path), **flags)


@pytest.mark.parametrize(
    ("row", "options", "answer", "text"),
    [
        (
            MMLU,
            "wxyz",
            2,
            '{"question": "Q?", "subject": "s", "choices": ["z", "y", "x", "w"',
        ),
        (
            ARC,
            "wxyz",
            2,
            '{"id": "q-1", "question": "Q?", "choices": {"text": ["z", "y", "x", "w"',
        ),
        (
            COMMONSENSE,
            "wxy",
            1,
            '{"id": "q-1", "question": {"stem": "Q?", "choices": [{"label": "A", '
            '"text": "y"}, {"label": "B", "text": "x"}, {"label": "C", "text": "w"',
        ),
        (
            HELLASWAG,
            "wxyz",
            3,
            '{"ind": 24, "ctx": "Q", "endings": ["z", "y", "x", "w"',
        ),
        (
            MEDQA,
            "wxy",
            2,
            '{"question": "Q?", "options": {"A": "y", "B": "x", "C": "w"',
        ),
        (
            MEDMCQA,
            "wxyz",
            2,
            '{"question": "Q?", "opa": "z", "opb": "y", "opc": "x", "opd": "w"',
        ),
        (
            SIQA,
            "wxy",
            2,
            '{"context": "Q", "answerA": "y", "answerB": "x", "answerC": "w"',
        ),
        (PIQA, "wx", 1, '{"goal": "Q", "sol1": "x", "sol2": "w"'),
        (WINO, "wx", 1, '{"sentence": "Q _", "option1": "x", "option2": "w"'),
    ],
)
def test_shapes_of_public_benchmarks_are_found_and_turned_round(
    tmp_path, row, options, answer, text
):
    (item,) = items_of(tmp_path, [row])
    assert item.options == tuple(options)
    assert item.answer == answer
    backwards = list(range(len(options)))[::-1]
    # The source up to the last option; nothing after it, and no answer before it.
    assert item.text(backwards) == text


def test_published_order_gives_the_published_source(tmp_path):
    line = '{ "q":"caf\\u00e9" ,"choices":[ "a\\"b","\\ttwo" , "3" ],"answer":0}'
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    (item,) = read_items(load_benchmark(path))
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
    path = tmp_path / "set.tsv"
    rows = [['2"?', '"one', "two", "1"], ["3?", 'three"', '"four"', "2"]]
    lines = ["\t".join(row) for row in [["q", "option_a", "option_b", "key"], *rows]]
    path.write_text("".join(f"{line}\n" for line in lines))
    first, second = read_items(load_benchmark(path))
    assert first.text([1, 0]) == '2"?\ttwo\t"one'
    assert second.text([1, 0]) == '3?\t"four"\tthree"'


def test_records_with_fewer_than_two_options_are_left_out(tmp_path):
    rows = [
        MMLU,
        MMLU | {"choices": []},
        MMLU | {"choices": ["w"]},
        MMLU | {"choices": ["w", None, "y"]},
        MMLU,
    ]
    assert [item.number for item in items_of(tmp_path, rows)] == [1, 5]


def test_empty_options_at_the_end_are_none(tmp_path):
    rows = [{"q": "Q", "A": "w", "B": "x", "C": "y", "D": "", "E": None}]
    (item,) = items_of(tmp_path, rows)
    assert item.options == ("w", "x", "y")


def test_named_fields_are_taken_before_usual_ones(tmp_path):
    row = MMLU | {
        "other": ["1a", "2b"],
        "p": "pp",
        "r": "rr",
        "deep": {"l": ["m", "n"]},
    }
    for field, options in (
        ("other", ("1a", "2b")),
        ("p,r", ("pp", "rr")),
        ("deep.l", ("m", "n")),
    ):
        (item,) = items_of(tmp_path, [row], options_field=field)
        assert item.options == options


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{question}\\n{options}", "Q?\nA. y\nB. z\nC. w\nD. x"),
        ("Q: {question} {choices}!", "Q: Q? A. y\nB. z\nC. w\nD. x!"),
    ],
)
def test_template_renders_options_in_an_order(tmp_path, template, text):
    (item,) = items_of(tmp_path, [MMLU], template=template)
    assert item.text([2, 3, 0, 1]) == text


def test_template_takes_option_fields_by_name(tmp_path):
    (item,) = items_of(tmp_path, [PIQA], template="{goal}: {sol2} / {sol1}")
    assert item.text([0, 1]) == "Q: x / w"
    assert item.text([1, 0]) == "Q: w / x"


@pytest.mark.parametrize(
    ("rows", "flags", "message", "hint"),
    [
        (
            [{"q": "Q", "a": "b"}],
            {},
            "x: example 1: no list of options (it has: q, a)",
            "--options-field names the field, or several with commas: A,B,C,D",
        ),
        (
            [MMLU],
            {"options_field": "chioces"},
            "x: example 1: no list of 'chioces' (it has: question, subject, choices, "
            "answer)",
            "--options-field names the field, or several with commas: A,B,C,D",
        ),
        (
            [MMLU],
            {"answer_field": "key"},
            "x: example 1: no field 'key' (it has: question, subject, choices, answer)",
            "--answer-field must name a field of every record",
        ),
        (
            [MMLU],
            {"template": "{question} {options} {answer}"},
            "--template '{question} {options} {answer}': 'answer' names a place among "
            "the options",
            "leave it out: in another order it would name another option",
        ),
        (
            [PIQA],
            {"template": "{goal} {sol1}"},
            "--template '{goal} {sol1}': some options are missing",
            "{options} stands for lines A. ..., B. ...",
        ),
    ],
)
def test_items_that_cannot_be_read_say_why(tmp_path, rows, flags, message, hint):
    with pytest.raises(InputError) as caught:
        items_of(tmp_path, rows, **flags)
    assert (str(caught.value), caught.value.hint) == (message, hint)


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
def test_a_field_that_names_the_right_place_in_most_records_is_hidden(value, is_hidden):
    """What names it would turn a clean model that knows the subject into a suspect."""
    rows = []
    for i in range(12):
        options = [f"word{i}{j}" for j in range(4)]
        row = {"question": f"which {i}?", "note": value("ABCD"[i % 4], i)}
        rows.append(row | {"options": options})
    texts = tuple(map(json.dumps, rows))
    items = read_items(Benchmark("b", texts, tuple(rows)))
    assert ("note" in items[0].hidden) == is_hidden
    assert all(("note" in item.text(range(4))) != is_hidden for item in items)


def test_what_is_asked_stays_though_it_names_letters():
    rows = [
        {
            "question": f"Point B lies on line {i}?",
            "options": [f"w{i}{j}" for j in "12"],
        }
        for i in range(12)
    ]
    items = read_items(Benchmark("b", tuple(map(json.dumps, rows)), tuple(rows)))
    assert all("Point B lies" in item.text(range(2)) for item in items)
