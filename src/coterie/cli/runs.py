"""Commands about runs: run, resume, evaluate, recommend, report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Columns, Json, Protocol, Quiet, SkipBadRows, parse_columns

if TYPE_CHECKING:
    from coterie.experiments.run import Recommendation, Run

Folder = Annotated[
    Path, typer.Argument(help="A run folder, as `coterie run` printed it.", show_default=False)
]


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.yaml",
            help="An algorithm (coterie algorithms) or an experiment file.",
            show_default=False,
        ),
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "-d",
            help="A dataset (coterie data list) or a path.",
            show_default="synthetic",
        ),
    ] = None,
    protocol: Protocol = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Same seed, same result.", show_default="0")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            help="Rounds of a federated algorithm; FPL counts epochs: --set epochs=N.",
            show_default="its own",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Where a federated algorithm's devices are simulated: cpu or cuda.",
            show_default="cpu",
        ),
    ] = None,
    secure_aggregation: Annotated[
        str | None,
        typer.Option(
            "--secure-aggregation",
            help="What hides single users' updates from servers: none or ring.",
            show_default="none",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="Where a federated algorithm's nodes run: local or ray.",
            show_default="local",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Any setting; repeat for more."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder.", show_default="runs/NAME-DATASET-N"),
    ] = None,
    columns: Columns = None,
    skip_bad_rows: SkipBadRows = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an algorithm, evaluate it, and leave a run folder.

    coterie run fedfast --rounds 100

    coterie run bpr --dataset ml-100k --set embedding_size=32

    coterie run experiment.yaml --seed 3
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.experiments import experiment as story
    from coterie.experiments.config import Experiment, changed, parse_assignments, read_file
    from coterie.experiments.folder import new_folder, refuse_occupied

    values = read_file(target) if target.endswith((".yaml", ".yml")) else {"algorithm": target}
    given = {
        "dataset": dataset,
        "protocol": protocol,
        "seed": seed,
        "rounds": rounds,
        "device": device,
        "secure_aggregation": secure_aggregation,
        "engine": engine,
        "columns": parse_columns(columns) or None,
        "skip_bad_rows": skip_bad_rows or None,
    }
    changes = {key: value for key, value in given.items() if value is not None} | parse_assignments(
        set_ or []
    )
    chosen = Experiment.of(changed(values, changes))
    progress = SILENT if quiet or as_json else ScreenProgress()
    refuse_occupied(out)
    if chosen.tuned:
        progress.log(
            f"Settings tuned on the validation part of {chosen.choice.dataset} are the defaults; --set overrides them."
        )
    name = f"{chosen.choice.algorithm}-{Path(chosen.choice.dataset).name.split('.')[0]}"
    finished = story.run(chosen, make_folder=partial(new_folder, out, name), progress=progress)
    _print(finished, as_json, quiet)


def resume(folder: Folder, quiet: Quiet = False, as_json: Json = False) -> None:
    """Go on with a run that was interrupted.

    The result is the one without the interruption.
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.experiments import experiment as story

    progress = SILENT if quiet or as_json else ScreenProgress()
    _print(story.resume(folder, progress), as_json, quiet)


def evaluate(
    folder: Folder,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            "-p",
            help="Another protocol with the same split.",
            show_default="the run's",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Sample other candidates.", show_default="the run's"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Protocol settings, such as cutoffs=5,10."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a run's model again, by another protocol or cut-offs.

    Or by other candidates.
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.reevaluation import reevaluate

    changes: dict[str, Any] = parse_assignments(set_ or [])
    changes |= {k: v for k, v in {"protocol": protocol, "seed": seed}.items() if v is not None}
    _print(
        reevaluate(folder, changes, SILENT if quiet or as_json else ScreenProgress()),
        as_json,
        quiet=True,
    )


def recommend(
    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)
    ] = None,
    node: Annotated[
        Path | None,
        typer.Option(
            "--node",
            metavar="STORE",
            help="In place of a run: a node's own store.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", help="The person's id, as in the data.", show_default=False),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="ITEM,ITEM",
            help="For somebody new: the items they chose so far.",
            show_default=False,
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many items.")] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also items the person had already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Recommend items to a person.

    While a run is training, its last checkpoint answers. A node's store answers by itself, by the last model that came.

    coterie recommend runs/fedfast-synthetic-1 --user 42

    coterie recommend --node mine.db --user 42
    """
    from coterie.cli.screen import show_table
    from coterie.errors import ConfigError

    if (folder is None) == (node is None):
        given = "neither" if node is None else "both"
        raise ConfigError(
            f"{given} of a run folder and --node is given; expected one. Name a run, or a node's store."
        )
    if (user is None) == (history is None):
        given = "neither" if user is None else "both"
        raise ConfigError(
            f"{given} of --user and --history is given; expected one. Name a person, or what they chose."
        )
    if folder is not None:
        best = _from_run(folder, user, history, n, not include_seen)
    elif user is not None and node is not None:
        best = _from_node(node, user, n, not include_seen)
    else:
        raise ConfigError(
            "--history is given for a node's store; expected --user, one of its people. Name a person."
        )
    if as_json:
        typer.echo(json.dumps({"user": user, "items": [r._asdict() for r in best]}))
        return
    rows = [[str(place), str(r.item), r.text, f"{r.score:.4f}"] for place, r in enumerate(best, 1)]
    show_table(["", "item", "text", "score"], rows, left=3)


def _from_run(
    folder: Path, user: str | None, history: str | None, n: int, exclude_seen: bool
) -> list[Recommendation]:
    from coterie.experiments.run import Run

    run = Run.peek(folder)
    if user is not None:
        return run.recommend(user, n, exclude_seen)
    chosen = [item.strip() for item in str(history).split(",") if item.strip()]
    return run.recommend_new_user(chosen, n, exclude_seen)


def _from_node(place: Path, user: str, n: int, exclude_seen: bool) -> list[Recommendation]:
    from coterie.deployment.node_service import NodeService
    from coterie.deployment.node_store import NodeStore

    return NodeService(NodeStore.open(place)).recommend(user, n, exclude_seen)


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="One or more run folders.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where the page goes.",
            show_default="report.html, of one run in its folder",
        ),
    ] = None,
) -> None:
    """Put runs side by side: a table here, a page beside the runs.

    The table is Markdown; the page is HTML, with the convergence figure.
    """
    from coterie.experiments.folder import write_text
    from coterie.experiments.run import Run
    from coterie.report.page import page
    from coterie.report.table import markdown

    unfinished = [
        folder for folder in folders if folder.is_dir() and not (folder / "result.json").exists()
    ]
    if unfinished and len(unfinished) < len(
        folders
    ):  # `coterie report runs/*` meets what was interrupted
        typer.echo(f"left out, not finished: {', '.join(map(str, unfinished))}", err=True)
        folders = [folder for folder in folders if folder not in unfinished]
    runs = [Run.load(folder) for folder in folders]
    target = out or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
    if target.is_dir():
        target = target / "report.html"
    write_text(target.parent, target.name, page(runs))
    typer.echo(markdown(runs))
    typer.echo(f"page: {target}")


def _print(finished: Run, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(finished.result, allow_nan=False))
        return
    from coterie.cli.screen import show_table
    from coterie.report.table import notes, shown

    result = finished.result
    sampled = result["metrics"] != result["full"]
    kinds = ("metrics", "full") if sampled else ("full",)
    both = [
        [
            name,
            *(shown(name, result[kind][name]) if name in result[kind] else "-" for kind in kinds),
        ]
        for name in result["headline"]
    ]
    title = f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}"
    show_table(
        ["metric", result["protocol"], *(["full ranking"] if sampled else [])], both, title=title
    )
    if quiet:
        return
    for line in notes(finished):
        typer.echo(line)
    rounds = result["rounds"]
    best = (
        ""
        if result["best_round"] == rounds
        else f"; the best on validation is round {result['best_round']}"
    )
    typer.echo(
        f"trained {rounds} {'round' if rounds == 1 else 'rounds'} in {result['seconds']:.2f} s{best}"
    )
    typer.echo(f"run:    {result['run']}")
    typer.echo(f"report: {Path(result['run']) / 'report.html'}")
