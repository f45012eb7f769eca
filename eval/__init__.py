"""Studies of the detectors and measurements of speed: run from a checkout."""
