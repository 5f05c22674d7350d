"""`coterie federation rollback`: a run continues from an earlier round, without some nodes.

The folder becomes that of the earlier round, and the model the one that it would be if the nodes
had not answered since. First the roll-back is recorded, then it is carried out. If it is killed in
between, the server completes it at its next start.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from coterie.core.printable import one_line
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.hosting import read_hosts
from coterie.deployment.rollback_log import Rollback, RollbackLog
from coterie.deployment.server_commits import (
    put_back,
    read_commit,
    snapshot_folder,
    snapshot_rounds,
)
from coterie.deployment.server_folder import read_message
from coterie.deployment.server_status import STOPPED, is_served
from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import CoterieError, RunError, UnknownName
from coterie.experiments import run_folder
from coterie.federated.settings import federation_settings

RESULTS = ("metrics.jsonl", "model.npz", "model.json", "privacy.json")
"""Files of a run folder that belong to rounds which are undone."""
OF_ROUND = ("round", "rounds", "updates", "dropped", "metrics", "metrics_median", "metrics_by_node")
"""What a status says about the last round."""


def roll_back(folder: Path, n: int, without: Sequence[str]) -> Rollback:
    """Return to a committed round, and go on without some nodes."""
    _refuse_other_folder(folder)
    if is_served(folder):
        raise RunError(
            f"{folder} is being served; expected a server that is stopped. "
            "Stop coterie serve, and roll back again."
        )
    with run_folder.locked(folder):
        complete(folder)
        terms = read_message(folder, "terms.json", FederationTerms)
        _refuse_secure_aggregation(terms)
        _refuse_nodes(folder, without)
        rollback = _described(folder, terms, n, without)
        log = RollbackLog.read(folder)
        RollbackLog([*log.rollbacks, rollback]).write(folder)
        complete(folder)
    return rollback


def complete(folder: Path) -> None:
    """Carry out the last roll-back that was recorded, unless that is done."""
    log = RollbackLog.read(folder)
    rollback = log.unfinished
    if rollback is None:
        return
    put_back(folder, rollback.round)
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)
    before = read_status(folder)
    status = {key: value for key, value in before.items() if key not in OF_ROUND} | {
        "state": STOPPED,
        "round": rollback.round,
        "rollbacks": log.rounds,
        "quarantined": sorted(log.quarantined),
        # They are about the undone rounds, or about nodes that are left out. What is still wrong
        # raises an alarm again.
        "alarms": {},
        "note": f"rolled back to round {rollback.round:,} without {', '.join(rollback.without)}; "
        f"go on with the same coterie serve as before, --out {folder}",
    }
    run_folder.write_text(folder, STATUS, json.dumps(status, allow_nan=False) + "\n")
    log.done().write(folder)


def nodes_left(folder: Path) -> int:
    """The nodes with users that are not quarantined."""
    return len(set(read_hosts(folder).values()) - RollbackLog.read(folder).quarantined)


def _described(folder: Path, terms: FederationTerms, n: int, without: Sequence[str]) -> Rollback:
    """The record of a roll-back to a round that the folder has."""
    last = read_commit(folder, terms)
    if last is None:
        raise RunError(
            f"{folder} has no committed round; expected one to return to. Begin a new run without "
            "the node."
        )
    history = last[0].history
    available = snapshot_rounds(folder)
    if n in available:
        _refuse_damaged(folder, n, terms)
    elif n != history.round:
        raise _no_snapshot(folder, n, [*available, history.round])
    return Rollback(
        n,
        history.round - n,
        list(dict.fromkeys(without)),
        datetime.now(UTC).isoformat(timespec="seconds"),
        getpass.getuser(),
        [line for line in history.curve if line["round"] > n],
    )


def _refuse_damaged(folder: Path, n: int, terms: FederationTerms) -> None:
    """A snapshot must be readable before anything changes."""
    try:
        read_commit(snapshot_folder(folder, n), terms)
    except CoterieError as error:
        raise RunError(
            f"the snapshot of round {n:,} cannot be used ({one_line(error)}); expected the files "
            "that the server wrote. Choose another --round."
        ) from None


def _refuse_other_folder(folder: Path) -> None:
    if not (folder / "terms.json").exists():
        raise RunError(
            f"{folder} holds no terms.json; expected the run folder of `coterie serve`. "
            "Check the path."
        )


def _refuse_secure_aggregation(terms: FederationTerms) -> None:
    protocol = federation_settings(terms.experiment.settings).secure_aggregation
    if protocol != "none":
        raise RunError(
            f"run {terms.run} has secure_aggregation {protocol!r}; expected 'none'. Clients answer "
            "each round once, since the difference of two sums of one round would reveal single "
            "updates. Revoke the node's key, and begin a new run with another --out."
        )


def _refuse_nodes(folder: Path, without: Collection[str]) -> None:
    """Reject names of nodes that have no users here, and the names of all."""
    known = set(read_hosts(folder).values())
    for name in without:
        if name not in known:
            raise UnknownName("node", name, sorted(known), f" in {folder}")
    left = known - RollbackLog.read(folder).quarantined - set(without)
    if not left:
        raise RunError(
            f"--without names {', '.join(without)}, and no other node of {folder} has users; "
            "expected at least one that goes on. Leave one out."
        )


def _no_snapshot(folder: Path, n: int, available: Sequence[int]) -> RunError:
    listed = ", ".join(f"{other:,}" for other in sorted(set(available)))
    return RunError(
        f"{folder} has no snapshot of round {n:,}; expected one of {listed} (snapshot_every and "
        "snapshots in the server's file). Choose one of them with --round."
    )
