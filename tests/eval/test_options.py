"""The study of options simulates what the library does."""

import numpy as np
import pytest
from scipy.stats import norm

from eval import options as study
from jaxcontam.stats.randomisation import randomisation_test, row_spread


def test_simulated_audit_is_that_of_the_library_and_a_reference_protects():
    rng = np.random.default_rng(0)
    scores_FKM = rng.normal(size=(3, 100, 4))
    scores_FKM[..., 0] += 0.2
    assert study._spread(scores_FKM) == pytest.approx([*map(row_spread, scores_FKM)])
    for scores_KM, z in zip(scores_FKM, study._standardised(scores_FKM), strict=True):
        numbers = randomisation_test(scores_KM, np.ones(100), n_draws=0)
        # The normal law of a sum over 100 items.
        assert norm.sf(z) == pytest.approx(numbers.p_value, rel=0.2)
    for reference in ((1.0, 1.0), (0.1, 0.1)):
        found = study.simulate(0.35, *reference, n_files=500, seed=0)
        assert found["found"] > 0.2 > 0.01 > found["accused"]
