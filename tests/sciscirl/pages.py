"""Reports as a reader has them: their tags and rows, and what a browser makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags with their attributes, the text of cells by row, and what a browser would show."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.rows, self.open, self.text = [], [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in {"meta", "img", "wbr"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, name):
        return next(row for row in self.rows if row and row[0] == name)


def measure_in_browser(page: Path, folder: Path, widths: list[int]) -> list[tuple[int, int, int, int]]:
    """Open a page in windows of these widths: width of its content, width shown, height, pictures without content."""
    probe = folder / "probe.html"
    # The page itself may not run scripts, so one around it measures.
    frames = "".join(
        f"<iframe src='{page.as_uri()}' style='width:{width}px;height:800px'></iframe>" for width in widths
    )
    probe.write_text(
        f"<style>iframe {{ border: 0 }}</style><body>{frames}<pre id=o></pre><script>"
        "onload = () => { o.textContent = [...document.querySelectorAll('iframe')].map(f => { "
        "const d = f.contentDocument, e = d.documentElement, empty = [...d.images].filter(i => !i.naturalWidth); "
        "return `measured ${e.scrollWidth} ${e.clientWidth} ${e.scrollHeight} ${empty.length}` }).join(';') }</script>",
        "utf-8",
    )
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
        "--disable-component-update --disable-sync --disable-web-security --virtual-time-budget=5000 --dump-dom"
    )
    words = [str(CHROMIUM), *flags.split(), f"--user-data-dir={folder / 'user'}", probe.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    found = re.findall(r"measured (\d+) (\d+) (\d+) (\d+)(?=[;<])", done.stdout)
    assert len(found) == len(widths), done.stderr[-500:]
    return [tuple(map(int, numbers)) for numbers in found]
