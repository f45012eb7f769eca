"""Adjacency test: is each example expected after the one published before it?"""

from jaxcontam.methods.method import PairMethod
from jaxcontam.stats.pair_normal import adjacency_normal_test
from jaxcontam.stats.pair_statistic import ADJACENCY
from jaxcontam.stats.pair_test import adjacency_test

_SOURCE = (
    "exchangeability as in Oren et al. 2023, arXiv:2310.17623; path statistic of a "
    "double-centred pair matrix"
)

METHOD = PairMethod(
    name="adjacency",
    # All 8! orders are columns: 40,320 without a draw.
    size=8,
    statistic=ADJACENCY,
    analyse=adjacency_test,
    locates=True,
    null="exchangeability",
    validity="exact",
    cost="8 passes, prefixes shared",
    finds="the published order of neighbours, at few copies; not shuffled copies",
    source=_SOURCE,
)

NORMAL = PairMethod(
    name="adjacency_normal",
    size=METHOD.size,
    statistic=ADJACENCY,
    analyse=adjacency_normal_test,
    grouped=False,
    null="exchangeability",
    validity="asymptotic",
    cost=METHOD.cost,
    finds="as adjacency, by closed-form moments; approximate, not below 1e-15",
    source=_SOURCE,
)
