"""Examples that occur in a corpus: `overlap`."""
