"""The app that a SuperNode runs: each message opens the node's store, which holds all state."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import KINDS, NodeService
from coterie.errors import CoterieError

BODY = "coterie"
BYTES = "bytes"
CALL = "train"
"""Flower's type of all our messages; the kind is its action."""
app = ClientApp()


def body(message: Message) -> bytes:
    """The bytes of a message; empty if it has none."""
    data = message.content.config_records.get(BODY, ConfigRecord()).get(BYTES)
    return data if isinstance(data, bytes) else b""


def handle(message: Message, context: Context) -> Message:
    """Reply to a message from the node's store.

    The server learns only that an error occurred. Its text, which may name users, goes to the
    node's log.
    """
    store = NodeStore.open(Path(str(context.node_config["store"])))
    kind = message.metadata.message_type.partition(".")[2]
    try:
        reply = NodeService(store).answer(kind, body(message))
    except Exception as error:
        store.log(str(error) if isinstance(error, CoterieError) else repr(error))
        # Flower sends the text of this error to the server and writes it to its own log.
        raise RuntimeError("no answer") from None
    finally:
        store.close()
    return Message(RecordDict({BODY: ConfigRecord({BYTES: reply})}), reply_to=message)


for kind in KINDS:
    app.train(kind)(handle)
