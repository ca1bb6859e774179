#!/bin/bash
# tests/interop/transformers.sh [FAMILY...] - checkpoints of musher in Hugging Face's transformers, and weights of transformers in musher: for each family a
# tiny random model, its loss on the same tokens by both, in fp64. Not part of `make check`: it needs python3 and, in PYTHON=…, an interpreter
# with torch and transformers; without it, it makes an environment from the package index (about 5 GB), and is skipped where that cannot be reached.
set -u
cd "$(dirname "$0")/../.." || exit 6
. tests/cli/common.inc
MUSHER=${MUSHER:-$PWD/build/musher}
export OPENBLAS_NUM_THREADS=1
if [[ ! ${PYTHON-} ]]; then
    PYTHON=$scratch/venv/bin/python
    python3 -m venv "$scratch/venv" >"$scratch/err" 2>&1 && "$PYTHON" -m pip install -q --no-input --no-cache-dir torch transformers safetensors numpy >"$scratch/err" 2>&1
fi
if ! "$PYTHON" -c 'import torch, transformers' 2>"$scratch/err"; then
    echo "skip: transformers: no interpreter has torch and transformers, and none can be made here: $(tail -n 1 "$scratch/err")"
    exit 0
fi
"$PYTHON" tests/interop/losses.py "$MUSHER" "$scratch" "$@" || bad=1
exit $bad
