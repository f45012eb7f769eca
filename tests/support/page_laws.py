"""What every page of a report must be: readable offline, by eye, ear and in print."""

import re

_INK, _PAPER = "#1d2126", "#ffffff"
_VERDICTS = (".contaminated", ".suspected", ".invalid-design", ".confounded")


def _tags(page):
    """Names of start tags in their order, and their attributes."""
    found = re.findall(r"<([a-z]\w*)((?:\s[^<>]*)?)>", page)
    return [(name, dict(re.findall(r'([\w-]+)="([^"]*)"', of))) for name, of in found]


def check_page(page):
    """Assert the laws of a page."""
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    assert not re.findall(r"url\([\"']?(?!#)|@import", page)
    tags = _tags(page)
    of = {
        name: [attributes for tag, attributes in tags if tag == name]
        for name in ("html", "h1", "th", "svg", "table")
    }
    assert of["html"] == [{"lang": "en"}]
    assert len(of["h1"]) == 1
    assert all(attributes["scope"] in ("col", "row") for attributes in of["th"])
    assert all(one["role"] == "img" and one["aria-label"] for one in of["svg"])
    regions = [a for _, a in tags if a.get("role") == "region"]
    assert all(a["aria-label"] and a["tabindex"] == "0" for a in regions)
    assert len(of["table"]) <= len(regions)
    # A verdict is a word; its colour only repeats it.
    for kind, text in re.findall(r'"badge ([\w-]*)[^"]*">(.*?)</span>', page):
        assert text == kind.replace("-", " ")
    for heading in ("Methods", "What this does not show", "Make it again, check it"):
        assert f"<h2>{heading}</h2>" in page
    # Pages of several runs name their reports, or the seeds of each.
    of_one = '<th scope="row">seed</th>' in page
    assert of_one or "report " in page or "; seeds " in page
    assert all(ratio >= 4.5 for ratio in text_contrasts(page).values())
    for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        check_figure(svg)


_AXES = re.compile(r'<g id="axes_\d+">\s*<g id="patch_\d+">\s*<path d="([^"]*)"')


def check_figure(svg):
    """Assert that no label is a formula and that axes fill what labels leave."""
    assert not re.findall(r"<text[^>]*>[^<]*\$", svg)
    if (box := re.search(r'viewBox="0 0 (\S+) (\S+)"', svg)) is None:
        return
    for path in _AXES.findall(svg):
        corners = [
            (float(x), float(y)) for x, y in re.findall(r"(?:M|L) (\S+) (\S+)", path)
        ]
        (left, right), (top, bottom) = (
            (min(of), max(of)) for of in zip(*corners, strict=True)
        )
        assert right - left > 0.4 * float(box[1])
        # A page's panels share a column.
        assert bottom - top > 0.3 * float(box[2]) / len(_AXES.findall(svg))


def text_contrasts(page):
    """Selector -> contrast of its text with what is behind it."""
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    screen = style.split("@media print")[0]
    found = {}
    for selector, body in re.findall(r"([^{};]+)\{([^{}]*)\}", screen):
        colours = {
            name: match.group(1)
            for name in ("color", "background")
            if (match := re.search(rf"(?:^|[ ;]){name}: (#[0-9a-f]{{6}})\b", body))
        }
        if not colours:
            continue
        name = selector.split("*/")[-1].strip()
        ink = _PAPER if name.startswith(_VERDICTS) else _INK
        found[name] = contrast(
            colours.get("color", ink), colours.get("background", _PAPER)
        )
    return found


def contrast(one, other):
    """Contrast of two colours as in WCAG 2, 1 to 21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
