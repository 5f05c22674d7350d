"""What the members of a ring keep to themselves between two messages, as bytes: where every message finds another process."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np

from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
)
from coterie.federated.nodes import read_message, write_message
from coterie.federated.secagg.client import Held, armed
from coterie.federated.secagg.crypto import Lock, Seed
from coterie.federated.secagg.member import Member, Neighbour, Terms
from coterie.types import Sizes, Updates


def packed(held: Held) -> bytes:
    members = list(held.members.values())
    about = {
        "ring": held.ring,
        "sizes": held.sizes,
        "members": [_plain(member) for member in members],
    }
    arrays = {
        "about": _bytes(json.dumps(about).encode()),
        "message": _bytes(write_message(held.message)),
    }
    arrays |= {f"update {name}": column for name, column in held.updates.columns().items()}
    arrays |= {f"kept {name}": rows for name, rows in held.private_state.items()}
    arrays |= {
        f"given {member.user}": member.given for member in members if member.given is not None
    }
    if held.rows is not None:
        arrays["rows"] = held.rows
    out = BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def unpacked(data: bytes, world: AnyWorld, exchange: AnyExchange) -> Held:
    with np.load(BytesIO(data), allow_pickle=False) as read:
        arrays = {name: read[name] for name in read.files}
    about = json.loads(arrays["about"].tobytes())
    members = {
        each["user"]: _member(each, arrays.get(f"given {each['user']}"))
        for each in about["members"]
    }
    held = Held(
        tuple(about["ring"]),
        members,
        read_message(arrays["message"].tobytes()),
        Updates(**_part("update", arrays)),
        _part("kept", arrays),
        Sizes(*about["sizes"]),
        arrays.get("rows"),
    )
    return held if held.rows is None else armed(world, exchange, held)


def _plain(member: Member) -> dict[str, Any]:
    return {
        "user": member.user,
        "terms": member.terms,
        "lock": member.lock.secret.hex(),
        "attempt": member.attempt,
        "before": _side(member.before),
        "after": _side(member.after),
        "share": member.share.hex(),
        "veil": member.veil.hex(),
        "veils": {side: veil.hex() for side, veil in member.veils.items()},
        "counts": member.counts,
        "mended": member.mended,
    }


def _member(plain: dict[str, Any], given: np.ndarray | None) -> Member:
    before, after = (
        None if side is None else Neighbour(side[0], bytes.fromhex(side[1]))
        for side in (plain["before"], plain["after"])
    )
    return Member(
        plain["user"],
        Terms(*plain["terms"]),
        _not_yet,
        Lock.of(bytes.fromhex(plain["lock"])),
        plain["attempt"],
        before,
        after,
        _seed(plain["share"]),
        _seed(plain["veil"]),
        given,
        {side: _seed(veil) for side, veil in plain["veils"].items()},
        plain["counts"],
        plain["mended"],
    )


def _not_yet() -> np.ndarray:
    return np.empty(0, np.uint64)


def _seed(text: str) -> Seed:
    return Seed(bytes.fromhex(text))


def _side(neighbour: Neighbour | None) -> tuple[int, str] | None:
    return None if neighbour is None else (neighbour.user, neighbour.key.hex())


def _part(kind: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(f"{kind} "): array
        for name, array in arrays.items()
        if name.startswith(f"{kind} ")
    }


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)
