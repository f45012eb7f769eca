"""How exactly operands of products are taken."""

from jaxcontam.models.fused_attention import Hardware

HIGHEST = "highest"
"""No operand is rounded; a TPU takes six passes of its unit for it."""

THREE_PASSES = "TF32_TF32_F32_X3"
"""float32 in three products of TF32, which the matrix units of GPUs multiply.

Each operand is split into two parts of 11 bits; the product of both small parts, 2**-22
of the whole, is left out. The rest is added up in float32, as it is anyway.
"""

# Ampere: the first generation with units for TF32.
_AMPERE = (8, 0)


def matmul_precision(dtype: str, on: Hardware) -> str:
    """Matmul precision that a decoder's products are computed at.

    JAX's own default rounds float32 operands to TF32 on GPUs and to bfloat16 on TPUs.
    At the highest precision a GPU leaves its matrix units idle. Operands in bfloat16
    are multiplied exactly.
    """
    if dtype == "float32" and on.platform == "cuda" and on.capability >= _AMPERE:
        return THREE_PASSES
    return HIGHEST
