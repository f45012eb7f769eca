"""The command line: `main`, and tools that ask no question of their own."""
