"""Pages as a reader has them: their tags, which all close, and the text of their rows."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags with their attributes, the text of cells by row, and what a browser would show."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.rows, self.open, self.text = [], [], [], ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in {"meta", "img", "br", "wbr"}:
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
