"""Adjacency test: is each example expected after the one published before it?"""

from jaxcontam.orders.pair_method import PairMethod
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.pair_test import ADJACENCY, adjacency_test

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
    source="exchangeability as in Oren et al. 2023, arXiv:2310.17623; path statistic "
    "of a double-centred pair matrix",
    words=ProofWords(
        chance="in each of {n_strata} strata the published order would be as likely as "
        "any other of {orders} to put expected examples after each other; the summed "
        "score would reach the observed one with probability {p}. The score sums over "
        "neighbours how likely an example is after the one before it, less what is "
        "likely after anything",
        takes_reference=True,
    ),
)
