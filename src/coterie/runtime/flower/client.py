"""What a SuperNode runs: each message opens the node's store, and the store has everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from coterie.runtime.host import Host
from coterie.runtime.store import Store

BODY, BYTES = "coterie", "bytes"
app = ClientApp()


def body(message: Message) -> bytes:
    """The bytes of a message; of one that has none, nothing."""
    data = message.content.config_records.get(BODY, ConfigRecord()).get(BYTES)
    return data if isinstance(data, bytes) else b""


def answered(message: Message, context: Context, work: Callable[[Host, bytes], bytes]) -> Message:
    """What the node's store makes of the bytes; an error travels back as Flower's own, without a word about people."""
    store = Store.open(Path(str(context.node_config["store"])))
    try:
        said = work(Host(store), body(message))
    finally:
        store.close()
    return Message(RecordDict({BODY: ConfigRecord({BYTES: said})}), reply_to=message)


@app.query("enrol")
def enrol(message: Message, context: Context) -> Message:
    return answered(message, context, lambda host, data: host.enrol(data.decode()).encode())


@app.train("begin")
def begin(message: Message, context: Context) -> Message:
    return answered(message, context, lambda host, data: host.begin(*json.loads(data)).encode())


@app.train("ask")
def ask(message: Message, context: Context) -> Message:
    return answered(message, context, lambda host, data: host.ask(data))
