"""What each method can prove, what it costs, and what it found: one table."""
