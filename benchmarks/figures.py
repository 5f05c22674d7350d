"""The figures beside docs/papers/*.md, drawn from the figures in docs/papers/*.json.

python benchmarks/figures.py fedbso fpl sttfedrec

fedbso      HR@20 by round, one panel a dataset: tuned settings dashed, the thesis' (moments surviving) solid
fpl         F1 by pi; precision by item coverage and by Gini as pi rises; bias disparity; precision by cost (Figures 2 to 4)
sttfedrec   AUC and NDCG@10 by rho (Figure 4); AUC by round for K = 25, 50, 100, 200 (Figures 5 and 6)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
COLOURS = {
    "fedbso": "#2a6f97", "fedfast": "#e07a5f", "fedavg": "#5c677d",
    "sfpl": "#1d3557", "sfpl+": "#2d6a4f", "pfpl": "#4ea8de", "pfpl+": "#74c69d", "dssm": "#2a6f97", "clsm": "#e07a5f",
}  # fmt: skip
MARKS = {"sfpl": "s", "sfpl+": "s", "pfpl": "o", "pfpl+": "o"}


def fedbso(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for axis, table in zip(figure.subplots(1, 3), found["table2"], strict=True):
        for name in ("fedbso", "fedfast", "fedavg"):
            for label, line in ((name, "--"), (f"{name}, thesis, moments", "-")):
                curve = table["ours"][label]["curve"]
                axis.plot([c[0] for c in curve], [c[1] for c in curve], line, color=COLOURS[name], label=label, lw=1.2)
        dress(axis, table["dataset"], "round", "HR@20")
    axis.legend(frameon=False, fontsize=7)
    return figure


def fpl(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    modes = found["sweep"]["modes"]
    for mode, by_pi in modes.items():
        shown = {
            float(pi): row for pi, row in by_pi.items() if float(pi) > 0
        }  # at 0 nothing is learned, as in the paper's range
        pis, rows = list(shown), list(shown.values())
        look = {"color": COLOURS[mode], "marker": MARKS[mode], "ms": 4, "lw": 1.2, "label": mode}
        P, F1, IC, gini = ([row[name]["mean"] for row in rows] for name in ("P@10", "F1@10", "IC@10", "Gini@10"))
        panels[0].plot(pis, F1, **look)
        panels[1].plot(IC, P, **look)
        panels[2].plot(gini, P, **look)
        spread = [sum(abs(value) for value in row["bias"].values()) / len(row["bias"]) for row in rows if "bias" in row]
        if spread:
            panels[3].plot(pis, spread, **look)
        best = max(rows, key=lambda row: row["P@10"]["mean"])
        for panel, cost in ((panels[4], "TCC"), (panels[5], "TCC as printed")):
            panel.plot([best[cost]], [best["P@10"]["mean"]], **look)
    dress(panels[0], "F1 by pi (Figure 2)", "pi", "F1@10")
    dress(panels[1], "as pi rises (Figure 3)", "IC@10", "P@10")
    dress(panels[2], "as pi rises", "Gini@10", "P@10")
    dress(panels[3], "mean size of bias disparity", "pi", "|BD@10|")
    dress(panels[4], "best pi by cost (Figure 4)", "vectors up to the best epoch (TCC)", "P@10")
    dress(panels[5], "the same, counted as Table 4 does", "vectors", "P@10")
    for panel in panels[4:]:
        panel.set_xscale("log")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def sttfedrec(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 6), layout="constrained")
    by_share, by_share_too, *by_round = figure.subplots(2, 2).ravel()
    for panel, metric in ((by_share, "AUC"), (by_share_too, "NDCG@10")):
        for tower in ("dssm", "clsm"):
            rows = {
                float(key.split()[1]): row[metric] for key, row in found["rho"]["rows"].items() if key.startswith(tower)
            }
            middle, spread = ([row[key] for row in rows.values()] for key in ("mean", "sd"))
            panel.errorbar(
                list(rows), middle, spread, color=COLOURS[tower], marker="o", ms=4, lw=1.2, capsize=2, label=tower
            )
        dress(panel, f"{metric} by the share of negatives (Figure 4)", "rho", metric)
    for panel, number, tower in zip(by_round, (5, 6), ("dssm", "clsm"), strict=True):
        for darkness, size in zip((0.3, 0.5, 0.75, 1.0), (25, 50, 100, 200), strict=True):
            curve = found["cohort"]["curves"][f"{tower} {size}"]
            times, values = [line[0] for line in curve], [line[1] for line in curve]
            panel.plot(times, values, color=COLOURS[tower], alpha=darkness, lw=1.4, label=f"K = {size}")
        dress(panel, f"{tower}, by users a round (Figure {number})", "round", "AUC")
        panel.legend(frameon=False, fontsize=8)
    by_share.legend(frameon=False, fontsize=8)
    return figure


def dress(axis: Any, title: str, below: str, beside: str) -> None:
    axis.set_title(title, loc="left", fontweight="bold", fontsize=10)
    axis.set_xlabel(below)
    axis.set_ylabel(beside)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def main(names: list[str]) -> None:
    for name in names:
        with matplotlib.rc_context({"svg.hashsalt": "coterie", "svg.fonttype": "none", "font.size": 9}):
            figure = DRAWN[name](json.loads((PAPERS / f"{name}.json").read_text()))
            figure.savefig(PAPERS / f"{name}.svg", metadata={"Date": None})


DRAWN = {"fedbso": fedbso, "fpl": fpl, "sttfedrec": sttfedrec}


if __name__ == "__main__":
    if unknown := [name for name in sys.argv[1:] if name not in DRAWN] or not sys.argv[1:]:
        sys.exit(f"{unknown or 'nothing'} is no figure; expected one or more of {', '.join(DRAWN)}.\n\n{__doc__}")
    main(sys.argv[1:])
