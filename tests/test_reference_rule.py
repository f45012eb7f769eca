"""The study of the reference's rule simulates what the library does."""

import numpy as np
import pytest

from eval import reference_rule as study
from jaxcontam.stats.direction import backward_spread


def test_simulated_spread_is_that_of_the_library_and_scaling_protects():
    rng = np.random.default_rng(0)
    pairs_FKP = rng.normal(size=(3, 5, len(study._LEFT_P)))
    matrices = np.full((3, 5, 8, 8), np.nan)
    matrices[..., study._LEFT_P, study._RIGHT_P] = pairs_FKP
    expected = [backward_spread(list(file), [study._RUNS_S] * 5) for file in matrices]
    assert study._spread(pairs_FKP).tolist() == pytest.approx(expected)
    flat = study.simulate("foretold", 0.35, 37, 0.1, 0.1, n_files=500, seed=0)
    # A tenth of the scores, as they are, tells next to nothing.
    assert flat.as_they_are > 0.03 > 0.01 > flat.scaled
