"""What `verify` checks of tests of versions beside their numbers.

Dimension key
    K  rows
    M  versions of the row with the most
    S  options of the largest item
"""

import numpy as np

from jaxcontam.methods import canary
from jaxcontam.results import Evidence, OrderResult
from jaxcontam.stats.padding import padded, unpadded
from jaxcontam.stats.places import draw_places


def version_faults(result: OrderResult, evidence: Evidence, seed: int) -> list[str]:
    """Whether places are those of the seed, and options only change places.

    Args:
        result: A row of a test of versions.
        evidence: Of it.
        seed: The run's seed.
    """
    if evidence.scores is None:
        return ["no scores"]
    sizes = [len(row) for row in unpadded(evidence.scores)]
    if len(sizes) != result.n_strata or max(sizes) != result.n_orders + 1:
        return ["rows or versions are not as many as stated"]
    if evidence.place is None:
        return [] if result.method.startswith(canary.METHOD.name) else ["no places"]
    faults = []
    places = draw_places(sizes, seed=seed, content_digest=result.content_digest)
    if not np.array_equal(places, evidence.place):
        faults.append("places are not those of the seed and the content digest")
    if evidence.orders is not None:
        faults += _option_faults(evidence.orders, sizes)
    return faults


def _option_faults(orders_KMS: np.ndarray, sizes: list[int]) -> list[str]:
    """Whether each item has so many different orders, the published one first.

    Which orders may stand depends on the options' texts, which stand in the
    benchmark: no redrawing.
    """
    if len(orders_KMS) != len(sizes):
        return ["orders and scores differ in shape"]
    for orders_MS, size in zip(orders_KMS, sizes, strict=True):
        published = orders_MS[0][orders_MS[0] >= 0]
        found = orders_MS[:size, : len(published)]
        if (
            not np.array_equal(published, np.arange(len(published)))
            or (np.sort(found, axis=1) != published).any()
            or len(np.unique(found, axis=0)) < size
            or np.count_nonzero(orders_MS >= 0) != found.size
        ):
            return ["orders of options are not different orders of each item"]
    return []


def deal_faults(
    tests: list[tuple[int, OrderResult]], evidence: list[Evidence | None], seed: int
) -> list[str]:
    """Whether held-out sequences were dealt to the secrets as the seed says.

    Args:
        tests: Index and row of each test of the report.
        evidence: One a row of the report.
        seed: The run's seed.
    """
    faults = []
    for r, joint in tests:
        if joint.method != canary.METHOD.name:
            continue
        rows = [
            found.scores[0]
            for s, alone in tests
            if alone.method == canary.ALONE.name
            and alone.content_digest == joint.content_digest
            and (found := evidence[s]) is not None
            and found.scores is not None
        ]
        found = evidence[r]
        assert found is not None
        assert found.scores is not None
        if not rows and joint.n_strata == 1:
            continue
        if len(rows) != joint.n_strata or any(
            not np.array_equal(row[1:], rows[0][1:]) for row in rows
        ):
            faults.append(f"result {r}: not one row for each secret alone")
            continue
        dealt = canary.canary_rows(
            np.array([row[0] for row in rows]),
            rows[0][1:],
            seed=seed,
            content_digest=joint.content_digest,
        )
        if not np.array_equal(padded(dealt.joint), found.scores, equal_nan=True):
            faults.append(
                f"result {r}: held-out sequences are not dealt as the seed says"
            )
    return faults
