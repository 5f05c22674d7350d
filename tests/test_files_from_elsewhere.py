"""Files from elsewhere: read, or refused in one line, within the declared memory."""

from __future__ import annotations

import io
import json
import shutil
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import mutated_files as m
import numpy as np
import pytest

import coterie
from coterie.algorithms.registry import algorithm
from coterie.core import npz
from coterie.core.file_limits import GIB, MIB, VARIABLE, most_bytes
from coterie.core.printable import one_line, printable
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.data.synthetic import Synthetic, generate
from coterie.deployment import hosting, membership, transfer, user_package
from coterie.deployment.node_private_store import PINNED_KEYS, NodeStore
from coterie.deployment.node_snapshots import known_rollbacks, note_rollbacks
from coterie.deployment.rollback_log import Rollback, RollbackLog
from coterie.deployment.transfer import SignedPermit
from coterie.errors import ConfigError, CoterieError, DataError, RunError, StoreError
from coterie.experiments import checkpoint, run_folder
from coterie.experiments.config import Experiment, read_file
from coterie.experiments.finished_run import Run
from coterie.types import JsonObject

LIMIT = 8 * MIB
FEW = 20
MANY = 1_000
RECORD = "als"
EXPERIMENT = """\
algorithm: als
dataset: synthetic
n_users: 30
seed: 3
epochs: 2
reg: 0.1
protocol: loo-100
"""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each kind, as Coterie writes it."""
    place = tmp_path_factory.mktemp("originals")
    coterie.run(
        RECORD, out=place / "run", n_users=30, n_items=40, mean_interactions=6, seed=2, epochs=2
    )
    people: Interactions = generate(Synthetic(n_users=20, n_items=20, mean_interactions=5))
    store = NodeStore.create(place / "node.db")
    store.put_interactions(people)
    users = store.users()
    rows = np.arange(2 * len(users), dtype=np.float32).reshape(-1, 2)
    store.put_initial_state(users, {"a": rows})
    store.put_model(users, {"b": rows}, b"")
    store.pin_keys(["", "ff"])
    with store.transaction():
        store.put_snapshot(10)
    note_rollbacks(store, [10])
    permit = SignedPermit(user_package.permit_for(store, users[:2], "bob").to_json(), "")
    user_package.write(user_package.pack(store, users[:2], permit), place / "users.package")
    store.close()
    text = "user_id,item_id,rating,timestamp\n"
    text += "".join(f"{k % 7},{k % 11},{k % 5},{1_000 + k}\n" for k in range(77))
    (place / "data.csv").write_text(text)
    (place / "data.zip").write_bytes(m.zipped([("data.csv", text.encode())]))
    (place / "data.csv.gz").write_bytes(m.gzip.compress(text.encode()))
    objects = [{"user_id": k % 7, "item_id": k % 11} for k in range(77)]
    (place / "data.json").write_text(json.dumps(objects))
    (place / "experiment.yaml").write_text(EXPERIMENT)
    without = Rollback(10, 5, ["bob"], "2026-03-01T09:30:00+00:00", "ann", [{"round": 12}])
    RollbackLog([without]).write(place)
    return place


def load_run(path: Path) -> object:
    loaded = Run.load(path.parent)
    loaded.recommend(loaded.catalogue.user_ids[0])
    return repr(loaded)


@cache
def config_of(folder: Path) -> JsonObject:
    return run_folder.read_config(folder)


def load_checkpoint(path: Path) -> object:
    checkpoint.state_arrays(path.parent)
    config = config_of(path.parent)
    data = run_folder.read_result(path.parent)["data"]
    return checkpoint.read(path.parent, algorithm(RECORD).state, data, config)


def load_config(path: Path) -> object:
    return Experiment.of(read_file(str(path)))


def load_data(path: Path) -> object:
    return read(path, ReadOptions(cache=False))


def load_store(path: Path) -> object:
    store = NodeStore.open(path)
    try:
        store.refuse_damaged()
        for user in store.users()[:2]:
            store.export(user)
        store.private_state(store.users())
        store.held_list(PINNED_KEYS)
        known_rollbacks(store)
        with store.transaction():
            for n in store.snapshot_rounds():
                store.restore_snapshot(n)
        return store.interactions()
    finally:
        store.close()


def load_package(path: Path) -> object:
    package = user_package.read(path)
    store = NodeStore.create(path.with_name("new.db"))
    try:
        return user_package.unpack(package, store)
    finally:
        store.close()
        store.path.unlink()


@dataclass(frozen=True)
class Kind:
    file: str
    mutations: tuple[m.Mutation, ...]
    load: Callable[[Path], object]


KINDS = {
    "model": Kind("run/model.npz", m.NPZ, load_run),
    "catalogue": Kind("run/catalogue.npz", m.NPZ, load_run),
    "candidates": Kind(
        "run/candidates.npz", m.NPZ, lambda path: run_folder.read_candidates(path.parent)
    ),
    "checkpoint": Kind("run/checkpoint.npz", m.NPZ, load_checkpoint),
    "result": Kind("run/result.json", m.JSON, load_run),
    "model description": Kind("run/model.json", m.JSON, load_run),
    "experiment": Kind("experiment.yaml", m.YAML, load_config),
    "store": Kind("node.db", m.STORE, load_store),
    "package": Kind("users.package", m.JSON, load_package),
    "roll-backs": Kind(
        "rollbacks.json", m.JSON, lambda path: RollbackLog.read(path.parent).quarantined
    ),
    "csv": Kind("data.csv", m.CSV, load_data),
    "zip": Kind("data.zip", m.ZIP, load_data),
    "gzip": Kind("data.csv.gz", m.GZIP, load_data),
    "json": Kind("data.json", m.JSON, load_data),
}


@dataclass
class Outcome:
    read: int = 0
    refused: int = 0
    peak: int = 0
    """Bytes allocated by Python and NumPy for one file."""
    several_lines: list[str] = field(default_factory=list)


def fuzz(kind: Kind, originals: Path, place: Path, count: int) -> Outcome:
    """Read so many mutated files; fails at anything but success or one line."""
    shutil.copytree(originals, place / "copy")
    path = place / "copy" / kind.file
    content = path.read_bytes()
    m.write(path, content)
    kind.load(path)
    outcome = Outcome()
    for seed in range(count):
        m.write(path, m.mutated(content, kind.mutations, seed))
        tracemalloc.start()
        try:
            kind.load(path)
            outcome.read += 1
        except CoterieError as error:
            outcome.refused += 1
            outcome.several_lines += [str(error)] * (one_line(error) != str(error))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} {error}") from error
        finally:
            outcome.peak = max(outcome.peak, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    return outcome


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(LIMIT / GIB))


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_file_is_read_or_refused_in_one_line(
    name: str, originals: Path, tmp_path: Path
) -> None:
    outcome = fuzz(KINDS[name], originals, tmp_path, FEW)
    assert outcome.refused > FEW // 4
    assert not outcome.several_lines
    assert outcome.peak < 2 * LIMIT


@pytest.mark.long
@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("name", KINDS)
def test_a_thousand_mutated_files_are_read_or_refused_in_one_line(
    name: str, originals: Path, tmp_path: Path
) -> None:
    outcome = fuzz(KINDS[name], originals, tmp_path, MANY)
    assert outcome.refused > MANY // 4
    assert not outcome.several_lines
    assert outcome.peak < 2 * LIMIT


# Bombs, with the usual limits


def packed_zeros(n_bytes: int) -> bytes:
    """An npz file with an array of zeros; made in blocks, since it is larger than memory."""
    header = io.BytesIO()
    about = {"descr": "|u1", "fortran_order": False, "shape": (n_bytes,)}
    np.lib.format.write_array_header_1_0(header, about)
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("user_rows.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(n_bytes // MIB):
            member.write(bytes(MIB))
    return out.getvalue()


def traced(call: Callable[[], object], message: str) -> int:
    """The peak of memory while a call is refused with a message."""
    tracemalloc.start()
    try:
        with pytest.raises(CoterieError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_model_that_unpacks_to_many_times_its_size_is_refused(
    originals: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(originals / "run", tmp_path / "run"))
    (folder / "model.npz").write_bytes(packed_zeros(128 * MIB))
    peak = traced(lambda: Run.load(folder), "unpacks to 134,.* at most 100 times its size")
    assert peak < 4 * MIB


def test_an_array_that_declares_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    about = {"descr": "<f4", "fortran_order": False, "shape": (2_000_000_000,)}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, about)
    path = tmp_path / "model.npz"
    path.write_bytes(m.zipped([("user_rows.npy", header.getvalue() + bytes(7_700_000))]))
    peak = traced(lambda: npz.read_file(path), "takes 8,000,000,000 bytes; expected the 7,700,000")
    assert peak < 4 * MIB


@pytest.mark.parametrize("name", ["data.zip", "data.csv.gz"])
def test_a_dataset_that_unpacks_to_many_times_its_size_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.core.file_limits.ANY_RATIO", MIB)
    path = tmp_path / name
    make = m.text_bomb if name.endswith("zip") else m.gzip_bomb
    path.write_bytes(make(b"", np.random.default_rng(0)))
    assert traced(lambda: load_data(path), "If you trust it, unpack it yourself") < 32 * MIB


def test_parquet_with_more_values_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    ones = np.ones(1_000_000, np.int64)
    parquet.write_table(pa.table({"user_id": ones, "item_id": ones}), path)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("coterie.core.file_limits.ANY_RATIO", MIB)
    with pytest.raises(DataError, match="unpacks to 16,000,000 bytes"):
        load_data(path)


def test_the_limit_is_a_number_of_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_bytes() == 8 * GIB
    monkeypatch.setenv(VARIABLE, "0.5")
    assert most_bytes() == GIB // 2
    for wrong in ("much", "-1", "inf", "0"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ConfigError, match=f"{VARIABLE} is '{wrong}'"):
            most_bytes()


def test_arrays_come_back_as_numpy_wrote_them() -> None:
    arrays = {
        "plain": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "number": np.array(3.5),
        "none": np.zeros((0, 4), np.int32),
        "texts": np.array(["a", "häß"]),
        "bools": np.array([True, False]),
    }
    found = npz.read_bytes(npz.packed(arrays), "arrays")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].flags.writeable


# Files of other users, views and triggers


def test_a_store_with_a_view_or_a_trigger_is_refused(originals: Path, tmp_path: Path) -> None:
    for k, kind in enumerate(("view did", "trigger t")):
        path = tmp_path / f"{k}.db"
        connection = m.sqlite3.connect(":memory:")
        connection.deserialize((originals / "node.db").read_bytes())
        connection.executescript(m.STATEMENTS[k])
        m.write(path, bytes(connection.serialize()))
        connection.close()
        with pytest.raises(StoreError, match=f"it has the {kind}"):
            NodeStore.open(path)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("did", [["u9", "i1", None, None]], "rows of users who are not listed"),
        ("layouts", {"node": "alice"}, "metadata other than layouts"),
        ("person", [["u1", 2**70]], "64 bits|not listed|not a valid"),
    ],
)
def test_a_package_with_rows_of_others_is_refused(
    field: str, value: object, why: str, originals: Path, tmp_path: Path
) -> None:
    path = tmp_path / "users.package"
    content = json.loads((originals / "users.package").read_bytes())
    m.write(path, json.dumps(content | {field: value}).encode())
    with pytest.raises(RunError, match=why):
        user_package.read(path)


# Modes


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_about_users_are_readable_by_their_owner_only(
    originals: Path, tmp_path: Path
) -> None:
    for name in ("catalogue.npz", "checkpoint.npz", "model.npz", "users.csv"):
        assert mode(originals / "run" / name) == 0o600, name
    assert mode(originals / "node.db") == 0o600
    lists = (membership.MEMBERS, hosting.HOSTS, hosting.PERMITS, transfer.APPROVED)
    assert set(lists) == set(run_folder.LISTS_OF_USERS)
    for name in lists:
        run_folder.write_text(tmp_path, name, "{}")
        assert mode(tmp_path / name) == 0o600, name


# Terminals


def test_control_characters_do_not_reach_a_terminal() -> None:
    title = "\x1b]0;owned\x07\x9b2J\u202egpj.exe\r\x7f\u2028 naïve 👩\u200d🔬"
    assert printable(title).isprintable() or "\u200d" in printable(title)
    assert printable(title).startswith(r"\u001b]0;owned\u0007\u009b2J\u202egpj.exe\u000d\u007f")
    assert printable("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == "a  b"
    text = json.dumps({"title": title}, ensure_ascii=False)
    assert json.loads(printable(text)) == {"title": title}


def test_titles_are_shown_without_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    from coterie.cli.say import say
    from coterie.cli.screen import show_table

    show_table(["item", "text"], [["1", "\x1b[2J\x9bmovie\nsecond"]], left=2)
    say("\x1b[2Jmovie")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert r"\u001b[2J\u009bmovie second" in shown
