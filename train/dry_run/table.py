"""A dry run's answer as text for people."""

from train.dry_run.answer import Answer, train_flags

_GIB = 1 << 30
_PARTS = {
    "weights": "weights, float32",
    "optimizer": "optimiser's averages",
    "gradients": "gradients and their sums",
    "activations": "kept for the backward pass",
    "block": "within one block",
    "gathered": "whole for a while",
    "logits": "a piece of the logits",
}


def answer_lines(answer: Answer, efficiency: float, reserve: float) -> list[str]:
    """The lines of the answer: verdict, memory, collectives, time, cost."""
    return [
        *_verdict(answer, reserve),
        "",
        *_memory(answer),
        "",
        *_collectives(answer),
        "",
        *_time(answer, efficiency),
    ]


def _verdict(answer: Answer, reserve: float) -> list[str]:
    on, compute = answer.machine, answer.preset.compute
    rows = answer.preset.batch_rows // (on.n_chips * compute.n_micro)
    word = "fits" if answer.fits else "DOES NOT FIT"
    capacity = on.chip.memory_bytes / _GIB
    lines = [
        f"{answer.preset.name} on {on.name} ({on.n_chips} chips of "
        f"{capacity:.0f} GiB): {word}",
        f"  needs {answer.needed / _GIB:.1f} GiB a chip of {answer.usable / _GIB:.1f} "
        f"({reserve:.0%} are left free)",
        f"  mesh data={answer.shape.data},model={answer.shape.model}; "
        f"{answer.preset.batch_rows} rows of {answer.preset.context:,} tokens a step, "
        f"{rows} a chip at once in {compute.n_micro} micro-batches; "
        f"{compute.dtype}" + (", blocks computed twice" if compute.remat else ""),
    ]
    if answer.fits:
        lines.append(f"  flags of train.pretrain: {' '.join(train_flags(answer))}")
    return lines


def _memory(answer: Answer) -> list[str]:
    memory = answer.memory
    lines = [f"memory a chip, GiB (most at the moment of: {memory.moment})"]
    lines += [
        f"  {words:30}{getattr(memory, name) / _GIB:8.2f}"
        for name, words in _PARTS.items()
    ]
    lines.append(f"  {'formula':30}{memory.total / _GIB:8.2f}")
    for one in answer.compiled:
        if one.peak_bytes is None:
            lines.append(f"  {one.compiler.upper()} compiler: {one.refused}")
            continue
        formula = answer.cpu_memory if one.compiler == "cpu" else memory
        words = f"{one.compiler.upper()} compiler ({one.seconds:.0f} s)"
        lines.append(
            f"  {words:30}{one.peak_bytes / _GIB:8.2f}   formula for it: "
            f"{formula.total / _GIB:.2f}"
        )
    if any(one.compiler == "cpu" for one in answer.compiled):
        lines.append(
            "  (the CPU's step keeps attention's scores and widens bfloat16; the "
            "hardware's does neither)"
        )
    return lines


def _collectives(answer: Answer) -> list[str]:
    lines = ["sent in one step"]
    sent = answer.compiled[0].traced if answer.compiled else answer.sent
    for one in sent:
        axes = " and ".join(one.axes)
        lines.append(
            f"  {one.kind:16}{one.count:7,} times {one.bytes / 1e9:9.2f} GB   among "
            f"{one.group} along {axes}"
        )
    if not sent:
        lines.append("  nothing: one chip")
    for found in answer.compiled:
        if found.refused or found.compiler == "tpu":
            continue
        counts = ", ".join(f"{one.count:,} {one.kind}" for one in found.compiled)
        lines.append(
            f"  compiled for {found.compiler.upper()}: {counts or 'no collective'}"
        )
    return lines


def _time(answer: Answer, efficiency: float) -> list[str]:
    on, time = answer.machine, answer.time
    both = (time.best, time.worst)
    rates = [answer.preset.step_tokens / seconds for seconds in both]
    hours = [answer.hours(seconds) for seconds in both]
    lines = [
        "seconds a step, from the datasheet (nothing was measured)",
        f"  products {time.compute:.3f}   memory {time.memory:.3f}   "
        f"network {time.network:.3f}   longest: {time.binds}",
        f"  assumed: {efficiency:.0%} of the peak of {on.chip.peak_tflops:.0f} TFLOP/s "
        f"in what is computed, so {time.mfu:.0%} MFU if products take all the time",
    ]
    if answer.preset.compute.dtype == "float32":
        lines.append("  the peak is bfloat16's: float32 takes longer than this")
    lines += [
        f"  tokens a second {rates[1]:,.0f} to {rates[0]:,.0f}",
        f"{answer.tokens:,.0f} tokens: {hours[0]:,.1f} to {hours[1]:,.1f} hours, "
        f"{on.n_chips * hours[0]:,.0f} to {on.n_chips * hours[1]:,.0f} chip-hours",
    ]
    if answer.price is not None:
        costs = [on.n_chips * one * answer.price for one in hours]
        lines.append(f"  at {answer.price:g} each: {costs[0]:,.0f} to {costs[1]:,.0f}")
    return lines
