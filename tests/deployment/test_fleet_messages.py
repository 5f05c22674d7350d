"""The messages that nodes send are Flower's, field by field."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

import pytest

pytest.importorskip("flwr")
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, node_pb2, recorddict_pb2
from flwr.proto.error_pb2 import DESCRIPTOR as ERRORS
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.inflatable.inflatable_utils import validate_object_content
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from coterie.deployment.fleet import messages
from coterie.federated.wire import Malformed

FILES = (
    fleet_pb2.DESCRIPTOR,
    heartbeat_pb2.DESCRIPTOR,
    message_pb2.DESCRIPTOR,
    node_pb2.DESCRIPTOR,
    recorddict_pb2.DESCRIPTOR,
    ERRORS,
)


def flowers(name: str) -> Descriptor:
    return next(
        file.message_types_by_name[name] for file in FILES if name in file.message_types_by_name
    )


def test_the_version_is_the_pinned_one():
    """With another version: compare messages, handlers and paths, then change FLOWER."""
    assert version("flwr") == messages.FLOWER


@pytest.mark.parametrize("name", messages.FIELDS)
def test_fields_are_flowers(name: str):
    known = flowers(name).fields_by_name
    for field in messages.CLASSES[name].DESCRIPTOR.fields:
        theirs = known[field.name]
        assert (field.number, field.type) == (theirs.number, theirs.type)
        assert field.is_repeated == theirs.is_repeated
        if field.message_type is not None:
            assert field.message_type.full_name == theirs.message_type.full_name


def test_paths_and_headers_are_flowers():
    assert {("POST", messages.PREFIX + call) for call in messages.CALLS} <= set(
        PROTOBUF_REQUEST_TYPES
    )
    assert messages.MEDIA_TYPE == PROTOBUF_MEDIA_TYPE
    assert messages.PUBLIC_KEY_HEADER == FLEET_HTTP_PUBLIC_KEY_HEADER
    assert messages.SIGNATURE_HEADER == FLEET_HTTP_SIGNATURE_HEADER
    assert messages.TIMESTAMP_HEADER == TIMESTAMP_HEADER


@given(st.binary(max_size=200))
def test_flower_accepts_our_objects(body: bytes):
    object_id, content = messages.as_object(b"u" * messages.UNIQUE_BYTES, body)
    validate_object_content(content)
    assert object_id == hashlib.sha256(content).hexdigest()
    assert messages.body_of(content) == body


@given(st.binary(max_size=80))
def test_other_objects_are_malformed(content: bytes):
    with pytest.raises(Malformed):
        messages.body_of(content)


def test_a_reply_that_is_no_message():
    with pytest.raises(Malformed, match="the reply is not a PullMessagesResponse"):
        messages.parse("PullMessagesResponse", b"\xff\xff\xff")
