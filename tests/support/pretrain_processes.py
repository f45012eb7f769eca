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


def start_all(words, n_processes, *, n_devices=1, out_of=None):
    """Start the same command once a process; `out_of(process)` tells --out apart."""
    port = free_port()
    started = []
    for process in range(n_processes):
        own = [] if out_of is None else ["--out", str(out_of(process))]
        several = {
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(n_processes),
            "JAX_PROCESS_ID": str(process),
        }
        # Optimised code would take longer to make than it saves.
        flags = f"--xla_force_host_platform_device_count={n_devices} "
        flags += "--xla_backend_optimization_level=0"
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "train.pretrain", *words, *own]
                + (["--distributed"] if n_processes > 1 else []),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "JAX_PLATFORMS": "cpu",
                    "XLA_FLAGS": flags,
                    **(several if n_processes > 1 else {}),
                },
            )
        )
    return started


def finish_all(started, timeout=300):
    """(exit code, standard output, standard error) of each."""
    said = [process.communicate(timeout=timeout) for process in started]
    return [(p.returncode, *words) for p, words in zip(started, said, strict=True)]
