"""The policy of pages, word by word: a browser reads it so."""

from __future__ import annotations

from coterie.core.page_headers import content_policy, page_headers


def test_the_policy_names_every_source() -> None:
    assert content_policy(img="data:", worker="") == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def test_no_page_is_framed_guessed_or_referred_to() -> None:
    headers = dict(page_headers())
    assert headers[b"content-security-policy"] == content_policy().encode()
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"cross-origin-opener-policy"] == b"same-origin"
    assert headers[b"cross-origin-resource-policy"] == b"same-origin"
