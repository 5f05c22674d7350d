"""The conformance suite of Coterie, run on the plug-in."""

from typing import Any, ClassVar

from coterie.testing import FederatedAlgorithmTests


class TestFedSGDMF(FederatedAlgorithmTests):
    algorithm = "fedsgd-mf"
    settings: ClassVar[dict[str, Any]] = {"embedding_size": 4}
