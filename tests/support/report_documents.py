"""Small reports of audits that nothing was scored for."""

import dataclasses
import json

from jaxcontam.proof.result import MembershipResult, OrderResult, ReferenceResult
from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import to_document
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.stats.result import OrderNumbers, Pretest

_NUMBERS = {field.name for field in dataclasses.fields(OrderNumbers)}


def order_result(benchmark="boolq", **changes):
    """A decided result; changes are fields of it or of its numbers."""
    numbers = {"statistic": 9.5, "p_value": 1e-6, "log10_p": -6.0, "p_lower": 0.9e-6}
    numbers |= {"p_monte_carlo": None, "p_floor": 1e-60, "e_value": 100.0}
    numbers |= {
        "effect": 0.1 + 0.2,
        "effect_se": 0.05,
        "mde": 0.25,
        "scores": "centred",
    }
    trend = Pretest(name="length_trend", statistic=0.1, p_value=0.5, passed=True)
    fields = {"benchmark": benchmark, "fingerprint": f"sha256:{benchmark}"}
    fields |= {"content_digest": f"sha256:c{benchmark}"}
    fields |= {"order_provenance": "published", "n_examples": 100, "n_cut": 0}
    fields |= {"method": "stratified", "primary": True, "null": "exchangeability"}
    fields |= {"validity": "exact", "n_strata": 12, "n_dropped": 0, "n_orders": 9}
    fields |= {"group_field": None, "tokens_scored": 1000, "cached_tokens": 0}
    fields |= {"p_adjusted": 1e-6, "mde_adjusted": 0.3, "pretests": (trend,)}
    fields |= {"effect_unit": "nats per example boundary", "verdict": "contaminated"}
    of_numbers = {name: changes.pop(name) for name in _NUMBERS & set(changes)}
    return OrderResult(numbers=OrderNumbers(**numbers | of_numbers), **fields | changes)


def reference_result(**changes):
    """A reference model that is silent; changes are fields of it."""
    fields = {"name": "old", "fingerprint": "sha256:old", "p_value": 0.3}
    fields |= {"log10_p": -0.5, "effect": 0.0, "effect_se": 0.05, "difference": 0.3}
    fields |= {"difference_se": 0.07, "difference_p": 1e-6, "difference_log10_p": -6.0}
    fields |= {"half_p": 1e-3, "scale": 1.0, "loglik_gap": -0.4}
    return ReferenceResult(**fields | changes)


def ranking_result(**changes):
    """How a score ranks a planted set; changes are fields of it."""
    fields = {"benchmark": "boolq", "fingerprint": "sha256:boolq", "n_examples": 100}
    fields |= {"method": "min_k", "auc": 0.881, "auc_se": 0.031, "tokens_scored": 1}
    return MembershipResult(**fields | {"reference": ("a", "b")} | changes)


def audit_report(*results, model="pythia", command=("audit",), seed=0, **changes):
    """A report of an audit."""
    of_model = {"name": model, "fingerprint": f"sha256:{model}", "n_parameters": 10}
    of_model |= {"dtype": "float32", "precision": "highest", "context": 128}
    fields = {"command": (*command, model, *(row.benchmark for row in results))}
    fields |= {"seed": seed, "started": "2026-01-01T00:00:00Z", "wall_seconds": 1.0}
    fields |= {"model": ModelInfo(**of_model), "device": None, "min_effect": 0.5}
    fields |= {"versions": {"jax": "0.10"}, "results": results}
    return Report(**fields | changes)


def audit_document(*results, **changes):
    """A report of an audit as JSON values."""
    return to_document(audit_report(*results, **changes))


def report_of(document):
    """A report from its JSON values."""
    return read_result(kind_of(document["command"]).report, document, "report")


def save_document(document, folder):
    """Write a report.json alone; returns the folder."""
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(document))
    return folder
