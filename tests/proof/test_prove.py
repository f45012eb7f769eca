"""`jaxcontam prove`: matrices in, exact p-values and whole reports out.

Dimension key
    K  rows (strata)
    M  columns, M = m + 1; column 0 is the published version
"""

import itertools
import json

import numpy as np
import pytest

from jaxcontam.cli.main import main
from jaxcontam.proof.flags import Prove


@pytest.fixture
def save(tmp_path):
    """Write a matrix, text or bytes under a name; returns the path."""

    def save_file(name, content):
        path = tmp_path / name
        if isinstance(content, str):
            path.write_bytes(content.encode())
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif path.suffix == ".npy":
            np.save(path, content)
        else:
            np.savetxt(path, content, "%.17g", ",")
        return path

    return save_file


@pytest.fixture
def prove(tmp_path, capsys):
    """Run the command on a path; returns the only row of the report."""

    def run(path, **flags):
        document = Prove(matrix=path, out=tmp_path / "out", **flags).run()
        capsys.readouterr()
        (row,) = document["results"]
        return row

    return run


def drawn(K, M, seed=0, shift=0.5):
    matrix_KM = np.random.default_rng(seed).normal(size=(K, M))
    matrix_KM[:, 0] += shift
    return matrix_KM


def enumerated_p(scores_KM):
    """Share of all M^K column choices that sum to at least the published one."""
    sums = np.array([sum(choice) for choice in itertools.product(*scores_KM)])
    return np.mean(sums >= scores_KM[:, 0].sum() - 1e-9)


def test_studentised_rows_are_weighed_by_their_own_spread(save, prove):
    matrix_KM = drawn(5, 4) * np.array([[1.0], [1e3], [1.0], [50.0], [1e-2]])
    spread_K1 = matrix_KM.std(axis=1, ddof=1, keepdims=True)
    scores_KM = (matrix_KM - matrix_KM.mean(axis=1, keepdims=True)) / spread_K1
    found = prove(save("m.npy", matrix_KM), statistic="studentised")
    assert found["scores"] == "studentised"
    assert found["p_value"] == pytest.approx(enumerated_p(scores_KM), rel=1e-9)
    plain = prove(save("m.csv", matrix_KM))
    assert plain["p_value"] == pytest.approx(enumerated_p(matrix_KM), rel=1e-9)
    assert plain["p_value"] != found["p_value"]


def test_boundaries_as_number_and_as_file_give_an_effect_per_boundary(
    save, prove, tmp_path
):
    matrix_KM, boundaries_K = drawn(6, 3), np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.5])
    path = save("m.csv", matrix_KM)
    gain = (matrix_KM[:, 0] - matrix_KM[:, 1:].mean(axis=1)).sum()

    plain = prove(path)
    assert plain["effect_unit"] == "score units"
    assert plain["effect"] == pytest.approx(gain / 6)

    four = prove(path, boundaries="4")
    assert four["effect_unit"] == "nats per example boundary"
    assert four["effect"] == pytest.approx(gain / 24)
    same = prove(path, boundaries=str(save("four.csv", "4\n" * 6)))
    assert same["effect"] == four["effect"]
    # The smallest number of boundaries that is taken.
    least = prove(path, boundaries="1e-9")
    assert least["effect"] == pytest.approx(gain / 6e-9)

    column = boundaries_K[:, None]
    for name, content in (
        ("b.csv", column),
        ("b.npy", boundaries_K),
        ("c.npy", column),
    ):
        found = prove(path, boundaries=str(save(name, content)))
        assert found["effect"] == pytest.approx(gain / boundaries_K.sum())
        assert found["p_value"] == plain["p_value"], "boundaries scale the effect alone"


def test_report_has_the_fields_of_the_interface_and_the_archive_the_scores(
    save, tmp_path, capsys
):
    matrix_KM = drawn(5, 4)
    path, out = save("scores.npy", matrix_KM), tmp_path / "out"
    words = ["prove", str(path), "--out", str(out), "--seed", "3"]
    assert main(words) == 0
    assert f"report: {out / 'report.html'}" in capsys.readouterr().out
    document = json.loads((out / "report.json").read_text(encoding="utf-8"))
    (row,) = document["results"]
    stated = {
        **{"benchmark": "scores.npy", "order_provenance": "declared"},
        **{"method": "matrix", "primary": True, "validity": "exact"},
        **{"null": "exchangeability (declared)", "effect_unit": "score units"},
        **{"n_strata": 5, "n_orders": 3, "p_adjusted": row["p_value"]},
        **{"tokens_scored": 0, "pretests": [], "warnings": []},
    }
    assert {name: row[name] for name in stated} == stated
    assert row["fingerprint"].startswith("sha256:")
    stated = {"schema": 2, "seed": 3, "model": None, "device": None}
    assert {name: document[name] for name in stated} == stated
    assert document["command"][:2] == ["prove", str(path)]
    with np.load(out / "orders.npz") as archive:
        assert set(archive.files) == {"0/scores", "0/boundaries"}
        np.testing.assert_array_equal(archive["0/scores"], matrix_KM)
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((out / "report.json").read_text())
    assert printed.err == ""


def test_same_matrix_finds_its_own_folder_again(save, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for content in ("2,1\n", "2,1\n", "3,1\n"):
        assert main(["prove", str(save("m.csv", content))]) == 0
    capsys.readouterr()
    reports = sorted((tmp_path / "runs" / "prove").glob("m-????????/report.json"))
    assert len(reports) == 2


def test_large_matrix_says_on_stderr_what_is_done_and_a_small_one_nothing(
    save, tmp_path, capsys
):
    little, large = str(tmp_path / "little"), str(tmp_path / "large")
    assert main(["prove", str(save("m.npy", drawn(30, 3))), "--out", little]) == 0
    assert capsys.readouterr().err == ""
    # 2 standard deviations of the sum.
    matrix_KM = drawn(70_000, 3, shift=2 * (2 / 3 / 70_000) ** 0.5)
    assert main(["prove", str(save("m.npy", matrix_KM)), "--out", large]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        f"reading m.npy\ntesting 70,000 rows of 3\nwriting {large}\n"
    )
    assert "testing" not in printed.out
    (row,) = json.loads((tmp_path / "large/report.json").read_text())["results"]
    p, p_lower = row["p_value"], row["p_lower"]
    assert p_lower <= p <= 1.5 * p_lower
    # Four standard errors of 99,999 draws; blocks of rows double the variance at most.
    slack = 4 * (2 * p / 99_999) ** 0.5 + p - p_lower
    assert row["p_monte_carlo"] == pytest.approx(p, abs=slack)
    # A bar a row would be tens of megabytes.
    assert (tmp_path / "large/report.html").stat().st_size < 1e6
    assert main(["verify", large]) == 0
    assert capsys.readouterr().err == "recomputing from orders.npz\n"
