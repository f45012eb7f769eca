"""An opened model around a stub scorer, for commands that take any model."""

from jaxcontam.scoring.opened import ModelInfo, OpenModel
from tests.orders.test_order_path import CONTEXT, PREFIX


def opened_stub(name, scorer, tokenizer):
    """What commands see of a stub: see `tests.orders.test_order_path.bigrams`."""
    fingerprint = f"sha256:{name}"
    return OpenModel(
        name=name,
        fingerprint=fingerprint,
        tokenizer=tokenizer,
        prefix_id=PREFIX,
        context=CONTEXT,
        info=ModelInfo(
            name=name,
            fingerprint=fingerprint,
            n_parameters=None,
            dtype="float32",
            precision="highest",
            context=CONTEXT,
        ),
        device=None,
        checkpoint=None,
        make_scorer=lambda **_: scorer,
    )
