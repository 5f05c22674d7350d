"""What the server of a run saw, the run's defence against clients, and its privacy budget."""

from __future__ import annotations

from html import escape

from coterie.report.parts import folded, html_table, list_of
from coterie.report.table import protection_notes
from coterie.types import JsonObject

HEADER = ["columns", "whose", "when", "protected by"]
DEFENCES = {
    "none": "None: the server aggregates every valid update as it is.",
    "bounded": "robust=bounded: bounds on what a client sends, from all clients of the round.",
    "trimmed": "robust=trimmed: bounds, and extremes of each component are trimmed.",
    "groups": "robust=groups: bounds, and extreme sums over groups of clients are left out.",
}
UNKNOWN_DEFENCE = "Not recorded by the version that made the run."


def server_section(result: JsonObject) -> str:
    """The columns that the server received, and in words what they tell; "" if there is none."""
    if "updates" not in result:
        return ""
    rows = [
        [row["columns"], row["whose"], row["when"], row["protection"]]
        # Results of earlier versions have the words alone.
        for row in result.get("server_view", [])
    ]
    table = html_table(HEADER, rows, kind="texts") if rows else ""
    return table + list_of(protection_notes(result))


def defence_section(result: JsonObject) -> str:
    """The defence against hostile clients, and the updates that were refused."""
    if "updates" not in result:
        return ""
    chosen = result.get("settings", {}).get("robust")
    text = DEFENCES.get(str(chosen), UNKNOWN_DEFENCE)
    refused = sum(result["refused"].values())
    checked = (
        f"Every update is checked before: {refused:,} of {result['updates'] + refused:,} were "
        "refused. coterie attack measures what hostile clients reach (docs/poisoning.md)."
    )
    return f"<p><strong>{escape(text)}</strong></p><p>{escape(checked)}</p>"


def budget_section(result: JsonObject) -> str:
    """The privacy budget, what is spent of it, and the whole statement; "" without one."""
    privacy = result.get("privacy")
    if not privacy:
        return ""
    entries = {
        "epsilon, the budget": f"{privacy['epsilon']:g}",
        # Results of earlier versions do not say what was spent.
        "epsilon spent": _spent(privacy),
        "delta": f"{privacy['delta']:.2g}",
        "noise": privacy["noise"],
        "noise multiplier": f"{privacy['noise_multiplier']:.4g}",
        "protects": privacy["unit"],
        "against": privacy["adversary"],
        "mechanism": privacy["mechanism"],
        "ended early": privacy.get("stopped", ""),
    }
    rows = [[name, str(text)] for name, text in entries.items() if text]
    whole = f"<p>{escape(privacy['text'])}</p>" if privacy.get("text") else ""
    return html_table(["", ""], rows, kind="texts") + folded("The whole statement", whole)


def _spent(privacy: JsonObject) -> str:
    spent = privacy.get("epsilon_spent")
    if spent is None:
        return ""
    return f"{spent:.4g} ({spent / privacy['epsilon']:.0%} of the budget)"
