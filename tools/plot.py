"""Draws figures as SVG, with nothing but the standard library: a plot of a table needs no more than bars or lines on a
logarithmic scale, and a plotting library would be 50 MB to install for a page of documentation.

Colours follow the reader's light or dark scheme.
"""

from html import escape
from math import ceil, floor, log10

WIDTH = 720
COLOURS = ["#2a78d6", "#d9722b", "#2f9e6e", "#9b59b6", "#c0392b", "#7f8c8d", "#b8860b", "#16a2b8"]
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:14px}.grid{stroke:#ddd}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}}"
)


def bars(title, unit, series):
    """A horizontal bar for each contender of each case. `series` maps a contender to its {case: figure}."""
    cases = ordered(series)
    scale = Scale([figure for figures in series.values() for figure in figures.values()], 250, WIDTH - 90)
    parts, y = [], 40
    for case in cases:
        y += 18
        parts.append(text(12, y - 5, case, "start", "font-weight:600"))
        for at, (contender, figures) in enumerate(series.items()):
            if case not in figures:
                continue
            figure, colour = figures[case], COLOURS[at % len(COLOURS)]
            end = scale.at(figure)
            parts.append(text(242, y + 11, contender, "end"))
            parts.append(f'<rect x="250" y="{y}" width="{max(end - 250, 1):.1f}" height="14" fill="{colour}"/>')
            parts.append(text(end + 6, y + 11, short(figure), "start"))
            y += 17
        y += 6
    grid = scale.vertical(40, y)
    return picture(title, unit, [*grid, *parts], y + 34)


def lines(title, unit, cases_are, series):
    """A line for each contender over cases that are numbers. `series` maps a contender to its {case: figure}."""
    cases = sorted({float(case) for figures in series.values() for case in figures})
    top, bottom, left, right = 50, 350, 80, WIDTH - 190
    across = Scale(cases, left, right)
    up = Scale([figure for figures in series.values() for figure in figures.values()], bottom, top)
    parts = up.horizontal(left, right)
    for case in cases:
        parts.append(text(across.at(case), bottom + 18, short(case), "middle"))
    for at, (contender, figures) in enumerate(series.items()):
        colour = COLOURS[at % len(COLOURS)]
        points = sorted((float(case), figure) for case, figure in figures.items())
        places = [(across.at(case), up.at(figure)) for case, figure in points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(f'<rect x="{right + 20}" y="{top + at * 20}" width="12" height="12" fill="{colour}"/>')
        parts.append(text(right + 38, top + 11 + at * 20, contender, "start"))
    parts.append(text((left + right) / 2, bottom + 40, cases_are, "middle"))
    return picture(title, unit, parts, bottom + 60)


class Scale:
    """A logarithmic scale from whole powers of ten to whole powers of ten."""

    def __init__(self, figures, start, end):
        positive = [figure for figure in figures if figure > 0] or [1]
        self.low = floor(log10(min(positive)))
        self.high = max(ceil(log10(max(positive))), self.low + 1)
        self.start, self.end = start, end

    def at(self, figure):
        """The coordinate of a figure. What is not positive stands at the start."""
        share = (log10(figure) - self.low) / (self.high - self.low) if figure > 0 else 0
        return self.start + share * (self.end - self.start)

    def powers(self):
        return [10.0**power for power in range(self.low, self.high + 1)]

    def vertical(self, top, bottom):
        parts = []
        for power in self.powers():
            x = self.at(power)
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
            parts.append(text(x, bottom + 16, short(power), "middle"))
        return parts

    def horizontal(self, left, right):
        parts = []
        for power in self.powers():
            y = self.at(power)
            parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            parts.append(text(left - 8, y + 4, short(power), "end"))
        return parts


def ordered(series):
    """The cases in the order in which they first appear."""
    return list(dict.fromkeys(case for figures in series.values() for case in figures))


def picture(title, unit, parts, height):
    head = text(12, 20, title, "start", css="title")
    below = text(WIDTH - 12, 20, unit, "end")
    inside = "\n".join([f"<style>{STYLE}</style>", head, below, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">\n{inside}\n</svg>\n'
    )


def text(x, y, words, anchor, style="", css=""):
    more = (f' style="{style}"' if style else "") + (f' class="{css}"' if css else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(str(words))}</text>'


def short(figure):
    """A figure with three significant digits and a letter for thousands, millions and billions."""
    for size, letter in [(1e9, "G"), (1e6, "M"), (1e3, "k")]:
        if abs(figure) >= size:
            return f"{figure / size:.3g}{letter}"
    return f"{figure:.3g}"
