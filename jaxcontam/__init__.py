"""jaxcontam: proves, ranks and explains test-set contamination of language models.

Every command of the command line is a frozen dataclass here, under the same words:
`jaxcontam.Audit(model="DIR", benchmark=("test.jsonl",)).run()`.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "Audit": "jaxcontam.commands.audit",
    "Books": "jaxcontam.commands.books",
    "Calibrate": "jaxcontam.commands.calibrate",
    "Canary": "jaxcontam.commands.canary",
    "Compare": "jaxcontam.commands.compare",
    "Doctor": "jaxcontam.commands.doctor",
    "Membership": "jaxcontam.commands.membership",
    "Methods": "jaxcontam.commands.methods",
    "Overlap": "jaxcontam.commands.overlap",
    "Plan": "jaxcontam.commands.plan",
    "Prove": "jaxcontam.commands.prove",
    "Release": "jaxcontam.commands.release",
    "Replicate": "jaxcontam.commands.replicate",
    "Report": "jaxcontam.commands.report",
    "Score": "jaxcontam.commands.score",
    "Serve": "jaxcontam.commands.serve",
    "Unlearning": "jaxcontam.commands.unlearning",
    "Variants": "jaxcontam.commands.variants",
    "Verify": "jaxcontam.commands.verify",
    "METHODS": "jaxcontam.methods",
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
