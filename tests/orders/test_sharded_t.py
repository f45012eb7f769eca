"""The paper's t-test: scipy as witness, and the faults it is kept for."""

import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.orders.methods import SHARDED_T as METHOD
from jaxcontam.orders.methods import SHARDED_T_RELEASED as RELEASED
from jaxcontam.orders.methods import t_numbers as analyse


def ones(matrix):
    return np.ones(len(matrix))


@pytest.mark.parametrize("shift", [0.4, 11.0])
def test_agrees_with_scipy_one_sample_t_test_of_the_gains(shift):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(50, 12)) - 500.0
    matrix[:, 0] += shift
    gains = matrix[:, 0] - matrix[:, 1:].mean(axis=1)
    witness = scipy.stats.ttest_1samp(gains, 0.0, alternative="greater")
    found = analyse(matrix, ones(matrix), 0)
    assert found.statistic == pytest.approx(witness.statistic)
    assert found.p_value == pytest.approx(witness.pvalue)
    # The published depth is reached where 1 - cdf is 0.
    assert shift < 1 or 0.0 < found.p_value < 1e-38


def test_released_variance_inflates_t_by_sqrt_k_over_k_minus_one():
    matrix = np.random.default_rng(1).normal(size=(10, 6))
    own, released = (m.analyse(matrix, ones(matrix), 0) for m in (METHOD, RELEASED))
    assert released.statistic / own.statistic == pytest.approx(math.sqrt(10 / 9))


def test_rounding_noise_of_float32_sums_is_no_evidence():
    # Sums of 400 nats wander by 1e-5 with the batch shape; that must not become t.
    matrix = np.full((12, 5), -400.0)
    matrix[:, 0] += 1e-5
    assert analyse(matrix, ones(matrix), 0).p_value == 1.0
    with pytest.raises(ValueError, match="at least 2 shards, got 1"):
        analyse(np.zeros((1, 4)), np.ones(1), 0)
