"""Keys that nodes make: what leaves the node, what a server refuses to store, and invitations."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from node_keys import add_node, key_of, make_keys

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from deployment.test_enrolment import terms_of

from coterie.deployment import certificates
from coterie.deployment.fleet.keys import NodeKey, read_public_keys
from coterie.deployment.invitation import read_invitation, write_invitation
from coterie.deployment.key_making import make_key
from coterie.deployment.node_policy import INVITED
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.deployment.private_terms import protection_of
from coterie.deployment.public_keys import read_public_key
from coterie.errors import ConfigError, DataError, PolicyError, RunError

PRIVATE = b"PRIVATE KEY"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["127.0.0.1"], ["ann"])
    return tmp_path / "keys"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def private_files(folder: Path) -> set[str]:
    """The names of files with a private key, whatever they are called."""
    return {path.name for path, data in content(folder).items() if PRIVATE in data}


# ---- on the node


def test_a_key_is_its_owners_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        made = make_key(tmp_path / "node", "ann")
    finally:
        os.umask(before)
    private = tmp_path / "node" / "ann.key"
    assert private.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o700
    assert private_files(tmp_path) == {"ann.key"}
    assert read_public_key(private.with_suffix(".pub")) == made


def test_a_key_is_not_overwritten_unless_asked(tmp_path: Path):
    make_key(tmp_path, "ann")
    before = content(tmp_path)
    with pytest.raises(RunError, match=r"ann.key exists already; expected a new name"):
        make_key(tmp_path, "ann")
    (tmp_path / "ann.key").rename(tmp_path / "elsewhere.key")
    with pytest.raises(RunError, match=r"ann.pub exists already"):
        make_key(tmp_path, "ann")
    (tmp_path / "elsewhere.key").rename(tmp_path / "ann.key")
    assert content(tmp_path) == before
    make_key(tmp_path, "ann", overwrite=True)
    assert not set(content(tmp_path).values()) & set(before.values())
    assert (tmp_path / "ann.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("mode", "refused"), [(0o604, True), (0o602, True), (0o640, False)])
def test_a_key_that_everybody_can_read_is_refused(mode: int, refused: bool, tmp_path: Path):
    make_key(tmp_path, "ann")
    path = tmp_path / "ann.key"
    path.chmod(mode)
    if not refused:
        assert NodeKey.read(path)
        return
    with pytest.raises(ConfigError, match=rf"mode {mode:o}\); expected 600.*chmod 600 .*ann.key"):
        NodeKey.read(path)


def test_a_key_of_an_earlier_version_works(keys: Path):
    """It was made in the server's folder, with the same formats; public keys had dates only."""
    make_key(keys / "nodes", "bob")
    public = keys / "nodes" / "bob.pub"
    line = public.read_text().strip()
    public.write_text(f"{line} created=2026-01-01T00:00:00Z\n")
    registered = read_public_keys(keys / "nodes")["bob"]
    assert registered == NodeKey.read(keys / "nodes" / "bob.key").public
    assert [path.name for path in certificates.private_keys(keys)] == ["bob.key"]
    make_key(keys.parent, "bob-2", replaces=keys / "nodes" / "bob.key")
    certificates.rotate(keys, "bob", keys.parent / "bob-2.pub")
    # The old one is void, and the server's folder has no private key of a node any more.
    assert private_files(keys) == {"ca.key", "server.key"}


# ---- what a server stores


def test_a_server_has_no_private_key_of_a_node(keys: Path):
    add_node(keys, "bob", days=3)
    certificates.revoke(keys, "ann")
    assert private_files(keys) == {"ca.key", "server.key"}
    assert {path.name for path in (keys / "nodes").iterdir()} == {"bob.pub"}


def ssh_line(key: object) -> bytes:
    return key.public_bytes(  # type: ignore[attr-defined, no-any-return]
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )


def ssh_private(key: object) -> bytes:
    return key.private_bytes(  # type: ignore[attr-defined, no-any-return]
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


P384 = ec.generate_private_key(ec.SECP384R1())
GOOD = ssh_line(P384.public_key())
P256 = ec.generate_private_key(ec.SECP256R1())
HOSTILE = {
    "private": (ssh_private(P384), "holds a private key; expected the public one"),
    "private after public": (GOOD + b"\n" + ssh_private(P384), "holds a private key"),
    "private of another kind": (
        P384.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
        "holds a private key",
    ),
    "too large": (GOOD + b" " + b"x" * 10_000, "has more than 8,192 bytes"),
    "binary": (os.urandom(100) + b"\xff", "is not UTF-8 text"),
    "empty": (b"\n \n", "has 0 lines"),
    "two keys": (GOOD + b"\n" + GOOD, "has 2 lines"),
    "rsa": (ssh_line(rsa.generate_private_key(65537, 2048).public_key()), "has type ssh-rsa"),
    "ed25519": (
        ssh_line(ed25519.Ed25519PrivateKey.generate().public_key()),
        "has type ssh-ed25519",
    ),
    "p256": (ssh_line(P256.public_key()), "has type ecdsa-sha2-nistp256"),
    "p256 as p384": (b"ecdsa-sha2-nistp384 " + ssh_line(P256.public_key()).split()[1], "damaged"),
    "cut": (GOOD[:-20], "is damaged"),
    "no key": (b"ecdsa-sha2-nistp384", "is damaged"),
    "not a point": (GOOD[:-8] + b"AAAAAAA=", "is damaged"),
    "options": (b'command="sh" ' + GOOD, "has no type"),
    "a secret": (b"hunter2 " + GOOD.split()[1], "has no type"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_public_keys_are_not_stored(case: str, keys: Path, tmp_path: Path):
    data, message = HOSTILE[case]
    path = tmp_path / "bob.pub"
    path.write_bytes(data)
    before = content(keys)
    with pytest.raises((DataError, ConfigError), match=message) as refused:
        certificates.add(keys, "bob", path)
    with pytest.raises((DataError, ConfigError), match=message):
        certificates.rotate(keys, "ann", path, unsigned=True)
    assert content(keys) == before
    # A message goes to logs, and the file may hold a secret.
    assert "hunter2" not in str(refused.value)
    words = [word for word in data.decode("latin-1").split() if len(word) > 40]
    assert not [word for word in words if word in str(refused.value)]


def test_a_pipe_or_folder_is_no_public_key(keys: Path, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.pub")
    for name in ("pipe.pub", "keys", "nothing.pub"):
        with pytest.raises(ConfigError, match="does not exist or is no file"):
            certificates.add(keys, "bob", tmp_path / name)


def test_only_the_key_of_a_file_is_stored(keys: Path, tmp_path: Path):
    """Dates are the server's: a node cannot extend its own."""
    (tmp_path / "bob.pub").write_bytes(
        b"  " + GOOD + b" expires=2999-01-01T00:00:00Z created=x bob@laptop\n\n"
    )
    certificates.add(keys, "bob", tmp_path / "bob.pub", days=2)
    kind, key, created, expires = (keys / "nodes" / "bob.pub").read_text().split()
    assert (kind.encode(), key.encode()) == tuple(GOOD.split())
    assert created.startswith("created=2")
    assert not expires.startswith("expires=2999")
    with pytest.raises(RunError, match=r"bob.pub is the key of bob already"):
        certificates.add(keys, "cem", tmp_path / "bob.pub")


def test_a_new_key_is_signed_by_the_old_one_or_approved(keys: Path, tmp_path: Path):
    add_node(keys, "bob")
    before = content(keys)
    unsigned = make_key(tmp_path, "unsigned")
    # Bob's key signs a key for ann: he could take over her users.
    make_key(tmp_path, "foreign", replaces=key_of(keys, "bob"))
    # A signature of ann's for another key.
    signed = make_key(tmp_path, "ann-2", replaces=key_of(keys, "ann"))
    (tmp_path / "moved.pub").write_text(f"{unsigned.line} replaces={signed.signature}\n")
    (tmp_path / "garbage.pub").write_text(f"{unsigned.line} replaces=!!!\n")
    for name in ("unsigned", "foreign", "moved", "garbage"):
        with pytest.raises(RunError, match="is not signed with the key that ann has now") as error:
            certificates.rotate(keys, "ann", tmp_path / f"{name}.pub")
        assert read_public_key(tmp_path / f"{name}.pub").fingerprint in str(error.value)
    assert content(keys) == before
    certificates.rotate(keys, "ann", tmp_path / "ann-2.pub")
    assert read_public_keys(keys / "nodes")["ann"] == NodeKey.read(tmp_path / "ann-2.key").public
    certificates.rotate(keys, "ann", tmp_path / "unsigned.pub", unsigned=True)
    assert read_public_keys(keys / "nodes")["ann"] == NodeKey.read(tmp_path / "unsigned.key").public


# ---- invitations


def test_an_invitation_has_what_a_node_needs_and_no_secret(keys: Path):
    path = write_invitation(keys, "127.0.0.1:8000", "fcf, secure aggregation ring, no epsilon")
    found = read_invitation(path)
    assert (found.server, found.trains) == (
        "127.0.0.1:8000",
        "fcf, secure aggregation ring, no epsilon",
    )
    assert found.certificate.encode() == (keys / "ca.pem").read_bytes()
    assert PRIVATE not in path.read_bytes()
    with pytest.raises(ConfigError, match=r"renew .* --host fed.example"):
        write_invitation(keys, "fed.example:8000", "fcf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("server: ", "host: "), "is not an invitation"),
        (lambda text: text.replace("trains: ", "# "), "is not an invitation"),
        (lambda text: text.partition("-----")[0], "is not an invitation"),
        (lambda text: text.replace("MII", "XXX"), "is not a certificate"),
        (lambda text: text + text[text.index("-----") :], "holds several certificates"),
        (lambda text: text + "x" * 40_000, "has more than 32,768 bytes"),
    ],
)
def test_damaged_invitations_are_refused(change, message: str, keys: Path):
    path = write_invitation(keys, "127.0.0.1:8000", "fcf")
    path.write_text(change(path.read_text()))
    with pytest.raises((ConfigError, DataError, RunError), match=message):
        read_invitation(path)


def test_a_node_trains_what_it_was_invited_to(few_people, tmp_path: Path):
    store = NodeStore.create(tmp_path / "node.db")
    store.put_interactions(few_people)
    service = NodeService(store)
    service.set_seed()
    promised = terms_of(few_people, "fcf", rounds=1, secure_aggregation="ring")
    store.put_meta(**{INVITED: protection_of(promised.experiment)})
    assert service.enrol(promised).users
    plain = replace(terms_of(few_people, "fcf", rounds=1), run="plain")
    with pytest.raises(
        PolicyError,
        match=r"trains fcf, secure aggregation none, no epsilon; this node was invited to fcf, "
        r"secure aggregation ring, no epsilon",
    ):
        service.enrol(plain)
    store.put_meta(**{INVITED: ""})
    assert service.enrol(plain).users


# ---- the whole way, with real processes


@pytest.mark.long
def test_a_federation_by_the_documented_commands(tmp_path: Path, people):
    """Three machines are three folders; .pub files and the invitation go from one to another."""
    pytest.importorskip("flwr")
    from deployment.test_federation import COTERIE, FEDFAST, Site, family

    site = Site(tmp_path, people)
    site.files(2, FEDFAST.replace("rounds: 2", "rounds: 15"))

    def run(folder: str, *command: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        done = subprocess.run(
            [*COTERIE, *command], cwd=tmp_path / folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("server", "federation", "init", "keys", "--host", "127.0.0.1")
    config = ("--config", "../fed.yaml", "--server", site.server)
    run("server", "federation", "invite", "keys", *config)
    for name in ("ann", "bob"):
        made = run(name, "node", "key", name)
        (tmp_path / name / f"{name}.pub").rename(tmp_path / "server" / f"{name}.pub")
        added = run("server", "federation", "add", "keys", name, f"{name}.pub")
        assert made.split("Fingerprint: ")[1].split()[0] in added
    try:
        server = site.serve("--keys", "server/keys")
        site.wait(lambda: "serving at" in site.log(server), 60)
        nodes = [
            site.start(
                *("join", "--data", f"{k}.csv", "--store", f"{k}.db", "--as-simulated"),
                *("--key", f"{name}/{name}.key", "--invitation", "server/keys/invitation.txt"),
            )
            for k, name in enumerate(("ann", "bob"))
        ]
        site.wait(lambda: site.status().get("round", 0) >= 1, 120)
        secrets = [
            line for path in tmp_path.rglob("*.key") for line in path.read_text().splitlines()[1:-1]
        ]
        assert len(secrets) > 10
        for child in (server, *nodes):
            for pid in family(child.pid):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                assert b"token" not in command.lower(), command
                shown = command + Path(f"/proc/{pid}/environ").read_bytes()
                assert not [line for line in secrets if line.encode() in shown]
        site.wait(lambda: server.poll() is not None, 200)
    finally:
        for child in site.started:
            child.terminate()
            child.wait(30)
    assert server.returncode == 0, site.log(server)
    assert site.equals_the_simulation()
    assert "invited to train fedfast, secure aggregation none" in site.log(nodes[0])
    assert private_files(tmp_path / "server") == {"ca.key", "server.key"}
    assert private_files(tmp_path / "ann") == {"ann.key"}
