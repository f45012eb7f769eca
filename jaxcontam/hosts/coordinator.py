"""JAX's coordination service in a process of its own.

JAX starts the service inside process 0. Were process 0 killed, each other process
would be aborted by JAX's own client at once, with a stack of C++ frames as its last
words. A service that outlives process 0 by seconds gives the others the time to say
in one line what happened. `jaxcontam.hosts` runs this file as a script, so it imports
nothing of the package.
"""

import sys
import time

# Seconds that the service outlives a killed process 0; more than the others need to
# notice and to end (`jaxcontam.hosts.GRACE_SECONDS`).
_LINGER_SECONDS = 12


def main(address: str, n_processes: int) -> None:
    """Serve until standard input ends or says `end`."""
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    service = _jax.get_distributed_runtime_service(
        address, n_processes, shutdown_timeout=5, recoverable=True
    )
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "end":
        time.sleep(_LINGER_SECONDS)
    service.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
