from coterie.testing import FederatedAlgorithmTests


class TestConformance(FederatedAlgorithmTests):
    algorithm = "fedncf"
