#!/usr/bin/env bash
# On a TPU VM: prints what this process and all processes together see. Fails without
# a TPU, so that nobody pays for a run on CPUs.
set -euo pipefail
exec "$HOME/venv/bin/python" -c '
import jax

jax.distributed.initialize()
print(
    f"process {jax.process_index()} of {jax.process_count()}: "
    f"{jax.local_device_count()} of {jax.device_count()} devices, "
    f"{jax.devices()[0].device_kind}"
)
assert jax.default_backend() == "tpu", jax.default_backend()
'
