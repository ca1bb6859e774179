#!/bin/bash
# tests/gpu/check.sh BUILD - the checks, then the kernels once more under compute-sanitizer where it is installed.
# Ends by itself: every check has a limit of its own, and the whole has one.
set -u
build=$1
[[ -f $build/gpu/cases ]] || { echo "gpu-check: $build/gpu holds no cases: run 'make gpu-files' where musher has all its libraries, and bring them along" >&2; exit 3; }
export MUSHER_CUDA_PLUGIN=$PWD/$build/libmusher_cuda.so
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
timeout 420 "$build/gpu-check" "$build/gpu"
status=$?
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [[ -n $sanitizer ]]; then
    for tool in memcheck racecheck; do
        timeout 100 "$sanitizer" --target-processes all --tool $tool --error-exitcode 9 "$build/gpu-check" --kernels "$build/gpu" >"$build/gpu-$tool.log" 2>&1
        code=$?
        echo "compute-sanitizer $tool: exit $code: $(tail -1 "$build/gpu-$tool.log")"
        ((code)) && status=1
    done
else
    echo "compute-sanitizer is not installed: left out"
fi
exit $status
