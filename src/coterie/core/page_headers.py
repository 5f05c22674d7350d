"""What every response of a page carries: what a browser must not do with it."""

from __future__ import annotations

PageHeader = tuple[bytes, bytes]


def page_headers(**sources: str) -> tuple[PageHeader, ...]:
    """The headers of pages that load from their own server only, and from what `sources` adds.

    `sources`: a kind of content, such as img, and where it may come from besides 'self'.
    """
    return (
        (b"content-security-policy", content_policy(**sources).encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"x-frame-options", b"DENY"),
    )


def content_policy(**sources: str) -> str:
    """Neither inline scripts and styles, nor other servers, nor a frame around the page."""
    allowed = dict.fromkeys(("script", "style", "img", "connect"), "") | sources
    return "; ".join(
        [
            "default-src 'none'",
            *(f"{kind}-src 'self' {more}".strip() for kind, more in allowed.items()),
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
