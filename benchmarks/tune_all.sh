#!/usr/bin/env bash
# The searches behind src/coterie/experiments/tuned.yaml. On each dataset all centralised methods
# have the same number of trials, and so have all federated methods. Finished trials are cached: the
# same command resumes an interrupted search.
# Not from this script: fedfast and fedavg on ml-1m, for which 27 and eight settings were tried by
# hand on the validation part.
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
# All but gmf on foursquare-italy are from `benchmarks/fpl.py search`.
few=(--set epochs=40 --set embedding_size=32)
python benchmarks/tune.py foursquare-italy gmf --trials 10 "${few[@]}" --write
for name in als bpr gmf ease; do
  size=(--set embedding_size=64); [ $name = ease ] && size=()
  python benchmarks/tune.py ml-1m $name --trials 10 "${size[@]}" --write
done
# FedAvg on ml-100k and ml-1m, and all methods on tripadvisor, yelp (a sample of 7,975 users) and
# pinterest are from benchmarks/paper_search.py, FedAvg as `fedavg, touched`. The entries `fedavg,
# average=all` are of this script when that was the default.
# FedALS and FedEASE, by full ranking (--set candidates=0), in two searches: one of the ends of the
# ranges, one of random settings with alpha from 1 to 300, reg from 0.002 to 5, reg_exponent 0.5 or 1
# and sizes from 8 to 128, at most 16 rounds. FedALS, both searches: 81 trials on ml-100k, 66 on
# tripadvisor and on watson-articles (and six there by hand, with larger sizes), 32 on
# foursquare-italy, 23 on yelp, 20 on pinterest. FedEASE: reg from 0.03 to 5,000 and length_exponent
# 0 to 0.75, 45 trials each on ml-100k, tripadvisor and watson-articles, 27 on ml-1m, 13 on pinterest.
# FedALS on ml-1m: by loo-50, 31 trials with at most ten rounds, and ten by hand.
for name in fedfast fedavg; do
  size=(--set embedding_size=10)
  many=(--set rounds=500 --set evaluate_every=25)
  few=(--set rounds=200 --set evaluate_every=20)
  python benchmarks/tune.py ml-100k $name --trials 30 --finalists 5 \
    "${size[@]}" "${many[@]}" --write
  python benchmarks/tune.py synthetic $name --trials 20 --finalists 3 "${few[@]}" --write
done
