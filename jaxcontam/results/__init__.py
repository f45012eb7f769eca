"""Results of functions and rows of reports: frozen dataclasses.

Fields stand in `report.json` under their own names; None becomes null.
"""

from jaxcontam.data.provenance import Commitment as Commitment
from jaxcontam.results.order import DECLARED as DECLARED
from jaxcontam.results.order import DESIGNED as DESIGNED
from jaxcontam.results.order import KNOWN_ORDERS as KNOWN_ORDERS
from jaxcontam.results.order import RELEASED as RELEASED
from jaxcontam.results.order import Evidence as Evidence
from jaxcontam.results.order import NullPicture as NullPicture
from jaxcontam.results.order import OrderResult as OrderResult
from jaxcontam.results.order import ReferenceResult as ReferenceResult
from jaxcontam.results.order import UnscoredFile as UnscoredFile
from jaxcontam.results.order import refusals as refusals
from jaxcontam.results.report import MembershipResult as MembershipResult
from jaxcontam.results.report import Report as Report
from jaxcontam.results.report import Screening as Screening
from jaxcontam.scoring.info import DeviceInfo as DeviceInfo
from jaxcontam.scoring.info import ModelInfo as ModelInfo
from jaxcontam.scoring.info import ServedInfo as ServedInfo
from jaxcontam.stats.result import Local as Local
from jaxcontam.stats.result import Neighbours as Neighbours
from jaxcontam.stats.result import OrderNumbers as OrderNumbers
from jaxcontam.stats.result import Pretest as Pretest
