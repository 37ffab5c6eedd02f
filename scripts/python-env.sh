#!/bin/sh
# Makes .venv/ with what the exporters (samples/exporters) and the comparisons with PyTorch (tests/bench) need, from PyPI.
# Nothing here is needed to build sennit, to run it or to test it. A second call does nothing.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
# The wheels that PyPI serves for Linux expect CUDA's libraries even on machines without a GPU; pip brings them along.
packages="torch onnx onnxruntime onnxscript transformers safetensors numpy"

if [ ! -x .venv/bin/python ]; then
    $python -m venv .venv || {
        echo "python-env: $python has no venv module; on Debian: apt-get install python3-venv" >&2
        exit 1
    }
fi
installed() {
    .venv/bin/python -c 'import sys, importlib.metadata as m; print(*(f"{p} {m.version(p)}" for p in sys.argv[1:]), sep=", ")' \
        $packages 2>/dev/null
}
if ! installed >/dev/null; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check $packages
fi
# torch.compile generates C++ and includes Python.h.
if ! command -v g++ >/dev/null; then
    echo "python-env: torch.compile needs g++; on Debian: apt-get install g++ python3-dev" >&2
fi
echo "python-env: .venv is ready: $(installed)"
