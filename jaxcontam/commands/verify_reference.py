"""What `verify` checks of a reference model that stands beside a pair test."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxcontam.commands.recomputed import noise_of, same
from jaxcontam.methods import METHODS
from jaxcontam.methods.method import PairMethod
from jaxcontam.methods.reference_model import reference_result
from jaxcontam.results import Evidence, OrderResult

# Differences of large numbers near 0; p-values are compared as they are.
_SIGNED = {"effect", "difference"}


def reference_faults(
    result: OrderResult, evidence: Evidence, document: Mapping[str, Any]
) -> list[str]:
    """Whether a reference model's numbers follow from its pairs, and none was hidden.

    Args:
        result: A row of the report.
        evidence: Of the row.
        document: The report.
    """
    stated, pairs = result.reference, evidence.reference_pairs
    method = METHODS.get(result.method)
    if not isinstance(method, PairMethod):
        has_one = stated is not None or pairs is not None
        return ["a reference stands beside a test that has none"] if has_one else []
    if stated is None:
        if pairs is None and "--reference" not in document["command"]:
            return []
        return ["a reference was scored and is not stated"]
    if pairs is None or evidence.pairs is None or pairs.shape != evidence.pairs.shape:
        return ["pair matrices of the reference are not those of the test"]
    if not np.array_equal(np.isnan(pairs), np.isnan(evidence.pairs)):
        return ["the reference was asked for other pairs"]
    computed = reference_result(
        method,
        evidence,
        name=stated.name,
        fingerprint=stated.fingerprint,
        seed=document["seed"],
        content_digest=result.content_digest,
    )
    model = document.get("reference")
    known = model if isinstance(model, dict) else {}
    named = {name: known.get(name) for name in ("name", "fingerprint")}
    noise = noise_of(pairs) + noise_of(evidence.pairs)
    return [
        f"reference's {name} is {a!r}, recomputed {b!r}"
        for name, a in dataclasses.asdict(stated).items()
        if not same(
            a,
            b := named.get(name, getattr(computed, name)),
            noise if name in _SIGNED else 0.0,
        )
    ]
