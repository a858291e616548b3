"""Writes a report as one self-contained HTML page with embedded figures."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from allocator.palette import style
from allocator.simulation.studies.section import Finding, Section, Table

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
a { color: var(--link); }
p { max-width: 60rem; } img { max-width: 100%; height: auto; background: white; }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, .claims td, .claims th { text-align: left; vertical-align: top; }
td, th { white-space: nowrap; } .claims td { white-space: normal; }
.wide { overflow-x: auto; }
@media (max-width: 40rem) { /* a finding is a card */
  .claims, .claims caption, .claims tbody, .claims tr, .claims td { display: block; }
  .claims thead { display: none; }
  .claims tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .claims td { border: 0; }
  .claims td[data-heading]::before { content: attr(data-heading) ": "; font-weight: 600; }
}
nav ul { padding-left: 1.2rem; }
"""


def render(title: str, sections: Sequence[Section], figures: Mapping[str, Path]) -> str:
    """Return a report as HTML.

    Args:
        title: Title of the report.
        sections: The sections, in order.
        figures: PNG files by name of their section.

    Raises:
        OSError: A figure cannot be read.
    """
    links = "".join(
        f'<li><a href="#{escape(section.name)}">{_text(section.title)}</a></li>'
        for section in sections
    )
    body = "".join(_section(section, figures) for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style()}{_STYLE}</style></head><body>"
        f"<main><h1>{escape(title)}</h1>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>{body}</main></body></html>\n'
    )


def _text(text: str) -> str:
    """Return text as HTML, with no break before a percent sign or within an equation of δ."""
    whole = text.replace(" %", "\u00a0%").replace("δ = 1 − ", "δ\u00a0=\u00a01\u00a0−\u00a0")
    return escape(whole)


def _section(section: Section, figures: Mapping[str, Path]) -> str:
    parts = [f'<section id="{escape(section.name)}"><h2>{_text(section.title)}</h2>']
    parts += [f"<p>{_text(paragraph)}</p>" for paragraph in section.text]
    if section.name in figures:
        data = base64.b64encode(figures[section.name].read_bytes()).decode()
        alt = escape(section.title)
        parts.append(f'<p><img alt="{alt}" src="data:image/png;base64,{data}"></p>')
    parts += [_table(title, table) for title, table in section.tables if table.rows]
    if section.claims:
        parts.append(_claims(section.claims))
    return "".join([*parts, "</section>"])


def _table(title: str, table: Table) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in table.headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f'<div class="wide" tabindex="0"><table><caption>{escape(title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


_HEADINGS = ("The paper", "Here", "Verdict")


def _verdict(claim: Finding) -> str:
    if claim.agrees:
        return '<span class="agrees">agrees</span>'
    if claim.agrees is None:
        return f'<span class="open">{claim.verdict}.</span> {_text(claim.explanation)}'
    return f'<span class="differs">differs.</span> {_text(claim.explanation)}'


def _claims(claims: Sequence[Finding]) -> str:
    rows = "".join(
        '<tr role="row">'
        + "".join(
            f'<td role="cell" data-heading="{heading}">{text}</td>'
            for heading, text in zip(
                _HEADINGS,
                (_text(claim.published), _text(claim.measured), _verdict(claim)),
                strict=True,
            )
        )
        + "</tr>"
        for claim in claims
    )
    return (
        '<div class="wide" tabindex="0"><table class="claims" role="table">'
        '<caption>Comparison with the paper</caption><thead role="rowgroup"><tr role="row">'
        + "".join(f'<th role="columnheader">{heading}</th>' for heading in _HEADINGS)
        + f'</tr></thead><tbody role="rowgroup">{rows}</tbody></table></div>'
    )
