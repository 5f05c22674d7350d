"""The HTTP API: its paths, their parameters and replies. `GET /openapi.json` describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from coterie.errors import Diverged, MissingExtra, UserError
from coterie.serving.gate import as_error
from coterie.serving.model import ServedModel, UnknownId, shown
from coterie.serving.watcher import ModelWatcher
from coterie.types import Ints
from coterie.version import __version__

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
except ImportError:
    raise MissingExtra("coterie api", "web") from None

MOST_ITEMS = 1_000
"""Largest n."""
MOST_USERS = 1_000
"""Users of a batch."""
MOST_HISTORIES = 100
"""Histories of a batch: each is fitted on its own."""
MOST_LISTED = 100_000
"""Items in all lists of a batch."""
MOST_HISTORY = 10_000
LONGEST_ID = 512

ExternalId = (
    Annotated[StrictStr, Field(max_length=LONGEST_ID)]
    | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
)
ItemCount = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Number of items.")]
ExcludeSeen = Annotated[
    bool, Field(description="Leave out items that the user has already interacted with.")
]
History = Annotated[
    list[ExternalId], Field(max_length=MOST_HISTORY, description="The items of a new user.")
]


class Closed(BaseModel):
    """Parameters of a request; a misspelt one is an error."""

    model_config = ConfigDict(extra="forbid")


class UserRequest(Closed):
    user: Annotated[str, Field(max_length=LONGEST_ID, description="User id, as in the data.")]
    n: ItemCount = 10
    exclude_seen: ExcludeSeen = True


class SimilarRequest(Closed):
    item: Annotated[str, Field(max_length=LONGEST_ID, description="Item id, as in the data.")]
    n: ItemCount = 10


class HistoryRequest(Closed):
    history: History
    n: ItemCount = 10
    exclude_seen: ExcludeSeen = True
    features: Annotated[
        dict[str, str | int | float],
        Field(max_length=100, description="Features of the user, for two-tower models."),
    ] = {}


class BatchRequest(Closed):
    users: Annotated[list[ExternalId], Field(max_length=MOST_USERS)] = []
    histories: Annotated[list[History], Field(max_length=MOST_HISTORIES)] = []
    n: ItemCount = 10
    exclude_seen: ExcludeSeen = True

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        lists = len(self.users) + len(self.histories)
        if not lists:
            raise ValueError("users and histories are empty; expected one of either. Add some")
        if lists * self.n > MOST_LISTED:
            raise ValueError(
                f"{lists:,} lists of n={self.n} items are {lists * self.n:,}; expected at most "
                f"{MOST_LISTED:,}. Send smaller batches"
            )
        return self


class ScoredItem(BaseModel):
    item: str | int
    text: str
    score: float


class ItemList(BaseModel):
    items: list[ScoredItem]
    version: str


class UserList(ItemList):
    user: str


class SimilarList(ItemList):
    item: str


class BatchLists(BaseModel):
    users: list[list[ScoredItem]]
    histories: list[list[ScoredItem]]
    version: str


class Failure(BaseModel):
    error: str


class LoadError(BaseModel):
    error: str
    at: str


class Health(BaseModel):
    status: Annotated[str, Field(description="ok; outdated: a newer model could not be loaded.")]
    version: str
    failed_load: LoadError | None


class ModelAbout(BaseModel):
    version: str
    algorithm: str
    dataset: str | None
    source: str
    trained_at: str | None
    loaded_at: str
    users: int
    items: int
    serves_new_users: bool


FAILURES: dict[int | str, dict[str, object]] = {
    status: {"model": Failure, "description": text}
    for status, text in {
        401: "The token is missing or wrong.",
        404: "A user or item is unknown.",
        413: "The body is too large.",
        422: "A parameter is invalid, or the model cannot do this.",
    }.items()
}


def make_app(watcher: ModelWatcher) -> FastAPI:
    """The API over the model of a watcher.

    Replies are written as text: the models of replies are for the description only.
    """
    # The usual page of documentation would load scripts of another site beside users' data.
    app = FastAPI(
        title="Coterie",
        summary="Recommendations of one trained model.",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses=FAILURES,
    )

    @app.get("/recommendations", response_model=UserList, openapi_extra=parameters(UserRequest))
    async def recommend_to_a_user(request: Request) -> Response:
        """The best items for a user of the data."""
        asked = UserRequest.model_validate(request.query_params)
        model = watcher.current
        user = int(model.users([asked.user])[0])
        if model.quick:
            items = model.for_user(user, asked.n, asked.exclude_seen)
        else:
            items = await run_in_threadpool(model.for_user, user, asked.n, asked.exclude_seen)
        return listed(model, items, f'"user": {json.dumps(asked.user)}, ')

    @app.post("/recommendations", response_model=ItemList)
    async def recommend_to_a_new_user(asked: HistoryRequest) -> Response:
        """The best items for a user who was not in training, from a history."""
        model = watcher.current
        history = model.history(asked.history)
        items = await run_in_threadpool(
            model.for_history, history, asked.n, asked.exclude_seen, asked.features
        )
        return listed(model, items)

    @app.post("/recommendations/batch", response_model=BatchLists)
    async def recommend_to_many(asked: BatchRequest) -> Response:
        """The best items for many users of the data, and for many new users."""
        return await run_in_threadpool(batch, watcher.current, asked)

    @app.get("/similar-items", response_model=SimilarList, openapi_extra=parameters(SimilarRequest))
    async def similar_items(request: Request) -> Response:
        """The items most similar to an item."""
        asked = SimilarRequest.model_validate(request.query_params)
        model = watcher.current
        item = int(model.items([asked.item])[0])
        items = await run_in_threadpool(model.similar, item, asked.n)
        return listed(model, items, f'"item": {json.dumps(asked.item)}, ')

    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether the newest model is loaded. A failed load keeps the old one in service."""
        return as_json(json.dumps(watcher.health()))

    @app.get("/model", response_model=ModelAbout)
    async def about_the_model() -> Response:
        """Version, algorithm and size of the model."""
        return as_json(json.dumps(watcher.current.about()))

    add_error_replies(app)
    return app


def parameters(query: type[Closed]) -> dict[str, object]:
    """The description of a query.

    FastAPI would parse it as well, but takes longer for that than a recommendation.
    """
    schema = query.model_json_schema()
    return {
        "parameters": [
            {"name": name, "in": "query", "required": name in schema["required"], "schema": about}
            for name, about in schema["properties"].items()
        ]
    }


def batch(model: ServedModel, asked: BatchRequest) -> Response:
    users = model.users(asked.users)
    histories: list[Ints] = [model.history(history) for history in asked.histories]
    lists = model.for_users(users, asked.n, asked.exclude_seen)
    fitted = [model.for_history(history, asked.n, asked.exclude_seen) for history in histories]
    return as_json(
        f'{{"users": [{", ".join(lists)}], "histories": [{", ".join(fitted)}], '
        f'"version": "{model.version}"}}'
    )


def listed(model: ServedModel, items: str, about: str = "") -> Response:
    return as_json(f'{{{about}"items": {items}, "version": "{model.version}"}}')


def as_json(text: str) -> Response:
    return Response(text, media_type="application/json")


def add_error_replies(app: FastAPI) -> None:
    """Every failure is a JSON object with one text."""

    @app.exception_handler(UnknownId)
    async def unknown(request: Request, error: UnknownId) -> Response:
        return failure(404, str(error))

    @app.exception_handler(UserError)
    async def refused(request: Request, error: UserError) -> Response:
        return failure(422, str(error))

    @app.exception_handler(Diverged)
    async def diverged(request: Request, error: Diverged) -> Response:
        return failure(500, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # The first part of a place is the part of the request.
        first = error.errors()[0]
        return failure(422, in_words(first, first["loc"][1:]))

    @app.exception_handler(ValidationError)
    async def invalid_query(request: Request, error: ValidationError) -> Response:
        first = error.errors()[0]
        return failure(422, in_words(first, first["loc"]))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:
            return failure(422, "the body cannot be parsed; expected JSON. Check the body.")
        known = ", ".join(f"{method} {path}" for path, method in paths(app))
        place = f"{request.method} {shown(request.url.path)}"
        return failure(
            error.status_code, f"{place}: {error.detail}; expected one of {known}. Check the path."
        )


def paths(app: FastAPI) -> list[tuple[str, str]]:
    return [
        (path, method.upper())
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    ]


def failure(status: int, error: str) -> Response:
    return Response(as_error(error), status, media_type="application/json")


def in_words(first: Mapping[str, Any], loc: Sequence[object]) -> str:
    """A problem of a request: the parameter, its value if it is short, and the rule."""
    if first["type"] == "json_invalid":
        return "the body is not valid JSON; expected an object. Check the body."
    # Of a union, pydantic names the member that did not match as well.
    place = [str(part) for part in loc if not str(part).startswith("constrained-")]
    name = ".".join(place) or "the body"
    rule = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{rule}."
    if first["type"] == "missing":
        return f"{name} is missing; expected a value. Add it."
    if first["type"] == "extra_forbidden":
        return f"{name[:80]} is not a parameter. See GET /openapi.json for those that are."
    return f"{name} is {shown(first['input'])}: {rule[:1].lower()}{rule[1:]}. Change it."
