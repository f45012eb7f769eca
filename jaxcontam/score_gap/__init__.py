"""Points that a model gains on a file that it saw: `inflation`."""
