"""jaxcontam: proves, ranks and explains test-set contamination of language models.

`jaxcontam.audit(model, texts)` and its kin are functions that print and write nothing.
Commands of the command line are frozen dataclasses under their own names, such as
`jaxcontam.Audit`.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_COMMANDS = {
    "Audit": "orders.flags",
    "Membership": "members.flags",
    "Inflation": "score_gap.flags",
    "Replicate": "replication.flags",
    "Prove": "proof.flags",
    "Plan": "orders.flags",
    "Calibrate": "orders.flags",
    "Score": "cli.flags",
    "Overlap": "overlap.flags",
    "Canary": "ownership.flags",
    "Variants": "ownership.flags",
    "Release": "ownership.flags",
    "Verify": "cli.flags",
    "Report": "cli.flags",
    "Annotate": "cli.flags",
    "Methods": "cli.flags",
    "Doctor": "cli.flags",
    "Convert": "cli.flags",
}
COMMANDS = tuple(_COMMANDS)
"""Commands in the order of the help."""

_EXPORTS = {name: f"jaxcontam.{place}" for name, place in _COMMANDS.items()} | {
    "AuditResult": "jaxcontam.proof.publish",
    "audit": "jaxcontam.orders.run",
    "order_test": "jaxcontam.orders.run",
    "prove": "jaxcontam.proof.prove",
    "load": "jaxcontam.scoring.load",
    "METHODS": "jaxcontam.methods",
    "inflation": "jaxcontam.score_gap.run",
    "keyed_canary": "jaxcontam.ownership.keyed_canary",
    "membership": "jaxcontam.members.run",
    "replicate": "jaxcontam.replication.run",
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
