"""One file a detector, found by its place; each holds an `ENTRY`."""
