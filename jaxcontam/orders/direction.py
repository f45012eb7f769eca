"""Direction test: is each example expected after the one before it, not before it?"""

from jaxcontam.orders.adjacency import METHOD as ADJACENCY
from jaxcontam.orders.pair_method import PairMethod
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.pair_test import DIRECTION, direction_test

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
    finds="the published order of neighbours, also where like stands beside like",
    source="reversals of runs in the test of Oren et al. 2023, arXiv:2310.17623; "
    "antisymmetric part of a double-centred pair matrix",
    words=ProofWords(
        meaning="A small p-value says that the model expects examples after those "
        "published before them, and less the other way round. Like stands beside like "
        "in most files, which works both ways; memory, an order that means something "
        "to a reader, and kinds that take turns work forwards alone. ",
        assumed={
            "reversibility": "that, before any model was trained, each run of four "
            "examples was as likely to be published backwards, given all others; like "
            "examples may stand together, if kind follows kind as often either way",
        },
        chance="in each of {n_strata} strata every run of at most four examples would "
        "be as likely to stand backwards{within} (up to {n_versions} ways); the summed "
        "score would reach the observed one with probability {p}. The score sums how "
        "likely an example is after those before it, less how likely they are after "
        "it; what makes it likely after anything is taken out",
        unit="nats forwards less backwards",
        null_caption="Sum over strata of the published order's score, and what the "
        "same sum is when each run of at most four examples is turned round at random.",
        takes_reference=True,
    ),
)
