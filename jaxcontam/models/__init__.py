"""Language models: one decoder, a table of families, safetensors checkpoints."""
