"""The wire format in JavaScript: the bytes of Python, and hostile bytes are refused as there."""

from __future__ import annotations

import base64
from collections import Counter

import numpy as np
import pytest
from javascript import answers, needs_node, packed

from coterie.federated.wire import DTYPES, NAMES, Decoded, Malformed, decode, encode

pytestmark = needs_node


def random_message(rng: np.random.Generator) -> bytes:
    return encode(
        int(rng.integers(0, 2**32)),
        random_arrays(rng),
        random_arrays(rng),
        int(rng.integers(0, 256)),
    )


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = [*NAMES, "a", "my column 2", "z" * 63]
    chosen = rng.choice(names, int(rng.integers(0, 4)), replace=False)
    return {str(name): random_array(rng) for name in chosen}


def random_array(rng: np.random.Generator) -> np.ndarray:
    shape = tuple(rng.integers(0, 5, int(rng.integers(0, 4))).tolist())
    dtype = DTYPES[rng.integers(len(DTYPES))]
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The message with bytes changed, cut off, added or repeated, most of them in the header."""
    changed = bytearray(data)
    kind = rng.integers(5)
    if kind == 0:
        return bytes(changed[: rng.integers(len(data) + 1)])
    if kind == 1:
        return bytes(changed) + rng.bytes(int(rng.integers(1, 17)))
    if kind == 2:
        return rng.bytes(int(rng.integers(0, 60)))
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(min(len(changed), 40)))
        changed[place] = int(rng.choice([0, 1, 2, 63, 64, 127, 128, 255, rng.integers(256)]))
    if kind == 3:
        half = len(changed) // 2
        return bytes(changed[:half] + changed)
    return bytes(changed)


def read_by_python(data: bytes) -> Decoded | None:
    try:
        return decode(data)
    except Malformed:
        return None


def same(data: bytes, read: Decoded, answer: dict) -> None:
    assert (answer["round"], answer["exchange"]) == (read.round, read.exchange)
    for arrays, found in ((read.arrays, answer["own"]), (read.common, answer["common"])):
        assert [each["name"] for each in found] == list(arrays)
        for each in found:
            array = arrays[each["name"]]
            assert (each["dtype"], each["shape"]) == (array.dtype.str, list(array.shape))
            assert base64.b64decode(each["data"]) == array.tobytes()
    again = encode(read.round, read.arrays, read.common, read.exchange)
    assert base64.b64decode(answer["again"]) == again


def compare(n: int, seed: int) -> Counter[str]:
    rng = np.random.default_rng(seed)
    whole = [random_message(rng) for _ in range(n)]
    messages = whole + [damaged(data, rng) for data in whole]
    cases = [{"kind": "wire", "bytes": packed(data)} for data in messages]
    tally: Counter[str] = Counter()
    for data, answer in zip(messages, answers(cases), strict=True):
        read = read_by_python(data)
        tally["refused" if read is None else "read"] += 1
        assert ("malformed" in answer) == (read is None), (data, answer)
        if read is not None:
            same(data, read, answer)
    print(dict(tally))
    return tally


def test_messages_are_those_of_python_and_damaged_ones_are_refused():
    tally = compare(400, seed=0)
    assert tally["refused"] > 250
    assert tally["read"] > 400


@pytest.mark.long
def test_ten_thousand_messages():
    tally = compare(5_000, seed=1)
    assert tally["refused"] + tally["read"] == 10_000


def test_names_and_types_are_those_of_python():
    (found,) = answers([{"kind": "names"}])
    assert tuple(found["names"]) == NAMES
    assert found["dtypes"] == [dtype.str for dtype in DTYPES]


def entry(code: int, dtype: int, *shape: int) -> bytes:
    return bytes([code, dtype, len(shape)]) + np.array(shape, "<u4").tobytes()


def spelled(name: bytes, length: int) -> bytes:
    """The header of one number whose name is spelled out."""
    return bytes([63, 0, 0, length]) + name


HOSTILE = {
    "four billion entries": (entry(0, 0, 2**32 - 1), 64),
    "a product above 2^64": (entry(0, 0, 2**31, 2**31, 2**31), 64),
    "a product of 2^64, which is 0 in 64 bits": (entry(0, 4, 2**31, 2**31, 4), 0),
    "no entries, but longer than the message": (entry(0, 0, 0, 2**32 - 1), 0),
    "2^35 bytes, which are 0 in 32 bits": (entry(0, 1, 2**29, 8), 0),
    "an unknown type": (entry(0, 9, 1), 8),
    "a name that is longer than the message": (spelled(b"a", 255), 8),
    "a name that has a code": (spelled(b"users", 5), 8),
    "a name of two lines": (spelled(b"a\nb", 3), 8),
    "a name that ends with a line": (spelled(b"ab\n", 3), 8),
    "an unknown code": (entry(62, 0, 1), 8),
    "a code that is too large": (entry(128, 0, 1), 8),
    "four dimensions": (entry(0, 0, 1, 1, 1, 1), 8),
    "one byte too many": (entry(0, 0, 1), 9),
}
"""What is wrong: a header, and as many bytes after it as there would be if nothing were."""
SOUND = {"an array": (entry(0, 0, 1), 8), "a name": (spelled(b"usersx", 6), 8)}


def message(header: bytes, n_bytes: int) -> bytes:
    head = b"COT1" + bytes(4) + bytes([0, 1]) + header
    return head + bytes(-len(head) % 8) + bytes(n_bytes)


def test_lengths_are_not_trusted():
    cases = HOSTILE | SOUND
    messages = [message(*case) for case in cases.values()]
    found = answers({"kind": "wire", "bytes": packed(data)} for data in messages)
    for name, data, answer in zip(cases, messages, found, strict=True):
        assert (read_by_python(data) is None) == (name in HOSTILE), name
        assert ("malformed" in answer) == (name in HOSTILE), name
