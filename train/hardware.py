"""Accelerators by the name they are rented under, with their datasheet numbers.

v4-8 and v5p-8 count TensorCores, two a chip; v5e-8, v6e-8 and h100-8 count chips. A
program sees chips.

Source:
    TPUs: Google Cloud's pages on TPU v4, v5e, v5p and v6e (docs.cloud.google.com/tpu),
    read November 2026. GPUs: NVIDIA's datasheets of A100, H100 and H200 in SXM boards,
    dense bfloat16.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

from jaxcontam.errors import InputError, unknown_name

_NAME = re.compile(r"([a-z0-9]+(?:-[48]0)?)-(\d+)")
# Read as kind and number, these would be 40 or 80 cards.
_HALF_NAMES = ("a100-40", "a100-80")
_ALSO = {"v5litepod": "v5e", "a100": "a100-80"}


@dataclasses.dataclass(frozen=True, slots=True)
class Chip:
    """Datasheet of one accelerator.

    Attributes:
        name: Prefix of machine names.
        peak_tflops: bfloat16 products accumulated in float32, 10^12 operations/s.
        memory_gib: Device memory.
        memory_tb_per_second: Its bandwidth, 10^12 bytes/s.
        topologies: TPU slices on offer, as XLA names them.
        name_counts: Units in a machine's name that make one chip.
        generation: Major compute capability of a GPU; None for TPUs.
    """

    name: str
    peak_tflops: float
    memory_gib: int
    memory_tb_per_second: float
    topologies: str = ""
    name_counts: int = 1
    generation: int | None = None

    @property
    def slices(self) -> Mapping[int, str]:
        """Number of chips -> topology; empty for GPUs."""
        words = self.topologies.split()
        return {math.prod(map(int, word.split("x"))): word for word in words}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """A number of chips of one kind; `name` is as the user typed it."""

    name: str
    chip: Chip
    n_chips: int

    @property
    def slice_name(self) -> str | None:
        """Topology name for XLA's TPU compiler; None for GPUs."""
        shape = self.chip.slices.get(self.n_chips)
        return None if shape is None else f"{self.chip.name}:{shape}"


_TORUS_2D = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_TORUS_3D = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16"

CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("v4", 275, 32, 1.2, _TORUS_3D, 2),
        Chip("v5e", 197, 16, 0.82, _TORUS_2D),
        Chip("v5p", 459, 95, 2.77, _TORUS_3D, 2),
        Chip("v6e", 918, 32, 1.64, _TORUS_2D),
        Chip("a100-40", 312, 40, 1.56, generation=8),
        Chip("a100-80", 312, 80, 2.04, generation=8),
        Chip("h100", 989, 80, 3.35, generation=9),
        Chip("h200", 989, 141, 4.8, generation=9),
    )
}


def machine(name: str) -> Machine:
    """Look up a machine name such as v4-8, v5e-64, v5litepod-64 or h100-8.

    Raises:
        InputError: If there is no such chip, or no slice of that size.
    """
    if name.lower() in _HALF_NAMES:
        raise InputError(
            f"{name}: 40 or 80 names the card, and how many there are is missing",
            hint=f"{name}-1 for one of them, {name}-8 for eight",
        )
    found = _NAME.fullmatch(name.lower())
    kind = "" if found is None else _ALSO.get(found[1], found[1])
    if found is None or kind not in CHIPS:
        error = unknown_name("hardware", name, CHIPS)
        hint = f"{error.hint}; each with its number, such as v4-8 or h100-8"
        raise InputError(str(error), hint=hint)
    chip, number = CHIPS[kind], int(found[2])
    n_chips, rest = divmod(number, chip.name_counts)
    if number < 1 or rest or (chip.slices and n_chips not in chip.slices):
        sizes = [f"{kind}-{n * chip.name_counts}" for n in chip.slices] or [f"{kind}-1"]
        raise InputError(f"{name}: no such size", hint=f"choices: {', '.join(sizes)}")
    return Machine(name, chip, n_chips)
