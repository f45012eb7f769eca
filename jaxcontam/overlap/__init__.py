"""Which examples stand in a corpus? `overlap`."""
