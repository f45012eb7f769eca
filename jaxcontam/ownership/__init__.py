"""Proof of a later use, prepared by an owner: `release`, `canary`, `variants`."""
