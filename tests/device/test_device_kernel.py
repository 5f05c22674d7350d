"""The device's JavaScript against Python: streams, updates, lists and claims."""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import platform
from collections import Counter
from typing import Any

import numpy as np
import pytest
from client_cases import (
    Client,
    PythonRound,
    as_case,
    python_rounds,
    python_score,
    random_clients,
    start_row,
)
from javascript import answered, answers, needs_node, numbers_of_clients, packed, unpacked

from coterie.core import streams
from coterie.federated.wire import decode
from coterie.kernels.quantise import quantise

pytestmark = needs_node


# ---- streams


def test_streams_have_the_bits_of_python():
    rng = np.random.default_rng(1)
    cases = [
        {
            "kind": "stream",
            "seed": str((0, 1, 2**64 - 1, int(rng.integers(0, 2**63)))[rng.integers(4)]),
            "purpose": str(rng.choice(["triples", "start users", "devices"])),
            "indices": rng.integers(0, 2**32, int(rng.integers(0, 3))).tolist(),
            "n": int(rng.integers(1, 9)),
            "limit": int(rng.choice([1, 2, 1000, 2**31 - 1])),
        }
        for _ in range(600)
    ]
    for case, answer in zip(cases, answers(cases), strict=True):
        key = streams.key(int(case["seed"]), case["purpose"], *case["indices"])
        keys = np.array([key], np.uint64)
        words = np.concatenate([streams.words(keys, k) for k in range(case["n"])])
        assert answer["words"] == [str(word) for word in words.tolist()]
        limits = np.full(len(words), case["limit"])
        assert answer["below"] == streams.below(words, limits).tolist()
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        assert unpacked(answer["uniform"], np.float64).tolist() == uniform.tolist()
        normal = streams.normal(keys, case["n"])[0].astype(np.float32)
        assert unpacked(answer["normal"], np.float32).tolist() == normal.tolist()


def test_purposes_are_hashed_as_in_python():
    (found,) = answers([{"kind": "purposes"}])
    assert found == {purpose: str(streams._word(purpose)) for purpose in found}
    assert found.keys() == {"devices", "start users", "triples"}


# ---- arithmetic


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other bits")
def test_exp_has_the_bits_of_the_compiled_kernel():
    """Numbers from 0 to where exp vanishes. Math.exp would differ in one of 2,000."""
    rng = np.random.default_rng(2)
    x = -np.concatenate([rng.uniform(0, 20, 150_000), 10 ** rng.uniform(-8, 2.1, 50_000)])
    x = np.concatenate([x, [0.0, -103.9, -104.0, -1e30, -np.inf, np.nan]]).astype(np.float32)
    (answer,) = answers([{"kind": "exp", "x": packed(x)}])
    expected = compiled_exp(x)
    found = unpacked(answer, np.float32)
    n_differ = int((found.view(np.int32) != expected.view(np.int32)).sum())
    rounded = np.exp(x.astype(np.float64)).astype(np.float32)
    n_rounded = int((rounded.view(np.int32) != expected.view(np.int32)).sum())
    print(f"exp: {n_differ} of {len(x):,} differ; {n_rounded:,} if rounded from double precision")
    assert n_differ <= 2
    assert n_rounded > 50


def compiled_exp(x: np.ndarray) -> np.ndarray:
    """exp of the C library, which kernels call for single precision."""
    exp = ctypes.CDLL(ctypes.util.find_library("m")).expf
    exp.restype = ctypes.c_float
    exp.argtypes = [ctypes.c_float]
    return np.array([exp(value) for value in x.tolist()], np.float32)


def test_fixed_point_is_that_of_the_kernel():
    """Ties go to even, and what cannot be sent becomes a value that the server rejects."""
    unit = 2.0**-20
    edges = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388607.5, 8388607, -8388607.5, -8388608]
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [np.array(edges) * unit, rng.normal(size=5_000), [8, -8, 1e38, -1e38, np.inf, np.nan]]
    ).astype(np.float32)
    (answer,) = answers([{"kind": "quantise", "x": packed(x)}])
    with np.errstate(all="ignore"):
        expected = [int(quantise.py_func(value)) for value in x]
    assert unpacked(answer, np.int32).tolist() == expected
    assert expected[:6] == [0, 2, 2, 0, -2, -2]


# ---- rounds of clients


class Tally(Counter[str]):
    """How many of what was compared, and how many differ at all."""

    def compare(self, client: Client, answer: dict[str, Any]) -> None:
        self["clients"] += 1
        self["start rows that differ"] += (
            base64.b64decode(answer["start"]) != start_row(client).tobytes()
        )
        for round_, found in zip(python_rounds(client), answer["rounds"], strict=True):
            self["rounds"] += 1
            self._update(round_, found)
            if "best" in found:
                self._list(round_, found["best"])
            if "claims" in found:
                self._claims(client, round_, found["claims"])

    def _update(self, round_: PythonRound, found: dict[str, Any]) -> None:
        data = base64.b64decode(found["update"])
        self["update bytes"] += len(data)
        self["updates that differ"] += data != round_.data
        columns = decode(data).arrays
        expected = round_.updates.columns()
        assert columns.keys() == expected.keys()
        for name in columns.keys() - {"item_rows"}:
            assert columns[name].tolist() == expected[name].tolist()
        difference = columns["item_rows"].astype(np.int64) - expected["item_rows"]
        self["entries"] += difference.size
        self["entries that differ"] += int(np.count_nonzero(difference))
        assert np.abs(difference).max(initial=0) <= 1
        row = unpacked(found["row"], np.float32)
        self["rows that differ"] += row.tobytes() != round_.row.tobytes()
        np.testing.assert_allclose(row, round_.row, rtol=1e-5, atol=1e-6)

    def _list(self, round_: PythonRound, found: list[dict[str, Any]]) -> None:
        self["lists"] += 1
        items = [entry["item"] for entry in found]
        scores = [entry["score"] for entry in found]
        np.testing.assert_allclose(scores, round_.scores[items], rtol=1e-4, atol=1e-5)
        if items != round_.best:
            self["lists that differ"] += 1
            # Sums in another order may round differently; that may swap near-ties only.
            np.testing.assert_allclose(
                round_.scores[items], round_.scores[round_.best], rtol=1e-5, atol=1e-6
            )

    def _claims(self, client: Client, round_: PythonRound, found: list[dict[str, Any]]) -> None:
        assert round_.claims is not None
        if not round_.claims:
            return
        assert [claim["name"] for claim in found] == list(round_.claims)
        for claim in found:
            expected = round_.claims[claim["name"]]
            self["claims"] += 1
            same = (
                dict(claim["scores"])
                == dict(zip(expected.keys.tolist(), expected.scores.tolist(), strict=True))
                and [claim["elsewhere"]] == expected.elsewhere.tolist()
            )
            self[f"claims of {claim['name']} that differ"] += not same
            if same:
                assert (claim["claims"], claim["hits"]) == python_score(expected, client)


def compare(n: int, seed: int) -> Tally:
    tally = Tally()
    for client, answer in answered(random_clients(n, seed), as_case):
        tally.compare(client, answer)
    print("\n".join(f"{count:>12,} {what}" for what, count in tally.items()))
    return tally


@numbers_of_clients
def test_clients_equal_those_of_python(n: int, seed: int) -> None:
    tally = compare(n, seed)
    assert tally["clients"] == n
    assert tally["entries"] > 100 * n
    assert tally["entries that differ"] <= 1e-5 * tally["entries"]
    assert tally["start rows that differ"] == 0
    assert tally["lists that differ"] <= 1e-4 * tally["lists"]
    # Python's sort of `opposite` is not stable: rows of equal size may pair in another order.
    pairing = tally["claims of pairing that differ"]
    assert pairing <= 1e-3 * tally["claims"]
    assert sum(n for what, n in tally.items() if what.startswith("claims of")) == pairing
