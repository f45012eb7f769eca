"""Benchmarks, their encoding, and the record of what was planted."""
