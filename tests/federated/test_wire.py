"""The wire format: messages round-trip, sizes are exact, and no bytes can do harm."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_federation import ON_KERNELS, histories, world_for

from coterie.algorithms import registry
from coterie.federated.federation import Exchange, Federation, NodeData
from coterie.federated.nodes import client_columns, read_reply
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.validation import Expected, validate
from coterie.federated.wire import (
    COMMON,
    DTYPES,
    ENTRY,
    HEAD,
    MAGIC,
    NAME,
    NAMES,
    SPELLED_OUT,
    Malformed,
    decode,
    encode,
    message_size,
    reply_sizes,
)
from coterie.types import Message, Updates

shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
some_arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, shapes))
own_names = st.from_regex(NAME, fullmatch=True)
"""Array names of a plug-in: they are spelled out."""
named = st.dictionaries(st.sampled_from(NAMES) | own_names, some_arrays)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Names, types, shapes and bytes, NaN included."""
    return one.keys() == other.keys() and all(
        (a.dtype, a.shape, a.tobytes())
        == (other[name].dtype, other[name].shape, other[name].tobytes())
        for name, a in one.items()
    )


# Round trip.


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32 - 1), named, named)
def test_messages_round_trip(t, own, common):
    back_t, back_own, back_common, exchange = decode(encode(t, own, common, 3))
    assert exchange == 3
    assert back_t == t
    assert same(back_own, own)
    assert same(back_common, common)


def test_the_bytes_of_a_message_by_hand():
    """Magic, round, exchange, count; name 0, type <i4, one dimension of 2; padding; two numbers."""
    found = encode(7, {"users": np.array([1, -2], np.int32)}, exchange=5)
    head = b"COT1" + b"\x07\0\0\0" + b"\x05" + b"\x01" + b"\x00\x00\x01" + b"\x02\0\0\0"
    assert found == head + bytes(7) + b"\x01\0\0\0" + b"\xfe\xff\xff\xff"


def test_arrays_that_are_not_contiguous_are_packed():
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (grid.T, grid[::2], grid[:, 1:3]):
        np.testing.assert_array_equal(decode(encode(0, {"items": view}))[1]["items"], view)


def test_decoded_arrays_are_read_only():
    read = decode(encode(0, {"users": np.arange(3, dtype=np.int32)}))[1]["users"]
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1


def test_codes_of_names_and_types_never_change():
    """Old nodes must remain compatible: both lists may only grow at the end."""
    assert NAMES[:7] == ("users", "samples", "offsets", "items", "item_rows", "user_rows", "dense")
    assert [d.str for d in DTYPES[:6]] == ["<i4", "<i8", "<f4", "<f8", "|u1", "<u8"]
    assert len(NAMES) <= SPELLED_OUT


# Sizes.


def exchanges() -> list[tuple[str, Exchange]]:
    found = []
    for name in ON_KERNELS:
        federation = registry.algorithm(name).train
        assert isinstance(federation, Federation)
        found += [
            (name, e)
            for e in (*federation.exchanges, federation.setup(world_for(name, histories(0))))
            if isinstance(e, Exchange)
        ]
    return found


@pytest.mark.parametrize(
    ("name", "exchange"), exchanges(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_sizes_equal_the_encoded_bytes(name, exchange):
    """For every user of a real cohort, alone on its node, in both directions."""
    training = histories(1)
    world = world_for(name, training)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    cohort = np.array([0, 3, 4, 11], np.int32)
    node = NodeData(np.arange(12, dtype=np.int32), training)
    private_state = {
        key: rows[cohort] for key, rows in federation.init_clients(world, node).items()
    }
    message = replace(
        exchange.broadcast(world, federation.init(world), cohort, 2), private_state=private_state
    )
    updates = Updates(**client_columns(world, exchange, message, node, SessionSlot())[0])
    assert len(updates) >= 3  # the last user has all items, and may send no update
    up = [len(encode(2, updates.take(np.array([k])).columns())) for k in range(len(updates))]
    assert reply_sizes(updates).tolist() == up
    for k in range(4):
        one = message.to(np.array([k]))
        assert (
            message_size(message)
            == message_size(one)
            == len(encode(2, {"users": one.users, **one.own}, one.common))
        )


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 6),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 2**32 - 1),
)
def test_sizes_of_any_widths_equal_the_encoded_bytes(n, item_width, user_width, dense, seed):
    counts = np.random.default_rng(seed).integers(0, 5, n)
    rows = int(counts.sum())
    updates = Updates(
        np.arange(n, dtype=np.int32),
        np.ones(n, np.int64),
        np.cumsum([0, *counts]).astype(np.int64),
        np.zeros(rows, np.int32),
        np.ones((rows, item_width), np.int32),
        np.ones((n, user_width), np.int32),
        np.ones((n, dense), np.int32),
    )
    assert reply_sizes(updates).tolist() == [
        len(encode(0, updates.take(np.array([k])).columns())) for k in range(n)
    ]


# Hostile bytes.


def is_message(data: bytes) -> bool:
    """Whether the bytes are a message.

    Any exception but Malformed, or arrays outside the bytes, fail the test.
    """
    try:
        t, own, common, _ = decode(data)
    except Malformed:
        return False
    assert 0 <= t < 2**32
    found = [*own.values(), *common.values()]
    assert sum(a.nbytes for a in found) <= len(data)
    whole = np.frombuffer(data, np.uint8)
    assert all(not a.flags.owndata and (a.size == 0 or np.shares_memory(a, whole)) for a in found)
    return True


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: MAGIC + tail))
def test_random_bytes_are_rejected(data):
    is_message(data)


sides = st.sampled_from([0, 1, 2, 3, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1])
headers = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 8), st.lists(sides, max_size=5)).map(
        lambda e: ENTRY.pack(e[0], e[1], len(e[2])) + struct.pack(f"<{len(e[2])}I", *e[2])
    ),
    max_size=4,
)
known_headers = st.lists(
    st.tuples(
        st.sampled_from([*range(7), *range(64, 71)]), st.integers(0, 5), st.lists(sides, max_size=3)
    ).map(lambda e: ENTRY.pack(e[0], e[1], len(e[2])) + struct.pack(f"<{len(e[2])}I", *e[2])),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=200)
@given(headers | known_headers, st.integers(-1, 1), st.binary(max_size=40))
@example([ENTRY.pack(0, 1, 3) + struct.pack("<3I", 0, 2**32 - 1, 2**32 - 1)], 0, b"")
@example([ENTRY.pack(0, 0, 3) + struct.pack("<3I", 2**32 - 1, 2**32 - 1, 0)], 0, b"")
@example([ENTRY.pack(0, 1, 3) + struct.pack("<3I", 2**31, 2**31, 2**31)], 0, b"")
@example([ENTRY.pack(0, 1, 2) + struct.pack("<2I", 2**32 - 1, 2**32 - 1)], 0, b"")
def test_false_headers_are_rejected(entries, more, body):
    """Shapes whose product overflows or is zero, unknown names and types, too many dimensions."""
    is_message(HEAD.pack(MAGIC, 3, 0, max(len(entries) + more, 0)) + b"".join(entries) + body)


def real_message() -> bytes:
    training = histories(1)
    world = world_for("fedavg", training)
    federation = registry.algorithm("fedavg").train
    assert isinstance(federation, Federation)
    message = federation.exchanges[0].broadcast(
        world, federation.init(world), np.array([0, 3, 4], np.int32), 2
    )
    return encode(2, {"users": message.users, **message.own}, message.common)


def test_truncated_messages_are_rejected():
    data = real_message()
    assert is_message(data)
    assert not any(is_message(data[:length]) for length in range(len(data)))
    assert not is_message(data + b"\0")


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_messages_with_flipped_bits_do_no_harm(data):
    sent = bytearray(SENT)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 80) | st.integers(0, len(sent) - 1))
        sent[place] ^= 1 << data.draw(st.integers(0, 7))
    is_message(bytes(sent))


SENT = real_message()


def test_duplicate_names_are_rejected():
    entry = ENTRY.pack(0, 0, 1) + struct.pack("<I", 1)
    values = bytes(8 + 8)  # the header is 24 bytes long, and arrays begin at multiples of eight
    assert not is_message(HEAD.pack(MAGIC, 0, 0, 2) + entry * 2 + values)
    assert is_message(
        HEAD.pack(MAGIC, 0, 0, 2) + entry + ENTRY.pack(COMMON, 0, 1) + struct.pack("<I", 1) + values
    )


def test_decoding_allocates_almost_no_memory():
    """Neither for a message that claims to be huge nor for one that is large."""
    huge = HEAD.pack(MAGIC, 0, 0, 1) + ENTRY.pack(0, 1, 3) + struct.pack("<3I", 2**20, 2**10, 2**3)
    large = encode(0, {"users": np.zeros(4_000_000, np.int32)})
    tracemalloc.start()
    try:
        assert not is_message(huge)
        decode(large)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


# Hostile bytes on the server.


def expected() -> tuple[Message, Expected, Updates]:
    training = histories(1)
    world = world_for("fedavg", training)
    federation = registry.algorithm("fedavg").train
    assert isinstance(federation, Federation)
    cohort = np.array([0, 3, 4], np.int32)
    state = federation.init(world)
    message = federation.exchanges[0].broadcast(world, state, cohort, 2)
    honest = federation.exchanges[0].client_update(
        world, message, NodeData(np.arange(12, dtype=np.int32), training)
    )
    return message, Expected.of(message, federation.exchanges[0].sizes(world, state)), honest


MESSAGE, EXPECTED, HONEST = expected()
REPLY = encode(2, HONEST.columns())


def test_an_honest_reply_is_accepted():
    updates, refused, _ = validate([read_reply(MESSAGE, REPLY)], EXPECTED)
    assert not refused
    assert same(updates.columns(), HONEST.columns())


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_corrupted_replies_do_not_harm_the_server(data):
    """Validation always ends. Accepted updates are in range and from the cohort, one per user."""
    sent = bytearray(REPLY)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 90) | st.integers(0, len(sent) - 1))
        sent[place] ^= 1 << data.draw(st.integers(0, 7))
    check_server(bytes(sent[: data.draw(st.just(len(sent)) | st.integers(0, len(sent)))]))


def check_server(data: bytes) -> None:
    updates = validate([read_reply(MESSAGE, data)], EXPECTED).updates
    assert set(updates.users.tolist()) <= {0, 3, 4}
    assert len(set(updates.users.tolist())) == len(updates)
    assert ((updates.items >= 0) & (updates.items < 15)).all()
    for block in (updates.item_rows, updates.user_rows, updates.dense):
        assert (np.abs(block.astype(np.int64)) < 8 << 20).all()


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(NAMES), some_arrays)
def test_replaced_arrays_do_not_harm_the_server(name, array):
    check_server(encode(2, HONEST.columns() | {name: array}))


@pytest.mark.parametrize("name", HONEST.columns())
def test_a_scalar_in_place_of_an_array_is_refused(name):
    """The format allows zero dimensions."""
    scalar = np.array(3, HONEST.columns()[name].dtype)
    data = encode(2, HONEST.columns() | {name: scalar})
    updates, refused, _ = validate([read_reply(MESSAGE, data)], EXPECTED)
    assert (len(updates), dict(refused)) == (0, {"wrong shape": 3})


# Kernels read at offsets: false ones are tried in a separate process, since a mistake would crash.

AROUND = (
    [2**63 - 1, -(2**63)],
    [2**63 - 1, -2],
    [2**63 - 1, -(2**61)],
    [2**62, -(2**62)],
    [1, -1],
    [2**40, 2**41],
)
"""With some of these every difference is positive in 64-bit arithmetic, which wraps around."""


def try_offsets() -> None:
    rng = np.random.default_rng(0)
    tries = [list(pair) for pair in AROUND]
    tries += [rng.integers(-(2**63), 2**63 - 1, 2, endpoint=True).tolist() for _ in range(300)]
    tries += [[int(rng.integers(2**62, 2**63)), int(rng.integers(-60, 60))] for _ in range(300)]
    for middle in tries:
        offsets = np.array([0, *middle, len(HONEST.items)], np.int64)
        updates, refused, _ = validate(
            [read_reply(MESSAGE, encode(2, replace(HONEST, offsets=offsets).columns()))], EXPECTED
        )
        if (len(updates), dict(refused)) != (0, {"wrong shape": 3}):
            sys.exit(
                f"{offsets.tolist()}: {updates.users.tolist()} accepted, refused {dict(refused)}"
            )


def test_false_offsets_are_refused_before_anything_reads_at_them():
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", "import test_wire; test_wire.try_offsets()"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_name_of_a_plug_in_is_spelled_out() -> None:
    data = encode(1, {"users": np.zeros(1, np.int32)}, {"my_rows": np.ones((2, 2), np.float32)})
    assert b"\x07my_rows" in data
    assert decode(data).common["my_rows"].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("name", ["", "Rows", "a" * 64, "rows!", "\u00e4", "_rows"])
def test_an_invalid_name_is_reported_with_the_rule(name: str) -> None:
    with pytest.raises(Malformed, match="expected lower-case letters"):
        encode(0, {name: np.zeros(1, np.int32)})


def test_an_unsupported_dtype_is_reported_with_the_supported_ones() -> None:
    with pytest.raises(Malformed, match="'rows' has dtype <c16; expected one of <i4"):
        encode(0, {"rows": np.zeros(1, np.complex128)})


@pytest.mark.parametrize("spelled", [b"\x05users", b"\x04Rows", b"\x00", b"\xffab", b""])
def test_an_invalid_spelled_out_name_is_rejected(spelled: bytes) -> None:
    head = HEAD.pack(MAGIC, 0, 0, 1) + ENTRY.pack(SPELLED_OUT, 0, 1) + spelled
    with pytest.raises(Malformed):
        decode(head + struct.pack("<I", 0))
