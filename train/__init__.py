"""Pretraining with injected canary sets: run from a checkout."""
