"""FedFast across the devices of made-up people: train, see what it cost, serve somebody who was not there."""

import tempfile
from pathlib import Path

import coterie

data = coterie.load("synthetic", n_users=300, n_items=200, sample_users=200)
folder = Path(tempfile.mkdtemp()) / "run"
run = coterie.run("fedfast", data, rounds=60, embedding_size=8, out=folder, seed=1)

print(f"HR@10 by full ranking {run.full['HR@10']:.3f}")
print(f"{run.result['updates']:,} updates, {run.result['bytes_up'] / 1e6:.1f} MB up")

asked = run.result["selections"]
print(f"users were asked {asked['mean']:.1f} times on average, {asked['most']} times at most")

# somebody who was never in training: a row of their own from what they chose, without a round
for item, score, title in run.recommend_new_user([1, 9, 17], n=3):
    print(f"{item:>4}  {score:6.3f}  {title}")

# new people and items come in by training on from the weights there are
everybody = coterie.load("synthetic", n_users=300, n_items=200)
further = coterie.run("fedfast", everybody, rounds=20, embedding_size=8, start_from=str(folder))
print(f"trained on with {everybody.n_users} people: HR@10 {further.full['HR@10']:.3f}")
