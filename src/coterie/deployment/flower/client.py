"""What a SuperNode runs: each message opens the node's store, and the store has everything."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from coterie.deployment.node_service import KINDS, NodeService
from coterie.deployment.node_store import NodeStore
from coterie.errors import CoterieError

BODY = "coterie"
BYTES = "bytes"
CALL = "train"
"""Flower's word for any message of ours."""
app = ClientApp()


def body(message: Message) -> bytes:
    """The bytes of a message; of one that has none, nothing."""
    data = message.content.config_records.get(BODY, ConfigRecord()).get(BYTES)
    return data if isinstance(data, bytes) else b""


def answered(message: Message, context: Context) -> Message:
    """What the node's store makes of the bytes. An error travels back as Flower's own, without a word about people; whoever runs the node
    reads it on their screen."""
    store = NodeStore.open(Path(str(context.node_config["store"])))
    try:
        said = NodeService(store).answer(
            message.metadata.message_type.partition(".")[2], body(message)
        )
    except Exception as error:
        store.log(str(error) if isinstance(error, CoterieError) else repr(error))
        raise RuntimeError(
            "no answer"
        ) from None  # Flower sends what it says, and writes it into a log
    finally:
        store.close()
    return Message(RecordDict({BODY: ConfigRecord({BYTES: said})}), reply_to=message)


for kind in KINDS:
    app.train(kind)(answered)
