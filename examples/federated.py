"""Train FedFast on synthetic users, print its costs, and recommend to a new user."""

import tempfile
from pathlib import Path

import coterie

data = coterie.load("synthetic", n_users=300, n_items=200, sample_users=200)
folder = Path(tempfile.mkdtemp()) / "run"
run = coterie.run("fedfast", data, rounds=60, embedding_size=8, out=folder, seed=1)

print(f"HR@10 by full ranking {run.full['HR@10']:.3f}")
print(f"{run.result['updates']:,} updates, {run.result['bytes_up'] / 1e6:.1f} MB up")

counts = run.result["selections"]
print(f"users were selected {counts['mean']:.1f} times on average, {counts['most']} at most")

# A new user gets an embedding fitted to the items they chose; no training round is needed.
for item, score, title in run.recommend_new_user([1, 9, 17], n=3):
    print(f"{item:>4}  {score:6.3f}  {title}")

# To add new users and items permanently, continue training from the saved weights.
all_users = coterie.load("synthetic", n_users=300, n_items=200)
continued = coterie.run("fedfast", all_users, rounds=20, embedding_size=8, start_from=str(folder))
print(f"continued with {all_users.n_users} users: HR@10 {continued.full['HR@10']:.3f}")
