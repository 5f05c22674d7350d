#!/bin/sh
# Makes the virtual environment of the peers, benchmarks/peers/.venv. None of it is a dependency of
# Coterie: Flower's simulation brings a Ray of its own.
set -eu
cd "$(dirname "$0")"
python3 -m venv .venv
.venv/bin/pip install --quiet "flwr[simulation]==1.41.0" "torch==2.13.0" "numpy>=2,<3"
.venv/bin/python -c "import flwr, ray, torch; print('flwr', flwr.__version__, 'ray', ray.__version__, 'torch', torch.__version__)"
