"""Pictures of the pages that people read, on a wide screen and on a phone.

`python docs/draw_screens.py report=RUN/report.html training=RUN/training.html` writes
`docs/pictures/NAME_WIDTH.png`, with chromium. Those that stand there are of a
quickstart.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

SIZES = {1200: 1100, 420: 1100}
"""Width -> height of the part that is shown, in pixels."""
_COLOURS = 96
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def draw_screen(page: Path, picture: Path, *, width: int, height: int) -> None:
    """Write the top of a page as it looks in a window of that width."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no chromium on the path")
    with tempfile.TemporaryDirectory() as folder:
        # A window has a smallest width, which a frame inside it has not, and some of
        # its height is not painted.
        frame = Path(folder) / "frame.html"
        frame.write_text(
            f'<body style="margin:0"><iframe src="{page.resolve().as_uri()}" '
            f'style="border:0;width:{width}px;height:{height}px"></iframe>'
        )
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [
                browser,
                *_FLAGS,
                f"--user-data-dir={folder}/profile",
                f"--screenshot={shot}",
                f"--window-size={max(width, 800)},{height + 200}",
                frame.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        with Image.open(shot) as image:
            # Few colours: text and flat figures need no more.
            drawn = image.convert("RGB").crop((0, 0, width, height))
            drawn.quantize(_COLOURS, dither=Image.Dither.NONE).save(
                picture, optimize=True
            )


def main() -> None:
    """Draw each `NAME=PAGE` at each width."""
    for word in sys.argv[1:]:
        name, _, page = word.partition("=")
        for width, height in SIZES.items():
            picture = Path(__file__).parent / "pictures" / f"{name}_{width}.png"
            draw_screen(Path(page), picture, width=width, height=height)
            print(picture)


if __name__ == "__main__":
    main()
