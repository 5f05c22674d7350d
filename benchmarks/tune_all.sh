#!/usr/bin/env bash
# The searches behind src/coterie/experiments/tuned.yaml: the same number of trials for all centralised methods on a dataset, and for all
# federated ones. Trials are kept where they are finished: a search that was interrupted goes on.
# Not from here: fedfast and fedavg on ml-1m, where 27 and eight settings were tried by hand on the validation part.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in gmf bpr als ease; do
  size=(--set embedding_size=10); [ "$name" = ease ] && size=()
  python benchmarks/tune.py ml-100k "$name" --trials 40 --finalists 6 "${size[@]}" --write
done
for name in gmf bpr als ease; do
  size=(--set embedding_size=16); [ "$name" = ease ] && size=()
  python benchmarks/tune.py synthetic "$name" --trials 20 --finalists 4 "${size[@]}" --write
done
for name in als bpr gmf; do  # EASE needs a matrix of items by items, too large here
  python benchmarks/tune.py foursquare-italy $name --trials 10 --set epochs=40 --set embedding_size=32 --write
done
for name in als bpr gmf ease; do
  size=(--set embedding_size=64); [ $name = ease ] && size=()
  python benchmarks/tune.py ml-1m $name --trials 10 "${size[@]}" --write
done
for name in fedfast fedavg; do
  every=(--set evaluate_every=25); few=(--set rounds=200 --set evaluate_every=20)
  python benchmarks/tune.py ml-100k $name --trials 30 --finalists 5 --set embedding_size=10 --set rounds=500 "${every[@]}" --write
  python benchmarks/tune.py synthetic $name --trials 20 --finalists 3 "${few[@]}" --write
  python benchmarks/tune.py tripadvisor $name --trials 16 --finalists 5 --set embedding_size=10 "${few[@]}" --write
done
for name in gmf bpr; do
  python benchmarks/tune.py tripadvisor $name --trials 16 --finalists 5 --set embedding_size=10 --write
done
# FedBSO's comparison: embedding size 16, loo-100; on ML-100K and ML-1M the others' winners stand in benchmarks/fedbso.py. ML-1M's winners
# were then trained on for 800 rounds, with two more trials each for fedbso and fedfast by hand; Pinterest's for 360.
for name in fedbso fedfast fedavg gmf; do
  many=(--set rounds=500 --set evaluate_every=100); few=(--set rounds=300 --set evaluate_every=100 --set local_epochs=1)
  fewer=(--set rounds=200 --set evaluate_every=100 --set local_epochs=1)
  [ $name = gmf ] && many=() few=() fewer=()
  coterie tune $name -d ml-100k -p loo-100 --set embedding_size=16 "${many[@]}" --trials 20 --finalists 3 --seeds 2
  coterie tune $name -d ml-1m -p loo-100 --set embedding_size=16 "${few[@]}" --trials 10 --finalists 0
  coterie tune $name -d pinterest --set embedding_size=16 "${fewer[@]}" --trials 6 --finalists 0
done
