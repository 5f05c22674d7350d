"""Replies of all pages."""

from __future__ import annotations

import json

from starlette.responses import Response


def as_reply(value: object) -> Response:
    """A reply in ASCII: a lone surrogate of a file name stays an escape."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")
