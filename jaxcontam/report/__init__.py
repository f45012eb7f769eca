"""Results to JSON, to an archive of their evidence, and to the terminal."""
