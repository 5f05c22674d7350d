"""How the stages of a `secagg` group travel: arrays with a row for every client.

Clients have different numbers of neighbours. Rows are padded to the longest; a user of -1 marks
what is padding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.federated.secagg.crypto import KEY_BYTES, TAG_BYTES
from coterie.federated.secagg.group_member import Advert
from coterie.federated.secagg.identity import SIGNATURE_BYTES
from coterie.federated.secagg.shamir import SHARE_BYTES
from coterie.federated.secagg.stages import (
    ADVERTISE,
    AGREE,
    SHARE,
    UNMASK,
    UPLOAD,
    StageArrays,
)
from coterie.federated.secagg.words import UNSIGNED, Word
from coterie.types import Ints

DIGEST_BYTES = 32
CIPHERTEXT_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Two shares, encrypted for their holder."""
NOBODY = -1
"""Marks padding."""


KEYS_OF_ADVERT = struct.Struct(f"{KEY_BYTES}s{KEY_BYTES}s{DIGEST_BYTES}s{SIGNATURE_BYTES}s")
"""The fields of an advert before its holders."""


def advert_bytes(holders: int) -> int:
    """The size of an advert that names so many holders."""
    return KEYS_OF_ADVERT.size + 4 * holders


# What a server sends


def to_clients(stage: str, out: Mapping[int, tuple[Any, ...]]) -> tuple[StageArrays, StageArrays]:
    """(arrays for all, arrays with a row for each client) of what `Group` sends at a stage."""
    contents = list(out.values())
    if stage == SHARE:
        return {}, _adverts_by_client([adverts for (adverts,) in contents])
    if stage == UPLOAD:
        ciphertexts = [by_owner for by_owner, _ in contents]
        owners, rows = padded(ciphertexts, CIPHERTEXT_BYTES)
        return {"shared": users_array(contents[0][1])}, {"owners": owners, "ciphertexts": rows}
    if stage == AGREE:
        return {"survivors": users_array(contents[0][0])}, {}
    if stage == UNMASK:
        signatures: Mapping[int, bytes] = contents[0][0]
        joined = b"".join(signatures[user] for user in sorted(signatures))
        rows = np.frombuffer(joined, np.uint8).reshape(-1, SIGNATURE_BYTES)
        return {"agreed": users_array(signatures), "signatures": rows}, {}
    return {}, {}


def from_server(stage: str, common: StageArrays, own: StageArrays, holders: int) -> list[Any]:
    """What each client received, as the arguments of its stage; ValueError if it is malformed."""
    if stage == SHARE:
        adverts = _parts(own, "neighbours", "adverts", advert_bytes(holders))
        parsed: dict[bytes, Advert] = {}
        return [
            ({user: _read_advert(row, holders, parsed) for user, row in rows.items()},)
            for rows in adverts
        ]
    if stage == UPLOAD:
        shared = read_users(common, "shared")
        parts = _parts(own, "owners", "ciphertexts", CIPHERTEXT_BYTES)
        return [(by_owner, shared) for by_owner in parts]
    if stage == AGREE:
        return [(frozenset(read_users(common, "survivors")),)]
    agreed = read_users(common, "agreed")
    signatures = common.get("signatures")
    if signatures is None or signatures.dtype != np.uint8:
        raise ValueError("no signatures")
    if signatures.shape != (len(agreed), SIGNATURE_BYTES):
        raise ValueError("signatures of another shape")
    return [({user: row.tobytes() for user, row in zip(agreed, signatures, strict=True)},)]


def users_array(users: Iterable[int]) -> Ints:
    return np.array(sorted(users), np.int32)


def read_users(common: StageArrays, name: str) -> tuple[int, ...]:
    """Users in an array that is ascending."""
    users = common.get(name)
    if users is None or users.dtype != np.int32 or users.ndim != 1 or (np.diff(users) <= 0).any():
        raise ValueError(f"{name} are not distinct users in ascending order")
    return tuple(users.tolist())


# What clients reply


def to_server(stage: str, replies: Any, holders: Sequence[Sequence[int]]) -> StageArrays:
    """Arrays of clients' replies, a row for each; `holders` are those that each client chose.

    Replies are a sequence, and those at the upload may be the rows of one array.
    """
    if stage == ADVERTISE:
        rows = b"".join(_advert_row(advert) for advert in replies)
        return {"advert": np.frombuffer(rows, np.uint8).reshape(len(replies), -1)}
    if stage == SHARE:
        nothing = bytes(CIPHERTEXT_BYTES)
        joined = b"".join(
            sent.get(holder, nothing)
            for sent, chosen in zip(replies, holders, strict=True)
            for holder in chosen
        )
        shape = (len(replies), len(holders[0]), CIPHERTEXT_BYTES)
        return {"ciphertexts": np.frombuffer(joined, np.uint8).reshape(shape)}
    if stage == UPLOAD:
        return {"vector": np.asarray(replies)}
    if stage == AGREE:
        return {"signature": np.frombuffer(b"".join(replies), np.uint8).reshape(len(replies), -1)}
    owners, shares = padded(replies, SHARE_BYTES)
    return {"owners": owners, "shares": shares}


def from_client(
    stage: str, arrays: StageArrays, holders: int, chosen: Sequence[int], length: int, word: Word
) -> Any:
    """A client's reply; None if it is malformed. `chosen` are the holders in its advert."""
    try:
        return _read_reply(stage, arrays, holders, chosen, length, word)
    except (ValueError, KeyError):
        return None


def _read_reply(
    stage: str, arrays: StageArrays, holders: int, chosen: Sequence[int], length: int, word: Word
) -> Any:
    if stage == ADVERTISE:
        row = _octets(arrays["advert"], (advert_bytes(holders),)).tobytes()
        return _read_advert(row, holders, {})
    if stage == SHARE:
        rows = _octets(arrays["ciphertexts"], (holders, CIPHERTEXT_BYTES))
        return {user: row.tobytes() for user, row in zip(chosen, rows, strict=True) if row.any()}
    if stage == UPLOAD:
        vector = arrays["vector"]
        if vector.dtype != UNSIGNED[word] or vector.shape != (length,):
            raise ValueError("a vector of another shape")
        return vector
    if stage == AGREE:
        return _octets(arrays["signature"], (SIGNATURE_BYTES,)).tobytes()
    one_client = {name: arrays[name][None] for name in ("owners", "shares")}
    (shares,) = _parts(one_client, "owners", "shares", SHARE_BYTES)
    return shares


def _octets(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.dtype != np.uint8 or array.shape != shape:
        raise ValueError("bytes of another shape")
    return array


# Byte strings by user, one mapping for each client


def padded(contents: Sequence[Mapping[int, bytes]], size: int) -> tuple[Ints, np.ndarray]:
    """(clients, most) users, and (clients, most, size) their byte strings."""
    most = max((len(content) for content in contents), default=0)
    users = np.full((len(contents), most), NOBODY, np.int32)
    rows = np.zeros((len(contents), most, size), np.uint8)
    for client, content in enumerate(contents):
        listed = sorted(content)
        users[client, : len(listed)] = listed
        joined = b"".join(content[user] for user in listed)
        rows[client, : len(listed)] = np.frombuffer(joined, np.uint8).reshape(-1, size)
    return users, rows


def _parts(own: StageArrays, names: str, values: str, size: int) -> list[dict[int, bytes]]:
    """The mappings in arrays of `padded`."""
    users = own[names]
    rows = own[values]
    if users.dtype != np.int32 or users.ndim != 2 or rows.dtype != np.uint8:
        raise ValueError(f"{names} or {values} have another dtype or shape")
    if rows.shape != (*users.shape, size):
        raise ValueError(f"{values} have another shape")
    parts = []
    for listed, of_client in zip(users.tolist(), rows, strict=True):
        content = of_client.tobytes()
        found = {
            user: content[place * size : (place + 1) * size]
            for place, user in enumerate(listed)
            if user != NOBODY
        }
        parts.append(found)
    return parts


# Adverts


def _adverts_by_client(contents: Sequence[Mapping[int, Advert]]) -> StageArrays:
    rows: dict[int, bytes] = {}
    for adverts in contents:
        for user, advert in adverts.items():
            if user not in rows:
                rows[user] = _advert_row(advert)
    size = len(next(iter(rows.values()), b""))
    users, padded_rows = padded(
        [{user: rows[user] for user in adverts} for adverts in contents], size
    )
    return {"neighbours": users, "adverts": padded_rows}


def _advert_row(advert: Advert) -> bytes:
    keys = advert.mask_key + advert.cipher_key + advert.self_mask_digest + advert.signature
    return keys + np.array(advert.holders, "<i4").tobytes()


def _read_advert(row: bytes, holders: int, parsed: dict[bytes, Advert]) -> Advert:
    """An advert in a row of `advert_bytes`. Rows that were parsed before are not parsed again."""
    advert = parsed.get(row)
    if advert is None:
        mask_key, cipher_key, digest, signature = KEYS_OF_ADVERT.unpack_from(row)
        listed = np.frombuffer(row, "<i4", offset=KEYS_OF_ADVERT.size, count=holders)
        chosen = tuple(listed.tolist())
        advert = parsed[row] = Advert(mask_key, cipher_key, digest, chosen, signature)
    return advert
