"""jaxcontam: proves, ranks and explains test-set contamination of language models.

`jaxcontam.audit(model, texts)` and its kin are functions that print and write nothing.
Commands of the command line are frozen dataclasses under their own names, such as
`jaxcontam.Audit`.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

COMMANDS = (
    "Audit", "Membership", "Inflation", "Replicate", "Prove", "Plan", "Calibrate",
    "Score", "Overlap", "Canary", "Variants", "Release", "Verify", "Report",
    "Annotate", "Methods", "Doctor", "Convert",
)  # fmt: skip
"""Commands in the order of the help, each in a module of its name."""

_EXPORTS = {name: f"jaxcontam.commands.{name.lower()}" for name in COMMANDS} | {
    "AuditResult": "jaxcontam.analyses.audit",
    "audit": "jaxcontam.analyses.audit",
    "order_test": "jaxcontam.analyses.prove",
    "prove": "jaxcontam.analyses.prove",
    "load": "jaxcontam.scoring.load",
    "METHODS": "jaxcontam.methods",
    "inflation": "jaxcontam.analyses.inflation",
    "keyed_canary": "jaxcontam.analyses.keyed_canary",
    "membership": "jaxcontam.analyses.membership",
    "replicate": "jaxcontam.analyses.replicate",
    "InputError": "jaxcontam.errors",
    "load_benchmark": "jaxcontam.data.benchmark",
    "load_checkpoint": "jaxcontam.models.checkpoint",
}


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])


def __getattr__(name: str) -> Any:
    """Import on first use: `import jaxcontam` costs no JAX."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'jaxcontam' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
