"""train.pretrain as one of several processes, counting what waits for the others."""

import sys

from jax.experimental import multihost_utils

from train import loop
from train.pretrain import main

calls, at_steps = [], []


def counted(name):
    original = getattr(multihost_utils, name)

    def call(*arguments, **named):
        calls.append(name)
        return original(*arguments, **named)

    return call


for name in ("process_allgather", "sync_global_devices", "broadcast_one_to_all"):
    setattr(multihost_utils, name, counted(name))


class Fetched(loop._Fetched):
    def add(self, numbers):
        at_steps.append(len(calls))
        super().add(numbers)


loop._Fetched = Fetched
code = main()
print(f"collectives of hosts in {len(at_steps)} steps: {at_steps[-1] - at_steps[0]}")
sys.exit(code)
