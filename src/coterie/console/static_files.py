"""The files of the console's pages, plotly's script among them."""

from __future__ import annotations

import json
import re
from importlib import resources, util

from coterie.core.page_files import MEDIA_TYPES, PageFile, page_files
from coterie.errors import MissingExtra

PLOTLY = "plotly.js"
STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


def static_files() -> dict[str, PageFile]:
    """Name -> file: the console's own, and plotly's script of the installed package."""
    root = resources.files("coterie.console").joinpath("static")
    return dict(page_files(root)) | {PLOTLY: _plotly()}


def _plotly() -> PageFile:
    if util.find_spec("plotly") is None:
        raise MissingExtra("coterie console", "web,report")
    script = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return PageFile(_without_inline_styles(script) + script, MEDIA_TYPES[".js"])


def _without_inline_styles(script: bytes) -> bytes:
    """A statement that keeps plotly from adding the inline styles of its maps.

    The content policy forbids them. Plotly leaves them out where an element has their id already.
    """
    ids = sorted({found.decode() for found in STYLE_ID.findall(script)})
    return (
        f"for (const id of {json.dumps(ids)}) "
        'document.head.append(Object.assign(document.createElement("meta"), { id }));\n'
    ).encode()
