"""The server of a federation of nodes, for any transport: rounds, commits and evaluations.

Each round is committed to disk before the next one begins. A restarted server resumes after the
last committed round.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from coterie.core.counted import counted
from coterie.core.heap import FreeMemory
from coterie.core.progress import SILENT, Progress
from coterie.core.records import Record
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, ItemContent
from coterie.deployment.membership import Membership, describe_refused
from coterie.deployment.node_evaluation import (
    NodeMetrics,
    combine,
    contributions,
    metric_names,
    model_message,
)
from coterie.deployment.node_limits import reply_bytes_a_user, reply_limits
from coterie.deployment.node_private_store import NEVER
from coterie.deployment.node_service import EVALUATE, FINISH, TRAIN
from coterie.deployment.reachable_users import ReachableUsers
from coterie.deployment.round_phases import Phase, RoundPhases
from coterie.deployment.server_commits import change_snapshots, commit, read_commit
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.traffic import STATUS, Nodes, NodeTraffic
from coterie.deployment.training_setup import TrainingSetup
from coterie.deployment.watch.watch import Watch
from coterie.errors import NoQuorum
from coterie.experiments import run_folder, training
from coterie.experiments.config import Course
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.round_log import RoundLog
from coterie.federated.nodes import write_message
from coterie.federated.privacy.budget import epsilon_of, plan_of_run, releases_in
from coterie.federated.privacy.statement import statement
from coterie.types import JsonObject

MOST_NAMES = 50
"""Nodes that a line of the log names."""
MOST_CONTACTS = 1000
"""Nodes whose last contact the status shows."""
RECENT = 100
"""Rounds whose median duration the status shows."""
TEST = "test"
"""The part on which nodes evaluate at the end."""


def serve(
    folder: Path,
    terms: FederationTerms,
    nodes: Nodes,
    service: ServerConfig,
    content: ItemContent | None = None,
    progress: Progress = SILENT,
) -> Point:
    """Train to the end, from the beginning or from the folder's last committed round."""
    traffic = NodeTraffic.resume(nodes, folder)
    phases = traffic.phases
    with phases.measure(Phase.WAIT):
        membership = Membership.establish(folder, terms, traffic, service, progress.warn)
    content = content or ItemContent()
    with phases.measure(Phase.COMPUTE):
        reachable = ReachableUsers(folder, membership)
        setup = TrainingSetup.of(terms, reachable, content, progress)
        resumed = resume(folder, terms, setup)
        point = resumed or training.begin(setup.trainer, setup.world.n_users)
    if resumed is not None:
        progress.log(f"going on after round {point.history.round:,}")
    watch = Watch.resume(folder, terms.items, progress)
    server = Server(folder, terms, service, content, progress, reachable, setup, point, watch)
    # A server may have died after it erased users.
    server.erase_from_snapshots()
    server.train()
    return server.point


@dataclass(slots=True)
class Server:
    folder: Path
    terms: FederationTerms
    service: ServerConfig
    content: ItemContent
    progress: Progress
    reachable: ReachableUsers
    setup: TrainingSetup
    point: Point
    watch: Watch
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Seconds of recent rounds."""
    state: str = ""
    since: str = ""
    """When the state began."""
    contributions: JsonObject = field(default_factory=dict)
    """What each node reported in the last evaluation, and medians over nodes."""
    connected: frozenset[str] = frozenset()
    """The nodes that were connected when the log last said which."""
    warned_in: int = -1
    """The last round in which nodes were missing."""
    memory: FreeMemory = field(default_factory=FreeMemory)

    @property
    def membership(self) -> Membership:
        return self.reachable.membership

    @property
    def phases(self) -> RoundPhases:
        return self.membership.traffic.phases

    @property
    def headline(self) -> str:
        """The metric that evaluations follow."""
        return self.terms.experiment.protocol.followed

    @property
    def is_over(self) -> bool:
        """Whether the last round is done."""
        return training.over(self.point.history, self.setup.total, self.terms.experiment.course)

    @property
    def final_state(self) -> Record:
        """The state of the final model: the last one or, with `patience`, the best."""
        state: Record = self.point.state if self.point.best is None else self.point.best
        return state

    @property
    def is_private(self) -> bool:
        """Whether the run has a privacy budget, from which metrics of nodes would not be paid."""
        return self.setup.world.settings.epsilon is not None

    def train(self) -> None:
        """Train to the end, and write the model."""
        course = self.terms.experiment.course
        self._write_privacy()
        self.connected = frozenset(self.membership.traffic.nodes.joined())
        log = round_log(self.folder, self.terms)
        log.begin(self.point.history, self.setup.total)
        label = f"Training with {counted(len(self.membership.enrolled), 'node')}"
        with self.progress.task(label, self.setup.total) as advance:
            advance(self.point.history.round)
            while True:
                self._report("training")
                due = evaluation_is_due(self.point.history, course, self.setup.total)
                if due and not self.is_private:
                    self._evaluate()
                    log.step(self.point.history)
                if self.is_over:
                    break
                self._play_round()
                log.step(self.point.history)
                nodes = counted(len(self.membership.enrolled), "node")
                advance(1, f"{nodes}, {counted(self.point.history.updates, 'update')}")
            stop = self.setup.trainer.stop
            if stop is not None:
                self.progress.log(f"training stopped: {stop.text}")
            elif self.point.history.round < self.setup.total:
                self.progress.log(describe_early_stop(self.point.history, self.headline))
            if not is_tested(self.point.history):
                self._finish()
                log.step(self.point.history)
        model = self.terms.federation.model(self.setup.world, self.final_state)
        run_folder.write_model(self.folder, model)
        run_folder.write_metrics(self.folder, self.point.history.curve)
        self._write_privacy()
        self._report("finished")

    def _write_privacy(self) -> None:
        """Write what the run claims and has spent, if it has a privacy budget."""
        if not self.is_private:
            return
        world = self.setup.world
        settings = world.settings
        plan = plan_of_run(self.terms.federation, world)
        stop = self.setup.trainer.stop
        stopped = "" if stop is None or self.point.history.round < stop.step else stop.text
        source = settings.noise_source
        claim = statement(plan, settings.noise, source, world.n_users, self._releases, stopped)
        run_folder.write_privacy(self.folder, claim)

    @property
    def _releases(self) -> int:
        """Sums so far that a user's data may have entered; undone rounds are not taken back."""
        n_rounds = self.point.history.round + self.membership.log.undone
        return releases_in(self.terms.federation, self.setup.world, n_rounds)

    def _budget(self) -> JsonObject:
        """The privacy budget and what is spent of it, for the status."""
        if not self.is_private:
            return {}
        plan = plan_of_run(self.terms.federation, self.setup.world)
        return {"epsilon": plan.epsilon, "epsilon_spent": epsilon_of(plan, self._releases)}

    def _play_round(self) -> None:
        """Train one round. Without a quorum it is repeated until nodes return, or time is up."""
        began = time.perf_counter()
        traffic = self.membership.traffic
        traffic.answered.clear()
        before = dict(self.phases.seconds)
        until = time.monotonic() + self.service.wait_seconds
        while True:
            self._enrol()
            accepted = self.setup.engine.accepted.copy()
            self.setup.engine.norms.clear()
            try:
                with self.phases.measure(Phase.COMPUTE):
                    self.point = training.step(self.setup.trainer, self.point)
                break
            except NoQuorum as error:
                # Nodes discard what they computed in a round whose updates were not accepted.
                self.setup.engine.accepted[:] = accepted
                if time.monotonic() > until:
                    raise
                self._report("waiting", str(error))
                with self.phases.measure(Phase.WAIT):
                    self.membership.wait_for_change(until)
        self._commit()
        with self.phases.measure(Phase.WATCH):
            self._look()
        self.durations.append(time.perf_counter() - began)
        self.memory.return_if_due()
        self.progress.debug(round_line(self.point.history.round, traffic, before))

    def _look(self) -> None:
        """Raise alarms about items and nodes, if there is a reason."""
        n = self.point.history.round
        self.watch.look_at_items(n, self.terms.federation, self.setup.world, self.point.state)
        if self.setup.world.settings.secure_aggregation == "none":
            names = self.membership.names
            norms = self.setup.engine.norms.relative()
            self.watch.look_at_nodes(n, {names[node]: times for node, times in norms.items()})

    def _enrol(self, final: bool = False) -> None:
        """Enrol nodes that connected, and go on with the users that the federation has then."""
        with self.phases.measure(Phase.ENROL):
            self._log_connections()
            refused_before = self.membership.traffic.refused.copy()
            self._move_approved_users()
            self.membership.enrol_new_nodes(final)
            if refused := self.membership.traffic.refused - refused_before:
                last = self.membership.traffic.last_refused
                self.progress.warn(describe_refused(refused, last).strip())
            members = self.membership.members
            if members is self.setup.members:
                self._limit_replies()
                return
            self.progress.log(describe_change(self.setup.members, members))
            accepted = self.setup.engine.accepted
            self.setup = TrainingSetup.of(self.terms, self.reachable, self.content, self.progress)
            self.point = self.setup.fit(self.terms.federation, self.point, accepted)
            self.erase_from_snapshots()
            self._limit_replies()

    def _log_connections(self) -> None:
        """Say which nodes connected or left since the last time."""
        now = frozenset(self.membership.traffic.nodes.joined())
        if now != self.connected:
            self.progress.log(describe_nodes(self.connected, now))
        self.connected = now

    def erase_from_snapshots(self) -> None:
        """Replace the rows of erased users in snapshots, too, by initial ones."""
        if len(self.setup.members.gone):
            federation = self.terms.federation
            change_snapshots(
                self.folder, self.terms, lambda point: self.setup.fitted(federation, point)
            )

    def _limit_replies(self) -> None:
        """Let nodes send as much as the updates of their users take, and no more."""
        a_user = reply_bytes_a_user(self.terms.federation, self.setup.world, self.point.state)
        limits = reply_limits(a_user, self.membership.users_per_node())
        self.membership.traffic.nodes.limit_replies(TRAIN, limits)

    def _move_approved_users(self) -> None:
        """Move users to other nodes, where they begin with the initial private state."""
        moves = self.membership.hosting.approved_users()
        if moves:
            self.setup.engine.accepted[[self.membership.index[user] for user in moves]] = NEVER
            # Committed first: a server that dies here moves them again.
            self._commit()
            self.membership.move_approved(moves)

    def _evaluate(self) -> None:
        """Evaluate during training."""
        self._enrol()
        before = self.point
        metrics = self._metrics(before.state, EVALUATE)
        self.point = measured(before, metrics, self.headline)
        is_best = self.point.history.best == len(self.point.history.curve) - 1
        if self.terms.experiment.course.patience and metrics and is_best:
            self.point = replace(self.point, best=before.state)
        self._commit()

    def _finish(self) -> None:
        """Send the final model to the nodes, which evaluate it on the test part."""
        self._enrol(final=True)
        history = self.point.history
        # Only now, after the commit: a server that dies here does not repeat the round.
        with self.phases.measure(Phase.COMPUTE):
            chosen = replace(self.point, state=self.final_state)
            finished = training.finish(self.setup.trainer, chosen)
        self.point = replace(self.point, history=finished.history)
        metrics = self._metrics(self.final_state, FINISH)
        after = measured(self.point, metrics, self.headline)
        if self.point.best is not None:
            # Metrics of the test part do not compete with those that chose the model.
            after = replace(after, history=replace(after.history, best=history.best))
        self.point = after
        self._commit()

    def _metrics(self, state: Record, kind: str) -> tuple[str, dict[str, float]] | None:
        """Send a model to the nodes and average their metrics; None if no node reports any.

        Nodes without a reply do not count.
        """
        membership = self.membership
        t = self.point.history.round
        message = model_message(self.terms.federation, self.setup.world, state, t)
        parts = self.setup.engine.split_by_node(message)
        out = {membership.names[node]: write_message(part) for node, part in parts.items()}
        with self.phases.measure(Phase.EVALUATE):
            replies = membership.send(kind, out)
        if self.is_private:
            return None
        protocol = self.terms.experiment.protocol
        hosted = membership.users_per_node()
        names = metric_names(protocol)

        def parse(name: str, data: bytes) -> NodeMetrics:
            return NodeMetrics.parse(data, hosted[name], names)

        reports = membership.traffic.parse("metrics", replies, parse)
        metrics = combine(reports.values())
        if protocol.followed not in metrics:
            return None
        self.contributions = contributions(reports, metrics)
        return next(report.part for report in reports.values() if report.users), metrics

    def _commit(self) -> None:
        with self.phases.measure(Phase.COMMIT):
            accepted = self.setup.engine.accepted
            commit(self.folder, self.point, self.terms, accepted, self.membership.plan)

    def _report(self, state: str, note: str = "") -> None:
        """Write the status."""
        status = status_of(self.point, self.membership, self.setup.total, state, self.durations)
        if state != self.state:
            self.state = state
            self.since = datetime.now(UTC).isoformat(timespec="seconds")
        status |= {"since": self.since} | self.contributions | self._budget()
        status |= self.watch.status(self.setup.world.settings.secure_aggregation)
        if note:
            status |= {"note": note}
            self._warn(note)
        run_folder.write_text(self.folder, STATUS, json.dumps(status, allow_nan=False) + "\n")

    def _warn(self, note: str) -> None:
        """Say once a round that nodes are missing."""
        n = self.point.history.round + 1
        if n != self.warned_in:
            self.progress.warn(f"round {n} waits for nodes: {note.partition('. ')[0]}")
        self.warned_in = n


def round_log(folder: Path, terms: FederationTerms) -> RoundLog:
    """The log of a federation's rounds. The status has the privacy budget."""
    experiment = terms.experiment
    about = {
        "algorithm": experiment.choice.algorithm,
        "dataset": "federation",
        "protocol": experiment.protocol_label,
        "seed": experiment.choice.seed,
        "metric": experiment.protocol.followed,
        "part": TEST,
    }
    return RoundLog(folder, about)


def describe_change(before: EnrolledUsers, after: EnrolledUsers) -> str:
    """How the users of a federation changed, for the server's operator."""
    joined = len(after.users) - len(before.users)
    erased = len(after.gone) - len(before.gone)
    return f"users: {joined:,} joined, {erased:,} erased, {after.n_users:,} in all"


def describe_early_stop(history: TrainingHistory, headline: str) -> str:
    best = history.curve[history.best]
    return (
        f"stopped after round {history.round:,}: {headline} on the {best['part']} part was best in "
        f"round {best['round']:,}, with {best[headline]:.4f}. Nodes get the model of that round."
    )


def round_line(n: int, traffic: NodeTraffic, before: Mapping[str, float]) -> str:
    """Where the time of a round went, and which nodes answered; `before` are earlier seconds."""
    spent = traffic.phases.since_then(before)
    times = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in spent.items())
    return f"round {n}: {times}; answered: {names_of(traffic.answered) or 'no node'}"


def describe_nodes(before: frozenset[str], now: frozenset[str]) -> str:
    """Which nodes left and which connected, for the server's operator."""
    changes = {"left": before - now, "connected": now - before}
    texts = [f"{names_of(names)} {verb}" for verb, names in changes.items() if names]
    return f"nodes: {'; '.join(texts)}; {len(now):,} connected in all"


def names_of(nodes: Collection[str]) -> str:
    """The names of nodes for a line of the log, which has room for some."""
    names = sorted(nodes)
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def measured(point: Point, found: tuple[str, dict[str, float]] | None, headline: str) -> Point:
    """With the metrics of a part on the curve, if there are any."""
    if found is None:
        return point
    return replace(point, history=point.history.measured(*found, headline))


def evaluation_is_due(history: TrainingHistory, course: Course, total: int) -> bool:
    """Whether the current round needs an evaluation during training and has none.

    A server may have died between the commit of a round and its evaluation.
    """
    last = history.curve[-1]["round"] if history.curve else 0
    n = history.round
    if n <= last or n > total:
        return False
    if n == total:
        # The test part comes next. With `patience`, the validation part chooses the model before.
        return bool(course.patience)
    return bool(course.evaluate_every) and n % course.evaluate_every == 0


def is_tested(history: TrainingHistory) -> bool:
    """Whether the last round has its evaluation on the test part."""
    last = history.curve[-1] if history.curve else {"round": -1}
    return last["round"] == history.round and last["part"] == TEST


def resume(folder: Path, terms: FederationTerms, setup: TrainingSetup) -> Point | None:
    """The last committed round, for the users that there are now; None if there is none."""
    committed = read_commit(folder, terms)
    return None if committed is None else setup.fit(terms.federation, *committed)


def status_of(
    point: Point, membership: Membership, total: int, state: str, durations: Collection[float]
) -> JsonObject:
    """What `coterie status` shows."""
    history = point.history
    traffic = membership.traffic
    counts = traffic.counts
    return {
        "state": state,
        "round": history.round,
        "rounds": total,
        "seconds_per_round": median(durations) if durations else None,
        "seconds_by_phase": traffic.phases.seconds,
        "nodes": len(traffic.nodes.joined()),
        "enrolled": len(membership.enrolled),
        "users": membership.members.n_users,
        "silent": sorted(membership.silent),
        "last_contact": dict(list(traffic.last_contact.items())[:MOST_CONTACTS]),
        "rollbacks": membership.log.rounds,
        "quarantined": sorted(membership.log.quarantined),
        "updates": history.updates,
        "dropped": history.dropped,
        "refused": dict(history.refused + traffic.refused + Counter(traffic.nodes.refused)),
        "last_refused": traffic.last_refused | dict(traffic.nodes.last_refused),
        "unanswered": counts["unanswered"],
        "bytes_up": counts["bytes_up"],
        "bytes_down": counts["bytes_down"],
        "bytes_control": counts["bytes_control"],
        "metrics": _last_metrics(history),
    }


def _last_metrics(history: TrainingHistory) -> JsonObject:
    """The last evaluation with its round and part, without costs."""
    if not history.curve:
        return {}
    costs = ("seconds", "updates", "bytes_up", "bytes_down")
    return {name: value for name, value in history.curve[-1].items() if name not in costs}
