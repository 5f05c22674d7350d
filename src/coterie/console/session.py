"""Who may write: a browser that was given the token of the terminal.

The browser sends the token once and gets a cookie that scripts cannot read and other sites cannot
send. Every write also needs a header with a value that only a page of this server can read.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from coterie.deployment.address import Address
from coterie.serving.access import digest, read_token

COOKIE = "coterie_console"
CSRF_HEADER = b"x-coterie-csrf"
WRITES = "Open the link that `coterie console` printed, or enter its token on the page."


@dataclass(frozen=True, slots=True)
class Session:
    """The token of a console, and what follows from it."""

    token: str
    cookie_name: str
    is_encrypted: bool
    readable_by_all: bool
    """Whether reading needs no token: on loopback."""

    @classmethod
    def of(
        cls, address: Address, token_file: Path | None, is_encrypted: bool, is_local: bool
    ) -> Session:
        """With the token of a file, so that it outlives the console, or with a new one."""
        token = secrets.token_urlsafe(24)
        if token_file is not None:
            token = read_token(token_file).decode("latin-1")
        # Browsers send the cookies of one host to all its ports.
        return cls(token, f"{COOKIE}_{address.port}", is_encrypted, is_local)

    @property
    def cookie(self) -> str:
        return self._derived("cookie")

    @property
    def csrf(self) -> str:
        return self._derived("csrf")

    def accepts(self, token: str) -> bool:
        """Whether this is the token."""
        given = digest(token.strip().encode(errors="surrogatepass"))
        return hmac.compare_digest(given, digest(self.token.encode()))

    def knows(self, cookies: bytes) -> bool:
        """Whether a request with this Cookie header comes from a browser that had the token."""
        try:
            found = SimpleCookie(cookies.decode("latin-1")).get(self.cookie_name)
        except CookieError:
            return False
        given = "" if found is None else found.value
        return hmac.compare_digest(digest(given.encode()), digest(self.cookie.encode()))

    def may_write(self, cookies: bytes, header: bytes) -> bool:
        """Whether a request may change something."""
        matches = hmac.compare_digest(digest(header), digest(self.csrf.encode()))
        return self.knows(cookies) and matches

    def set_cookie(self) -> str:
        """The header that gives a browser its cookie."""
        secure = "; Secure" if self.is_encrypted else ""
        return f"{self.cookie_name}={self.cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), "sha256").hexdigest()
