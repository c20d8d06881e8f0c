"""The figures of `pie bench` as a picture: a bar for each contestant in each workload."""

import os
from typing import Any

from pie_cli.usage import UsageError

WIDTH, ROW, GAP, MARGIN, LABEL = 900, 22, 14, 24, 190
COLOURS = {"pie": "#2a6f97", "vllm": "#c9ada7"}
INK, FAINT = "#222222", "#777777"


def check(path: str) -> None:
    """Raises UsageError when such a file could not be drawn."""
    if not path.endswith(".png"):
        raise UsageError(f"`--plot {path}` is no PNG file", "name it FILE.png")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise UsageError(f"`--plot {path}`: the folder cannot be written")
    try:
        import PIL  # noqa: F401
    except ImportError:
        hint = "`pip install pillow` installs it; `--json` gives the figures"
        raise UsageError("`--plot` needs the package `pillow`", hint) from None


def draw(path: str, document: dict[str, Any]) -> None:
    """Write the picture. Bars are as long as the share of the longest with their unit."""
    from PIL import Image, ImageDraw, ImageFont

    rows = document["results"]
    bars = [(row, name) for row in rows for name in COLOURS if row[name] is not None]
    height = 2 * MARGIN + 40 + len(bars) * ROW + len(rows) * GAP
    image = Image.new("RGB", (WIDTH, height), "white")
    canvas, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    canvas.text((MARGIN, MARGIN), f"{document['model']} on {document['machine']}", INK, font)
    longest: dict[str, float] = {}
    for row, name in bars:
        longest[row["unit"]] = max(longest.get(row["unit"], 0.0), row[name])
    top = MARGIN + 40
    for row in rows:
        canvas.text((MARGIN, top + 2), row["workload"], INK, font)
        for name, colour in COLOURS.items():
            if row[name] is None:
                continue
            share = row[name] / longest[row["unit"]] if longest[row["unit"]] else 0.0
            right = LABEL + max(2, round(share * (WIDTH - LABEL - 260)))
            canvas.rectangle((LABEL, top + 3, right, top + ROW - 3), colour)
            text = f"{name} {row[name]:,.2f} {row['unit']}"
            if name == "pie" and row["ratio"] is not None:
                text += f" ({row['ratio']:.2f} of vllm)"
            canvas.text((right + 8, top + 2), text, FAINT, font)
            top += ROW
        top += GAP
    image.save(path)
