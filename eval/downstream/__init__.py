"""Downstream contamination: test examples in a model's further training."""
