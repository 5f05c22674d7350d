"""The checks that authors of algorithms run."""

from __future__ import annotations

from coterie import testing
from coterie.federated.secagg.server import PROTOCOLS


def test_every_protocol_of_secure_aggregation_is_checked() -> None:
    checked = [settings["secure_aggregation"] for settings in testing.PROTECTED]
    assert sorted(checked) == sorted(PROTOCOLS)
