"""Accelerators by the name that one rents them under, with their datasheet numbers.

Names count differently: v4-8 and v5p-8 have eight TensorCores on four chips, v5e-8 and
v6e-8 have eight chips, and h100-8 has eight GPUs. A program sees chips.

Source:
    TPUs: Google Cloud's pages on TPU v4, v5e, v5p and v6e (docs.cloud.google.com/tpu),
    read November 2026; v4's links from Jouppi et al. 2023, arXiv:2304.01433, table 4:
    six of 50 GB/s. GPUs: NVIDIA's datasheets of A100, H100 and H200 in SXM boards,
    dense bfloat16, and of the DGX machines for what a GPU has to the outside.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Literal

from jaxcontam.errors import InputError, unknown_name

_NAME = re.compile(r"([a-z0-9]+(?:-[48]0)?)-(\d+)")
# As a kind and a number, each would be so many of the larger card.
_HALF_NAMES = ("a100-40", "a100-80")
_ALSO = {"v5litepod": "v5e", "a100": "a100-80"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator as its datasheet has it.

    Attributes:
        name: Begins the names of machines.
        peak_tflops: bfloat16 products added up in float32, 10^12 a second.
        memory_bytes: Of its own memory.
        memory_gb_s: Read or written, 10^9 bytes a second.
        link_gb_s: What it can send to its neighbours in a ring, 10^9 bytes a second:
            two links of a TPU's four or six, all of a GPU's.
        host_chips: Chips that the fast links join; None is the whole slice.
        network_gb_s: What each can send to another host, 10^9 bytes a second; None
            where the fast links join all.
        name_counts: Units of a name that make one chip.
        slices: For TPUs the slices that exist, by chips, as XLA names them.
    """

    name: str
    peak_tflops: float
    memory_bytes: int
    memory_gb_s: float
    link_gb_s: float
    host_chips: int | None = None
    network_gb_s: float | None = None
    name_counts: int = 1
    slices: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """So many chips of one kind.

    Attributes:
        name: As it was asked for.
        chip: One of them.
        n_chips: How many.
    """

    name: str
    chip: Chip
    n_chips: int

    @property
    def platform(self) -> Literal["gpu", "tpu"]:
        """As JAX calls it."""
        return "tpu" if self.chip.slices else "gpu"

    @property
    def slice_name(self) -> str | None:
        """As XLA's compiler for TPUs knows it; None for GPUs."""
        shape = self.chip.slices.get(self.n_chips)
        return None if shape is None else f"{self.chip.name}:{shape}"

    def gb_s_among(self, n_neighbours: int) -> float:
        """What a chip can send in a ring of so many, 10^9 bytes a second."""
        chip = self.chip
        if chip.host_chips is None or n_neighbours <= chip.host_chips:
            return chip.link_gb_s
        assert chip.network_gb_s is not None, "hosts are joined by a network"
        return chip.network_gb_s


_GIB = 1 << 30
# Sides of the slices that are rented, by their chips.
_FLAT = {
    math.prod(sides): "x".join(map(str, sides))
    for sides in ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
}
_DEEP = {
    math.prod(sides): "x".join(map(str, sides))
    for sides in (
        (2, 2, 1),
        (2, 2, 2),
        (2, 2, 4),
        (2, 4, 4),
        (4, 4, 4),
        (4, 4, 8),
        (4, 8, 8),
        (8, 8, 8),
        (8, 8, 16),
    )
}

CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            name="v4",
            peak_tflops=275,
            memory_bytes=32 * _GIB,
            memory_gb_s=1200,
            link_gb_s=2 * 50,
            name_counts=2,
            slices=_DEEP,
        ),
        # 400 GB/s are its four links in both directions.
        Chip(
            name="v5e",
            peak_tflops=197,
            memory_bytes=16 * _GIB,
            memory_gb_s=819,
            link_gb_s=2 * 50,
            slices=_FLAT,
        ),
        # 1,200 GB/s are its six links in both directions.
        Chip(
            name="v5p",
            peak_tflops=459,
            memory_bytes=95 * _GIB,
            memory_gb_s=2765,
            link_gb_s=2 * 100,
            name_counts=2,
            slices=_DEEP,
        ),
        # 800 GB/s are its four links in both directions.
        Chip(
            name="v6e",
            peak_tflops=918,
            memory_bytes=32 * _GIB,
            memory_gb_s=1638,
            link_gb_s=2 * 100,
            slices=_FLAT,
        ),
        *(
            Chip(
                name=f"a100-{gigabytes}",
                peak_tflops=312,
                memory_bytes=gigabytes * _GIB,
                memory_gb_s=bandwidth,
                link_gb_s=300,  # 600 GB/s in both directions
                host_chips=8,
                network_gb_s=25,  # eight adapters of 200 Gb/s for eight GPUs
            )
            for gigabytes, bandwidth in ((40, 1555), (80, 2039))
        ),
        *(
            Chip(
                name=name,
                peak_tflops=989,
                memory_bytes=gigabytes * _GIB,
                memory_gb_s=bandwidth,
                link_gb_s=450,  # 900 GB/s in both directions
                host_chips=8,
                network_gb_s=50,  # eight adapters of 400 Gb/s for eight GPUs
            )
            for name, gigabytes, bandwidth in (("h100", 80, 3350), ("h200", 141, 4800))
        ),
    )
}


def machine(name: str) -> Machine:
    """The machine of a name such as v4-8, v5e-64, v5litepod-64 or h100-8.

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
    chip = CHIPS[kind]
    number = int(found[2])
    n_chips, rest = divmod(number, chip.name_counts)
    if number < 1 or rest or (chip.slices and n_chips not in chip.slices):
        sizes = [f"{kind}-{n * chip.name_counts}" for n in chip.slices] or [f"{kind}-1"]
        raise InputError(f"{name}: no such size", hint=f"choices: {', '.join(sizes)}")
    return Machine(name, chip, n_chips)
