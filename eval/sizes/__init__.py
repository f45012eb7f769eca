"""Size of every test under its null: `python -m eval.sizes`."""
