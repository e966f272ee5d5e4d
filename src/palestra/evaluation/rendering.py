"""Reports for people: Markdown for a terminal or a pull request, and one HTML file with plots for a browser."""

import base64
import hashlib
import math
from collections.abc import Sequence
from html import escape
from importlib import resources

from palestra.evaluation.comparison import Comparison, PartialComparison
from palestra.evaluation.report import PartialScores, Report, Section
from palestra.evaluation.wording import dollars, mean_words, partial_sentence, signed
from palestra.foundation.statistics import Distribution
from palestra.plots.bars import Whisker, forest, quantile_bars, stacked

__all__ = ["SHOWN_CAUSES", "comparison_text", "report_html", "report_markdown"]

_HEADINGS = ("", "score", "solved", "coverage", "turns each", "tokens each", "cost of all", "median time")

_METRIC_HEADINGS = ("environment", "metric", "mean", "tasks")

SHOWN_CAUSES = 5
"""How many different causes of failure a report lists."""


def report_markdown(report: Report) -> str:
    """The report as Markdown tables."""
    lines = [f"# {_cell(report.headline)}", "", _score_sentence(report.suite), ""]
    lines += _markdown_table(_HEADINGS, [_row(section) for section in _sections(report)])
    for heading, cells in _panel_tables(report):
        lines += ["", *_markdown_table(heading, [cells])]
    if measured := _metric_rows(report):
        lines += ["", *_markdown_table(_METRIC_HEADINGS, measured)]
    lines += [line for warning in _warnings(report) for line in ("", _cell(warning))]
    if tries := _tries(report.suite):
        lines += ["", *_markdown_table(("k", "pass@k", "pass^k"), tries)]
    stops = [(_cell(stop).replace("_", " "), str(count)) for stop, count in report.suite.stops.items()]
    lines += ["", *_markdown_table(("ended by", "episodes"), stops)]
    if report.about:
        lines += ["", *(f"- {_cell(name)}: {_cell(value)}" for name, value in report.about.items())]
    return "\n".join(lines) + "\n"


def report_html(report: Report) -> str:
    """The report as one HTML file with plots. It runs no script and loads nothing."""
    sections = _sections(report)
    body = [
        f"<h1>{_html(report.headline)}</h1>",
        _html_score(report),
        "<h2>Scores and their 95 % intervals</h2>",
        forest([_whisker(section, bold=depth == 0) for section, depth in sections], "score by environment"),
        _html_table(_HEADINGS, [_row(entry) for entry in sections]),
    ]
    if tables := _panel_tables(report):
        body += ["<h2>Solved, in percent</h2>", *(_html_table(heading, [cells]) for heading, cells in tables)]
    if measured := _metric_rows(report):
        body += ["<h2>Other metrics of the environments</h2>", _html_table(_METRIC_HEADINGS, measured)]
    if tries := _tries(report.suite):
        body += ["<h2>Several tries</h2>", _html_table(("k", "at least one of k (pass@k)", "all of k (pass^k)"), tries)]
    body += ["<h2>How episodes ended</h2>", stacked([(s.name, s.stops) for s in report.envs if s.stops], "stop reasons")]
    body += _html_spreads(report)
    if report.about:
        entries = "".join(f"<dt>{_html(name)}</dt><dd>{_html(value)}</dd>" for name, value in report.about.items())
        body += ["<h2>About this run</h2>", f"<dl>{entries}</dl>"]
    return _document(report.headline, "\n".join(body))


def comparison_text(comparison: Comparison | PartialComparison, first: str = "first", second: str = "second") -> str:
    """A comparison as text: the scores of the runs named ``first`` and ``second``, their difference, a line per family."""
    if isinstance(comparison, PartialComparison):
        return _partial_comparison_text(comparison, first, second)
    difference = comparison.difference
    width = max(len(first), len(second))
    lines = [
        f"{first:<{width}}  {mean_words(comparison.first)}",
        f"{second:<{width}}  {mean_words(comparison.second)}",
        f"difference {signed(difference.mean)} [{signed(difference.low)}, {signed(difference.high)}] "
        f"over {difference.tasks} tasks, {_p(comparison.p_value)}; "
        f"smallest difference this comparison could see: {comparison.smallest_visible:.2f}",
    ]
    if comparison.only_first or comparison.only_second:
        lines.append(
            f"left out: {comparison.only_first} tasks scored in the first run only, {comparison.only_second} in the second only"
        )
    if len(comparison.families) > 1:
        width = max(map(len, comparison.families))
        for name, part in comparison.families.items():
            d = part.difference
            lines.append(
                f"  {name:<{width}}  {signed(d.mean)} [{signed(d.low)}, {signed(d.high)}]  "
                f"{_p(part.corrected_p_value)} corrected for {len(comparison.families)} families"
            )
    return "\n".join(lines)


def _partial_comparison_text(comparison: PartialComparison, first: str, second: str) -> str:
    runs = (first, comparison.first), (second, comparison.second)
    short = [f"{name} has {part.episodes} of {part.asked} episodes asked for" for name, part in runs if part.missing]
    difference = comparison.difference
    if difference.low is None or difference.high is None:
        verdict = "over all tasks: unknown, because the environment declares no score_range"
    else:
        verdict = f"over all {difference.asked} tasks, whatever the missing episodes score: {signed(difference.low)} to "
        verdict += signed(difference.high)
    width = max(len(first), len(second))
    return "\n".join(
        [
            f"incomplete: {'; '.join(short)}. Repeat the command of the run to play the rest.",
            *(f"{name:<{width}}  {mean_words(None, part)}" for name, part in runs),
            f"difference {signed(difference.mean)} over the {difference.tasks} tasks that both have scored; {verdict}",
        ]
    )


# ---------------------------------------------------------------------------------------------------------------- pieces


def _sections(report: Report) -> list[tuple[Section, int]]:
    """Suite, then each family with its environments; a family of one environment is shown once."""
    out = [(report.suite, 0)] if len(report.envs) != 1 else []
    for family in report.families:
        envs = [
            section for section in report.envs if section.name == family.name or section.name.startswith(f"{family.name}-v")
        ]
        out += [(family, 1), *((section, 2) for section in envs)] if len(envs) > 1 else [(section, 1) for section in envs]
    return out


def _panel_tables(report: Report) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The table of a named panel: the worlds side by side, then one table per world with its columns; in percent."""
    worlds = [section for section in report.groups if "/" not in section.name]
    tables = []
    for world in worlds:
        columns = [section for section in report.groups if section.name.startswith(f"{world.name}/")]
        names = (f"{world.name}, solved %", *(section.name.partition("/")[2] for section in columns), "Overall")
        tables.append((names, (report.title, *map(_percent, (*columns, world)))))
    if len(worlds) > 1:
        names = ("solved %", *(world.name for world in worlds), "all tasks")
        tables.insert(0, (names, (report.title, *map(_percent, (*worlds, report.suite)))))
    return tables


def _percent(section: Section) -> str:
    """The share of solved episodes; the mean reward, if the environment reports no success."""
    if section.partial is not None:
        part = section.partial.success or section.partial.score
        return "–" if part is None else f"{100 * part.mean:.2f} of {part.episodes} of {part.asked}"
    mean = section.success or section.score
    return "–" if mean is None else f"{100 * mean.mean:.2f}"


def _metric_rows(report: Report) -> list[tuple[str, ...]]:
    """What environments measure apart from the score, one row per environment and metric."""
    rows: list[tuple[str, ...]] = []
    for section in report.envs:
        rows += [(section.name, name, mean_words(mean), str(mean.tasks)) for name, mean in section.metrics.items()]
        if section.partial is not None:
            parts = section.partial.metrics.items()
            rows += [(section.name, name, mean_words(None, part), str(part.tasks)) for name, part in parts]
    return rows


def _row(entry: tuple[Section, int]) -> tuple[str, ...]:
    section, depth = entry
    part = section.partial or PartialScores(None, None)
    return (
        "\u2003" * max(depth - 1, 0) + section.name,
        mean_words(section.score, part.score),
        mean_words(section.success, part.success),
        # Rounded down: one missing episode in ten thousand must not read as 100 %.
        f"{math.floor(section.coverage * 1000) / 10:g} %",
        _mean(section.turns, ".1f"),
        _mean(section.tokens, ",.0f"),
        dollars(section.dollars.total) if section.dollars else "–",
        _seconds(section.seconds.quantiles["0.5"]) if section.seconds else "–",
    )


def _score_sentence(section: Section) -> str:
    if section.partial is not None:
        part = section.partial.score
        return f"No score: none of {section.issued} episodes finished." if part is None else partial_sentence(part)
    if section.score is None:
        return "No score: no episode was asked for."
    score = section.score
    return (
        f"Score {score.mean:.3f}, {score.level:.0%} interval {score.low:.3f} to {score.high:.3f}, "
        f"from {score.tasks} tasks and {score.episodes} of {section.issued} episodes."
    )


def _warnings(report: Report) -> list[str]:
    """Warnings for the reader: which episodes have no score, why, and what was repeated."""
    section = report.suite
    warnings = list(filter(None, [report.go_on, report.privilege]))
    if section.failures:
        parts = ", ".join(f"{count} {_FAULTS.get(fault, fault)}" for fault, count in section.failures.items())
        unscored = section.issued - section.scored
        warnings.append(f"{unscored} of {section.issued} episodes have no score and are in no mean: {parts}.")
    causes = list(section.causes.items())
    warnings += [f"{count} × {cause}" for cause, count in causes[:SHOWN_CAUSES]]
    if len(causes) > SHOWN_CAUSES:
        warnings.append(f"{len(causes) - SHOWN_CAUSES} other causes are in report.json.")
    if section.unreadable:
        warnings.append(
            f"{section.unreadable} of {section.replies} replies had no answer that the environment could read (format errors)."
        )
    if section.retried:
        warnings.append(f"{section.retried} attempts failed because of the infrastructure and were repeated.")
    if section.retried_calls:
        parts = ", ".join(f"{count} × {why}" for why, count in section.retried_calls.items())
        warnings.append(f"{sum(section.retried_calls.values())} calls of the API failed and were repeated: {parts}.")
    return warnings


_FAULTS = {
    "policy": "because of the policy",
    "env": "because of the environment",
    "tool": "because of a tool",
    "grader": "because of the grader",
    "infrastructure": "because of the infrastructure",
    "budget": "unfinished, cut by the budget",
}


def _tries(section: Section) -> list[tuple[str, ...]]:
    return [(k, mean_words(section.pass_at[k]), mean_words(section.pass_all[k])) for k in section.pass_at]


def _whisker(section: Section, *, bold: bool) -> Whisker:
    part = section.partial.score if section.partial is not None else None
    if section.score is not None:
        score = section.score
        return Whisker(section.name, score.mean, (score.low, score.high), mean_words(score), bold)
    if part is None:
        return Whisker(section.name, None, None, "no score", bold)
    limits = None if part.low is None or part.high is None else (part.low, part.high)
    return Whisker(section.name, part.mean, limits, f"{part.mean:.2f} of {part.episodes}/{part.asked}", bold)


def _mean(distribution: Distribution | None, form: str) -> str:
    return format(distribution.mean, form) if distribution else "–"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1.0 else f"{value * 1000:.3g} ms"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _cell(text: str) -> str:
    """Escape text so that it cannot end its table cell or start HTML."""
    return _plain(text).replace("<", "&lt;").replace("|", "\\|")


def _html(text: str) -> str:
    return escape(_plain(text))


def _plain(text: str) -> str:
    """Text without line ends, terminal controls or bidirectional controls."""
    return "".join(character if character.isprintable() else " " for character in text)


def _markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        f"|---|{'---:|' * (len(headings) - 1)}",
        *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows),
    ]


def _html_score(report: Report) -> str:
    section = report.suite
    parts = []
    if section.score is not None:
        parts.append(f'<p class="headline">{_html(mean_words(section.score))}</p>')
    parts.append(f"<p>{_html(_score_sentence(section))}</p>")
    parts += [f'<p class="warning">{_html(warning)}</p>' for warning in _warnings(report)]
    return "".join(parts)


def _html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_html(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_spreads(report: Report) -> list[str]:
    body = []
    for title, name in (("Turns", "turns"), ("Tokens written", "tokens"), ("Seconds an answer took", "act_seconds")):
        rows = [(section.name, spread) for section in report.envs if (spread := getattr(section, name)) is not None]
        if rows:
            body += [f"<h2>{title}</h2>", quantile_bars(rows, title)]
    return body


def _document(title: str, body: str) -> str:
    style = resources.files(__package__).joinpath("static", "report.css").read_text(encoding="utf-8")
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{style_hash}'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_html(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
