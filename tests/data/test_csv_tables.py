"""Tables of text: quotes, separators, blank columns, and first rows of data."""

import pytest

from jaxcontam.data import corpus
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError


def test_a_first_row_of_data_is_not_taken_for_names(tmp_path):
    path = tmp_path / "set.csv"
    row = "Which of these did the first person on the moon say?,a step,a leap\n"
    path.write_text(row + "2+2?,3,4\n")
    with pytest.raises(InputError, match="1: the first row has no names") as e:
        load_benchmark(path)
    assert e.value.hint.startswith("put a line with 3 names above it, such as questio")
    whole = load_benchmark(path, no_header=True, template="{column_1} {column_3}")
    assert whole.texts[1] == "2+2? 4" and len(whole) == 2
    assert whole.left_out == ("columns are named by position, column_1 to column_3",)
    path.write_text("question,a,b\n" + row + "2+2?,3,4\n")
    assert len(load_benchmark(path)) == 2
    # Short rows: no name of a column stands twice in it, the letter of an answer does.
    path.write_text("2+2?,3,A\n3+3?,4,A\n4+4?,5,B\n5+5?,6,A\n")
    with pytest.raises(InputError, match=r"1: the first row .* data \('A'\)"):
        load_benchmark(path)
    path.write_text("word,n\nword,1\nother,2\n")
    assert len(load_benchmark(path)) == 2


Q3, Q2 = '"id"\t"text"\n', "q\ta\n"


@pytest.mark.parametrize(
    ("suffix", "content", "rows", "notes"),
    [
        # Two of a row's cells: each line is a row of its own.
        (
            ".tsv",
            'id\ttext\n1\t"foo bar\n2\tbaz"\n3\tplain\n',
            [["1", '"foo bar'], ["2", 'baz"'], ["3", "plain"]],
            ["quotes are characters (3 rows, 2 the other way)"],
        ),
        # One line of the cell is no row.
        (".tsv", Q2 + '1\t"x\ty\nz"\n2\tc\n', [["1", "x\ty\nz"], ["2", "c"]], []),
        (
            ".csv",
            'q,a\n1,"x\nz, y"\n2,c\n',
            [["1", "x\nz, y"], ["2", "c"]],
            ["quotes enclose cells (2 rows, 3 the other way)"],
        ),
        (".csv", 'text\n"a\nb"\nc\n', [["a\nb"], ["c"]], []),
        (
            ".tsv",
            'text\n"a\nb"\nc\n',
            [["a\nb"], ["c"]],
            ["quotes enclose cells (2 rows, 3 the other way)"],
        ),
        (
            ".tsv",
            Q2 + '1\t5" disk\n"2"\t"all of it"\n',
            [["1", '5" disk'], ['"2"', '"all of it"']],
            ["quotes are characters"],
        ),
        (".tsv", Q3 + '1\t"say ""x"""\n', [["1", 'say "x"']], ["quotes enclose cells"]),
        (".csv", 'q,a\n"1","say ""x"""\n', [["1", 'say "x"']], []),
        (
            ".tsv",
            Q2 + '1\tone\n"Wow\t2\n3\tend\n',
            [["1", "one"], ['"Wow', "2"], ["3", "end"]],
            ["quotes are characters (line 3 cannot be read with cells in quotes)"],
        ),
        # What a spreadsheet writes besides.
        (".csv", "q,a,\none,1,\n,2,\n", [["one", "1"], ["", "2"]], []),
        (".csv", "q,a,,,\none,1,,,\ntwo,2\n", [["one", "1"], ["two", "2"]], []),
        (".csv", "sep=,\r\nq,a\r\none,1\r\n", [["one", "1"]], []),
        (".tsv", '"SEP=\t"\nq\ta\none\t1\n', [["one", "1"]], []),
        (".csv", ",q\n0,one\n1,two\n", [["0", "one"], ["1", "two"]], []),
    ],
)
def test_a_table_is_read_to_the_width_of_its_header(
    tmp_path, suffix, content, rows, notes
):
    path = tmp_path / f"set{suffix}"
    path.write_text(content, newline="")
    found = load_benchmark(path)
    assert [list(row.values()) for row in found.rows] == rows
    assert found.left_out == tuple(notes)
    # A corpus of the same file, read row by row; its text is the last column.
    field = list(found.rows[0])[-1]
    items = list(corpus.read_documents(path, text_field=field))
    texts = [row[-1] for row in rows]
    if notes == ["quotes are characters"]:
        texts[1] = "all of it"  # no table is read to its end to know its quotes
    assert [item.text for item in items] == texts
