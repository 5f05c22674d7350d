"""Whether a run can be recorded, and why a deployment cannot be."""

from __future__ import annotations

from coterie.algorithms.registry import algorithm
from coterie.console.folders import FoundFolder
from coterie.console.summaries import RunSummary
from coterie.errors import UnknownName

DEPLOYMENT = (
    "A deployment cannot be shown this way. A recording replays every round, which needs every "
    "user's history and private state; in a deployment they stay on the users' devices, and the "
    "console has no means to ask for them. In a simulation all of them are in one place. "
    "Train a simulation with the same settings to see it."
)


def why_not(folder: FoundFolder, summary: RunSummary) -> str:
    """Why a run cannot be recorded; "" if it can."""
    if folder.kind == "federation":
        return DEPLOYMENT
    if summary.state != "finished":
        return f"The run is {summary.state}; it can be recorded once it is finished."
    try:
        is_federated = algorithm(summary.algorithm).federated
    except UnknownName as error:
        return str(error)
    if not is_federated:
        return (
            f"{summary.algorithm} is centralised: it has no rounds of clients, and no user sends "
            "anything. Open a run of a federated algorithm, such as fedfast."
        )
    return ""
