"""Power of order tests on populations of planted models."""
