"""What the server of a run saw, the run's defence against clients, and its privacy budget."""

from __future__ import annotations

from html import escape

from coterie.report.conditions import Fact
from coterie.report.parts import facts_list, html_table, list_of
from coterie.report.table import protection_notes
from coterie.types import JsonObject

HEADER = ["columns", "whose", "when", "protected by"]
DEFENCES = {
    "none": "None: the server aggregates updates as they are.",
    "bounded": "robust=bounded: bounds on what a client sends, from all clients of the round.",
    "trimmed": "robust=trimmed: bounds, and extremes of each component are trimmed.",
    "groups": "robust=groups: extreme sums over groups of clients are left out.",
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
    notes = f"{_checks(result)} coterie attack measures what hostile clients reach "
    notes += "(docs/poisoning.md)."
    return f"<p><strong>{escape(text)}</strong></p><p>{escape(notes)}</p>"


def _checks(result: JsonObject) -> str:
    """What a server refuses whatever the defence is."""
    if "in_the_clear" in result:
        return "Secure aggregation hides single updates, so the server cannot check them."
    refused = sum(result["refused"].values())
    return (
        f"The server checks every update first: {refused:,} of {result['updates'] + refused:,} "
        "were refused."
    )


def budget_section(result: JsonObject) -> str:
    """The privacy budget, what is spent of it, and what it protects; "" without one."""
    privacy = result.get("privacy")
    if not privacy:
        return ""
    entries = {
        "Budget": f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:.2g}",
        # Results of earlier versions do not say what was spent.
        "Spent": _spent(privacy),
        "Ended early": privacy.get("stopped", ""),
        "Protects": privacy["unit"],
        "Against": privacy["adversary"],
        "Noise": f"{privacy['mechanism']} (multiplier {privacy['noise_multiplier']:.4g})",
        "Randomness": privacy["randomness"],
        "Not covered": "; ".join(privacy["not_covered"]),
    }
    facts = [Fact(name, [str(text)]) for name, text in entries.items() if text]
    return facts_list(facts)


def _spent(privacy: JsonObject) -> str:
    spent = privacy.get("epsilon_spent")
    if spent is None:
        return ""
    return f"epsilon {spent:.4g} ({spent / privacy['epsilon']:.0%} of the budget)"
