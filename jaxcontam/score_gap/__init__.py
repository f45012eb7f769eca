"""How many points does a model gain on a file that it saw? `inflation`."""
