"""The study of membership: its numbers, and who is a member in its pulse run."""

import numpy as np
import pytest

from eval.leaderboard.trials import PULSE
from eval.membership import cell
from eval.study import read_fields
from jaxcontam.stats.roc import auc_delong

pytestmark = pytest.mark.unoptimised


def strata(rng, shift, n=40):
    return [(rng.normal(shift, 1, n), rng.normal(0, 1, n)) for _ in range(3)]


def numbers(found):
    return cell("loss", "1 copies", found)


def test_auc_of_several_models_is_their_mean_by_members():
    rng = np.random.default_rng(0)
    a = rng.normal(1, 1, 30), rng.normal(0, 1, 50)
    b = rng.normal(0, 1, 10), rng.normal(0, 1, 50)
    expected = 0.75 * auc_delong(*a)[0] + 0.25 * auc_delong(*b)[0]
    assert numbers([a, b]).auc.value == pytest.approx(expected, abs=1e-12)
    # The level of a model's scores does not count.
    moved = b[0] + 10, b[1] + 10
    assert numbers([a, moved]).auc.value == pytest.approx(expected, abs=1e-12)
    # Too few nonmembers give no true positive rate.
    assert numbers(strata(rng, 1.0, n=19)).tpr is None
    assert numbers(strata(rng, 9.0, n=20)).tpr.value == 1.0


def test_interval_of_the_mean_covers_the_truth():
    rng = np.random.default_rng(2)
    # P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2).
    truth, n = 0.76025, 400
    held = 0
    for _ in range(n):
        auc = numbers(strata(rng, 1.0)).auc
        held += auc.low <= truth <= auc.high
    # Nominal 0.95; 3.3 standard errors of 400 trials are 0.036.
    assert held / n >= 0.95 - 0.036


@pytest.mark.slow
def test_members_are_those_of_the_planted_set_but_for_a_prefix(study):
    record = read_fields(study("membership").out / "models/texts-8000.json")
    n = PULSE.n_examples
    n_shots = n // 4
    for row in record["rows"]:
        # Five sets were not planted.
        sizes = len(row["members"]), len(row["nonmembers"])
        assert (row["copies"], *sizes) == (8, n - n_shots, 5 * n - n_shots)
    methods = {row["method"] for row in record["rows"]}
    assert {"loss", "codec", "con_recall", "blind: bag_of_words"} <= methods
    assert record["facts"]["n_planted_tokens"] > 0
