"""The same pair test of a model that cannot have seen the file, beside the target's.

Dimension key
    Q  numbers of first tokens
    K  strata
    S  examples of a stratum
"""

import dataclasses

import numpy as np

from jaxcontam.methods.method import SingleTest
from jaxcontam.methods.pair_method import pair_strata
from jaxcontam.results import Evidence, ReferenceResult
from jaxcontam.stats.direction import backward_spread


def reference_result(
    method: SingleTest,
    evidence: Evidence,
    *,
    name: str,
    fingerprint: str,
    seed: int,
    content_digest: str,
) -> ReferenceResult:
    """Test the reference model, and the target less the reference.

    The statistic is linear in the pair matrix, so what the model prefers more than the
    reference does is the same test of the difference of both matrices: paired by
    stratum, exact under the same null, and blind to order that both models see. A
    smaller model sees it, but gains fewer nats: so the reference's matrix is first
    multiplied by `scale`, where its scores vary less with the context than the
    target's: after later runs, or after any example where all orders are compared, so
    that no order under test changes it.

    Raises:
        ValueError: If a matrix is missing or not finite.
    """
    pairs = evidence.pairs
    if pairs is None or evidence.reference_pairs is None:
        raise ValueError("no pair matrices of a reference model")
    missing, missing_of_reference = map(np.isnan, (pairs, evidence.reference_pairs))
    if not np.array_equal(missing, missing_of_reference):
        raise ValueError("the reference was asked for other pairs")
    # Where in the file it lies enters no p-value, and takes time.
    method = dataclasses.replace(method, locates=False)
    of_reference = dataclasses.replace(evidence, pairs=evidence.reference_pairs)
    # Of all tokens, which the last number of first tokens is.
    spread = _spread(evidence, whole=method.whole)
    scale = max(1.0, _ratio(spread, _spread(of_reference, whole=method.whole)))
    own, difference = (
        method.numbers(one, grouped=False, seed=seed, content_digest=content_digest)
        for one in (
            of_reference,
            dataclasses.replace(
                evidence, pairs=pairs - scale * evidence.reference_pairs
            ),
        )
    )
    return ReferenceResult(
        name=name,
        fingerprint=fingerprint,
        p_value=own.p_value,
        log10_p=own.log10_p,
        effect=own.effect,
        effect_se=own.effect_se,
        scale=scale,
        difference=difference.effect,
        difference_se=difference.effect_se,
        difference_p=difference.p_value,
        difference_log10_p=difference.log10_p,
        loglik_gap=loglik_gap(evidence),
    )


def _spread(evidence: Evidence, *, whole: bool) -> float | None:
    strata = pair_strata(evidence)
    if whole:
        return backward_spread(strata.matrices(-1), None)
    runs = [
        runs_S[:size] for runs_S, size in zip(strata.runs, strata.sizes, strict=True)
    ]
    return backward_spread(strata.matrices(-1), runs)


def _ratio(target: float | None, reference: float | None) -> float:
    """One where there is nothing to compare."""
    return target / reference if target and reference else 1.0


def loglik_gap(evidence: Evidence) -> float:
    """Mean log-likelihood of an example under the reference, less the model's, in nats.

    Over the pairs that were scored, with all tokens of an example where several numbers
    of first tokens count. A text may be cut elsewhere for a shorter context.
    """
    assert evidence.orders is not None
    assert evidence.pairs is not None and evidence.reference_pairs is not None
    there_KS = evidence.orders[:, 0] >= 0
    there_KSS = there_KS[:, :, None] & there_KS[:, None, :]
    there_KSS &= ~np.eye(there_KS.shape[1], dtype=bool)
    # The last number of first tokens is all of them.
    gap_KSS = evidence.reference_pairs[-1] - evidence.pairs[-1]
    return float(np.nanmean(gap_KSS[there_KSS]))
