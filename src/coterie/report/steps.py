"""What a step of training is called: a round, an epoch, or the only step there is."""

from __future__ import annotations

from coterie.types import JsonObject


def is_federated(result: JsonObject) -> bool:
    """Whether a run is of a federated method; a centralised one sends nothing."""
    return bool(result.get("bytes_down", 0))


def step_name(result: JsonObject) -> str:
    """`rounds`, `epochs`, or `step` for a method that is trained in one."""
    settings = result.get("settings")
    if not isinstance(settings, dict):
        return "rounds" if is_federated(result) else "epochs"
    for name in ("rounds", "epochs"):
        if name in settings:
            return name
    return "step"


def steps_text(count: str, name: str) -> str:
    """A number of steps with its unit: 200 rounds, 1 epoch, 1 step."""
    singular = count == "1"
    return f"{count} {name.removesuffix('s') if singular else name}"
