"""How long a training step takes on named hardware, from its datasheet.

Three times are reckoned: of products, of reading and writing memory, and of what chips
send each other. Where all three overlap a step takes the longest of them, where none do
their sum; a real one lies between, or above if the products reach a smaller share of
the peak than is assumed. Nothing here was measured.
"""

import dataclasses
from collections.abc import Sequence

from jaxcontam.models.flops import forward_flops
from train.dry_run.collectives import Collective
from train.dry_run.hardware import Machine
from train.dry_run.memory import WeightCounts, weight_counts
from train.presets import Preset
from train.progress import training_flops

_FLOAT = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a step by what they are spent on.

    Attributes:
        compute: Products at the assumed share of the peak.
        memory: Weights, optimiser, kept activations and logits, read and written.
        network: Collectives, each in a ring over the links between chips.
        mfu: Share of the peak that the model's own operations reach if only products
            take time: less than the assumed one where blocks are computed twice.
    """

    compute: float
    memory: float
    network: float
    mfu: float

    @property
    def best(self) -> float:
        """Seconds if all overlap."""
        return max(self.compute, self.memory, self.network)

    @property
    def worst(self) -> float:
        """Seconds if nothing overlaps."""
        return self.compute + self.memory + self.network

    @property
    def binds(self) -> str:
        """What takes longest."""
        times = {
            "products": self.compute,
            "memory": self.memory,
            "network": self.network,
        }
        return max(times, key=lambda name: times[name])


def step_time(
    preset: Preset,
    machine: Machine,
    sent: Sequence[Collective],
    *,
    model: int,
    efficiency: float,
) -> StepTime:
    """The time of a step.

    Args:
        preset: Model, rows and how to compute.
        machine: What it runs on.
        sent: Collectives of a step; see `expected_collectives`.
        model: Devices that divide a copy of the model.
        efficiency: Share of the peak reached in what is computed, in (0, 1].
    """
    config, chip = preset.decoder, machine.chip
    asked = training_flops(config, preset.batch_rows, preset.context)
    done = asked
    if preset.compute.remat:
        # All of the forward pass but the head, once more.
        N = preset.batch_rows * preset.context
        head = 2.0 * config.vocab_size * config.d_model * N
        done += forward_flops(config, [preset.context] * preset.batch_rows) - head
    peak = machine.n_chips * chip.peak_tflops * 1e12
    moved = _bytes_moved(preset, machine.n_chips, model)
    return StepTime(
        compute=done / (efficiency * peak),
        memory=moved / (chip.memory_gb_s * 1e9),
        network=sum(_seconds(one, machine) for one in sent),
        mfu=efficiency * asked / done,
    )


def expected_collectives(
    preset: Preset, *, data: int, model: int
) -> tuple[Collective, ...]:
    """What a step asks of a mesh, without compiling it: `traced_collectives` in short.

    Each micro-batch gathers the embedding once, and each layer's kernels for the
    forward and for the backward pass; what is divided is summed back into parts. Once a
    step gradients are summed over copies of the model, those of whole weights over all.
    """
    config, compute = preset.decoder, preset.compute
    counts = weight_counts(config, model)
    n_kernels = _n_kernels(counts, config.n_layers)
    width = _FLOAT if compute.dtype == "float32" else 2
    n_heads = 1 if config.tied else 2
    found = []
    if counts.divided and model > 1:
        gathers = 2 * n_kernels + n_heads
        gathered = 2 * width * counts.layers + _FLOAT * counts.heads
        scatters = n_kernels + n_heads
        scattered = _FLOAT * (counts.layers + counts.heads)
        for kind, count, n_bytes in (
            ("all-gather", gathers, gathered),
            ("reduce-scatter", scatters, scattered),
        ):
            found.append(
                Collective(
                    kind=kind,
                    axes=("model",),
                    group=model,
                    count=count * compute.n_micro,
                    bytes=n_bytes * compute.n_micro,
                )
            )
    return tuple(found) + _sums(counts, data=data, model=model)


def _n_kernels(counts: WeightCounts, n_layers: int) -> int:
    """Kernels of all layers: four each, of queries to values and out, up and down."""
    return 4 * n_layers if counts.layers else 0


def _sums(counts: WeightCounts, *, data: int, model: int) -> tuple[Collective, ...]:
    """Of gradients, and of the loss; the number of executions is left to a compiler."""
    found = []
    everywhere = tuple(
        name for name, size in (("data", data), ("model", model)) if size > 1
    )
    of_parts = _FLOAT * counts.divided // model if data > 1 else 0
    of_wholes = _FLOAT * (counts.whole + 1)
    if everywhere == ("data",):
        found = [(everywhere, of_parts + of_wholes)]
    else:
        found = [(("data",), of_parts), (everywhere, of_wholes)]
    return tuple(
        Collective(
            kind="all-reduce",
            axes=axes,
            group=(data if "data" in axes else 1) * (model if "model" in axes else 1),
            count=1,
            bytes=n_bytes,
        )
        for axes, n_bytes in found
        if n_bytes and axes
    )


def _seconds(one: Collective, machine: Machine) -> float:
    """Of a ring: each chip sends all parts but one, twice if sums are handed back."""
    # Along `data` neighbours are whole copies of the model apart.
    span = machine.n_chips if "data" in one.axes else one.group
    sent = one.bytes * (one.group - 1) / one.group
    if one.kind == "all-reduce":
        sent *= 2
    return sent / (machine.gb_s_among(span) * 1e9)


def _bytes_moved(preset: Preset, n_chips: int, model: int) -> float:
    """At least so much each chip reads from its memory and writes to it in a step."""
    config, compute = preset.decoder, preset.compute
    counts = weight_counts(config, model)
    part = counts.divided / model + counts.whole
    # Weights, gradients and two averages are read, all but the gradients written.
    updated = 7 * _FLOAT * part
    width = _FLOAT if compute.dtype == "float32" else 2
    passes = 4 if compute.remat else 3
    # Whole weights are written once gathered, and read.
    weights = compute.n_micro * passes * 2 * width * counts.total
    N = preset.batch_rows * preset.context / n_chips
    streams = 2 * _FLOAT * N * config.d_model * config.n_layers * passes
    # Written, read for their largest, read for the sum, and their slopes likewise.
    logits = 4 * _FLOAT * N * config.vocab_size
    return updated + weights + streams + logits
