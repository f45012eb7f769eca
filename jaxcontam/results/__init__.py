"""Results of functions and rows of reports: frozen dataclasses.

Fields stand in `report.json` under their own names; None becomes null.
"""

from jaxcontam.results.order import (
    DECLARED,
    DESIGNED,
    KNOWN_ORDERS,
    RELEASED,
    Commitment,
    Evidence,
    Local,
    Neighbours,
    NullPicture,
    OrderNumbers,
    OrderResult,
    Pretest,
    ReferenceResult,
    UnscoredFile,
    refusals,
)
from jaxcontam.results.report import (
    DeviceInfo,
    MembershipResult,
    ModelInfo,
    Report,
    Screening,
    ServedInfo,
)

__all__ = [
    "DECLARED",
    "DESIGNED",
    "KNOWN_ORDERS",
    "RELEASED",
    "Commitment",
    "DeviceInfo",
    "Evidence",
    "Local",
    "MembershipResult",
    "ModelInfo",
    "Neighbours",
    "NullPicture",
    "OrderNumbers",
    "OrderResult",
    "Pretest",
    "ReferenceResult",
    "Report",
    "Screening",
    "ServedInfo",
    "UnscoredFile",
    "refusals",
]
