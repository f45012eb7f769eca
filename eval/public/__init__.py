"""Models by benchmarks: one table of audits, corrected as a whole."""
