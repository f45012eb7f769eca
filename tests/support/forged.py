"""Reports that somebody changed who can mend their seal."""

import json

import numpy as np

from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    REPORT_NAME,
    archive_digest,
    sealed_text,
)


def reseal(folder, change=None, arrays=None):
    """Change the values of a report, or arrays of its archive, and mend its digests."""
    document = json.loads((folder / REPORT_NAME).read_text())
    if change is not None:
        change(document)
    if arrays is not None:
        archive = folder / ARCHIVE_NAME
        with np.load(archive) as file:
            content = {name: file[name] for name in file.files}
        arrays(content)
        np.savez_compressed(archive, **content)
        document["digests"][ARCHIVE_NAME] = archive_digest(archive)
    (folder / REPORT_NAME).write_text(sealed_text(document), encoding="utf-8")
