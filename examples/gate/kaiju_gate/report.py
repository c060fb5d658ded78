"""Reports: tables and findings on the terminal, as JSON, and as one HTML file."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import sys
from typing import Any, Callable, Sequence

from .rates import Estimate, Share
from .rules import Finding, Rule, check
from .wrong import Wrong


@dataclasses.dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]  # the first is of names, and is aligned to the left
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass
class Report:
    title: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    measures: dict[str, Estimate] = dataclasses.field(default_factory=dict)  # what rules and --json name
    findings: list[Finding] = dataclasses.field(default_factory=list)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)  # for --json alone
    draw: Callable[[], Any] | None = None  # makes the figure, where matplotlib is needed

    def judge(self, rules: Sequence[Rule]) -> None:
        """Finds out which rules are broken. A standard rule whose figure these sets do not have is noted."""
        self.findings = check(rules, self.measures)
        silent = [rule.text for rule in rules if rule.measure not in self.measures]
        if silent:
            self.notes.append(f"These rules judge nothing here, for there is no such figure: {', '.join(silent)}")

    @property
    def broken(self) -> bool:
        return any(finding.broken for finding in self.findings)


def percent(share: Share) -> str:
    if share.total == 0:
        return "-"
    return f"{100 * share.value:.1f}% ({100 * share.low:.1f} to {100 * share.high:.1f})"


def counted(share: Share) -> str:
    return f"{share.count} of {share.total}"


def area_text(area: Estimate | None) -> str:
    return f"{area.value:.3f} ({area.low:.3f} to {area.high:.3f})" if area else "-"


def _finding_text(finding: Finding) -> str:
    return f"{'FAILS' if finding.broken else 'passes'}  {finding.rule}: it is {finding.value:.4g}"


def terminal(report: Report) -> str:
    lines = [report.title]
    for table in report.tables:
        widths = [max(len(row[i]) for row in [table.columns, *table.rows]) for i in range(len(table.columns))]
        lines += ["", table.title]
        for row in [table.columns, *table.rows]:
            cells = [
                cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
            ]
            lines.append(("  " + "  ".join(cells)).rstrip())
    lines += [""] * bool(report.notes) + report.notes
    lines += [""] * bool(report.findings) + [_finding_text(finding) for finding in report.findings]
    return "\n".join(lines)


def as_json(report: Report) -> str:
    measures = {name: dataclasses.asdict(measure) for name, measure in report.measures.items()}
    findings = [dataclasses.asdict(finding) for finding in report.findings]
    whole = {
        "title": report.title,
        "passed": not report.broken,
        "measures": measures,
        "findings": findings,
        "notes": report.notes,
        **report.details,
    }
    return json.dumps(_without_nan(whole), indent=1) + "\n"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_STYLE = """body{font:15px system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}caption{text-align:left;font-weight:600;padding:.3em 0}
td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}
.fails{color:#b00020;font-weight:600}.passes{color:#1b6e2b}svg{max-width:100%;height:auto}"""


def as_html(report: Report, figure: str) -> str:
    """One page that needs no other file. figure: an SVG, or nothing."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    parts = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(report.title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(report.title)}</h1>",
    ]
    parts += [
        f"<p class={'fails' if finding.broken else 'passes'}>{html.escape(_finding_text(finding))}</p>"
        for finding in report.findings
    ]
    for table in report.tables:
        parts.append(
            f"<table><caption>{html.escape(table.title)}</caption>{row(table.columns, 'th')}"
            + "".join(row(cells, "td") for cells in table.rows)
            + "</table>"
        )
    parts += [f"<p>{html.escape(note)}</p>" for note in report.notes]
    return "\n".join([*parts, figure]) + "\n"


def write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Wrong(f"{path} cannot be written: {error.strerror}") from None


def publish(report: Report, json_path: str | None, html_path: str | None, plot_path: str | None) -> int:
    """Prints the report, writes the files that were asked for, and returns the exit code."""
    print(terminal(report))
    sys.stdout.flush()
    if json_path:
        write(json_path, as_json(report))
    if (html_path or plot_path) and report.draw:
        from . import plots

        figure = report.draw()
        if plot_path:
            plots.save(figure, plot_path)
        if html_path:
            write(html_path, as_html(report, plots.svg(figure)))
    elif html_path:
        write(html_path, as_html(report, ""))
    return int(report.broken)
