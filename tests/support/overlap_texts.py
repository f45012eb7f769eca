"""Made-up texts that the tests of overlap look for."""


def sentence(n, start=0):
    """Words that no other call repeats."""
    return " ".join(f"w{i}" for i in range(start, start + n))
