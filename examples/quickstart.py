"""Train two recommenders, compare them over the same users, and recommend to one user."""

import coterie
from coterie.evaluation.significance import compare

# Also accepts a data frame, a csv file or the name of another dataset.
data = coterie.load("synthetic")

popular = coterie.run("popular", data, seed=1)
gmf = coterie.run("gmf", data, seed=1)

for run in (popular, gmf):
    metrics = {name: round(run.metrics[name], 4) for name in ("HR@10", "NDCG@10")}
    print(run.result["algorithm"], metrics)

test = compare(gmf.evaluation.table["NDCG@10"], popular.evaluation.table["NDCG@10"])
print(f"difference {test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]")
print(f"p = {test.p_value:.1e}")

for item, score, title in gmf.recommend(user=7, n=5):
    print(f"{item:>5}  {title:<30} {score:.3f}")
