"""Results of functions and rows of reports: frozen dataclasses.

Fields stand in `report.json` under their own names; None becomes null.
"""

from jaxcontam.data.provenance import Commitment
from jaxcontam.results.order import (
    DECLARED,
    DESIGNED,
    KNOWN_ORDERS,
    RELEASED,
    Evidence,
    NullPicture,
    OrderResult,
    ReferenceResult,
    UnscoredFile,
    refusals,
)
from jaxcontam.results.report import (
    MembershipResult,
    Report,
    Screening,
)
from jaxcontam.scoring.info import DeviceInfo, ModelInfo, ServedInfo
from jaxcontam.stats.result import Local, Neighbours, OrderNumbers, Pretest

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
