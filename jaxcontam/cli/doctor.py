"""`jaxcontam doctor`: what is here, what is missing, and how to get it."""

import contextlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from jaxcontam import __version__, errors
from jaxcontam.amounts import counted
from jaxcontam.cli.flags import Doctor
from jaxcontam.data.benchmark import SUFFIXES
from jaxcontam.data.files import HUB_PREFIX, TASK_PREFIX, TFDS_PREFIX
from jaxcontam.data.model_files import GGUF
from jaxcontam.data.tables import SUFFIX as TABLE_SUFFIX
from jaxcontam.errors import InputError, first_line, install_hint
from jaxcontam.processes import cpu_cores
from jaxcontam.reports.flags import runs_here
from jaxcontam.terminal import Terminal

EXIT_FAULTS = 2

_EXTRAS = {
    "lm-eval": "models and tasks of lm-evaluation-harness",
    "torch": "BLEURT, encoders of sentences, and neighbours by a model",
}
_GIB = 1 << 30
# Below this a large model's store or a checkpoint soon has no room.
_LITTLE_DISK = 2 * _GIB


Finding = tuple[Literal["ok", "note", "fault"], str, str]
"""`note` is what one can do without, `fault` what one cannot; what was found; a hint
that says how to fix it, empty where nothing is wrong."""


def examine(command: Doctor) -> int:
    """Print a line a check; 0, or 2 if something that is needed is missing."""
    console = Terminal()
    n_faults = 0
    for state, text, hint in _findings(command):
        console.tell(f"{state:<6} {text}", indent=7)
        if hint:
            console.say(f"{'':<6} -> {hint}")
        n_faults += state == "fault"
    if n_faults:
        console.print(f"\n{counted(n_faults, 'fault')} to mend")
    return EXIT_FAULTS if n_faults else 0


def _findings(command: Doctor) -> Iterator[Finding]:
    if command.model is None:
        yield from machine()
        yield from extras()
        yield from hub()
        return
    files = command.benchmark
    if not runs_here(command.model) and not command.model.startswith("lm_eval:"):
        # Asked by an audit, not here.
        yield ("note", f"{command.model}: is not here, and was not asked", "")
    elif _is_model(command.model):
        yield from model_findings(command.model)
    else:
        files = command.model, *files
    for file in files:
        yield from benchmark_findings(file)
    yield from in_short(machine())


def _is_model(word: str) -> bool:
    """True unless a word names a file, which may be missing, or examples elsewhere."""
    path = Path(word)
    if path.exists():
        # A pipe is neither a directory nor a file.
        return path.is_dir() or (path.suffix == GGUF and path.is_file())
    is_named_so = path.suffix.lower() in (*SUFFIXES, TABLE_SUFFIX, ".gz")
    return not (is_named_so or word.startswith((HUB_PREFIX, TFDS_PREFIX, TASK_PREFIX)))


def machine() -> Iterator[Finding]:
    """All that every command needs."""
    python = f"{platform.python_version()} on {platform.system()}"
    here = f"jaxcontam {__version__}, Python {python} {platform.machine()}"
    yield ("ok", here, "")
    yield from requirements()
    yield from devices()
    yield from folders()


def in_short(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One line, and each finding that is not as it should be."""
    (_, here, _), *others = findings
    yield ("ok", f"this machine: {here}; `jaxcontam doctor` alone says more", "")
    yield from (one for one in others if one[0] != "ok")


def requirements() -> Iterator[Finding]:
    """Packages that are missing or of a version that was never tried."""
    n_right, lines = 0, errors.requirements()
    if not lines:
        hint = "pip install -c constraints.txt -e ."
        yield ("fault", "jaxcontam is not installed, only on the path", hint)
        return
    for wanted in lines:
        found, name = _version(wanted.name), f"{wanted.name}{wanted.specifier}"
        if found is None or not wanted.specifier.contains(found, prereleases=True):
            what = "missing" if found is None else f"{found} is installed"
            yield ("fault", f"{name}: {what}", f'pip install "{name}"')
        else:
            n_right += 1
    yield ("ok", f"{n_right} packages in the versions that are asked for", "")


def devices() -> Iterator[Finding]:
    """Devices on which JAX computes, and those of this machine that it leaves idle."""
    import jax

    try:
        found = jax.devices()
    except RuntimeError as e:
        line = first_line(e)
        yield ("fault", f"JAX finds no device: {line}", "unset JAX_PLATFORMS")
        return
    kind, n = found[0].device_kind, len(found)
    yield ("ok", f"JAX {jax.__version__} computes on {n} x {kind}", "")
    if found[0].platform != "cpu":
        return
    memory = "memory unknown"
    with contextlib.suppress(ValueError, OSError):
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = f"{n_bytes / _GIB:.0f} GiB of memory"
    yield ("ok", f"{cpu_cores()} cores, {memory}", "")
    unused = "there is {} that JAX does not use"
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists():
        yield ("note", unused.format("an NVIDIA GPU"), install_hint("cuda"))
    elif Path("/dev/accel0").exists():
        yield ("note", unused.format("a TPU"), install_hint("tpu"))


def folders() -> Iterator[Finding]:
    """See if reports can be written here, and compiled programs kept."""
    from jaxcontam.scoring.identity import compiled_in, keep_compiled

    here = Path.cwd()
    if not os.access(here, os.W_OK | os.X_OK):
        yield ("note", f"{here}: not writable", "give --out a folder that is")
    free = shutil.disk_usage(here).free
    if free < _LITTLE_DISK:
        yield ("note", f"{free / _GIB:.1f} GiB free here", "make room, or --out")
    else:
        yield ("ok", f"{free / _GIB:.0f} GiB free here", "")
    keep_compiled()
    if (kept := compiled_in()) is not None:
        yield ("ok", f"compiled programs are kept in {kept}", "")
        return
    yield (
        "note",
        "compiled programs are not kept, so each run compiles anew",
        "set JAX_COMPILATION_CACHE_DIR to a folder that can be written",
    )


def extras() -> Iterator[Finding]:
    """Optional parts, by what they give; `devices` reports accelerators."""
    for extra, gives in _EXTRAS.items():
        needs = errors.requirements(extra)
        if not needs:
            return
        if all(_version(one.name) for one in needs):
            yield ("ok", f"[{extra}] is installed: {gives}", "")
        else:
            yield ("note", f"[{extra}] is not installed: {gives}", install_hint(extra))


def hub() -> Iterator[Finding]:
    """See if gated models of the hub can be asked for; the token is never shown."""
    from huggingface_hub import get_token

    if get_token():
        yield ("ok", "a token for the Hugging Face hub is set", "")
    else:
        yield ("note", "no token for the hub: no gated models", "hf auth login")


def model_findings(model: str) -> Iterator[Finding]:
    """Config, weights and tokenizer of a model, without reading the weights."""
    from jaxcontam.models.checkpoint import (
        model_parts,
        quantisation_of,
        read_config_fields,
        read_decoder_config,
        read_tokenizer,
    )
    from jaxcontam.models.weights import weight_files

    try:
        folder, directory, adapter = model_parts(model)
        raw = read_config_fields(directory)
        _, config = read_decoder_config(directory)
        files = weight_files(directory)
        read_tokenizer(folder, raw)
    except InputError as e:
        yield ("fault", str(e), e.hint or "")
        return
    n = sum(path.stat().st_size for path in files)
    size = f"{n / 2**20:.3g} MiB" if n < _GIB else f"{n / _GIB:.2f} GiB"
    about = f"context {config.context:,}, vocabulary {config.vocab_size:,}"
    kind = raw.get("model_type")
    types = quantisation_of(files)
    form = "GGUF" if directory.suffix == GGUF else "safetensors"
    if types:
        form += f" ({types}), dequantised when it is read"
    if adapter is not None:
        form += f" with the LoRA adapter of {model}"
    yield ("ok", f"{directory}: {kind}, {size} of {form}, {about}", "")


def benchmark_findings(benchmark: str) -> Iterator[Finding]:
    """See if a file is read as examples, and which tests its own order allows."""
    from jaxcontam.orders.benchmarks import HEAD, check_files, read_files
    from jaxcontam.orders.design import AuditDesign
    from jaxcontam.orders.methods import WORDS
    from jaxcontam.proof.advice import next_steps, plain_name

    design = AuditDesign()
    try:
        files = read_files(benchmark, design)
        (found,) = files.benchmarks
        first = f"the first begins {found.texts[0][:60]!r}"
        yield ("ok", f"{benchmark}: {len(found):,} examples; {first}", "")
        checked = check_files(files, design, most=HEAD)
    except InputError as e:
        yield ("fault", str(e), e.hint or "")
        return
    for words in checked.notes:
        yield ("note", words, "")
    (checks,) = checked.pretests.values()
    failed = [test for test in checks if not test.passed]
    if not failed:
        n_made = sum(test.applicable for test in checks)
        yield ("ok", f"its order passes all {n_made} checks that apply", "")
        return
    names = "; ".join(plain_name(test.name) for test in failed)
    hint = (
        "a test of random orders would accuse any model that copies; direction, "
        "which audit asks first, does not mind"
    )
    for file in checked.unscored:
        (step,) = next_steps(file, ("audit", "MODEL", benchmark), WORDS)
        hint = f"it points forwards: {step}"
    yield ("note", f"its order is not random: {names}", hint)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
