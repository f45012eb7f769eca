"""The blind sheet: what it hides, and what comes back from a spreadsheet."""

import csv
import io

import pytest

from jaxcontam.errors import InputError
from jaxcontam.replication.recorded import read_sheet, sheet_text
from jaxcontam.scoring.completer import Completion
from tests.support.instances import instance

N = 8
INSTANCES = tuple(
    instance(f"first {i}", f"second {i}", label="label", index=i) for i in range(N)
)
GUIDED = tuple(Completion(text=f"written {i}") for i in range(N))


def table(text):
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def save(tmp_path, rows, delimiter=",", encoding="utf-8"):
    path = tmp_path / "annotate.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path, guided=GUIDED, seed=0):
    return read_sheet(path, INSTANCES, guided, seed=seed)


def filled(labels, guided=GUIDED):
    """Rows of the sheet; a label of an instance, or one for each of two people."""
    rows = table(sheet_text(INSTANCES, guided, seed=0))
    for row in rows:
        said = labels.get(int(row["reference"][-1]), "")
        one, two = (said, "") if isinstance(said, str) else said
        row["label_1"], row["label_2"] = one, two
    return rows


def test_the_sheet_is_blind_in_the_seeds_order():
    one, same, other = (sheet_text(INSTANCES, GUIDED, seed=s) for s in (0, 0, 1))
    assert one == same != other
    rows = table(one)
    assert len(rows) == N
    assert set(rows[0]) == {"id", "reference", "candidate", "label_1", "label_2"}
    assert all(row["label_1"] == row["label_2"] == "" for row in rows)
    references = [row["reference"] for row in rows]
    assert references != sorted(references)


def test_a_written_sheet_is_read_back_as_it_was_filled_in(tmp_path):
    path = tmp_path / "annotate.csv"
    path.write_text(sheet_text(INSTANCES, GUIDED, seed=0), "utf-8", newline="")
    with pytest.raises(InputError, match="no label is filled in"):
        read(path)
    lines = path.read_bytes().decode("utf-8-sig").split("\r\n")
    assert lines[1].endswith(",,")
    lines[1] = lines[1].removesuffix(",,") + ",near,"
    path.write_text("\n".join(lines))
    assert read(path).labels[0].count("near") == 1


def test_labels_come_back_to_their_completions(tmp_path):
    labels = {3: "Exact", 5: "yes (near-exact match)", 6: "no"}
    # People sort rows, and programs write semicolons and a byte order mark.
    rows = sorted(filled(labels), key=lambda row: row["candidate"])
    sheet = read(save(tmp_path, rows, delimiter=";", encoding="utf-8-sig"))
    assert sheet.labels == ((None, None, None, "exact", None, "near", "no", None),)


def test_two_people_count_where_they_agree_that_it_is_a_copy_or_none(tmp_path):
    labels = {0: ("exact", "exact"), 1: ("near", "no"), 2: ("no", ""), 3: ("", "near")}
    labels |= {4: ("exact", "near"), 5: ("no", "no")}
    people = read(save(tmp_path, filled(labels)))
    assert len(people.labels) == 2
    wanted = ("exact", None, "no", "near", "near", "no", None, None)
    assert people.consensus == wanted
    alike, left_out = people.notes
    # Both judged 0, 1, 4 and 5; chance is (3 * 2 + 1 * 2) / 16.
    assert "75.0% of 4" in alike and "kappa 0.50" in alike
    assert left_out.startswith("1 of 8")


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "'"])
def test_no_cell_is_a_formula_and_texts_come_back(tmp_path, sign):
    guided = (Completion(text=f'{sign}1+cmd|" /C calc"!A0'), *GUIDED[1:])
    rows = filled(dict.fromkeys(range(N), "no"), guided)
    for cell in (cell for row in rows for cell in row.values()):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert read(save(tmp_path, rows), guided).labels == (("no",) * N,)
    # A spreadsheet may take the apostrophe away.
    for row in rows:
        row["candidate"] = row["candidate"].removeprefix("'")
    assert read(save(tmp_path, rows), guided).labels == (("no",) * N,)


def test_refused_completions_are_not_on_the_sheet(tmp_path):
    guided = (Completion(text="", refused="filter"), *GUIDED[1:])
    rows = filled(dict.fromkeys(range(N), "near"), guided)
    assert len(rows) == N - 1
    assert read(save(tmp_path, rows), guided).labels[0] == (None, *["near"] * (N - 1))


def test_texts_with_line_breaks_and_quotes_come_back(tmp_path):
    guided = (Completion(text='a "b",\r\n c;\td'), *GUIDED[1:])
    rows = filled({0: "near"}, guided)
    for row in rows:
        row["candidate"] = row["candidate"].replace("\r\n", "\n")
    assert read(save(tmp_path, rows), guided).labels[0][0] == "near"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[2].update(label_1="perhaps"), "row 4: label_1: unknown label"),
        (lambda r: r.append(dict(r[1])), "row 10: id .* stands twice"),
        (lambda r: r[1].update(candidate="x"), "row 3: other texts than"),
        (lambda r: [row.update(label_1="") for row in r], "no label is filled in"),
    ],
)
def test_damage_is_named_with_its_row(tmp_path, change, message):
    rows = filled({0: "no"})
    path = save(tmp_path, rows)
    read(path)
    with pytest.raises(InputError, match="unknown id"):
        read(path, seed=1)
    change(rows)
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, rows))
