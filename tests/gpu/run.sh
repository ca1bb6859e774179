#!/bin/bash
# tests/gpu/run.sh BUILD - the benches of profile --emit and the plans of the prediction, traces in BUILD/gpu-out.
set -u
BUILD=${1:?usage: run.sh BUILD}
. tests/gpu/common.inc
needs gpu-run runs
mkdir -p "$BUILD/gpu-out"
export GPU_SECONDS=$(seconds 160)
timeout $((GPU_SECONDS + 15)) "$BUILD/gpu-run" "$BUILD/gpu" "$BUILD/gpu-out"
