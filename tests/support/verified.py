"""What `jaxcontam verify` says of a folder, as values."""

from jaxcontam.reports.kinds import Asked, kind_of
from jaxcontam.reports.report_files import command_of, read_document


def verified(folder):
    """Differences, and how many rows were made again."""
    document = read_document(folder / "report.json")
    found = kind_of(command_of(document)).check(folder, document, Asked())
    return found.faults, found.n
