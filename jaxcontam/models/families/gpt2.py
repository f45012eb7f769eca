"""GPT-2."""

from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    linear_tensors,
    need,
    norm_tensors,
    number,
    refuse,
    switch,
)


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    refuse(
        raw,
        scale_attn_by_inverse_layer_idx=True,
        reorder_and_upcast_attn=True,
        scale_attn_weights=False,
    )
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
        positions="learned",
        norm="layer",
        norm_eps=number(raw, "layer_norm_epsilon", 1e-5),
        activation=activation(raw.get("activation_function", "gelu_new")),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=switch(raw, "tie_word_embeddings", True),
    )


def _write(config: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.context,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": "gelu_new"
        if config.activation == "gelu_tanh"
        else config.activation,
        "tie_word_embeddings": config.tied,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def gpt2_tensors(
    config: DecoderConfig, qkv: list[str], out: str, *, transposed: bool
) -> dict[str, Tensor]:
    """Tensors of a file in which all but the maps of attention are named as here."""
    linears = {
        "attention.qkv": qkv,
        "attention.out": [out],
        "mlp.up": ["mlp.c_fc"],
        "mlp.down": ["mlp.c_proj"],
    }
    norms = {
        "blocks.attention_norm": "h.{i}.ln_1",
        "blocks.mlp_norm": "h.{i}.ln_2",
        "final_norm": "ln_f",
    }
    return {
        "embedding": Tensor(("wte.weight",)),
        "position_embedding": Tensor(("wpe.weight",)),
        **linear_tensors(config, "h.{i}.", linears, transposed=transposed),
        **norm_tensors(config, norms),
    }


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    # GPT-2 keeps its kernels as [inputs, outputs], like ours.
    return gpt2_tensors(config, ["attn.c_attn"], "attn.c_proj", transposed=False)


GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    _read,
    _tensors,
    write_config=_write,
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)
