"""An opened model around a stub scorer, for commands that take any model."""

from jaxcontam.scoring.opened import ModelInfo, OpenModel
from tests.orders.test_order_path import CONTEXT, PREFIX


def opened_stub(name, scorer, tokenizer):
    """What commands see of a stub: see `tests.orders.test_order_path.bigrams`."""
    own = {"name": name, "fingerprint": f"sha256:{name}", "context": CONTEXT}
    info = ModelInfo(n_parameters=None, dtype="float32", precision="highest", **own)
    fields = {"tokenizer": tokenizer, "prefix_id": PREFIX, "info": info, "device": None}
    return OpenModel(checkpoint=None, make_scorer=lambda **_: scorer, **own, **fields)
