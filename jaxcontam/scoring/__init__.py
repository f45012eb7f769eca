"""Scoring: plans of token rows, batches of few shapes, and the kernel."""
