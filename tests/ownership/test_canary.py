"""`jaxcontam canary`: exact p and exposure of secrets among their held-out twins."""

import hashlib
import json
import math
import re
import stat

import numpy as np
import pytest
import scipy.stats

from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.ownership.canary import (
    Canary,
    alone_numbers,
    canary_results,
    canary_rows,
    draw_sequences,
    exposure,
)
from jaxcontam.proof.verdict import decide

pytestmark = pytest.mark.unoptimised

DIGEST = "sha256:" + "5a" * 32


def results_of(loglik, n_secrets, seed=0):
    return canary_results(
        np.asarray(loglik, float), n_secrets, name="s", digest=DIGEST, seed=seed
    )


@pytest.mark.parametrize(("better", "equal"), [(0, 0), (3, 0), (0, 2), (4, 5), (9, 0)])
def test_pvalue_and_exposure_are_those_of_the_rank(better, equal):
    held_out = np.r_[np.full(better, 2.0), np.full(equal, 1.0), np.zeros(9 - better)]
    numbers = alone_numbers([np.r_[1.0, held_out]], 0)
    n, rank = 1 + len(held_out), 1 + better + equal
    assert numbers.p_value == pytest.approx(rank / n, rel=1e-12)
    assert numbers.exposure == pytest.approx(math.log2(n) - math.log2(rank))
    assert exposure(numbers.p_value, n) == pytest.approx(-math.log2(numbers.p_value))


def test_single_secret_has_one_row_and_the_p_of_its_rank():
    (result,), (evidence,) = results_of(np.arange(100.0)[::-1], 1)
    assert result.numbers.p_value == pytest.approx(0.01, rel=1e-12)
    assert result.numbers.p_floor == pytest.approx(0.01)
    assert result.numbers.exposure == pytest.approx(math.log2(100))
    assert evidence.scores.shape == (1, 100)


def test_no_held_out_sequence_serves_two_rows_of_the_joint_test():
    held_out = np.arange(100.0, 123.0)
    joint, alone = canary_rows(np.arange(4.0), held_out, seed=3, content_digest=DIGEST)
    dealt = np.concatenate([row[1:] for row in joint])
    assert sorted(dealt) == sorted(held_out)
    assert sorted(map(len, joint)) == [6, 7, 7, 7]
    assert [row[0] for row in joint] == [0.0, 1.0, 2.0, 3.0]
    for k, row in enumerate(alone):
        np.testing.assert_array_equal(row, [k, *held_out])


def test_deal_follows_the_seed_and_not_the_scores():
    first, again, other = (
        canary_rows(np.zeros(3), values, seed=seed, content_digest=DIGEST)[0]
        for values, seed in (
            (np.arange(30.0), 1),
            (np.arange(30.0) ** 2, 1),
            (np.arange(30.0), 2),
        )
    )
    np.testing.assert_array_equal(np.square(first), again)
    assert not np.array_equal(first, other)


def test_power_of_several_weak_secrets_together():
    """Five secrets a standard deviation up: each alone is nothing, together a lot."""
    rng = np.random.default_rng(5)
    found = []
    for i in range(40):
        loglik = rng.normal(size=5 + 495)
        loglik[:5] += 2.0
        results, _ = results_of(loglik, 5, seed=i)
        joint, *alone = decide(results, min_effect=5.0)
        found.append((joint.numbers.p_value, min(r.numbers.p_value for r in alone)))
    joint_p, best_alone = np.median(found, axis=0)
    assert joint_p < 1e-4 < best_alone


def test_learned_secrets_are_called_contaminated_and_the_others_secondary():
    results, _ = results_of([*[50.0] * 3, *np.random.default_rng(0).normal(size=60)], 3)
    joint, *alone = decide(results, min_effect=5.0)
    assert joint.verdict == "contaminated"
    assert joint.numbers.p_value == pytest.approx(21.0**-3)
    assert [r.benchmark for r in alone] == ["s:1", "s:2", "s:3"]
    assert all(r.verdict is None and not r.primary for r in alone)


def test_fewer_held_out_than_secrets_is_refused():
    with pytest.raises(InputError, match="2 held-out sequences for 3 secrets"):
        results_of(np.arange(5.0), 3)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [("words", r"id ([a-z]{6} ){7}[a-z]{6}"), ("digits", r"id (\d{4} ){11}\d{4}")],
)
def test_drawn_sequences_differ_and_have_one_form(kind, pattern):
    drawn = draw_sequences(500, kind=kind, prefix="id ")
    assert len(set(drawn)) == 500
    assert all(re.fullmatch(pattern, text) for text in drawn)


@pytest.mark.parametrize("kind", ["words", "digits"])
def test_each_place_of_a_drawn_sequence_is_uniform(kind):
    letters = [text.replace(" ", "")[5] for text in draw_sequences(6_000, kind=kind)]
    counts = np.unique(letters, return_counts=True)[1]
    assert len(counts) == {"words": 5, "digits": 10}[kind]
    # Randomness of the system, so no fixed outcome: fails once in 10^9 runs.
    assert scipy.stats.chisquare(counts).pvalue > 1e-9


def test_made_files_are_secret_whole_and_never_overwritten(tmp_path, capsys):
    secret, held_out = tmp_path / "s.txt", tmp_path / "h.txt"
    words = ["canary", "--make", "2", "--n-held-out", "7"]
    words += ["--secret", str(secret), "--held-out", str(held_out)]
    assert main(words) == 0
    said = capsys.readouterr().out
    first, second = (path.read_text() for path in (secret, held_out))
    assert (len(first.splitlines()), len(second.splitlines())) == (2, 7)
    for path in (secret, held_out):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert f"{path}: " in said
        assert f"commitment sha256:{digest}\n" in said
    assert not any(line in said for line in (first + second).splitlines())
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"jaxcontam: error: {secret}: exists, and is not overwritten\n"
        "  hint: give another name, or move it\n"
    )
    assert (secret.read_text(), held_out.read_text()) == (first, second)


def test_command_tests_a_model_and_keeps_the_secrets_to_itself(pulse, tmp_path, capsys):
    secret, held_out, out = tmp_path / "s.txt", tmp_path / "h.txt", tmp_path / "out"
    Canary(make=3, n_held_out=31, secret=secret, held_out=held_out).run()
    lines = (secret.read_text() + held_out.read_text()).splitlines()
    held_out.write_text("\n" + held_out.read_text())
    words = ["canary", str(pulse / "model"), "--secret", str(secret)]
    words += ["--held-out", str(held_out), "--out", str(out)]
    capsys.readouterr()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count(" bits ") == 3
    assert "\nh: 1 blank line left out\n" in said
    written = (
        said + (out / "report.json").read_text() + (out / "report.html").read_text()
    )
    for line in lines:
        assert line not in written
    document = json.loads((out / "report.json").read_text())
    joint, *alone = document["results"]
    assert (joint["method"], joint["n_strata"], joint["primary"]) == ("canary", 3, True)
    assert joint["null"] == "designed randomisation"
    sealed = [
        f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in (secret, held_out)
    ]
    assert [one["sha256"] for one in joint["commitments"]] == sealed
    assert all(digest in said for digest in sealed)
    assert [row["n_orders"] for row in alone] == [31] * 3
    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["results"]
    for row in [*document["results"], *again]:
        row.pop("tokens_scored"), row.pop("cached_tokens")
    assert again == document["results"]
