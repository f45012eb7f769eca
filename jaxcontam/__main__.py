"""The console script, and `python -m jaxcontam`."""

import sys

from jaxcontam.signals import interrupted, stop_on_signals


def main() -> None:
    """Run `jaxcontam`; signals are answered from before anything slow is imported."""
    try:
        stop_on_signals()
        from jaxcontam.cli.main import entry_point

        entry_point()
    except KeyboardInterrupt as e:
        sys.exit(interrupted(e))


if __name__ == "__main__":
    main()
