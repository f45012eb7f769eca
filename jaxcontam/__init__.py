"""jaxcontam: proves, ranks and explains test-set contamination of language models.

`jaxcontam.audit(model, texts)` and its kin are functions that print and write nothing.
Commands of the command line are frozen dataclasses under their own names, such as
`jaxcontam.Audit`.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "AuditResult": "jaxcontam.analyses.audit",
    "audit": "jaxcontam.analyses.audit",
    "order_test": "jaxcontam.analyses.prove",
    "prove": "jaxcontam.analyses.prove",
    "load": "jaxcontam.analyses.model",
    "Audit": "jaxcontam.commands.audit",
    "Books": "jaxcontam.commands.books",
    "Calibrate": "jaxcontam.commands.calibrate",
    "Canary": "jaxcontam.commands.canary",
    "Compare": "jaxcontam.commands.compare",
    "Doctor": "jaxcontam.commands.doctor",
    "Inflation": "jaxcontam.commands.inflation",
    "Membership": "jaxcontam.commands.membership",
    "Methods": "jaxcontam.commands.methods",
    "Overlap": "jaxcontam.commands.overlap",
    "Plan": "jaxcontam.commands.plan",
    "Prove": "jaxcontam.commands.prove",
    "Release": "jaxcontam.commands.release",
    "Replicate": "jaxcontam.commands.replicate",
    "Report": "jaxcontam.commands.report",
    "Score": "jaxcontam.commands.score",
    "Unlearning": "jaxcontam.commands.unlearning",
    "Variants": "jaxcontam.commands.variants",
    "Verify": "jaxcontam.commands.verify",
    "METHODS": "jaxcontam.methods",
    "inflation": "jaxcontam.analyses.inflation",
    "membership": "jaxcontam.analyses.membership",
    "replicate": "jaxcontam.analyses.replicate",
    "InputError": "jaxcontam.errors",
    "load_benchmark": "jaxcontam.data.benchmark",
    "load_checkpoint": "jaxcontam.models.checkpoint",
    "randomisation_test": "jaxcontam.stats.randomisation",
}


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])


def __getattr__(name: str) -> Any:
    """Import on first use: `import jaxcontam` costs no JAX."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'jaxcontam' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
