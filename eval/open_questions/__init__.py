"""Open questions of the tests' design, measured on models trained here: one a file."""
