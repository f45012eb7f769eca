"""The study of membership: texts, numbers, and who is a member in its pulse run."""

import json

import numpy as np
import pytest

from eval.membership.cells import Stratum, cell
from eval.membership.texts import drawn, read_pool
from jaxcontam.errors import InputError
from jaxcontam.stats.roc import auc_delong

pytestmark = pytest.mark.unoptimised


def strata(rng, shift, n=40):
    return [Stratum(rng.normal(shift, 1, n), rng.normal(0, 1, n)) for _ in range(3)]


def numbers(found):
    return cell(found, copies=1, method="loss")


def test_auc_of_several_strata_is_their_mean_by_members():
    rng = np.random.default_rng(0)
    a = Stratum(rng.normal(1, 1, 30), rng.normal(0, 1, 50))
    b = Stratum(rng.normal(0, 1, 10), rng.normal(0, 1, 50))
    expected = 0.75 * auc_delong(a.members, a.nonmembers)[0]
    expected += 0.25 * auc_delong(b.members, b.nonmembers)[0]
    assert numbers([a, b]).auc == pytest.approx(expected, abs=1e-12)
    # The level of a stratum does not count.
    moved = Stratum(b.members + 10, b.nonmembers + 10)
    assert numbers([a, moved]).auc == pytest.approx(expected, abs=1e-12)
    # Too few nonmembers give no true positive rate.
    assert numbers(strata(rng, 1.0, n=19)).tpr is None
    assert numbers(strata(rng, 9.0, n=20)).tpr == 1.0


def test_interval_of_the_mean_covers_the_truth():
    rng = np.random.default_rng(2)
    # P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2).
    truth, n = 0.76025, 400
    held = 0
    for _ in range(n):
        found = numbers(strata(rng, 1.0))
        held += found.auc_low <= truth <= found.auc_high
    # Nominal 0.95; 3.3 standard errors of 400 trials are 0.036.
    assert held / n >= 0.95 - 0.036


def test_a_draw_depends_on_its_seed_alone():
    items = list(range(100))
    assert drawn(items, 10, seed=1) == drawn(items, 10, seed=1)
    assert drawn(items, 10, seed=1) != drawn(items, 10, seed=2)
    with pytest.raises(InputError, match="the corpus gives 100 questions, 101 needed"):
        drawn(items, 101, seed=1)


@pytest.mark.slow
def test_members_stand_in_the_stream_and_nonmembers_do_not(study):
    told = study("membership")
    manifests = {
        name: json.loads((told.out / f"models/{name}-0/manifest.json").read_text())
        for name in ("copies", "reference")
    }
    folder, sets = told.out / "models/copies-0", manifests["copies"]["sets"]
    texts = "".join((folder / row["file"]).read_text() for row in sets)
    planted = {q.text for q in read_pool().questions if q.text in texts}
    # Twenty at each of two numbers of copies, and two for a prefix.
    assert len(planted) == 42
    assert manifests["reference"]["sets"] == []
