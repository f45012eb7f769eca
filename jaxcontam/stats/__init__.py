"""Statistics: pure functions of arrays and seeds, in float64 on the host."""
