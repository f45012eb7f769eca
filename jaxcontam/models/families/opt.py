"""OPT: learned positions that start at row 2."""

from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    block_tensors,
    need,
    refuse,
    switch,
)

# Rows of the position embedding that no token uses: transformers numbers a text's
# tokens from 2 and gives row 1 to padding, which nothing attends to.
_UNUSED_ROWS = 2


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    refuse(
        raw,
        do_layer_norm_before=False,
        layer_norm_elementwise_affine=False,
        _remove_final_layer_norm=True,
    )
    D, H = need(raw, "hidden_size"), need(raw, "num_attention_heads")
    if raw.get("word_embed_proj_dim") not in (None, D):
        raise InputError("word_embed_proj_dim other than hidden_size is not supported")
    has_bias = switch(raw, "enable_bias", True)
    return DecoderConfig(
        vocab_size=need(raw, "vocab_size"),
        d_model=D,
        n_layers=need(raw, "num_hidden_layers"),
        n_heads=H,
        n_kv_heads=H,
        head_dim=D // H,
        d_ff=need(raw, "ffn_dim"),
        context=need(raw, "max_position_embeddings"),
        positions="learned",
        norm="layer",
        norm_eps=1e-5,
        activation=activation(raw.get("activation_function", "relu")),
        gated=False,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=has_bias,
        tied=switch(raw, "tie_word_embeddings", True),
    )


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"self_attn.{part}_proj" for part in "qkv"],
        "attention.out": ["self_attn.out_proj"],
        "mlp.up": ["fc1"],
        "mlp.down": ["fc2"],
    }
    norms = {
        "blocks.attention_norm": "decoder.layers.{i}.self_attn_layer_norm",
        "blocks.mlp_norm": "decoder.layers.{i}.final_layer_norm",
        "final_norm": "decoder.final_layer_norm",
    }
    embedding, layer = "decoder.embed_tokens", "decoder.layers.{i}."
    positions = Tensor(("decoder.embed_positions.weight",), skipped_rows=_UNUSED_ROWS)
    tensors = block_tensors(config, embedding, layer, linears, norms)
    return tensors | {"position_embedding": positions}


OPT = Family("opt", "OPTForCausalLM", _read, _tensors)
