"""What membership scores find, on models trained here whose training text is known."""
