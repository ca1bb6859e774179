#!/bin/bash
# tests/gpu/check.sh BUILD - the checks. They end by themselves, within GPU_SECONDS (420).
set -u
BUILD=$1
. tests/gpu/common.inc
needs gpu-check cases
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
export GPU_SECONDS=$(seconds 420)
timeout $((GPU_SECONDS + 15)) "$BUILD/gpu-check" "$BUILD/gpu"
