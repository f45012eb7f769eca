"""Copy a folder's small files to a URL: reports, manifests, logs of training.

Command: `python save_reports.py FOLDER URL`. Larger files are left: a training run's
model goes to the bucket by itself, and its prepared text can be made again.
"""

import sys
from pathlib import Path

import fsspec

_LARGEST = 64 * 2**20


def save_reports(folder: Path, url: str) -> list[str]:
    """Copy every file of at most 64 MiB; returns what was left behind."""
    files, root = fsspec.url_to_fs(url)
    left = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.stat().st_size > _LARGEST:
            left.append(name)
            continue
        target = f"{root.rstrip('/')}/{name}"
        files.makedirs(target.rpartition("/")[0], exist_ok=True)
        files.put_file(str(path), target)
    return left


if __name__ == "__main__":
    for name in save_reports(Path(sys.argv[1]), sys.argv[2]):
        print(f"left behind, more than 64 MiB: {name}", file=sys.stderr)
