"""Train two recommenders on your own table, compare them over the same people, recommend to one of them."""

import coterie
from coterie.evaluation.significance import compare

# A data frame, a csv file or a dataset's name would do as well.
data = coterie.load("synthetic")

popular = coterie.run("popular", data, seed=1)
gmf = coterie.run("gmf", data, seed=1)

for run in (popular, gmf):
    print(
        run.result["algorithm"],
        {name: round(run.metrics[name], 4) for name in ("HR@10", "NDCG@10")},
    )

verdict = compare(gmf.evaluation.table["NDCG@10"], popular.evaluation.table["NDCG@10"])
print(
    f"difference {verdict.difference:+.4f} [{verdict.low:+.4f}, {verdict.high:+.4f}], p = {verdict.p_value:.1e}"
)

for item, score, title in gmf.recommend(user=7, n=5):
    print(f"{item:>5}  {title:<30} {score:.3f}")
