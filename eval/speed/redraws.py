"""How many re-draws a second does the randomisation engine make, and SciPy?"""

import numpy as np

from eval.speed.measure import interleaved, median_ratio

# Fifty strata of 20 columns, the size of the published sharded test with fewer orders.
_STRATA, _COLUMNS, _SCIPY_DRAWS = 50, 20, 2000


def measure_redraws(rounds: int) -> dict:
    """Re-draws a second of the randomisation engine and of SciPy; interleaved."""
    from scipy.stats import permutation_test

    from jaxcontam.stats.randomisation import N_MONTE_CARLO, redrawn_sums

    values = np.random.default_rng(0).normal(size=(_STRATA, _COLUMNS))
    columns = tuple(values.T)

    def scipy_way() -> None:
        permutation_test(
            columns,
            lambda *data, axis: data[0].sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=_SCIPY_DRAWS,
            alternative="greater",
        )

    timed = interleaved(
        {
            "scipy": scipy_way,
            "jaxcontam": lambda: redrawn_sums(values, n_draws=N_MONTE_CARLO, seed=0),
        },
        rounds,
    )
    draws = {"scipy": _SCIPY_DRAWS, "jaxcontam": N_MONTE_CARLO}
    per_draw = {
        name: [s / draws[name] for s in times] for name, times in timed.seconds.items()
    }
    return {
        "shape": [_STRATA, _COLUMNS],
        "redraws_per_second": {
            name: [1 / s for s in times] for name, times in per_draw.items()
        },
        "ratio": median_ratio(per_draw["scipy"], per_draw["jaxcontam"]),
    }
