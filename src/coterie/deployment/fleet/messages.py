"""The messages of Flower's Fleet API that nodes send and receive.

Importing Flower takes a node half a second and 60 MB, so that the fields which nodes use are
declared here, with Flower's names, numbers and types. A test compares them with Flower's own.
A message carries one object: the bytes of ours, named by their SHA-256 hash.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from coterie.errors import MissingExtra
from coterie.federated.wire import Malformed

try:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
except ImportError:
    raise MissingExtra("a federation", "node") from None

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtobufMessage

FLOWER = "1.41.0"
"""The version of Flower that these messages and paths belong to."""
PREFIX = "/v1/fleet/"
REGISTER = "register-node"
ACTIVATE = "activate-node"
DEACTIVATE = "deactivate-node"
HEARTBEAT = "send-node-heartbeat"
PULL_MESSAGES = "pull-messages"
PULL_OBJECT = "pull-object"
PUSH_MESSAGES = "push-messages"
PUSH_OBJECT = "push-object"
CALLS = (
    REGISTER,
    ACTIVATE,
    DEACTIVATE,
    HEARTBEAT,
    PULL_MESSAGES,
    PULL_OBJECT,
    PUSH_MESSAGES,
    PUSH_OBJECT,
)
"""All calls of a node. A call is a POST to PREFIX + its name."""
MEDIA_TYPE = "application/protobuf"
PUBLIC_KEY_HEADER = "flwr-public-key"
SIGNATURE_HEADER = "flwr-signature"
TIMESTAMP_HEADER = "flwr-timestamp"

PACKAGE = "flwr.proto"
REPEATED = "repeated "
FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Node": {"node_id": (1, "uint64")},
    "Error": {"code": (1, "sint64"), "reason": (2, "string")},
    "RecordDict": {},
    "Metadata": {
        "run_id": (1, "uint64"),
        "message_id": (2, "string"),
        "src_node_id": (3, "uint64"),
        "dst_node_id": (4, "uint64"),
        "reply_to_message_id": (5, "string"),
        "group_id": (6, "string"),
        "ttl": (7, "double"),
        "message_type": (8, "string"),
        "created_at": (9, "double"),
    },
    "Message": {
        "metadata": (1, "Metadata"),
        "content": (2, "RecordDict"),
        "error": (3, "Error"),
    },
    "ObjectTree": {"object_id": (1, "string"), "children": (2, "repeated ObjectTree")},
    "RegisterNodeFleetRequest": {"public_key": (1, "bytes")},
    "RegisterNodeFleetResponse": {"node_id": (1, "uint64")},
    "ActivateNodeRequest": {"public_key": (1, "bytes"), "heartbeat_interval": (2, "double")},
    "ActivateNodeResponse": {"node_id": (1, "uint64")},
    "DeactivateNodeRequest": {"node_id": (1, "uint64")},
    "DeactivateNodeResponse": {},
    "SendNodeHeartbeatRequest": {"node": (1, "Node"), "heartbeat_interval": (2, "double")},
    "SendNodeHeartbeatResponse": {"success": (1, "bool")},
    "PullMessagesRequest": {"node": (1, "Node")},
    "PullMessagesResponse": {
        "messages_list": (2, "repeated Message"),
        "message_object_trees": (3, "repeated ObjectTree"),
    },
    "PushMessagesRequest": {
        "node": (1, "Node"),
        "messages_list": (2, "repeated Message"),
        "message_object_trees": (3, "repeated ObjectTree"),
    },
    "PushMessagesResponse": {
        "objects_to_push": (3, "repeated string"),
        "session_id": (4, "string"),
    },
    "PullObjectRequest": {"node": (1, "Node"), "run_id": (2, "uint64"), "object_id": (3, "string")},
    "PullObjectResponse": {
        "object_found": (1, "bool"),
        "object_available": (2, "bool"),
        "object_content": (3, "bytes"),
    },
    "PushObjectRequest": {
        "node": (1, "Node"),
        "run_id": (2, "uint64"),
        "object_id": (3, "string"),
        "object_content": (4, "bytes"),
        "session_id": (5, "string"),
    },
    "PushObjectResponse": {"stored": (1, "bool")},
}
"""Message -> field -> its number and type."""


def _message_classes() -> dict[str, Any]:
    """The classes of all messages, in a pool of their own: Flower's may be loaded, too."""
    file = FileDescriptorProto(name="coterie/fleet.proto", package=PACKAGE, syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message.field.add(name=field, number=number), kind)
    pool = DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in FIELDS}
    return {name: GetMessageClass(descriptor) for name, descriptor in found.items()}


def _add_field(field: FieldDescriptorProto, kind: str) -> None:
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    if kind.startswith(REPEATED):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    kind = kind.removeprefix(REPEATED)
    if kind in FIELDS:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


CLASSES = _message_classes()


def make(name: str, **values: object) -> ProtobufMessage:
    """A message with these fields."""
    made: ProtobufMessage = CLASSES[name](**values)
    return made


def parse(name: str, data: bytes) -> Any:
    """Read a message from a peer that may send anything."""
    try:
        return CLASSES[name].FromString(data)
    except DecodeError:
        raise Malformed(f"the reply is not a {name}") from None


OBJECT_HEAD = b"ConfigRecord  %d\x00"
"""What precedes the bytes of an object: a type that Flower knows, no children, the length."""
UNIQUE_BYTES = 32
"""Bytes before a body, so that two objects differ: random ones, or what a reply replies to."""


def as_object(unique: bytes, body: bytes) -> tuple[str, bytes]:
    """The id and the content of the object that carries a body."""
    content = OBJECT_HEAD % (len(unique) + len(body)) + unique + body
    return hashlib.sha256(content).hexdigest(), content


def body_of(content: bytes) -> bytes:
    """The body that an object carries."""
    head, divider, carried = content.partition(b"\x00")
    if head + divider != OBJECT_HEAD % len(carried) or len(carried) < UNIQUE_BYTES:
        raise Malformed("the object of a message has an unknown head or no body")
    return carried[UNIQUE_BYTES:]
