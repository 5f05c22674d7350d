#!/usr/bin/env bash
# Every entry of src/coterie/tuned.yaml, found again. The same number of trials for every method on a dataset. Trials are kept
# where they are finished: a search that was interrupted goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
federated="fedavg fedfast fedavg+actvsamp fedavg+actvagg"
for name in gmf bpr als ease $federated; do
  size=(--set embedding_size=10); [ "$name" = ease ] && size=()
  python benchmarks/tune.py ml-100k "$name" --trials 40 --finalists 6 "${size[@]}" --write
done
for name in gmf bpr als ease $federated; do
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
