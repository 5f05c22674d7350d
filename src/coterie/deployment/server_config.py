"""The config file of a federation's server, the run folder made from it, and what is refused."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from pydantic import Field

from coterie.algorithms.registry import algorithm, names
from coterie.core.progress import Progress
from coterie.core.settings import Settings
from coterie.data.small import small_table
from coterie.deployment import server_folder
from coterie.deployment.enrolment import MAX_USERS, FederationTerms, ItemContent
from coterie.deployment.node_limits import NodeLimits
from coterie.deployment.private_terms import refuse_unprivate, without_users
from coterie.deployment.snapshot_plan import MOST_SNAPSHOTS, NO_SNAPSHOTS, SnapshotPlan
from coterie.deployment.traffic import read_status
from coterie.errors import ConfigError, DataError, MissingExtra
from coterie.evaluation.metric_names import RATING_ERRORS
from coterie.experiments import run_folder, server_view
from coterie.experiments.config import OF_NODES, Experiment, read_file
from coterie.federated.federation import Federation
from coterie.federated.privacy.settings import is_private
from coterie.federated.secagg import exposure
from coterie.federated.settings import FederationSettings, federation_settings
from coterie.types import JsonObject

SIMULATION_ONLY = (
    "client_dropout",
    "availability",
    "deadline",
    "over_selection",
    "engine",
    "nodes",
)
"""Settings that make sense only where nodes are simulated."""

ELSEWHERE = "the server has no interactions and reads no file about users"
UNSUPPORTED = {
    "test_file": ELSEWHERE,
    "validation_file": ELSEWHERE,
    "candidates_file": ELSEWHERE,
    "disclosure_file": "nodes read it, with coterie join --disclosure FILE",
    "private_items": "nodes read it, with coterie join --private-items FILE",
    "availability_file": "nodes are really there or not",
    "start_from": "users of the earlier run would have to be the same",
    "as_published": "it repeats evaluations of papers, which used test data of all users",
    "popularity_prior": "nodes do not count items for it",
}
"""Setting -> why a federation of nodes does not have it."""
DEFENCES = {
    "none": "robust=none: a few hostile clients can steer the model (docs/poisoning.md)",
    "bounded": "robust=bounded: no client moves the model much more than others of its round do",
    "trimmed": "robust=trimmed: extremes of each component count as less extreme ones",
    "groups": "robust=groups: groups of clients with extreme sums do not count",
}
"""What a server logs about its defence."""


class ServerConfig(Settings):
    """The settings of an experiment file that concern the server, not the experiment."""

    items: str
    """A file with a column item_id: the item catalogue."""
    least_nodes: int = Field(1, ge=1)
    """Nodes that must have joined before training begins."""
    quorum: float = Field(0.5, gt=0, le=1)
    """Share of a round's nodes that must reply; with fewer the round is repeated."""
    round_seconds: float = Field(60.0, gt=0)
    """Deadline of a round in seconds; later replies do not count."""
    wait_seconds: float = Field(600.0, gt=0)
    """How long the server waits for nodes to join."""
    open: bool = False
    """Whether users who are not there at the beginning may join between two rounds."""
    least_devices: int = Field(1, ge=1)
    """Devices that must be enrolled before the gateway of `coterie serve --devices` joins as a
    node."""
    most_users_a_node: int = Field(10_000, ge=1, le=MAX_USERS)
    """Most users that a node may enrol."""
    most_users_of: dict[str, int] = Field(default_factory=dict)
    """Node -> most users that it may enrol, where that is another number."""
    most_positives_a_user: int = Field(10_000, ge=1)
    """Most interactions of a user of a node, on average over the node's users."""
    prefixed_ids: bool = False
    """Whether a node may enrol only users whose ids begin with its name and a hyphen. Then no node
    can claim the users of another."""

    snapshot_every: int = Field(10, ge=0)
    """Rounds between two snapshots to which `coterie federation rollback` can return; 0 for none.
    Nodes take a copy of their users' private state after the same rounds."""
    snapshots: int = Field(5, ge=1, le=MOST_SNAPSHOTS)
    """Snapshots that are kept: the newest ones."""

    def snapshot_plan(self, terms: FederationTerms) -> SnapshotPlan:
        """After which rounds snapshots are taken. With secure aggregation no run is rolled back."""
        settings = federation_settings(terms.experiment.settings)
        if settings.secure_aggregation != "none":
            return NO_SNAPSHOTS
        return SnapshotPlan(self.snapshot_every, self.snapshots)

    @property
    def limits(self) -> NodeLimits:
        return NodeLimits(
            users=self.most_users_a_node,
            users_of=self.most_users_of,
            positives_a_user=self.most_positives_a_user,
            prefixed=self.prefixed_ids,
        )


def prepare_folder(config: Path, out: Path | None, progress: Progress) -> Path:
    """The run folder of a config file: a new one, or `out` if a server used it before."""
    terms = begun(out)
    service, experiment = read_server_config(config, terms)
    if experiment.choice.dataset != OF_NODES:
        # A file of `coterie tune` names the dataset that it was tuned on.
        progress.warn(
            f"{config} names dataset {experiment.choice.dataset}, which the server does not read: "
            "nodes bring the interactions"
        )
    refuse_unsupported(experiment, progress)
    refuse_open(config, service, experiment)
    progress.log(DEFENCES[federation_settings(experiment.settings).robust])
    if out is not None and terms is not None:
        refuse_changed(config, experiment, terms)
        (out / "failed.json").unlink(missing_ok=True)
        run_folder.write_text(out, "service.json", service.model_dump_json())
        return out
    terms, content = read_catalogue(Path(service.items), experiment, progress)
    terms.refuse_split()
    name = f"{experiment.choice.algorithm}-federation"
    earlier = run_folder.earlier_run(
        name,
        experiment.flat(),
        "the same command and --out",
        is_finished=lambda folder: read_status(folder).get("state") == "finished",
    )
    if earlier and out is None:
        progress.warn(earlier)
    folder = run_folder.new_folder(out, name)
    run_folder.write_config(folder, experiment.flat())
    run_folder.write_text(folder, "service.json", service.model_dump_json())
    run_folder.write_text(folder, "told.json", content.to_json())
    server_folder.write_format(folder)
    # terms.json marks the folder as complete, so it is written last.
    run_folder.write_text(folder, "terms.json", terms.to_json())
    return folder


def begun(out: Path | None) -> FederationTerms | None:
    """The terms of a federation that began in the folder; None where none did."""
    if out is None or not (out / "terms.json").exists():
        return None
    server_folder.refuse_later_format(out)
    return server_folder.read_message(out, "terms.json", FederationTerms)


def read_server_config(
    config: Path, terms: FederationTerms | None = None
) -> tuple[ServerConfig, Experiment]:
    """Read a config file; errors say to change that file. `terms` are those of a federation that
    began before."""
    given = with_system_noise(with_hidden_requests(read_file(str(config))))
    given = with_defence(given, terms)
    # Nodes do not count items for popularity yet.
    values = {"dataset": OF_NODES, "popularity_prior": 0.0} | given
    if not values.get("items"):
        raise ConfigError(
            f"{config} names no items; expected `items: FILE`, a table of the item catalogue with "
            "a column item_id. Add it."
        )
    own = {key: values.pop(key) for key in list(values) if key in ServerConfig.model_fields}
    try:
        return ServerConfig.of(own), Experiment.of(values)
    except ConfigError as error:
        unknown = re.match(r"unknown setting '(\w+)'", str(error))
        close = get_close_matches(unknown[1], ServerConfig.model_fields, 1, 0.8) if unknown else []
        if unknown and close:
            raise ConfigError(
                f"{config}: unknown setting {unknown[1]!r}. Did you mean {close[0]!r}?"
            ) from None
        hint = r"Change it with --set \w+=VALUE\."
        raise ConfigError(re.sub(hint, f"Change it in {config}.", str(error))) from None


def with_hidden_requests(values: JsonObject) -> JsonObject:
    """With requests=whole, unless the file says otherwise, where clients request item vectors.

    In a simulation the default is the paper's: some items, the clicked one among them. A server
    finds the clicks in these requests (docs/privacy.md), and here they would be those of people.
    """
    listed = fields_of(values.get("algorithm"))
    return {"requests": "whole"} | values if "requests" in listed else values


def fields_of(name: object) -> Collection[str]:
    """The settings of an algorithm; none of an unknown one, which is refused later."""
    return algorithm(str(name)).settings.model_fields if name in names() else ()


def with_system_noise(values: JsonObject) -> JsonObject:
    """With noise of the operating system, where the file has a privacy budget.

    The default of a simulation is the seed of the run, which all nodes of a federation know.
    """
    return values if values.get("epsilon") is None else {"noise_source": "system"} | values


def with_defence(values: JsonObject, terms: FederationTerms | None) -> JsonObject:
    """With bounds on what a client may send, unless the file says otherwise.

    The default of a simulation is none, as papers have it. Bounds compare single updates, which a
    server does not see under secure aggregation and must not use under a privacy budget. A
    federation that began before keeps what it began with.
    """
    if "robust" not in fields_of(values.get("algorithm")):
        return values
    if terms is not None:
        return {"robust": terms.config.get("robust", "none")} | values
    hidden = values.get("secure_aggregation", "none") != "none" or values.get("epsilon") is not None
    return values if hidden else {"robust": "bounded"} | values


def refuse_changed(config: Path, experiment: Experiment, terms: FederationTerms) -> None:
    """Reject changed settings of a resumed federation; those of the server may change."""
    for key, value in experiment.flat().items():
        before = terms.config.get(key)
        if json.loads(json.dumps(value)) != before:
            raise ConfigError(
                f"{config}: setting {key!r} is {value!r}, but the federation began with "
                f"{before!r}; expected it unchanged. Restore it, or serve into a new folder."
            )


def read_catalogue(
    path: Path, experiment: Experiment, progress: Progress
) -> tuple[FederationTerms, ItemContent]:
    """Read the item file: what nodes learn about items, and what only the server knows."""
    table = small_table(path, ("item_id",), "item_id").columns
    rows = {item: row for row, item in enumerate(table["item_id"])}
    if repeated := len(table["item_id"]) - len(rows):
        progress.warn(f"{path}: ignored {repeated:,} lines whose item_id comes again further down")

    def column(name: str) -> list[str] | None:
        return [table[name][row] for row in rows.values()] if name in table else None

    titles = column("title")
    categories = column("categories")
    if titles is None and "tower" in type(experiment.settings).model_fields:
        raise DataError(
            f"{path}: column 'title' is missing, and {experiment.choice.algorithm} reads titles; "
            "expected item_id, title and optionally categories (separated by |) and body. "
            "Add title."
        )
    terms = FederationTerms(experiment.flat(), list(rows), secrets.token_hex(8), titles)
    parted = None if categories is None else [names.split("|") for names in categories]
    return terms, ItemContent(parted, column("body"))


def refuse_unsupported(experiment: Experiment, progress: Progress) -> None:
    """Reject what a federation of nodes cannot train, and settings of the simulator."""
    name = experiment.choice.algorithm
    settings = experiment.settings
    federation = algorithm(name).train
    if not isinstance(federation, Federation):
        raise ConfigError(
            f"algorithm {name} is trained in one place; expected a federated algorithm "
            "(coterie algorithms). Name another."
        )
    values = experiment.flat()
    defaults = FederationSettings()
    for key in SIMULATION_ONLY:
        default = getattr(defaults, key)
        if values[key] != default:
            raise ConfigError(
                f"setting {key!r} is {values[key]!r}, which is for simulations; expected "
                f"{default!r}, since nodes are real here. Leave it out."
            )
    refuse_patience(experiment)
    for key, reason in UNSUPPORTED.items():
        if values.get(key):
            raise ConfigError(
                f"setting {key!r} is {values[key]!r}, which a federation of nodes does not have: "
                f"{reason}; expected it unset. Leave it out."
            )
    protocol = experiment.protocol
    errors = [metric for metric in protocol.named if metric in RATING_ERRORS]
    unreported = [*errors, *(metric.name for metric in protocol.list_metrics)]
    if unreported:
        key = "headline" if unreported[0] in protocol.headline else "metrics"
        raise ConfigError(
            f"setting {key!r} is {unreported[0]!r}, which nodes do not report yet: a server can "
            "check only sums of metrics between 0 and 1; expected another metric, such as NDCG. "
            "Change it."
        )
    if getattr(settings, "cluster_by", "embeddings") != "embeddings":
        raise ConfigError(
            f"setting 'cluster_by' is {values['cluster_by']!r}, which needs a feature of every "
            "user on the server, and nodes send none: it would tell the server who they are; "
            "expected 'embeddings'. Leave it out."
        )
    if getattr(settings, "person", "titles") == "features":
        raise ConfigError(
            "setting 'person' is 'features', and stores of nodes hold interactions only, no "
            "features of users; expected 'titles'. Leave it out."
        )
    if "tower" in type(settings).model_fields and find_spec("torch") is None:
        raise MissingExtra(name, "neural")
    no_users = without_users(experiment)
    exposure.check_and_report(federation, no_users, progress)
    refuse_unaccounted(experiment, progress)
    if no_users.settings.secure_aggregation == "none":
        received = "; ".join(server_view.in_the_clear(experiment, no_users))
        progress.log(
            f"without secure aggregation the server receives of every client: {received} "
            "(docs/privacy.md)"
        )


def refuse_unaccounted(experiment: Experiment, progress: Progress) -> None:
    """Under a privacy budget, reject what nodes would send without spending from it."""
    if not is_private(experiment.settings):
        return
    refuse_unprivate(experiment)
    every = experiment.course.evaluate_every
    if every:
        raise ConfigError(
            f"setting 'evaluate_every' is {every}, but 'epsilon' is set, and metrics that nodes "
            "report are sums without noise, which are not paid for; expected 0. Leave it out."
        )
    progress.log(
        "epsilon is set: nodes report no metrics, during training or at its end, since metrics "
        "would be sums without noise. A simulation with the same settings on public data shows "
        "the accuracy to expect."
    )


def refuse_open(config: Path, service: ServerConfig, experiment: Experiment) -> None:
    """Reject an open federation of an algorithm whose users are fixed."""
    name = experiment.choice.algorithm
    federation = algorithm(name).train
    if service.open and is_private(experiment.settings):
        raise ConfigError(
            "setting 'open' is True, but 'epsilon' is set, and its noise is made for the users who "
            f"are there when training begins; expected False. Leave it out of {config}."
        )
    if service.open and isinstance(federation, Federation) and federation.fixed_users:
        raise ConfigError(
            f"setting 'open' is True, but users of {name} cannot join while it trains: "
            f"{federation.fixed_users}; expected False. Leave it out of {config}."
        )


def refuse_patience(experiment: Experiment) -> None:
    """Reject early stopping where nobody could have the best model at the end."""
    patience = experiment.course.patience
    if not patience:
        return
    name = experiment.choice.algorithm
    if algorithm(name).state.private:
        raise ConfigError(
            f"setting 'patience' is {patience}, but clients of {name} store a part of the model "
            "and have only the last one, not the best; expected 0. Leave it out."
        )
    if not experiment.course.evaluate_every:
        raise ConfigError(
            f"setting 'patience' is {patience}, but 'evaluate_every' is 0, so that nodes evaluate "
            "at the end only; expected a number of rounds. Set evaluate_every."
        )
