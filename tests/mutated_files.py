"""Files that somebody else damaged or forged: truncations, bit flips, lies and bombs, by seed."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]
HUGE = 2**40
BOMB_BYTES = 24 * 2**20
"""What a bomb unpacks to: three times the limit of the tests."""
DEEP = 100_000


# Any bytes


def cut(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(len(content)))]


def flip(content: bytes, rng: Rng) -> bytes:
    made = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        made[int(rng.integers(len(made)))] ^= 1 << int(rng.integers(8))
    return bytes(made)


def overwrite(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(len(content)))
    block = rng.bytes(int(rng.integers(1, 65)))
    return content[:start] + block + content[start + len(block) :]


def insert(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + rng.bytes(int(rng.integers(1, 65))) + content[start:]


def other(content: bytes, rng: Rng) -> bytes:
    return rng.bytes(int(rng.integers(0, 300)))


ANY: tuple[Mutation, ...] = (cut, flip, overwrite, insert, other)


# Archives of arrays


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method, compresslevel=1)
    return out.getvalue()


HEADERS = (
    (rb"'shape': \([^)]*\)", f"'shape': ({HUGE}, {HUGE})"),
    (rb"'shape': \([^)]*\)", f"'shape': (0, {HUGE}, {HUGE})"),
    (rb"'shape': \([^)]*\)", "'shape': (-1, 5)"),
    (rb"'shape': \([^)]*\)", "'shape': (1.5,)"),
    (rb"'shape': \([^)]*\)", "'shape': (True,)"),
    (rb"'shape': \([^)]*\)", f"'shape': {'(' * 200}"),
    (rb"'shape': \([^)]*\)", "'shape': ()"),
    (rb"'descr': '[^']*'", "'descr': '|O'"),
    (rb"'descr': '[^']*'", "'descr': '|V8'"),
    (rb"'descr': '[^']*'", "'descr': '>f4'"),
    (rb"'descr': '[^']*'", "'descr': '<U500000000'"),
    (rb"'descr': '[^']*'", "'descr': '<M8[s]'"),
    (rb"'descr': '[^']*'", "'descr': '|b1'"),
    (rb"'descr': '[^']*'", "'descr': [('a', '<f4')]"),
    (rb"'descr': '[^']*'", "'descr': 'nonsense'"),
    (rb"'fortran_order': False", "'fortran_order': True"),
    (rb"'fortran_order': False", "'fortran_order': 7"),
    (rb"'fortran_order'", "'other_order'"),
    (rb"\{", "__import__('os').abort() or {"),
)


def edit_header(content: bytes, rng: Rng) -> bytes:
    members = members_of(content)
    name = list(members)[int(rng.integers(len(members)))]
    pattern, text = HEADERS[int(rng.integers(len(HEADERS)))]
    length = struct.unpack("<H", members[name][8:10])[0]
    header = re.sub(pattern, lambda _: text.encode(), members[name][10 : 10 + length])
    start = members[name][:8] + struct.pack("<H", len(header))
    members[name] = start + header + members[name][10 + length :]
    return zipped(list(members.items()))


def other_version(content: bytes, rng: Rng) -> bytes:
    members = members_of(content)
    name = list(members)[int(rng.integers(len(members)))]
    made = bytearray(members[name])
    made[6] = int(rng.integers(256))
    members[name] = bytes(made)
    return zipped(list(members.items()) + [("x.npy", b"")] * int(rng.integers(2)))


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def other_array(content: bytes, rng: Rng) -> bytes:
    """A valid array of another shape, type or range in place of one."""
    members = members_of(content)
    name = list(members)[int(rng.integers(len(members)))]
    array = np.lib.format.read_array(io.BytesIO(members[name]))
    with np.errstate(all="ignore"):
        made = [
            lambda: array[:-1] if array.ndim else array,
            lambda: np.stack([array, array]),
            lambda: array.reshape(-1),
            lambda: array.astype(np.float64),
            lambda: array.astype(np.int8),
            lambda: array.astype("U4"),
            lambda: array + np.ones((), array.dtype),
            lambda: -array.astype(np.int64),
            lambda: np.zeros(0, array.dtype),
            lambda: np.full_like(array, 2**31 - 1 if array.dtype.itemsize >= 4 else 1),
        ]
        members[name] = npy(np.asarray(made[int(rng.integers(len(made)))]()))
    return zipped(list(members.items()))


BOMBS: dict[str, bytes] = {}
"""Packed once, since packing takes most of the time."""


def array_bomb(content: bytes, rng: Rng) -> bytes:
    """An array of zeros, which takes a thousandth of its size in the file."""
    name = next(iter(members_of(content)))
    if name not in BOMBS:
        zeros = npy(np.zeros(BOMB_BYTES, np.uint8))
        BOMBS[name] = zipped([(name, zeros)], zipfile.ZIP_DEFLATED)
    return BOMBS[name]


def twice(content: bytes, rng: Rng) -> bytes:
    members = list(members_of(content).items())
    # Python warns when it writes a name twice; the archive is joined by hand instead.
    first = members[0][0].encode()
    again = zipped([*members, ("z" * len(first), members[0][1])])
    return again.replace(b"z" * len(first), first)


def outside(content: bytes, rng: Rng) -> bytes:
    members = list(members_of(content).items())
    prefix = ("/", "../", "C:\\", "a/../../", "\\\\host\\")[int(rng.integers(5))]
    return zipped([(prefix + name, data) for name, data in members])


def wrong_size(content: bytes, rng: Rng) -> bytes:
    """Another size or offset in the directory."""
    made = bytearray(content)
    central = content.rindex(b"PK\x01\x02")
    field = int(rng.choice([20, 24, 42, 28, 30, 32, 10, 8, 6]))
    value = int(rng.choice([0, 1, 255, 2**16, 2**31 - 1, 2**32 - 1]))
    width = 4 if field in (20, 24, 42) else 2
    made[central + field : central + field + width] = (value % 2 ** (8 * width)).to_bytes(
        width, "little"
    )
    return bytes(made)


def without(content: bytes, rng: Rng) -> bytes:
    members = list(members_of(content).items())
    members.pop(int(rng.integers(len(members))))
    return zipped(members)


def many(content: bytes, rng: Rng) -> bytes:
    """A directory of 5,000 members with long names, which has more than 1 MiB."""
    if "many" not in BOMBS:
        BOMBS["many"] = zipped([(f"{k:0200}.npy", b"") for k in range(5_000)])
    return BOMBS["many"]


OF_ARCHIVES: tuple[Mutation, ...] = (twice, outside, wrong_size, without, many)
NPZ: tuple[Mutation, ...] = (
    *ANY,
    *OF_ARCHIVES,
    edit_header,
    edit_header,
    edit_header,
    other_version,
    other_array,
    other_array,
    array_bomb,
)


# Texts


def deep_list(content: bytes, rng: Rng) -> bytes:
    return b"[" * DEEP


def deep_object(content: bytes, rng: Rng) -> bytes:
    return b'{"a":' * DEEP


def other_value(content: bytes, rng: Rng) -> bytes:
    """A value of another type in place of one; JSON lines keep all but the first line."""
    values = (None, 3, -1, 1e308, "\x1b[2J", [], {}, [[1]], True, 10**30)
    made = json.loads(content)
    if not isinstance(made, dict):
        return b"[7]"
    key = list(made)[int(rng.integers(len(made)))]
    made[key] = values[int(rng.integers(len(values)))]
    return json.dumps(made).encode()


def not_a_number(content: bytes, rng: Rng) -> bytes:
    return re.sub(rb"\d+", rng.choice([b"NaN", b"1e999", b"9" * 5000]), content, count=1)


def too_long(content: bytes, rng: Rng) -> bytes:
    return content + b" " * (2 * 2**20)


JSON: tuple[Mutation, ...] = (*ANY, deep_list, deep_object, other_value, other_value, not_a_number)


def alias_bomb(content: bytes, rng: Rng) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 12)]
    return content + "\n".join(lines).encode()


def merge_bomb(content: bytes, rng: Rng) -> bytes:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}" for k in range(1, 12)]
    return content + "\n".join(lines).encode()


ODD_VALUES = (
    "!!python/object/apply:os.abort []",
    "!!bool x",
    "!!int x",
    "!!float x",
    "!!timestamp x",
    "!!binary \xe9",
    "2001-99-99",
    "0x",
    "9" * 5000,
    "? [a]",
    "\x1b[2J",
    "{a: b}",
    "[" * 30 + "]" * 30,
    "!!set {a, b}",
    "1e999",
)


def odd_value(content: bytes, rng: Rng) -> bytes:
    value = ODD_VALUES[int(rng.integers(len(ODD_VALUES)))]
    lines = content.decode().splitlines()
    at = int(rng.integers(len(lines)))
    lines[at] = f"{lines[at].partition(':')[0]}: {value}"
    return "\n".join(lines).encode()


def nested(content: bytes, rng: Rng) -> bytes:
    """Deep enough for a RecursionError; PyYAML takes quadratic time for more."""
    return bytes(rng.choice([b"[", b"{a: "])) * 500


YAML: tuple[Mutation, ...] = (
    *ANY,
    nested,
    alias_bomb,
    merge_bomb,
    odd_value,
    odd_value,
    too_long,
)


# Datasets


def long_row(content: bytes, rng: Rng) -> bytes:
    return content + b"," * 10_000 + b"\n"


CSV: tuple[Mutation, ...] = (*ANY, long_row, not_a_number)


def text_bomb(content: bytes, rng: Rng) -> bytes:
    if "text" not in BOMBS:
        header = b"user_id,item_id\n"
        text = header + b"1,2\n" * (BOMB_BYTES // 4)
        BOMBS["text"] = zipped([("a.csv", text)], zipfile.ZIP_DEFLATED)
        BOMBS["gzip"] = gzip.compress(text, compresslevel=1)
    return BOMBS["text"]


def gzip_bomb(content: bytes, rng: Rng) -> bytes:
    text_bomb(content, rng)
    return BOMBS["gzip"]


def gzip_in_zip(content: bytes, rng: Rng) -> bytes:
    return zipped([("a.csv.gz", gzip_bomb(content, rng))])


ZIP: tuple[Mutation, ...] = (*ANY, *OF_ARCHIVES, text_bomb, gzip_in_zip)
GZIP: tuple[Mutation, ...] = (*ANY, gzip_bomb)


# Stores


STATEMENTS = (
    "drop table did; create view did as with recursive n(x) as (select 1 union all select x + 1 "
    "from n) select 'u' || x person, 'i' item, 1.0 rating, 1 time from n",
    "create trigger t after update on person begin delete from did; end",
    "update or ignore person set id = x'00ff'",
    "update or ignore did set item = x'00ff'",
    "update did set rating = 'much'",
    "update did set time = 'late'",
    "update did set time = 1e300",
    "insert or replace into about values ('layout', '[1]')",
    "insert or replace into about values ('layout', '{\"a\": [\"O\", [1]]}')",
    "insert or replace into about values ('layout', '{\"a\": [\"<f4\", [-1]]}')",
    "insert or replace into about values ('layout', '{\"a\": [\"<f4,(9)f4\", [2]]}')",
    f"insert or replace into about values ('layout', '{'[' * 2000}')",
    "insert or replace into held values ('pinned keys', x'5b5b')",
    "insert or replace into held values ('pinned keys', '7')",
    "alter table did add column more as (zeroblob(1000000000))",
    "alter table did rename column item to thing",
    "drop table spent",
    "pragma user_version = 99",
    "pragma user_version = 0",
    "delete from did",
)


def changed_store(content: bytes, rng: Rng) -> bytes:
    """A store that somebody changed with SQLite."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content)
    connection.executescript(STATEMENTS[int(rng.integers(len(STATEMENTS)))])
    made = bytes(connection.serialize())
    connection.close()
    return made


STORE: tuple[Mutation, ...] = (*ANY[:-1], changed_store, changed_store)


def mutated(content: bytes, mutations: tuple[Mutation, ...], seed: int) -> bytes:
    """The content after one mutation, and sometimes a second one of bytes."""
    rng = np.random.default_rng([7, seed])
    made = mutations[seed % len(mutations)](content, rng)
    if made and rng.random() < 0.1 and len(made) < 2**20:
        made = ANY[int(rng.integers(len(ANY)))](made, rng)
    return made


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
