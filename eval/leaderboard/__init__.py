"""Every detector on the same planted models, with the same budget of tokens."""
