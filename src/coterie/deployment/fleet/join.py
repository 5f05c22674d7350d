"""`coterie join`: a node over the store of its users."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from coterie.core.counted import counted
from coterie.core.heap import FreeMemory, keep_heap_compact
from coterie.core.missing_files import refuse_missing, remedy_for
from coterie.core.parent_process import exit_with_parent
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment.address import Address
from coterie.deployment.fleet.client import FleetClient, KeyRejected, Unknown, Unreachable
from coterie.deployment.fleet.keys import fingerprint_of_public
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.node_policy import (
    INVITED,
    NodePolicy,
    describe_policy,
    policy_of,
    put_policy,
)
from coterie.deployment.node_private_store import JOINED_WITH, NodeStore
from coterie.deployment.node_service import FINISH, SIMULATED, NodeService
from coterie.deployment.public_keys import read_public_key
from coterie.deployment.signals import exit_on_sigterm
from coterie.deployment.validity import certificate_fingerprint
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder

IDLE_SECONDS = 60.0
"""Time without a message after which a node gives back the memory of training."""
RESTARTED = "COTERIE_NODE_RESTARTED"
"""Set in the environment of a node that restarted itself: its users are in the store."""


@dataclass(frozen=True, slots=True)
class NodeUsers:
    """The users that a node takes part for, and how."""

    data: Path
    options: ReadOptions
    """How the file is read."""
    simulated: bool = False
    """Whether clients draw as in a simulation."""
    disclosure_file: Path | None = None
    """Disclosure rates that users chose."""
    private_items: Path | None = None
    """Items that users never share."""
    policy: NodePolicy | None = None
    """What a server may ask; None leaves the policy of the store."""

    def read(self) -> Interactions:
        """Read all files, so that a fault in one of them is found before a store is made."""
        from coterie.data.reading import read
        from coterie.federated.preferences import private_items_table, read_rates

        # A copy in the cache would be a second place that holds this node's interactions.
        data = read(self.data, replace(self.options, cache=False))
        if self.disclosure_file is not None:
            read_rates(self.disclosure_file, data.user_ids, SILENT)
        if self.private_items is not None:
            private_items_table(self.private_items)
        return data

    def put(self, store: NodeStore, data: Interactions) -> tuple[str, ...]:
        """Write the users and their settings to a store; returns how the file was read."""
        before = set(store.users())
        store.put_interactions(data)
        store.put_meta(
            disclosure_file=_absolute(self.disclosure_file),
            private_items=_absolute(self.private_items),
        )
        if self.policy is not None:
            put_policy(store, self.policy)
        NodeService(store).set_seed(SIMULATED if self.simulated else "")
        added = describe_added(before, set(data.user_ids.astype(str).tolist()))
        return (*data.reading, *data.notes, *added)


def describe_added(before: set[str], given: set[str]) -> tuple[str, ...]:
    """How the users of a store change by those of a file; nothing if they stay the same."""
    if not before or before == given:
        return ()
    stay = len(before - given)
    line = f"{counted(len(given - before), 'user')} added; {stay:,} that the file lacks stay"
    if before.isdisjoint(given):
        line += (
            ". None of the file's users was in the store: if it is the file of another node, stop "
            "this one, and remove them with coterie node forget"
        )
    return (line,)


def _absolute(path: Path | None) -> str:
    """A path that is valid from any folder; "" for none."""
    if path is None:
        return ""
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; expected a file. {remedy_for(path)}")
    return str(path.resolve())


def join(
    users: NodeUsers,
    path: Path,
    server: str,
    credentials: tuple[Path | None, Path | None],
    insecure: bool,
    progress: Progress,
    confirm: Callable[[str], bool] = lambda question: True,
    invited: str = "",
    new_key: bool = False,
) -> None:
    """Join a federation with the store at `path` until interrupted.

    `credentials`: this node's key, and the certificate of the server's authority. `confirm` asks
    the owner of the node whether its policy is right. `invited`: what the node was invited to
    train; empty without an invitation. `new_key`: accept another key than the store had before.
    """
    address = Address.of(server)
    check_credentials(address, credentials, insecure)
    client = FleetClient.to(address, *credentials)
    exit_on_sigterm()
    keep_heap_compact()
    taken = (
        f"{path} is in use by another coterie join; expected a store of its own for every node. "
        "Stop that process, or name another store."
    )
    with run_folder.locked_file(path.with_suffix(".lock"), taken):
        restarted = bool(os.environ.pop(RESTARTED, ""))
        if not restarted:
            refuse_missing(users.data)
            if invited and credentials[1] is not None:
                fingerprint = certificate_fingerprint(credentials[1])
                progress.log(f"invited to train {invited}; the authority is SHA-256 {fingerprint}")
            own_key = "" if credentials[0] is None else client.key.public.decode()
            if credentials[0] is not None and not new_key:
                refuse_other_key(path, credentials[0], own_key)
            if not confirm_policy(users.policy, path, progress, confirm):
                return
            for line in put_in_another_process(users, path):
                progress.log(line)
            with closing(NodeStore.open(path)) as store:
                n_users = counted(len(store.users()), "user")
                store.put_meta(**{JOINED_WITH: own_key, INVITED: invited})
            progress.log(f"{path}: joining {address} with {n_users}. Stop with Ctrl-C.")
        store = NodeStore.open(path)
        service = NodeService(store, progress)
        loop = NodeLoop(
            client,
            service.answer,
            progress,
            store.version,
            memory=FreeMemory(store.empty_cache),
            idle_seconds=IDLE_SECONDS,
            is_announced=restarted,
            last_kind=FINISH,
        )
        try:
            loop.run()
        except KeyRejected as error:
            key = credentials[0]
            cause = "" if key is None else f": {key} is not registered there, or was revoked"
            raise RunError(
                f"the node was rejected{cause}. Ask the server's operator. ({error})"
            ) from None
        finally:
            store.close()
            with suppress(Unreachable, Unknown, KeyRejected):
                client.deactivate()
    restart()


def refuse_other_key(path: Path, key: Path, own: str) -> None:
    """Refuse the key of another node: its users would be locked out of their own node.

    A new key of the same node is accepted if the old one signed it. `own` is the public key as PEM.
    """
    if not path.exists():
        return
    with closing(NodeStore.open(path)) as store:
        before = store.meta(JOINED_WITH)
    if not before or before == own:
        return
    public = key.with_suffix(".pub")
    if public.is_file() and read_public_key(public).replaces(before, own):
        return
    raise ConfigError(
        f"{path} joined with the key {fingerprint_of_public(before.encode())} before, and {key} is "
        f"{fingerprint_of_public(own.encode())}; expected the same key, so that no node takes the "
        "users of another. Check --key and --store. If this node has a new key, add --new-key."
    )


def confirm_policy(
    given: NodePolicy | None, path: Path, progress: Progress, confirm: Callable[[str], bool]
) -> bool:
    """Show the policy with which a node joins, the given one or else that of its store.

    Returns whether its owner wants to join with it.
    """
    policy = given or NodePolicy()
    if given is None and path.exists():
        with closing(NodeStore.open(path)) as store:
            policy = policy_of(store)
    for line in describe_policy(policy):
        progress.log(f"policy: {line}")
    if confirm("Join with this policy?"):
        return True
    progress.log(
        "not joined. For other rules, write them to a file (docs/policy.md), and join with "
        "--policy FILE."
    )
    return False


def restart() -> NoReturn:
    """Run the same command in place of this process, with the memory of one that has just begun.

    Compilers and libraries of training take 100 MB, which a node that waits does not need.
    """
    os.execve(sys.executable, sys.orig_argv, os.environ | {RESTARTED: "1"})


def put_in_another_process(users: NodeUsers, path: Path) -> tuple[str, ...]:
    """Read the users into the store; what reads files takes 70 MB, and ends with its process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=exit_with_parent) as pool:
        return pool.submit(_put, users, path).result()


def _put(users: NodeUsers, path: Path) -> tuple[str, ...]:
    data = users.read()
    store = NodeStore.open(path) if path.exists() else NodeStore.create(path)
    with closing(store):
        store.refuse_damaged()
        return users.put(store, data)


def check_credentials(
    address: Address, credentials: tuple[Path | None, Path | None], insecure: bool
) -> None:
    """Refuse a node without TLS beyond loopback, and files that are missing."""
    key, ca = credentials
    if (key is None) != (ca is None):
        found = "--invitation or --ca is given without --key"
        remedy = "Add --key NAME.key: coterie node key NAME."
        if ca is None:
            found = "--key is given without --invitation or --ca"
            remedy = "Add --invitation FILE."
        raise ConfigError(
            f"{found}; expected both: the node's key, and the authority that verifies the server. "
            f"{remedy}"
        )
    if key is None:
        address.refuse_plaintext(insecure, "--key NAME.key and --invitation FILE")
    elif insecure:
        raise ConfigError(
            "--key and --insecure are both given; expected one of them. Leave --insecure out."
        )
    for file in filter(None, credentials):
        if not file.is_file():
            raise ConfigError(f"{file} does not exist; expected a file. {remedy_for(file)}")
