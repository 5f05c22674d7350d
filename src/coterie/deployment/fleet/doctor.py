"""`coterie federation doctor`: the way from a node to a server, checked step by step.

The last step is a signed request that every server with keys refuses: to register a node's own key.
Why it is refused tells whether the key is known. Activating the node would disturb the server: it
requests a roster from each node that connects, and a node that already runs would be disconnected.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from coterie.deployment.address import LOOPBACK, Address
from coterie.deployment.fleet import messages
from coterie.deployment.fleet.client import SPEAKS_PLAINTEXT, HttpAnswer, trusting
from coterie.deployment.fleet.keys import NodeKey
from coterie.deployment.validity import WARN_DAYS, Validity
from coterie.errors import ConfigError
from coterie.types import JsonObject
from coterie.version import __version__

# isort: split
# After ours, which say what to install where it is missing.
from cryptography import x509

PASSED_CHECK = "ok"
FAILED_CHECK = "failed"
SKIPPED_CHECK = "skipped"
NAME = "name"
PORT = "port"
TLS = "tls"
CERTIFICATE = "certificate"
FLEET_API = "fleet api"
CLOCK = "clock"
KEY = "key"
CHECKS = (NAME, PORT, TLS, CERTIFICATE, FLEET_API, CLOCK, KEY)
"""All checks, in the order in which a connection passes them."""
STEP_SECONDS = 10.0
"""Time limit of a check."""
MOST_OFFSET = 5.0
"""Seconds by which a node's clock may be ahead; a server rejects what is signed later."""
REGISTRATION_CLOSED = 2001
"""Flower's code where a known key asks to be registered, and the operator registers keys."""
MOST_READ = 1 << 16
EXPIRED = 10
NOT_YET_VALID = 9
OTHER_NAME = 62
OTHER_ADDRESS = 64
"""OpenSSL's reasons (X509_V_ERR_*) why a certificate is not trusted."""


@dataclass(frozen=True, slots=True)
class ConnectionCheck:
    name: str
    state: str
    detail: str
    remedy: str = ""

    @property
    def line(self) -> str:
        return f"{self.name:12} {self.state:8} {self.detail}. {self.remedy}".rstrip()

    def to_json(self) -> JsonObject:
        return asdict(self)


def examine(address: Address, key: Path | None, ca: Path | None) -> list[ConnectionCheck]:
    """Check the connection of a node with this key, which trusts this authority."""
    if key is not None and ca is None:
        raise ConfigError(
            "--key is given without --invitation or --ca; expected both: a key is used with a "
            "server that is trusted. Add --invitation FILE, or --ca ca.pem."
        )
    node_key = None if key is None else NodeKey.read(key)
    checks = list(_checks(address, node_key, None if ca is None else trusting(ca)))
    passed = {check.name for check in checks}
    missing = [name for name in CHECKS if name not in passed]
    return checks + [
        ConnectionCheck(name, SKIPPED_CHECK, "an earlier check failed") for name in missing
    ]


def _checks(
    address: Address, key: NodeKey | None, trust: ssl.SSLContext | None
) -> Iterator[ConnectionCheck]:
    """The checks up to one without which the next ones cannot be made."""
    for check in (_check_name, _check_port):
        found = check(address)
        yield found
        if found.state == FAILED_CHECK:
            return
    tls, certificate = _check_tls(address, trust)
    yield tls
    if certificate is not None:
        yield _check_certificate(certificate)
    elif tls.state != FAILED_CHECK:
        yield ConnectionCheck(CERTIFICATE, SKIPPED_CHECK, "the server has none")
    if tls.state == FAILED_CHECK:
        return
    context = trust
    if trust is None and certificate is not None:
        context = _trusting_anybody()
    yield from _check_calls(address, key, context)


def _check_name(address: Address) -> ConnectionCheck:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return ConnectionCheck(
            NAME,
            FAILED_CHECK,
            f"{address.host} does not resolve ({error.strerror or error})",
            "Check the spelling and this machine's DNS, or use the server's IP address.",
        )
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    return ConnectionCheck(NAME, PASSED_CHECK, f"{address.host} is {', '.join(addresses)}")


def _check_port(address: Address) -> ConnectionCheck:
    try:
        socket.create_connection((address.host, address.port), timeout=STEP_SECONDS).close()
    except TimeoutError:
        return ConnectionCheck(
            PORT,
            FAILED_CHECK,
            f"{address} does not answer within {STEP_SECONDS:g} seconds",
            "Open the port in the firewalls between this machine and the server.",
        )
    except OSError as error:
        return ConnectionCheck(
            PORT,
            FAILED_CHECK,
            f"{address} cannot be reached ({error.strerror or error})",
            "Check that coterie serve runs, and that it listens at this port on an address that "
            "this machine reaches (--server 0.0.0.0:PORT is all of them).",
        )
    return ConnectionCheck(PORT, PASSED_CHECK, f"{address} accepts connections")


def _check_tls(
    address: Address, trust: ssl.SSLContext | None
) -> tuple[ConnectionCheck, x509.Certificate | None]:
    """Whether the server is trusted, and its certificate if it has one."""
    try:
        version, certificate = _shake_hands(address, trust or _trusting_anybody())
    except ssl.SSLCertVerificationError as error:
        untrusted = _look_at_certificate(address)
        return _untrusted(address, error, untrusted), untrusted
    except (OSError, ValueError) as error:
        return _without_tls(address, trust, error), None
    if trust is None:
        return ConnectionCheck(
            TLS, SKIPPED_CHECK, f"{version}; the server was not verified", "Give --invitation FILE."
        ), certificate
    detail = f"{version}, with a certificate of this authority for {address.host}"
    return ConnectionCheck(TLS, PASSED_CHECK, detail), certificate


def _without_tls(
    address: Address, trust: ssl.SSLContext | None, error: Exception
) -> ConnectionCheck:
    plaintext = isinstance(error, ssl.SSLError) and error.reason in SPEAKS_PLAINTEXT
    if plaintext and trust is None and address.host in LOOPBACK:
        return ConnectionCheck(TLS, PASSED_CHECK, "none, as in a trial on loopback (--insecure)")
    if plaintext:
        return ConnectionCheck(
            TLS,
            FAILED_CHECK,
            f"{address} does not use TLS",
            "Check the port. The server needs coterie serve --keys FOLDER.",
        )
    return ConnectionCheck(
        TLS,
        FAILED_CHECK,
        f"the handshake failed ({error})",
        "Check that the port is that of coterie serve, and that nothing in between ends TLS.",
    )


def _untrusted(
    address: Address, error: ssl.SSLCertVerificationError, certificate: x509.Certificate | None
) -> ConnectionCheck:
    remedies = {
        EXPIRED: "On the server, run: coterie federation renew FOLDER, and restart it.",
        NOT_YET_VALID: "Set this machine's clock and the server's.",
        OTHER_NAME: _other_host(address, certificate),
        OTHER_ADDRESS: _other_host(address, certificate),
    }
    other_authority = (
        "Compare the fingerprint of the invitation's certificate with the one that coterie "
        "federation list FOLDER shows to the server's operator."
    )
    remedy = remedies.get(error.verify_code, other_authority)
    detail = f"the server is not trusted ({error.verify_message.rstrip('.')})"
    return ConnectionCheck(TLS, FAILED_CHECK, detail, remedy)


def _other_host(address: Address, certificate: x509.Certificate | None) -> str:
    hosts = [] if certificate is None else _hosts(certificate)
    return (
        f"Connect to {' or '.join(hosts) or 'a host of the certificate'}, or run on the server: "
        f"coterie federation renew FOLDER --host {address.host}"
    )


def _check_certificate(certificate: x509.Certificate) -> ConnectionCheck:
    valid = Validity.of(certificate)
    hosts = ", ".join(_hosts(certificate)) or "no host"
    renewal = "On the server, run: coterie federation renew FOLDER, and restart it."
    if valid.over:
        detail = f"for {hosts}; expired on {valid.ends:%Y-%m-%d}"
        return ConnectionCheck(CERTIFICATE, FAILED_CHECK, detail, renewal)
    detail = f"for {hosts}; {valid.days_left} days left"
    soon = valid.days_left < WARN_DAYS
    return ConnectionCheck(CERTIFICATE, PASSED_CHECK, detail, renewal if soon else "")


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found.value]


def _check_calls(
    address: Address, key: NodeKey | None, context: ssl.SSLContext | None
) -> Iterator[ConnectionCheck]:
    """The checks that need an answer to a request."""
    try:
        answer = _request(address, key, context, clock_offset=0.0)
        offset = answer.clock_offset
        if answer.status == http.client.UNAUTHORIZED and offset is not None:
            # A node whose clock is wrong repeats its request with the server's time, too.
            answer = _request(address, key, context, offset if abs(offset) > MOST_OFFSET else 0.0)
    except (OSError, http.client.HTTPException) as error:
        yield ConnectionCheck(
            FLEET_API,
            FAILED_CHECK,
            f"{address} does not answer a request ({error or type(error).__name__})",
            "Check that the port is that of coterie serve; see server.log in its run folder.",
        )
        return
    known = _is_registration_closed(answer)
    if answer.status != http.client.UNAUTHORIZED and not known:
        yield ConnectionCheck(
            FLEET_API,
            FAILED_CHECK,
            f"{address} answers with status {answer.status}, which no server of Coterie "
            f"{__version__} does",
            "Check that the port is that of coterie serve, and install the same version of Coterie "
            "on both sides.",
        )
        return
    expected = f"as a server of Coterie {__version__} does (Flower {messages.FLOWER})"
    yield ConnectionCheck(FLEET_API, PASSED_CHECK, f"{messages.PREFIX} answers {expected}")
    yield _check_clock(offset)
    if key is None:
        yield ConnectionCheck(KEY, SKIPPED_CHECK, "no --key is given")
    elif known:
        yield ConnectionCheck(KEY, PASSED_CHECK, "the server accepts this key")
    else:
        yield ConnectionCheck(
            KEY,
            FAILED_CHECK,
            "the server does not accept this key: it is unknown, expired or revoked",
            "Compare it with coterie federation list FOLDER on the server. Its owner adds a key: "
            "coterie federation add FOLDER NAME NAME.pub",
        )


def _check_clock(offset: float | None) -> ConnectionCheck:
    if offset is None:
        return ConnectionCheck(CLOCK, SKIPPED_CHECK, "the server does not tell the time")
    seconds = round(abs(offset))
    detail = f"{seconds} seconds {'behind' if offset > 0 else 'ahead of'} the server's"
    if abs(offset) <= MOST_OFFSET:
        # The server tells whole seconds, and the answer takes a while.
        same = f"the same as the server's, within {MOST_OFFSET:g} seconds"
        return ConnectionCheck(CLOCK, PASSED_CHECK, same)
    return ConnectionCheck(
        CLOCK,
        FAILED_CHECK,
        detail,
        "Set this machine's clock (NTP). Until then a node goes on with the server's time.",
    )


def _is_registration_closed(answer: HttpAnswer) -> bool:
    try:
        return bool(json.loads(answer.data)["code"] == REGISTRATION_CLOSED)
    except (ValueError, KeyError, TypeError):
        return False


def _request(
    address: Address, key: NodeKey | None, context: ssl.SSLContext | None, clock_offset: float
) -> HttpAnswer:
    """One call that changes nothing: without a key it is not authenticated and refused."""
    headers = {"content-type": messages.MEDIA_TYPE}
    name = messages.HEARTBEAT
    body = b""
    if key is not None:
        headers |= key.headers(clock_offset)
        name = messages.REGISTER
        asked = messages.make("RegisterNodeFleetRequest", public_key=key.public)
        body = asked.SerializeToString()
    connection = http.client.HTTPConnection(address.host, address.port, timeout=STEP_SECONDS)
    if context is not None:
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=STEP_SECONDS, context=context
        )
    try:
        connection.request("POST", messages.PREFIX + name, body, headers)
        reply = connection.getresponse()
        return HttpAnswer(reply.status, reply.read(MOST_READ), reply.getheader("date"))
    finally:
        connection.close()


def _shake_hands(address: Address, context: ssl.SSLContext) -> tuple[str, x509.Certificate]:
    """The version of TLS and the server's certificate."""
    with (
        socket.create_connection((address.host, address.port), timeout=STEP_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=_server_name(address)) as secured,
    ):
        der = secured.getpeercert(binary_form=True) or b""
        return secured.version() or "TLS", x509.load_der_x509_certificate(der)


def _look_at_certificate(address: Address) -> x509.Certificate | None:
    """The certificate of a server that is not trusted. Nothing but the handshake is sent."""
    try:
        return _shake_hands(address, _trusting_anybody())[1]
    except (OSError, ValueError):
        return None


def _server_name(address: Address) -> str:
    """The host as a certificate names it: ::1 without leading zeros."""
    try:
        return str(ipaddress.ip_address(address.host))
    except ValueError:
        return address.host


def _trusting_anybody() -> ssl.SSLContext:
    """TLS that looks at a certificate without trusting it; nothing secret is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
