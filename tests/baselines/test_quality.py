"""Lower bounds for the quality of the tuned defaults on real data."""

from __future__ import annotations

import pytest

import coterie


@pytest.mark.parametrize(("name", "hit_rate", "ndcg"), [("gmf", 0.80, 0.50), ("bpr", 0.79, 0.0)])
def test_factor_models_on_movielens_100k(
    real_data, name: str, hit_rate: float, ndcg: float
) -> None:
    real_data("ml-100k", "u.data", "ml-100k.inter")
    run = coterie.run(name, "ml-100k", protocol="loo-50", embedding_size=10, popularity_prior=0)
    assert run.metrics["HR@10"] >= hit_rate
    assert run.metrics["NDCG@10"] >= ndcg


@pytest.mark.long
def test_matrix_factorisation_on_ncf_negatives(real_data, shared_datasets) -> None:
    """On the published test pairs and negatives of ML-1M.

    He et al. 2017 report 0.70 for their best factor models.
    """
    real_data("ml-1m", "ratings.dat")
    published = shared_datasets / "ml-1m" / "ncf.test.negative.gz"
    if not published.exists():
        pytest.skip(f"NCF's negatives are not in {published.parent}")
    run = coterie.run("als", "ml-1m", protocol="loo-99", candidates_file=str(published))
    assert run.metrics["HR@10"] >= 0.70
