"""Commands that use a trained model: recommend and similar-items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import JsonOption, QuietOption, RunFolderArgument
from coterie.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.deployment.node_service import NodeService
    from coterie.experiments.finished_run import Recommendation, Run
    from coterie.experiments.reasons import Reason

ItemsOption = Annotated[
    Path | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="File with titles of items: csv, tsv, ; or | separated, or parquet.",
        show_default="the titles of the dataset",
    ),
]
ItemColumnOption = Annotated[
    str | None,
    typer.Option(
        "--item-column",
        help="Column of --items with item ids: its name, or its number from 1.",
        show_default="the one with the run's items",
    ),
]
TitleColumnOption = Annotated[
    str | None,
    typer.Option(
        "--title-column",
        help="Column of --items with titles: its name, or its number from 1.",
        show_default="guessed by its name, then by its texts",
    ),
]


def recommend(
    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)
    ] = None,
    node: Annotated[
        Path | None,
        typer.Option(
            "--node",
            metavar="STORE",
            help="Use a node's store instead of a run folder.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", help="User id, as in the data.", show_default=False),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="ITEM,ITEM",
            help="For a new user: the items they have interacted with.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="NAME=VALUE,...",
            help="For a new user of a two-tower model: features, such as age=25,gender=F.",
            show_default=False,
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Recommend to all users of the run; needs --out."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File for --all: .csv or .parquet. Only its owner can read it.",
            show_default=False,
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Number of items.")] = 10,
    include_seen: Annotated[
        bool,
        typer.Option("--include-seen", help="Include items the user has already interacted with."),
    ] = False,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Name the items of the history that each recommendation comes from; "
            "for item-based algorithms.",
        ),
    ] = False,
    items: ItemsOption = None,
    item_column: ItemColumnOption = None,
    title_column: TitleColumnOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Recommend items to a user, to a new user, or to all users.

    While a run is training, its last checkpoint is used. A node's store uses the last model it
    received and needs no server.

    coterie recommend runs/fedfast-synthetic-1 --user 42

    coterie recommend runs/als-books-1 --history 0345402871,0971880107 --items books.csv

    coterie recommend runs/als-books-1 --all --out lists.csv

    coterie recommend runs/ease-books-1 --user 42 --why

    coterie recommend --node mine.db --user 42
    """
    from coterie.errors import ConfigError

    _choose_one({"RUN": folder is not None, "--node": node is not None})
    chosen = {"--user": user is not None, "--history": history is not None, "--all": all_}
    _choose_one(chosen)
    if all_ != (out is not None):
        given = "--all is given without --out" if all_ else "--out is given without --all"
        raise ConfigError(f"{given}; expected both or neither. Write for example --all --out a.csv")
    if folder is None:
        if user is None or node is None:
            other = "--all" if all_ else f"--history {history}"
            raise ConfigError(
                f"{other} is given, but a node's store recommends to its own users only; "
                "expected --user. Name one of its users (coterie node list)."
            )
        service = _node_service(node)
        found = service.recommend(user, n, not include_seen)
        reasons = service.why(user, _ids(found)) if why else None
        _show(found, as_json, reasons, user=user)
        return
    if features is not None and history is None:
        raise ConfigError(
            f"--features is {features!r} without --history; expected a new user. "
            "Add --history with their items, which may be empty."
        )
    run = _titled(folder, items, item_column, title_column)
    _note_unfinished(folder, quiet or as_json)
    if out is not None:
        _write_all(run, out, n, not include_seen, why, quiet, as_json)
    elif user is not None:
        found = run.recommend(user, n, not include_seen)
        reasons = run.why(user, _ids(found)) if why else None
        _show(found, as_json, reasons, user=user)
    else:
        known = [item.strip() for item in str(history).split(",") if item.strip()]
        given_features = _parse_features(features)
        found = run.recommend_new_user(known, n, not include_seen, given_features)
        reasons = run.why_new_user(known, _ids(found)) if why else None
        _show(found, as_json, reasons, user=None)


def similar_items(
    folder: RunFolderArgument,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Item id, as in the data.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of items.")] = 10,
    items: ItemsOption = None,
    item_column: ItemColumnOption = None,
    title_column: TitleColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the items most similar to an item.

    The score is the cosine of the items' rows. For ease and slim it is the weight of the item,
    for userknn and itemknn their own similarity.

    coterie similar-items runs/als-ml-100k-1 50
    """
    run = _titled(folder, items, item_column, title_column)
    _note_unfinished(folder, as_json)
    _show(run.similar_items(item, n), as_json, None, item=item)


def _choose_one(given: dict[str, bool]) -> None:
    """Exactly one of some options must be given."""
    from coterie.errors import ConfigError

    names = [name for name, is_given in given.items() if is_given]
    if len(names) == 1:
        return
    shown = f"{' and '.join(names)} are given" if names else f"none of {', '.join(given)} is given"
    raise ConfigError(f"{shown}; expected one of {', '.join(given)}. Name one.")


def _titled(
    folder: Path, items: Path | None, item_column: str | None, title_column: str | None
) -> Run:
    """The run, with titles from a file if one is named."""
    from coterie.errors import ConfigError
    from coterie.experiments.finished_run import Run

    run = Run.peek(folder)
    if items is not None:
        return run.with_titles(items, item_column, title_column)
    for option, value in (("--item-column", item_column), ("--title-column", title_column)):
        if value is not None:
            raise ConfigError(f"{option} is {value!r} without --items; expected a file. Name one.")
    return run


def _note_unfinished(folder: Path, silent: bool) -> None:
    """Say that a model is one of a checkpoint."""
    if not silent and not (folder / "result.json").exists():
        say(
            f"{folder} is not finished: this is the model of its last checkpoint. "
            f"If it was interrupted, coterie resume {folder} finishes it.",
            err=True,
        )


def _write_all(
    run: Run, out: Path, n: int, exclude_seen: bool, why: bool, quiet: bool, as_json: bool
) -> None:
    from coterie.cli.screen import progress_for

    progress = progress_for(silent=quiet or as_json)
    rows = run.write_recommendations(out, n, exclude_seen, progress, why)
    users = len(run.catalogue.user_ids)
    if as_json:
        say(json.dumps({"file": str(out), "users": users, "rows": rows}))
        return
    say(f"{rows:,} recommendations for {users:,} users: {out}")


def _parse_features(text: str | None) -> dict[str, object]:
    """`age=25,gender=F` as a mapping."""
    from coterie.errors import ConfigError

    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    for name, equals, value in pairs:
        if not (name.strip() and equals and value.strip()):
            raise ConfigError(
                f"--features is {text!r}; expected NAME=VALUE pairs. "
                "Write for example --features age=25,gender=F"
            )
    return {name.strip(): value.strip() for name, _, value in pairs}


def _node_service(store: Path) -> NodeService:
    from coterie.deployment.node_private_store import NodeStore
    from coterie.deployment.node_service import NodeService

    return NodeService(NodeStore.open(store))


def _ids(found: Sequence[Recommendation]) -> list[object]:
    return [one.item for one in found]


def _show(
    found: Sequence[Recommendation],
    as_json: bool,
    reasons: Sequence[Sequence[Reason]] | None,
    **about: str | None,
) -> None:
    """Print recommendations; with reasons, each is followed by its own."""
    from coterie.cli.screen import show_table

    if as_json:
        say(json.dumps(about | {"items": _as_objects(found, reasons)}))
        return
    texts = [one.text for one in found]
    texts += [reason.text for why in reasons or () for reason in why]
    with_texts = any(texts)
    header = ["", "item", *(["text"] if with_texts else []), "score"]
    left = len(header) - 1
    rows: list[list[str]] = []
    for number, one in enumerate(found):
        rows.append(_row(str(number + 1), one.item, one.text, one.score, with_texts))
        if reasons is not None:
            rows[-1].append(_total_share(reasons[number]))
            rows += [_reason_row(reason, with_texts) for reason in reasons[number]]
    show_table(header if reasons is None else [*header, "share"], rows, left=left)


def _as_objects(
    found: Sequence[Recommendation], reasons: Sequence[Sequence[Reason]] | None
) -> list[dict[str, object]]:
    from coterie.experiments.reasons import as_objects

    objects: list[dict[str, object]] = [one._asdict() for one in found]
    if reasons is not None:
        for one, why in zip(objects, reasons, strict=True):
            one["why"] = as_objects(why)
    return objects


def _row(rank: str, item: object, text: str, score: float, with_texts: bool) -> list[str]:
    return [rank, str(item), *([text] if with_texts else []), f"{score:.4f}"]


def _reason_row(reason: Reason, with_texts: bool) -> list[str]:
    """An item of the history below the recommendation: its contribution stands below the score."""
    item = str(reason.item) if with_texts else f"because of {reason.item}"
    text = f"because of {reason.text or reason.item}"
    return [
        *_row("", item, text, reason.contribution, with_texts),
        "" if reason.share is None else f"{reason.share:.0%}",
    ]


def _total_share(reasons: Sequence[Reason]) -> str:
    """The part of a score that the reasons make; empty if it has none."""
    shares = [reason.share for reason in reasons if reason.share is not None]
    return f"{sum(shares):.0%}" if shares else ""
