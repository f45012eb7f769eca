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


def test_the_sheet_is_blind():
    rows = table(sheet_text(INSTANCES, GUIDED, seed=0))
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


def test_the_order_is_the_seeds():
    one, same, other = (sheet_text(INSTANCES, GUIDED, seed=s) for s in (0, 0, 1))
    assert one == same
    assert one != other


def test_labels_come_back_to_their_completions(tmp_path):
    rows = table(sheet_text(INSTANCES, GUIDED, seed=0))
    for row in rows:
        if row["candidate"] == "written 3":
            row["label_1"] = "Exact"
        if row["candidate"] == "written 5":
            row["label_1"] = "yes (near-exact match)"
        if row["candidate"] == "written 6":
            row["label_1"] = "no"
    # People sort rows, and programs write semicolons and a byte order mark.
    rows.sort(key=lambda row: row["candidate"])
    sheet = read(save(tmp_path, rows, delimiter=";", encoding="utf-8-sig"))
    assert sheet.labels == ((None, None, None, "exact", None, "near", "no", None),)


def test_two_people_count_where_they_agree_that_it_is_a_copy_or_none(tmp_path):
    rows = table(sheet_text(INSTANCES, GUIDED, seed=0))
    words = {0: ("exact", "exact"), 1: ("near", "no"), 2: ("no", ""), 3: ("", "near")}
    words |= {4: ("exact", "near"), 5: ("no", "no")}
    for row in rows:
        row["label_1"], row["label_2"] = words.get(int(row["reference"][-1]), ("", ""))
    people = read(save(tmp_path, rows))
    assert len(people.labels) == 2
    wanted = ("exact", None, "no", "near", "near", "no", None, None)
    assert people.consensus == wanted
    alike, left_out = people.notes
    # Both judged 0, 1, 4 and 5; chance is (3 * 2 + 1 * 2) / 16.
    assert "agree on 75.0% of 4 completions" in alike
    assert "kappa 0.50" in alike
    assert left_out.startswith("1 of 8 completions are left out")


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "'"])
def test_no_cell_is_a_formula_and_texts_come_back(tmp_path, sign):
    guided = (Completion(text=f'{sign}1+cmd|" /C calc"!A0'), *GUIDED[1:])
    rows = table(sheet_text(INSTANCES, guided, seed=0))
    for row in rows:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        row["label_1"] = "no"
    assert read(save(tmp_path, rows), guided).labels == (("no",) * N,)
    # A spreadsheet may take the apostrophe away.
    for row in rows:
        row["candidate"] = row["candidate"].removeprefix("'")
    assert read(save(tmp_path, rows), guided).labels == (("no",) * N,)


def test_refused_completions_are_not_on_the_sheet(tmp_path):
    guided = (Completion(text="", refused="filter"), *GUIDED[1:])
    rows = table(sheet_text(INSTANCES, guided, seed=0))
    assert len(rows) == N - 1
    for row in rows:
        row["label_1"] = "near"
    assert read(save(tmp_path, rows), guided).labels[0][0] is None


def test_texts_with_line_breaks_and_quotes_come_back(tmp_path):
    guided = (Completion(text='a "b",\r\n c;\td'), *GUIDED[1:])
    rows = table(sheet_text(INSTANCES, guided, seed=0))
    for row in rows:
        row["label_1"] = "near"
        row["candidate"] = row["candidate"].replace("\r\n", "\n")
    assert read(save(tmp_path, rows), guided).labels[0][0] == "near"


def damaged(change):
    rows = table(sheet_text(INSTANCES, GUIDED, seed=0))
    rows[0]["label_1"] = "no"
    change(rows)
    return rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[2].update(label_1="perhaps"), "row 4: label_1: unknown label"),
        (lambda r: r[2].update(id="row-0"), "row 4: unknown id 'row-0'"),
        (lambda r: r.append(dict(r[1])), "row 10: id .* stands twice"),
        (lambda r: r[1].update(candidate="x"), "row 3: other texts than"),
        (lambda r: r[0].update(label_1=""), "no label is filled in"),
        (lambda r: [row.pop("candidate") for row in r], "no column 'candidate'"),
    ],
)
def test_damage_is_named_with_its_row(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, damaged(change)))


def test_the_sheet_of_another_run_is_refused(tmp_path):
    path = save(tmp_path, damaged(lambda rows: None))
    read(path)
    with pytest.raises(InputError, match="unknown id"):
        read(path, seed=1)
    with pytest.raises(InputError, match="not readable"):
        read(tmp_path / "absent.csv")
    path.write_bytes("id,reference,é".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read(path)
