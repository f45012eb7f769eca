# ruff: noqa: F811  (a fixture of another file is an argument here)
"""Matrices of `prove`: what is read of files and of Python's values, what refused.

Dimension key
    K  rows (strata)
    M  columns, M = m + 1; column 0 is the published version
"""

import numpy as np
import pytest

import jaxcontam
from jaxcontam.errors import InputError
from jaxcontam.proof import command
from jaxcontam.proof.command import read_matrix
from tests.proof.test_prove import drawn, save  # noqa: F401


@pytest.mark.parametrize("name", ["m.csv", "m.npy"])
def test_matrix_is_read_to_the_last_bit(save, name):
    matrix_KM = drawn(7, 4) * 10.0 ** np.arange(-3, 4)[:, None]
    found = read_matrix(save(name, matrix_KM))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, matrix_KM)


def test_real_types_windows_line_ends_spaces_and_exponents_are_read(save):
    for dtype in (np.int64, np.uint8, np.float16, np.float32):
        found = read_matrix(save("m.npy", np.array([[3, 1], [2, 2]], dtype)))
        assert found.dtype == np.float64
        assert found.tolist() == [[3.0, 1.0], [2.0, 2.0]]
    path = save("m.csv", "1, 2.5\r\n -3e2,+.5\r\n\r\n")
    assert read_matrix(path).tolist() == [[1.0, 2.5], [-300.0, 0.5]]


def far_down(row, cell):
    """A million lines, one of which is wrong."""
    lines = [b"1,2"] * 10**6
    lines[row - 1] = cell
    return b"\n".join(lines)


SHAPE = "expected a matrix of real numbers, got shape"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((900_000, b"1,nan"), "row 900000, column 2: nan is not a finite number"),
        ((900_000, b"1,x"), "row 900000, column 2: 'x' is not a number"),
        ((900_000, b""), "row 900000, column 2: 1 cells (row 1 has 2)"),
        ((32_769, b"1"), "row 32769, column 2: 1 cells (row 1 has 2)"),
        ((900_000, b"1,\xe9"), "byte 3599998: not UTF-8"),
        (np.array([[1.0, 2], [np.nan, 3]]), "row 2, column 1: nan is not a finite "),
        (np.ones((3, 1)), "1 columns (needs at least 2)"),
        (np.ones(4), f"{SHAPE} (4,) of float64"),
        (np.ones((2, 2, 2)), f"{SHAPE} (2, 2, 2) of float64"),
        (np.ones((2, 2), complex), f"{SHAPE} (2, 2) of complex128"),
        (np.ones((2, 2), bool), f"{SHAPE} (2, 2) of bool"),
        (np.array([["1", "2"]]), f"{SHAPE} (1, 2) of <U1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_bad_matrix_names_row_and_column(save, content, message):
    if isinstance(content, tuple):
        content = far_down(*content)
    path = save("m.npy" if isinstance(content, np.ndarray) else "m.csv", content)
    with pytest.raises(InputError) as caught:
        read_matrix(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    is_short = "cells (row 1 has" in message
    assert caught.value.hint.startswith("give a number in each cell" * is_short)
    assert bool(caught.value.hint) == is_short


def test_quoted_cells_far_down_are_read_and_blank_lines_at_the_end_left_out(save):
    n = 2 * command._LINES
    path = save("m.csv", "a,b\n" + "1.5,2.5\n" * n + '"3", 4\n' + " \n" * n)
    found = read_matrix(path)
    assert found.shape == (n + 1, 2)
    assert (found[:-1] == [1.5, 2.5]).all() and found[-1].tolist() == [3.0, 4.0]


NOISE = drawn(30, 20, shift=0.0)


def with_labels(matrix_KM, names=None, index=None):
    """A .csv of a matrix, as pandas or R writes it."""
    rows = [list(map(repr, row)) for row in matrix_KM.tolist()]
    if index is not None:
        rows = [[str(i), *row] for i, row in zip(index, rows, strict=True)]
    if names is not None:
        rows = [[str(name) for name in names], *rows]
    return "".join(",".join(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("matrix", "names", "index", "message"),
    [
        (NOISE, range(20), None, "first row (0, 1, 2, ...) looks like names"),
        (NOISE[:, :4], range(1, 5), None, "first row (1, 2, 3, ...) looks like"),
        (NOISE, [17, 4, *range(90, 108)], None, "first row (17, 4, 90, ..."),
        (np.rint(9 * NOISE), range(20), None, "first row (0, 1, 2, ...)"),
        (NOISE, None, range(30), "first column (0, 1, 2, ...) looks"),
        (NOISE, None, range(64, 94), "first column (64, 65, 66, ...)"),
        (NOISE[:, :1], None, range(30), "first column (0, 1, 2, ...)"),
        (NOISE[:1], None, [0], "first column (0) looks like an index"),
        # As many whole numbers, or sorted otherwise: an index that was shuffled.
        (NOISE, None, np.repeat(range(3), 10), "first column (0, 0, 0, ...) looks"),
        (NOISE, None, [7, 2, 9, *range(20, 47)], "first column (7, 2,"),
        (NOISE, ["i", *"abcdefghijklmnopqrst"], range(30), "first col"),
        (NOISE, ["", *range(20)], range(30), "row 1, column 1: blank, as"),
        (np.array([[3, 5], [2, 2]]), [0, 1], None, "first row (0, 1) looks like names"),
    ],
)
def test_names_and_index_of_a_table_are_no_scores(save, matrix, names, index, message):
    path = save("m.csv", with_labels(matrix, names, index))
    with pytest.raises(InputError) as caught:
        read_matrix(path)
    assert message in str(caught.value)
    assert "to_csv(header=False, index=False)" in caught.value.hint


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_names_of_columns_are_read_as_names(save, end, quote):
    names = [f"{quote}{name}{quote}" for name in ["published", *range(19)]]
    names[1:] = [f"{quote}shuffle {i}{quote}" for i in range(19)]
    path = save("m.csv", with_labels(NOISE, names).replace("\n", end))
    np.testing.assert_array_equal(read_matrix(path), NOISE)


def test_an_npz_of_one_array_is_read_and_any_other_is_named(
    save, tmp_path, monkeypatch
):
    path = tmp_path / "m.npz"
    # A matrix that begins with a count is one where nobody can have meant names.
    matrix_KM = np.column_stack([np.arange(30), NOISE])
    np.savez_compressed(path, matrix_KM)
    np.testing.assert_array_equal(read_matrix(path), matrix_KM)
    with monkeypatch.context() as patch:
        patch.setattr(command, "_MOST_BYTES", 5000)
        with pytest.raises(InputError, match=r"unpacks to 5,168 bytes \(at most 5,0"):
            np.savez_compressed(path, np.zeros((30, 21)))
            read_matrix(path)
        with pytest.raises(InputError, match=r"m.csv: 6,000 bytes \(at most 5,000\)"):
            read_matrix(save("m.csv", "1,2.5\n" * 1000))
    np.savez(path, a=np.eye(2), b=np.eye(2))
    with pytest.raises(InputError, match=r"2 arrays \(a, b\)"):
        read_matrix(path)
    trap = np.array([[_Trap(), 1.0]], dtype=object)
    np.savez(path, trap)
    np.save(tmp_path / "m.npy", trap, allow_pickle=True)
    for one in (path, tmp_path / "m.npy"):
        with pytest.raises(InputError, match=r"not a \.np[yz] array of numbers \(Obj"):
            read_matrix(one)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ma.masked_greater(NOISE, 2), "matrix: masked cells: "),
        (list(np.ma.masked_greater(NOISE, 2)), "matrix: masked cells: "),
        (NOISE + 1j, "matrix: expected real numbers (complex128)"),
        ([[1 + 0j, 2], [3, 4]], "matrix: expected real numbers (complex128)"),
        (NOISE.astype(str), "matrix: expected real numbers (<U"),
        (NOISE.astype("M8[s]"), "matrix: expected real numbers (datetime64[s])"),
        (NOISE.astype("m8[s]"), "matrix: expected real numbers (timedelta64[s])"),
        ([[1, 2], [3]], "matrix: expected real numbers (setting an array element"),
        (np.array([[1.0, 2j]], object), "matrix: expected real numbers ("),
    ],
)
def test_what_numpy_would_turn_into_numbers_is_refused(matrix, message):
    with pytest.raises(InputError) as caught:
        jaxcontam.prove(matrix)
    assert str(caught.value).startswith(message)
    with pytest.raises(InputError, match=r"^matrix: boundaries: "):
        jaxcontam.prove(NOISE, boundaries=np.ma.masked_less(np.arange(30) + 1.0, 2))


def test_a_data_frame_gives_its_values(tmp_path):
    pandas = pytest.importorskip("pandas")
    wanted = jaxcontam.prove(NOISE)["matrix"].numbers.p_value
    frame = pandas.DataFrame(NOISE, index=range(5, 35))
    assert jaxcontam.prove(frame)["matrix"].numbers.p_value == wanted
    # What read_csv makes of a file that was written with its index.
    with pytest.raises(InputError, match=r"first column \(5, 6, 7, ...\) looks like"):
        jaxcontam.prove(frame.reset_index())
    frame.iloc[3, 4] = np.nan
    with pytest.raises(InputError, match="row 4, column 5: nan is not a finite"):
        jaxcontam.prove(frame)
    with pytest.raises(InputError, match="expected real numbers"):
        jaxcontam.prove(frame.astype(object).assign(name="x"))


class _Trap:
    def __reduce__(self):
        return pytest.fail, ("the pickle was opened",)
