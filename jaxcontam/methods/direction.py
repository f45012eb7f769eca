"""Direction test: is each example expected after the one before it, not before it?"""

from jaxcontam.methods.adjacency import METHOD as ADJACENCY
from jaxcontam.methods.method import PairMethod
from jaxcontam.stats.pair_statistic import DIRECTION
from jaxcontam.stats.pair_test import direction_test

METHOD = PairMethod(
    name="direction",
    # The strata of adjacency, so that one scoring serves both.
    size=ADJACENCY.size,
    statistic=DIRECTION,
    analyse=direction_test,
    whole=False,
    locates=True,
    null="reversibility",
    validity="exact",
    cost="2.5 passes; none beside adjacency",
    finds="the published order of neighbours; holds for files in natural order",
    source="reversals of runs in the test of Oren et al. 2023, arXiv:2310.17623; "
    "antisymmetric part of a double-centred pair matrix",
)
