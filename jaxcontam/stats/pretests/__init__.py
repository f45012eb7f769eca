"""Checks of exchangeability on the file itself; no model is asked.

The order tests assume that, without the model, every order of the file was equally
likely. A file that is sorted, grouped or numbered breaks that, and a clean model would
then be found guilty. Failing checks turn the verdict into `invalid design`.
"""

from jaxcontam.stats.pretests.battery import pretest_battery
from jaxcontam.stats.pretests.blind import blind_pretests
from jaxcontam.stats.pretests.fields import columns
from jaxcontam.stats.pretests.null import gate

__all__ = ["blind_pretests", "columns", "gate", "pretest_battery"]
