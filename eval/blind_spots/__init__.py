"""What order tests cannot see, and what other methods see of it."""
