"""The frame of a report: one HTML file, nothing fetched, nothing run; light or dark as the reader's system is.

Rules: text that comes from data is escaped here, so callers pass plain text; only the parts of `section` and
`document` are markup. A table with the same numbers follows every chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from harebell import __version__

__all__ = ["clip", "details", "document", "section", "shown", "table", "tiles"]

STYLE: Final = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1b2330; --soft: #5b6675; --rule: #dfe3e9;
  --c1: #2f6fb7; --c2: #e0892b; --c3: #2f9d83; --c4: #a5579d; --heat: #c4432b; --on-heat: #fff; --good: #1f7a4d;
  --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --paper: #11151b; --card: #1a2029; --ink: #e4e9f0; --soft: #98a4b3;
  --rule: #2c3541; --c1: #6ba6e8; --c2: #f0a956; --c3: #58c4a8; --c4: #cf8bc8; --heat: #ef7a5f; --on-heat: #1b1210;
  --good: #5fce97; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 0 0 .2rem }
p { margin: .2rem 0 .8rem; color: var(--soft); max-width: 48rem } .lead { font-size: 1.05rem }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1.2rem 1.4rem;
  margin-top: 1.2rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr)); gap: .8rem; margin-top: 1.4rem;
  padding: 0; list-style: none }
.tiles li { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: .8rem 1rem }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.25; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft); font-size: .85rem }
.verdict { font-weight: 600; color: var(--good) } .verdict.not { color: var(--bad) }
svg { display: block; width: 100%; height: auto; margin: .4rem 0; font: 12px system-ui, sans-serif; fill: var(--ink) }
svg .tick, svg .name { fill: var(--soft) } svg .name { font-size: 11px } svg .label { font-weight: 600 }
svg .value { font-variant-numeric: tabular-nums }
svg .grid { stroke: var(--rule); stroke-width: 1 }
svg .c1 { fill: var(--c1) } svg .c2 { fill: var(--c2) } svg .c3 { fill: var(--c3) } svg .c4 { fill: var(--c4) }
svg polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round }
svg .l1 { stroke: var(--c1) } svg .l2 { stroke: var(--c2) } svg .l3 { stroke: var(--c3) } svg .l4 { stroke: var(--c4) }
svg .heat { fill: var(--heat) } svg .cell { font-size: 10px; pointer-events: none }
svg .cell.strong { fill: var(--on-heat) }
.ranking { list-style: none; margin: .4rem 0; padding: 0; font-size: .85rem }
.ranking li { display: grid; grid-template-columns: 1fr auto; column-gap: .6rem; align-items: center; padding: .2rem 0 }
.ranking span { grid-column: 1 / -1; overflow-wrap: anywhere } .ranking b { font-weight: 400; text-align: right;
  min-width: 3rem; font-variant-numeric: tabular-nums }
.ranking i { height: .75rem; width: var(--part); background: var(--c1) } .ranking i.less { background: var(--c2) }
.scroll { overflow-x: auto; background: linear-gradient(to right, var(--card) 40%, transparent) 0 0 / 3rem 100% local,
  linear-gradient(to left, var(--card) 40%, transparent) 100% 0 / 3rem 100% local,
  linear-gradient(to right, var(--rule), transparent) 0 0 / .8rem 100%,
  linear-gradient(to left, var(--rule), transparent) 100% 0 / .8rem 100%; background-repeat: no-repeat }
.scroll svg { min-width: 33rem } .scroll.narrow svg { min-width: 0 } .narrow { display: none }
@media (max-width: 40rem) { .wide { display: none } .narrow { display: block } }
.scroll td { white-space: nowrap } .scroll tbody th { min-width: 6rem }
.scroll td:has(code) { white-space: normal; min-width: 16rem } code { font-size: .85rem; overflow-wrap: anywhere }
table { border-collapse: collapse; font-size: .9rem; margin: .4rem 0; font-variant-numeric: tabular-nums }
caption { text-align: left; white-space: nowrap; color: var(--soft); padding-bottom: .3rem }
th, td { padding: .22rem .9rem .22rem 0; text-align: left; border-bottom: 1px solid var(--rule); font-weight: 400 }
thead th { color: var(--soft); font-size: .82rem } td.n, th.n { text-align: right }
td.yes { color: var(--good) } td.no { color: var(--bad); font-weight: 700 }
tr.first th, tr.first td { border-top: 2px solid var(--rule) } tbody th { font-weight: 600 }
summary { cursor: pointer; color: var(--soft); font-size: .9rem }
footer { color: var(--soft); font-size: .85rem; margin-top: 1.6rem }
"""


def document(title: str, parts: Iterable[str], footer: str) -> str:
    """The whole page. `parts` are markup, `title` and `footer` plain text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>"
        + "\n".join(parts)
        + f"<footer>Harebell {__version__}. {escape(footer)}</footer></main></body></html>\n"
    )


def tiles(numbers: Iterable[tuple[str, str]]) -> str:
    """The most important numbers in large type, given as (number, its meaning)."""
    items = (f"<li><b>{escape(number)}</b><span>{escape(what)}</span></li>" for number, what in numbers)
    return f'<ul class="tiles">{"".join(items)}</ul>'


def section(heading: str, text: str, chart: str, numbers: str, fold: str = "As a table") -> str:
    """A heading, a paragraph, a chart (markup), and its numbers (markup), if any, behind a fold."""
    folded = f"<details><summary>{escape(fold)}</summary>{numbers}</details>" if numbers else ""
    return f"<section><h2>{escape(heading)}</h2><p>{escape(text)}</p>{chart}{folded}</section>"


def details(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table behind a fold."""
    return f"<details><summary>As a table</summary>{table(caption, headings, rows)}</details>"


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are right-aligned, fractions have one digit. The first column is the heading of its row."""
    body = [list(row) for row in rows]
    numeric = [any(isinstance(row[column], int | float) for row in body) for column in range(len(headings))]
    css = [' class="n"' if number else "" for number in numeric]
    head = "".join(f'<th scope="col"{css[i]}>{escape(heading)}</th>' for i, heading in enumerate(headings))
    lines = []
    for row in body:
        first = f'<th scope="row"{css[0]}>{escape(shown(row[0]))}</th>'
        rest = "".join(f"<td{css[i]}>{escape(shown(value))}</td>" for i, value in enumerate(row[1:], 1))
        lines.append(f"<tr>{first}{rest}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def shown(value: object) -> str:
    """A cell's text: thousands separated, one digit after the point, a dash for an unknown value."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def clip(name: str, most: int = 20) -> str:
    """The name with at most `most` letters; an ellipsis stands for the rest."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"
