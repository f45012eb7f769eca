"""GPT-J: parallel blocks behind one norm, neighbours rotated, a head with a bias."""

from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    block_tensors,
    need,
    number,
    switch,
)


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    D, H = need(raw, "n_embd"), need(raw, "n_head")
    return DecoderConfig(
        vocab_size=need(raw, "vocab_size"),
        d_model=D,
        n_layers=need(raw, "n_layer"),
        n_heads=H,
        n_kv_heads=H,
        head_dim=D // H,
        d_ff=need(raw, "n_inner", 4 * D),
        context=need(raw, "n_positions"),
        positions="rotary",
        # Missing, it is the family's 64; null would rotate more than there is.
        rotary_dim=need({"rotary_dim": 64, **raw}, "rotary_dim"),
        rotary_pairs="neighbours",
        norm="layer",
        norm_eps=number(raw, "layer_norm_epsilon", 1e-5),
        parallel=True,
        shared_norm=True,
        activation=activation(raw.get("activation_function", "gelu_new")),
        gated=False,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=True,
        tied=switch(raw, "tie_word_embeddings", False),
        head_bias=True,
    )


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"attn.{part}_proj" for part in "qkv"],
        "attention.out": ["attn.out_proj"],
        "mlp.up": ["mlp.fc_in"],
        "mlp.down": ["mlp.fc_out"],
    }
    norms = {"blocks.attention_norm": "h.{i}.ln_1", "final_norm": "ln_f"}
    return block_tensors(config, "wte", "h.{i}.", linears, norms)


GPTJ = Family(
    "gptj",
    "GPTJForCausalLM",
    _read,
    _tensors,
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)
