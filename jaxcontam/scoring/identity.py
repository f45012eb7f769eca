"""Identity of a run's scores besides token ids, and JAX's cache of its programs."""

import dataclasses
import functools
import hashlib
import json
import os
import platform
from pathlib import Path

import jaxcontam
from jaxcontam.processes import cpu_cores
from jaxcontam.sources import source_digest

# Modules that turn ids and weights into scores.
_SCORING = tuple(
    f"jaxcontam.scoring.{name}" for name in ("local", "gradients", "prefixed")
)
# With what they import of the engine.
_ENGINE = ("jaxcontam.models", "jaxcontam.scoring")
# The last two are what Linux says on ARM in place of the others.
_CPU_FIELDS = ("vendor_id", "cpu family", "model", "flags", "CPU part", "Features")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreIdentity:
    """Everything that could change a bit of a score, but for the row and its batch.

    Separator, template and cuts stand in no field, because they act on the ids alone.

    Attributes:
        prefix_id: Id put before each sequence, or None.
        context: Most input positions of a row; windows follow from it.
        attention: How long rows are attended: `blocks`, or with which fused kernel.
        device: Kind of the device; on a CPU its model and instruction sets.
        cpu_threads: Threads of a CPU, whose number splits sums; None elsewhere.
        settings: What the environment asks of the compiler.
    """

    model: str
    prefix_id: int | None
    context: int
    moments: bool
    dtype: str
    precision: str
    attention: str
    kernel: int
    code: str
    platform: str
    device: str
    n_devices: int
    n_model: int
    cpu_threads: int | None
    compiler: str
    settings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line of JSON; equal identities have equal lines."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).digest()


@functools.cache
def scoring_code() -> str:
    """Digest of how scores are made here: a mended bug is another code."""
    version = jaxcontam.__version__.encode()
    digest = source_digest(*_SCORING, within=_ENGINE)
    return hashlib.sha256(version + digest.encode()).hexdigest()[:16]


def cpu_name() -> str:
    """Model of the CPU as the system names it."""
    name = _cpu_fields().get("model name")
    return name or platform.processor() or platform.machine()


def cpu_kind() -> str:
    """The model's name and 8 digits for what decides which instructions are used.

    Virtual machines call different CPUs by one name.
    """
    fields = _cpu_fields()
    known = [f"{name}: {fields[name]}" for name in _CPU_FIELDS if name in fields]
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()
    return f"{cpu_name()} {digest[:8]}"


def _cpu_fields() -> dict[str, str]:
    """Fields of the first CPU in /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def keep_compiled() -> None:
    """Turn on JAX's persistent compilation cache.

    A folder that the user chose (JAX_COMPILATION_CACHE_DIR, or `jax.config`) stays; a
    folder that cannot be written turns it off. The folder may be deleted.
    """
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        folder = compiled_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    # JAX would warn of each program that it cannot write.
    if not os.access(folder, os.W_OK | os.X_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Programs that compile faster are not worth a file.
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def compiled_in() -> str | None:
    """Folder of the compilation cache; None if it is off."""
    import jax

    return jax.config.values["jax_compilation_cache_dir"]


def compiled_folder() -> Path:
    """`jaxcontam/xla/DIGEST` in the user's cache folder.

    The digest covers the CPU and the number of cores of this process, by which XLA
    splits sums: JAX's own key has none, and machines may share the home.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    where = f"{cpu_kind()}\n{cpu_cores()}\n{os.environ.get('NPROC', '')}"
    digest = hashlib.sha256(where.encode()).hexdigest()[:16]
    return Path(base) / "jaxcontam" / "xla" / digest
