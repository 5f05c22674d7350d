"""Dropout recovery: the server's steps that complete a ring's sum when clients drop out.

    dropped before distribute_shares   the ring is formed again without them (`ring`)
    dropped before upload              `recover_shares`: their shares leave the sum
    dropped before unmask              `recover_self_masks`: a neighbour reveals their self-mask

A client's side of both is in `ring_member`: `unmask`, `reveal_self_mask` and `recover`. Where a
client that is needed for recovery drops out too, the ring is aborted: a sum with a mask left in it
is noise.
"""

from __future__ import annotations

import numpy as np

from coterie.federated.secagg.crypto import SEED_BYTES, Seed
from coterie.federated.secagg.ring_member import RingTerms
from coterie.federated.secagg.stages import (
    Aborted,
    ReplySpec,
    SendStage,
    StageArrays,
    key_rows,
    request,
)
from coterie.federated.secagg.words import Words
from coterie.types import Bools, Ints


def recover_self_masks(
    send: SendStage, users: Ints, uploaded: Bools, unmasked: dict[int, StageArrays]
) -> list[Seed]:
    """The self-masks of all clients that uploaded: from `unmask`, or from one of the neighbours.

    `users` is the ring in its order, `uploaded` marks those whose upload counts, and `unmasked` are
    the replies to `unmask`.
    """
    expected: ReplySpec = {"self_mask": (np.uint8, (SEED_BYTES,))}
    known = {user: Seed(reply["self_mask"].tobytes()) for user, reply in unmasked.items()}
    helpers_by_stage = {
        "reveal_self_mask_of_predecessor": np.roll(users, -1),
        "reveal_self_mask_of_successor": np.roll(users, 1),
    }
    for stage, helpers in helpers_by_stage.items():
        helped = np.isin(helpers, list(unmasked))
        missing = uploaded & ~np.isin(users, list(known)) & helped
        if not missing.any():
            continue
        replies = request(send, stage, helpers[missing], {}, expected)
        pairs = zip(users[missing].tolist(), helpers[missing].tolist(), strict=True)
        for user, helper in pairs:
            if helper in replies:
                known[user] = Seed(replies[helper]["self_mask"].tobytes())
    lost = int(uploaded.sum()) - len(known)
    if lost > 0:
        raise Aborted(f"{lost} clients and both their neighbours dropped out after they uploaded")
    return list(known.values())


def recover_shares(
    send: SendStage,
    users: Ints,
    uploaded: Bools,
    keys: dict[int, bytes],
    unmasked: dict[int, StageArrays],
    terms: RingTerms,
) -> list[Words]:
    """A correction of the sum for every gap of clients that did not upload.

    The survivor p before a gap subtracted PRG(s_p), and the survivor after it added the share of
    the last dropped client d. The correction PRG(s_p) - PRG(s_d) makes the two cancel. Only the
    survivor after the gap can compute it: it knows s_d, and p encrypted s_p for it.
    """
    survivors = users[uploaded]
    after_gap = ~np.roll(uploaded, 1)[uploaded]
    following = survivors[after_gap]
    preceding = np.roll(survivors, 1)[after_gap]
    if not len(following):
        return []
    if not np.isin(preceding, list(unmasked)).all():
        raise Aborted("a client that had to pass on its share around a gap dropped out")
    ciphertexts = [unmasked[user]["share_ciphertext"] for user in preceding.tolist()]
    own = {
        "predecessor": preceding,
        "predecessor_key": key_rows(keys, preceding),
        "share_ciphertext": np.stack(ciphertexts),
    }
    expected: ReplySpec = {"vector": (terms.dtype, (terms.length,))}
    replies = request(send, "recover", following, own, expected)
    if len(replies) < len(following):
        raise Aborted("a client that had to correct the sum dropped out")
    return [reply["vector"] for reply in replies.values()]
