#!/bin/bash
# tests/gpu/bench.sh BUILD - PyTorch first, where python3 has it, then musher beside it. Below nine minutes in all.
set -u
build=$1
[[ -f $build/gpu/cases ]] || { echo "gpu-bench: $build/gpu holds no programs: run 'make gpu-files' where musher has all its libraries, and bring them along" >&2; exit 3; }
export MUSHER_CUDA_PLUGIN=$PWD/$build/libmusher_cuda.so
: >"$build/gpu-torch.txt"
if python3 -c 'import torch' 2>/dev/null; then
    timeout 130 python3 tests/gpu/torch_gpt2.py 124m 16 1024 20 >>"$build/gpu-torch.txt" || echo "gpu-bench: PyTorch failed at 124m" >&2
    timeout 150 python3 tests/gpu/torch_gpt2.py 350m 8 1024 15 >>"$build/gpu-torch.txt" || echo "gpu-bench: PyTorch failed at 350m" >&2
else
    echo "gpu-bench: python3 has no torch: nothing to stand beside" >&2
fi
timeout 240 "$build/gpu-bench" "$build/gpu" "$build/gpu-torch.txt"
