"""The study of the reference's rule simulates what the library does."""

import numpy as np
import pytest
from scipy.stats import norm

from eval import reference_rule as study
from jaxcontam.orders.methods import DIRECTION as METHOD
from jaxcontam.proof.result import Evidence
from jaxcontam.proof.test_row import reference_result
from jaxcontam.stats.direction import backward_spread


def test_simulated_spread_is_that_of_the_library_and_scaling_protects():
    rng = np.random.default_rng(0)
    pairs_FKP = rng.normal(size=(3, 5, len(study._LEFT_P)))
    matrices = np.full((3, 5, 8, 8), np.nan)
    matrices[..., study._LEFT_P, study._RIGHT_P] = pairs_FKP
    expected = [backward_spread(list(file), [study._RUNS_S] * 5) for file in matrices]
    assert study._spread(pairs_FKP).tolist() == pytest.approx(expected)
    flat = study.simulate("foretold", 0.35, 37, 0.1, 0.1, n_files=500, seed=0)
    assert flat.below_of_found is not None and flat.below_of_found < 0.01
    assert flat.found > 0.03 > 0.01 > flat.scaled


def test_half_of_the_model_is_tested_as_in_the_library_and_at_its_level():
    rng = np.random.default_rng(1)
    model_KP, reference_KP = rng.normal(size=(2, 40, len(study._LEFT_P)))
    model_KP = model_KP + 0.8 * study._FORWARD_P
    pairs = np.full((2, 40, 8, 8), np.nan)
    pairs[..., np.arange(8), np.arange(8)] = 0.0
    pairs[0, :, study._LEFT_P, study._RIGHT_P] = model_KP.T
    pairs[1, :, study._LEFT_P, study._RIGHT_P] = reference_KP.T
    evidence = Evidence(
        orders=np.arange(320, dtype=np.int32).reshape(40, 1, 8),
        pairs=pairs[0],
        reference_pairs=pairs[1],
        codes=np.zeros((40, 8), np.int64),
        runs=np.tile(study._RUNS_S, (40, 1)),
    )
    found = reference_result(
        METHOD, evidence, name="", fingerprint="", seed=0, content_digest="sha256:0"
    )
    half_KP = 0.5 * model_KP - found.scale * reference_KP
    z = study._direction(half_KP[None]).item()
    # 4^40 sums are nearly normal.
    assert found.half_p == pytest.approx(norm.sf(z), rel=0.2) and found.half_p < 0.05
    n = 3_000
    halved = study.simulate(study._EVEN, 0.4, 37, 0.5, 1.0, n_files=n, seed=0)
    # Three standard errors of a share of 5 %; the estimate plus 1.645 errors has 7 %.
    assert halved.below < 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5
