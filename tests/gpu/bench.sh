#!/bin/bash
# tests/gpu/bench.sh BUILD - PyTorch first, where python3 has it, 90 and 110 s at most, then musher beside it in what is left of
# GPU_SECONDS (385). The table comes last; BUILD/gpu-bench.json has it all. GPU_TORCH=file: lines of tests/gpu/torch_gpt2.py that are there already.
set -u
BUILD=${1:?usage: bench.sh BUILD}
. tests/gpu/common.inc
all=$(seconds 385)
needs gpu-bench trained
lines=$BUILD/gpu-torch.txt
rm -f "$BUILD"/gpu-bench.json.*.trace
if [[ -n ${GPU_TORCH:-} ]]; then
    cp "$GPU_TORCH" "$lines"
elif python3 -c 'import torch' 2>/dev/null; then
    : >"$lines"
    timeout 90 python3 tests/gpu/torch_gpt2.py 124m 16 1024 20 >>"$lines" || echo "gpu-bench: PyTorch failed at 124m" >&2
    timeout 110 python3 tests/gpu/torch_gpt2.py 350m 8 1024 15 >>"$lines" || echo "gpu-bench: PyTorch failed at 350m" >&2
else
    : >"$lines"
    echo "gpu-bench: python3 has no torch: nothing to stand beside" >&2
fi
export GPU_SECONDS=$((all - SECONDS > 60 ? all - SECONDS : 60))
timeout $((GPU_SECONDS + 15)) "$BUILD/gpu-bench" "$BUILD/gpu" "$lines" "$BUILD/gpu-bench.json"
