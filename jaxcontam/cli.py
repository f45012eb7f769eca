"""`jaxcontam`: parse, call the library, print. No logic lives here."""

import os
import sys
from collections.abc import Callable, Sequence

from jaxcontam.errors import InputError

EXIT_DONE, EXIT_INPUT, EXIT_PARTIAL, EXIT_INTERRUPTED = 0, 2, 3, 130


def run_command(command: Callable[[], object], *, name: str = "jaxcontam") -> int:
    """Run one command and turn its outcome into an exit code.

    Bad input becomes one line and a hint on stderr; an interruption says that the
    command can be run again. A command may return an exit code of its own.
    """
    try:
        outcome = command()
    except InputError as e:
        print(f"{name}: error: {e}", file=sys.stderr)
        if e.hint:
            print(f"  hint: {e.hint}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted; run the same command again", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away; nothing more can be printed.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return EXIT_DONE
    return outcome if isinstance(outcome, int) else EXIT_DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` and run one command; returns the exit code."""
    raise SystemExit


def entry_point() -> None:
    """Console script."""
    sys.exit(main())
