"""Token scores against torch, compiled as users compile: each kind of attention."""

import pytest

from jaxcontam.models.checkpoint import load_decoder
from tests.support.compile_mode import compiles_plainly
from tests.support.family_cases import OPTIMISED_CASES, torch_model
from tests.support.torch_reference import assert_scores_agree

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("case", OPTIMISED_CASES)
def test_optimised_scores_agree(case, tmp_path):
    assert not compiles_plainly()
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)
