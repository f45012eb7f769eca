"""`python -m train.pretrain` on several processes of this machine, for tests."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_all(words, n_processes, *, n_devices=1, out_of=None, module="train.pretrain"):
    """Start the same command once a process; `out_of(process)` tells --out apart."""
    # Optimised code would take longer to make than it saves.
    flags = f"--xla_force_host_platform_device_count={n_devices} "
    own = {"JAX_PLATFORMS": "cpu"}
    own["XLA_FLAGS"] = flags + "--xla_backend_optimization_level=0"
    words = [sys.executable, "-m", module, *words]
    if n_processes > 1:
        own["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{free_port()}"
        own["JAX_NUM_PROCESSES"] = str(n_processes)
        words.append("--distributed")
    return [
        subprocess.Popen(
            words if out_of is None else [*words, "--out", str(out_of(process))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | own | {"JAX_PROCESS_ID": str(process)},
        )
        for process in range(n_processes)
    ]


def finish_all(started, timeout=300):
    """(exit code, standard output, standard error) of each."""
    said = [process.communicate(timeout=timeout) for process in started]
    return [(p.returncode, *words) for p, words in zip(started, said, strict=True)]
