"""A report as one self-contained HTML page: no script, no style sheet, no image files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coterie.errors import MissingExtra
from coterie.report.figure import convergence
from coterie.report.table import Reported, all_notes, labels, shown, table

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733 }
body { max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
p.about { color: #5c677d; margin-top: 0 }
.wide, pre { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap }
th, td { border-bottom: 1px solid #e3e8ee }
th { font-weight: 600; color: #5c677d } th:first-child, td:first-child { text-align: left }
body > svg { max-width: 100%; height: auto }
"""


def page(runs: Sequence[Reported]) -> str:
    """The report of one or more runs."""
    algorithms = ", ".join(dict.fromkeys(run.result["algorithm"] for run in runs))
    datasets = ", ".join(dict.fromkeys(run.result["dataset"] for run in runs))
    title = f"{algorithms} on {datasets}"
    header, rows = table(runs)
    sections = [
        f"<h1>{escape(title)}</h1><p class=about>Coterie {escape(runs[0].result['version'])}</p>",
        html_table(header, rows),
        "".join(f"<p>{escape(note)}</p>" for note in all_notes(runs)),
        f"<h2>Convergence</h2>{figure(runs)}",
        f"<h2>All metrics</h2>{_all_metrics(runs)}",
        _bias(runs),
        f"<h2>Repeat</h2>{_commands(runs)}",
    ]
    return document(title, sections)


def document(title: str, sections: Sequence[str]) -> str:
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{''.join(sections)}</body></html>\n"
    )


def figure(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> str:
    """The convergence figure and the part it was measured on; runs of one method share a line."""
    if not any(len(run.curve) > 1 for run in runs):
        return "<p>Trained in one step: there is no curve.</p>"
    try:
        drawn = convergence(runs, methods)
    except MissingExtra as missing:
        return f"<p>{escape(str(missing))}</p>"
    part = ", ".join(dict.fromkeys(line["part"] for run in runs for line in run.curve))
    caption = f"Measured on {part}."
    sizes = {users for run in runs if (users := _sampled_users(run)) is not None}
    if sizes:
        caption += f" The curve is of {', '.join(f'{n:,}' for n in sorted(sizes))} sampled users; "
        caption += "figures of tables are of all users."
    if part == "test":
        caption += " For inspection only: no model is selected by it."
    return drawn + f"<p class=about>{escape(caption)}</p>"


def _sampled_users(run: Reported) -> int | None:
    """The number of users of the curve if it is a sample; earlier results have all users."""
    users = run.result.get("convergence", {}).get("users")
    tested = run.result.get("tested_users")
    sampled = users is not None and run.result["convergence"]["part"] == "test"
    return int(users) if sampled and users < tested else None


def _all_metrics(runs: Sequence[Reported]) -> str:
    kinds = [run.result[kind] for kind in ("full", "metrics") for run in runs]
    names = list(dict.fromkeys(name for values in kinds for name in values))
    header = ["metric"]
    for label in labels(runs):
        header += [f"{label} protocol", f"{label} full ranking"]
    columns = [run.result[kind] for run in runs for kind in ("metrics", "full")]
    rows = []
    for name in names:
        cells = [shown(name, column[name]) if name in column else "" for column in columns]
        rows.append([name, *cells])
    return html_table(header, rows)


def _bias(runs: Sequence[Reported]) -> str:
    """Bias by category of training data and of recommendations; "" if no run measured it."""
    biases = [(run.result.get("bias") or {}).get("categories", {}) for run in runs]
    if not any(biases):
        return ""
    names = {name for bias in biases for name in bias}
    columns = ("source", "recommended", "disparity")
    header = ["category", *(f"{label} {column}" for label in labels(runs) for column in columns)]
    rows = [
        [name, *(_number(bias.get(name, {}).get(column)) for bias in biases for column in columns)]
        for name in sorted(names)
    ]
    caption = (
        "Share of training records (source) and of recommendations over share of items: "
        "above 1 is over-represented. Disparity 0: recommendations have the bias of training."
    )
    return f"<h2>Bias by category</h2>{html_table(header, rows)}<p class=about>{caption}</p>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _commands(runs: Sequence[Reported]) -> str:
    folders = [run.result["run"] for run in runs if run.result["run"]]
    if not folders:
        return "<p>The run was not saved to a folder.</p>"
    commands = "\n".join(f"coterie run {folder}/config.yaml" for folder in folders)
    return f"<pre>{escape(commands)}</pre>"


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    # A narrow screen shows a row as a block: each cell then carries the label of its column.
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(label)}">{escape(cell)}</td>'
            for label, cell in zip(header, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class=wide>{whole}</div>"
