"""Made-up records of planted models."""

import math

from eval.power.model import ModelRecord, Outcome


def row(test, copies, p):
    return Outcome(
        test=test,
        copies=copies,
        log10_p=math.log10(p),
        effect=0.1,
        effect_se=0.05,
        mde=0.2,
        n_strata=30,
        n_orders=9,
        passes=10.0,
    )


def record(*rows, seed=0):
    return ModelRecord(
        design="d",
        seed=seed,
        n_examples=1,
        n_parameters=1,
        n_tokens=1,
        n_canary_tokens=1,
        loss=1.0,
        train_seconds=1.0,
        test_seconds=1.0,
        rows=rows,
    )
