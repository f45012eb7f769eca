"""Shapes and devices that choose a kernel of attention."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxcontam.models.config import ExpertShape, gpt2_shape, llama_shape
from jaxcontam.models.fused_attention import Hardware

H100 = Hardware("cuda", "NVIDIA H100", (9, 0))
TPU = Hardware("tpu", "TPU v4")
SHAPE = gpt2_shape(vocab_size=300, d_model=96, n_layers=2, n_heads=6, context=512)
GROUPED = dataclasses.replace(SHAPE, n_kv_heads=2)
LLAMA = llama_shape(
    vocab_size=300, d_model=96, n_layers=2, n_heads=6, d_ff=64, context=512
)
MIXTURE = dataclasses.replace(
    LLAMA, experts=ExpertShape(n=4, n_used=2, normalised=True)
)


def change(**fields):
    return dataclasses.replace(SHAPE, **fields)


def operands(config, T, dtype=jnp.float32, B=2):
    G, E = config.n_kv_heads, config.head_dim
    R = config.n_heads // G
    shapes = [(B, T, G, R, E), (B, T, G, E), (B, T, G, E), (B, T, G, R, E)]
    keys = jax.random.split(jax.random.key(T), 4)
    drawn = [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
    return [x.astype(dtype) for x in drawn]
