"""What every family reads from a config.json, against transformers' own reading."""

import copy
import json
from pathlib import Path

import pytest
import transformers

from jaxcontam.models.checkpoint import read_decoder_config
from jaxcontam.models.families import FAMILIES
from tests.support.family_files import RAW
from tests.support.refused import refusal

# Model type, change of its fields, what the line says.
ROWS = Path(__file__).with_name("refused_configs.jsonl").read_text().splitlines()
REFUSED = [json.loads(row) for row in ROWS]

# Fields that no default serves.
NEEDED = {"deepseek_v2": {"num_experts_per_tok": 2}, "gemma4_text": RAW["gemma4_text"]}


def as_transformers_reads(model_type, raw):
    """The fields that this transformers writes for those that an older one wrote."""
    # It writes into nested fields that it is given.
    raw = copy.deepcopy(raw)
    return transformers.AutoConfig.for_model(model_type, **raw).to_dict()


@pytest.mark.parity
@pytest.mark.parametrize("model_type", RAW)
def test_older_fields_give_the_shape_that_transformers_newer_ones_give(model_type):
    read = FAMILIES[model_type].read_config
    raw = RAW[model_type]
    assert read(raw) == read(as_transformers_reads(model_type, raw))


@pytest.mark.parity
@pytest.mark.parametrize("model_type", RAW)
def test_fields_that_are_left_out_are_the_familys_defaults(model_type):
    read = FAMILIES[model_type].read_config
    raw = NEEDED.get(model_type, {})
    theirs = as_transformers_reads(model_type, raw)
    assert read(raw | {"model_type": model_type}) == read(theirs)


@pytest.mark.parametrize(("model_type", "change", "message"), REFUSED)
def test_config_is_refused_in_one_line(model_type, change, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(RAW[model_type] | {"model_type": model_type} | change))
    said, _ = refusal(read_decoder_config, tmp_path)
    assert said.startswith(f"{path}: ") and message in said


def test_layers_without_windows_may_be_counted_from_zero():
    read, raw = FAMILIES["qwen2_moe"].read_config, RAW["qwen2_moe"]
    off = raw | {"use_sliding_window": False}
    assert read(off | {"max_window_layers": 0}) == read(off)


@pytest.mark.parametrize("old", ["su", "yarn"])
def test_old_names_of_long_rotations_are_read_alike(old):
    read, raw = FAMILIES["phi3"].read_config, RAW["phi3"]
    renamed = raw["rope_scaling"] | {"type": old}
    assert read(raw | {"rope_scaling": renamed}) == read(raw)


def test_long_rotations_end_at_the_context_of_the_first_training():
    config = FAMILIES["phi3"].read_config(RAW["phi3"])
    assert RAW["phi3"]["max_position_embeddings"] == 32
    assert config.context == 8
    # sqrt(1 + ln(32 / 8) / ln 8): ln 4 / ln 8 = 2 / 3.
    assert config.rope_scaling.magnitude == pytest.approx((5 / 3) ** 0.5, rel=1e-12)
