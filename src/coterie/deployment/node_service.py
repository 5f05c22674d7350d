"""A node as a service over its store.

The store is the truth: all that must survive a crash is written to it before a reply leaves.
Histories and terms are in memory between calls, until another process changes the store.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import objects
from coterie.deployment.enrolment import FederationTerms, Roster, UserIndices
from coterie.deployment.node import NEWEST, STAGE, Node
from coterie.deployment.node_budget import (
    ledger_for,
    pin_terms,
    refuse_terms,
    within_limit,
)
from coterie.deployment.node_data import (
    node_data_of,
    roster_of,
    simulated_seed,
    split_of,
    unknown_items,
)
from coterie.deployment.node_evaluation_noise import with_noise
from coterie.deployment.node_message_checks import (
    refuse_beyond_terms,
    refuse_crafted,
    refuse_unannounced_evaluation,
)
from coterie.deployment.node_policy import policy_of
from coterie.deployment.node_private_store import FORGOTTEN, MODEL, PERMITS, NodeStore
from coterie.deployment.node_private_store_faults import damaged
from coterie.deployment.node_questions import (
    count_question,
    forget_old_questions,
    may_report,
    refuse_replay,
)
from coterie.deployment.node_snapshots import follow_rollbacks, known_rollbacks, note_rollbacks
from coterie.deployment.private_terms import protection_of
from coterie.deployment.transfer import users_of_permit
from coterie.deployment.world import node_world
from coterie.errors import RunError, UnknownName
from coterie.experiments.run_folder import Catalogue
from coterie.federated.nodes import read_message
from coterie.federated.wire import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.experiments.finished_run import Recommendation, Run
    from coterie.experiments.reasons import Reason

ENROL = "enrol"
"""The federation's terms; the reply is the node's roster."""
TRAIN = "train"
"""An exchange of a round; the reply holds updates."""
EVALUATE = "evaluate"
"""The model during training; the reply holds metrics."""
FINISH = "finish"
"""The final model; the reply holds metrics on the test part."""
KINDS = ENROL, TRAIN, EVALUATE, FINISH
PREAMBLE = struct.Struct("<4sI")
MARK = b"COTB"
SIMULATED = "simulated"
"""In place of a seed: clients draw as in a simulation, which the server can repeat."""


class LoadedNode(NamedTuple):
    """What a node reads from its store once."""

    node: Node
    terms: FederationTerms
    indices: UserIndices
    version: int
    """The version of the store that was read."""


@dataclass(slots=True)
class NodeService:
    store: NodeStore
    progress: Progress = SILENT
    """Shows lines to the operator of the node."""
    clock: Callable[[], float] = time.time
    """Seconds by which a server's messages are counted."""
    loaded: LoadedNode | None = None
    warned: set[str] = field(default_factory=set)
    """Warnings that were shown."""

    def set_seed(self, seed: str = "") -> None:
        """Set the seed of the clients' draws; by default a secret one, drawn once."""
        if seed or self.store.meta("seed") is None:
            self.store.put_meta(seed=seed or str(secrets.randbits(63)))

    def answer(self, kind: str, data: bytes) -> bytes:
        """Reply to a message. The first one of a federation carries a preamble with its terms."""
        if kind not in KINDS:
            raise Malformed(
                f"the message kind {kind!r} is unknown; expected one of {', '.join(KINDS)}"
            )
        count_question(self.store, policy_of(self.store), self.clock())
        if kind == ENROL:
            return self.enrol(FederationTerms.from_json(data)).to_json().encode()
        preamble, data = split_preamble(data, self.store.meta("terms"))
        if preamble is not None:
            self.begin(*preamble)
        if kind == TRAIN:
            return self.train(data)
        return self.evaluate(data, final=kind == FINISH).encode()

    def train(self, data: bytes) -> bytes:
        """Reply to an exchange of a round."""
        node, terms, _, _ = self.load()
        message = read_message(data)
        refuse_crafted(message, policy_of(self.store))
        if node.ledger is None:
            # Under a privacy budget the ledger counts what each user's data entered.
            refuse_beyond_terms(message, node.world, terms)
        if STAGE not in message.common:
            # A client of secure aggregation checks it by itself, at every stage.
            place = f"exchange {message.exchange} of round {message.round + 1}"
            self.refuse_replay(place, node.branch, data)
        return node.receive(data)

    def refuse_replay(self, place: str, branch: int, data: bytes) -> None:
        """Reject a place of the run that the server repeats too often with other content."""
        if branch:
            # The policy limits the number of branches.
            place = f"{place} after roll-back {branch}"
        refuse_replay(
            self.store,
            policy_of(self.store),
            self.clock(),
            self.load().terms.run,
            place,
            data,
            self.warn_once,
        )

    def warn_once(self, text: str) -> None:
        """Show a warning, unless it was shown before: a server may cause it in every round."""
        if text not in self.warned:
            self.progress.warn(text)
        self.warned.add(text)

    def enrol(self, terms: FederationTerms) -> Roster:
        """The node's users, for a federation that it may take part in."""
        refuse_terms(terms, self.store)
        pin_terms(terms, self.store)
        roster = roster_of(terms, self.store)
        return within_limit(terms, roster, self.store, self.warn_once)

    def begin(self, terms: FederationTerms, indices: UserIndices) -> None:
        """Begin or resume a federation. Another federation's private state is deleted."""
        refuse_terms(terms, self.store)
        pin_terms(terms, self.store)
        indices.refuse_impossible(len(terms.items))
        is_new = self.store.meta("run") != terms.run
        if is_new:
            self._report_other_protection(terms)
            self.store.reset()
            note_rollbacks(self.store, indices.rollbacks)
            forget_old_questions(self.store, self.clock())
        else:
            policy = policy_of(self.store)
            follow_rollbacks(self.store, policy, terms, indices.rollbacks, self.progress.warn)
        self.store.put_numbers(indices.numbers)
        self._confirm(indices)
        if is_new:
            self.loaded = None
        self._pin_keys(indices)
        self.store.put_meta(
            run=terms.run,
            node=indices.node,
            terms=terms.to_json(),
            # User ids are stored in one table only, so that erasing a user is complete.
            numbers=replace(indices, numbers={}, signing_keys=[]).to_json(),
            # A server that was restarted may repeat a round.
            **{NEWEST: "-1"},
        )
        self.loaded = None
        if is_new:
            self.progress.log(
                f"a federation began: {terms.experiment.choice.algorithm}, "
                f"{len(terms.items):,} items, {indices.n_users:,} users"
            )
        self._report_users(terms, indices)
        self.load().node.initialise()

    def _report_other_protection(self, terms: FederationTerms) -> None:
        """Tell the operator of the node if a new federation protects users in another way."""
        known = self.store.meta("terms")
        if known is None:
            return
        before = protection_of(FederationTerms.from_json(known).experiment)
        now = protection_of(terms.experiment)
        if before != now:
            self.progress.warn(f"the server begins another federation: {now}; before: {before}")

    def _report_users(self, terms: FederationTerms, indices: UserIndices) -> None:
        """Tell the operator of the node which of its users and interactions do not take part."""
        users = self.store.users()
        missing = [user for user in users if user not in indices.numbers]
        if missing:
            count = "None" if len(missing) == len(users) else f"{len(users) - len(missing):,}"
            self.progress.warn(
                f"{count} of this node's {len(users):,} users take part in the federation. Others, "
                f"such as {missing[0]}, came too late, or another node has a user of the same id: "
                "give ids a prefix of this node's own"
            )
        unknown = unknown_items(terms, self.store)
        if unknown:
            self.progress.warn(
                f"{len(unknown):,} items of this node's interactions are not in the federation's "
                f"catalogue, such as {unknown[0]}: their interactions are left out"
            )

    def _confirm(self, indices: UserIndices) -> None:
        """Drop what the server has seen: users who were erased, and permits of those who came."""
        store = self.store
        if forgotten := store.held_list(FORGOTTEN):
            done = set(indices.forgotten)
            store.put_list(FORGOTTEN, [index for index in forgotten if index not in done])
        if permits := store.held_list(PERMITS):
            hosted = indices.numbers.keys()
            left = [text for text in permits if not users_of_permit(text) <= hosted]
            store.put_list(PERMITS, left)

    def _pin_keys(self, indices: UserIndices) -> None:
        """Remember by which keys the users of the federation sign, once and for all."""
        if not indices.signing_keys:
            return
        self._refuse_replaced_keys(indices)
        before = self.store.pinned_keys()
        n_changed = self.store.pin_keys(indices.signing_keys)
        if n_changed:
            self.progress.warn(
                f"the server has other signing keys for {n_changed:,} users than before. The "
                "earlier ones count: a server that changes keys could read single updates. "
                "Ask its owner why"
            )
        pinned = self.store.pinned_keys()
        # Also after a restart, so that an operator can compare it at any time.
        if pinned != before or self.loaded is None:
            digest = hashlib.sha256(json.dumps(pinned).encode()).hexdigest()[:32]
            self.progress.log(
                f"pinned the signing keys of {len(pinned):,} users, fingerprint {digest}: all "
                "nodes of the federation show the same one"
            )

    def _refuse_replaced_keys(self, indices: UserIndices) -> None:
        """Reject a list with other keys for this node's own users: the server could be anybody."""
        users = sorted(indices.numbers)
        for user, identity in zip(users, self.store.identities(users), strict=True):
            index = indices.numbers[user]
            listed = indices.signing_keys[index] if index < len(indices.signing_keys) else ""
            if listed != identity.public.hex():
                raise Malformed(
                    f"the server lists another signing key for user {user} than this node made"
                )

    def evaluate(self, data: bytes, final: bool) -> str:
        """Store the model that was sent, and evaluate it."""
        from coterie.deployment.node_evaluation import NodeMetrics, evaluate_model, receive_model

        node, terms, indices, _ = self.load()
        is_private = node.world.settings.epsilon is not None
        if is_private and not final:
            raise Malformed("the server asks for metrics, for which no privacy budget is spent")
        policy = policy_of(self.store)
        message = read_message(data)
        refuse_crafted(message, policy)
        if not final:
            refuse_unannounced_evaluation(message.round, node.world, terms)
        place = "the end" if final else f"the evaluation {message.round}"
        self.refuse_replay(place, node.branch, data)
        users, model = receive_model(node, data)
        if final:
            self.progress.log(
                "The federation is finished, and this node has its model. "
                f"Run: coterie recommend --node {self.store.path} --user ID. "
                "The node waits for the next federation; stop it with Ctrl-C."
            )
        if is_private or not policy.evaluation:
            return NodeMetrics(0, "", {}).to_json()
        if len(users) < len(node.node.users):
            # The difference of sums over two sets of users would reveal single users' metrics.
            return NodeMetrics(0, "", {}).to_json()
        if not may_report(self.store, policy, self.clock(), terms.run, place):
            self.warn_once(
                f"the server of run {terms.run} asked for more metrics than this node's policy "
                f"allows (evaluations_a_day: {policy.evaluations_a_day:,}): none are reported"
            )
            return NodeMetrics(0, "", {}).to_json()
        metrics = evaluate_model(terms, indices, self.store, users, model, final)
        sums = with_noise(metrics.sums, metrics.users, policy.evaluation_noise, data, self.store)
        return replace(metrics, sums=sums).to_json()

    def recommend(self, user: str, n: int = 10, exclude_seen: bool = True) -> list[Recommendation]:
        """The n best items for one of this node's users by the last model, without a server."""
        return self._run_of(user).recommend(user, n, exclude_seen)

    def why(self, user: str, items: Sequence[object]) -> list[list[Reason]]:
        """The reasons of items that are recommended to one of this node's users."""
        return self._run_of(user).why(user, items)

    def load(self) -> LoadedNode:
        """The node as the store describes it; read again if another process changed the store."""
        version = self.store.version()
        if self.loaded is None or self.loaded.version != version:
            self.loaded = self._read(version)
        return self.loaded

    def _read(self, version: int) -> LoadedNode:
        terms, indices = self._federation()
        seed = self.store.meta("seed")
        if seed is None:
            raise Malformed("this node has no seed")
        client_seed = simulated_seed(terms) if seed == SIMULATED else int(seed)
        data = node_data_of(terms, indices, self.store, client_seed)
        world = node_world(terms, indices)
        ledger = ledger_for(terms, world, self.store, self.warn_once)
        node = Node(
            terms.federation,
            world,
            data,
            self.store,
            ledger=ledger,
            branch=len(known_rollbacks(self.store)),
            plan=indices.plan,
        )
        return LoadedNode(node, terms, indices, version)

    def _run_of(self, user: str) -> Run:
        """The last model as a run with one user."""
        from coterie.deployment.node_evaluation import model_for_user
        from coterie.experiments.finished_run import Run

        path = self.store.path
        if user not in self.store.users():
            raise UnknownName("user", user, self.store.users(), f" in {path}")
        if self.store.meta("terms") is None or self.store.held(MODEL) is None:
            raise RunError(
                f"{path} holds no model yet; expected one, which comes with each evaluation of a "
                "federation and with its end. Join a federation and wait."
            )
        node, terms, indices, _ = self.load()
        model = model_for_user(node, user)
        if model is None:
            raise RunError(
                f"user {user} of {path} has no part in the last model; expected a user who was on "
                "the node when it was trained. Join the next federation."
            )
        _, split = split_of(terms, indices, self.store)
        seen = split.everything().of_users(np.array([indices.numbers[user]]))
        catalogue = Catalogue(objects([user]), objects(terms.items), terms.texts, seen)
        return Run({"algorithm": terms.experiment.choice.algorithm}, model, catalogue)

    def _federation(self) -> tuple[FederationTerms, UserIndices]:
        terms = self.store.meta("terms")
        indices = self.store.meta("numbers")
        if terms is None or indices is None:
            raise Malformed("this node has not received the terms of a federation")
        numbers = {user: index for index, user in self.store.numbers().items()}
        try:
            known = replace(UserIndices.from_json(indices), numbers=numbers)
            return FederationTerms.from_json(terms), known
        except Malformed as error:
            raise damaged(self.store.path, error) from None


def make_preamble(terms: str, indices: UserIndices) -> bytes:
    """What precedes the first message to a node, so that enrolment needs one message less.

    The terms are given as JSON: they are the same for all nodes, and long. They are empty for a
    node that has them.
    """
    text = json.dumps([terms, indices.to_json()]).encode()
    return PREAMBLE.pack(MARK, len(text)) + text


def split_preamble(
    data: bytes, known_terms: str | None = None
) -> tuple[tuple[FederationTerms, UserIndices] | None, bytes]:
    """The preamble, if there is one, and the message. `known_terms` are those of the node."""
    if data[: len(MARK)] != MARK or len(data) < PREAMBLE.size:
        return None, data
    end = PREAMBLE.size + PREAMBLE.unpack_from(data)[1]
    try:
        terms, indices = json.loads(data[PREAMBLE.size : end])
    except (ValueError, TypeError, RecursionError):
        raise Malformed("the preamble does not hold terms and user indices") from None
    of_node = str(terms) or known_terms or ""
    preamble = FederationTerms.from_json(of_node), UserIndices.from_json(str(indices))
    return preamble, data[end:]
