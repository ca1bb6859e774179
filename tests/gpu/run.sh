#!/bin/bash
# tests/gpu/run.sh BUILD - the benches of profile --emit and the plans of the prediction, traces in BUILD/gpu-out.
set -u
BUILD=${1:?usage: run.sh BUILD}
. tests/gpu/common.inc
needs gpu-run runs
mkdir -p "$BUILD/gpu-out/hosted"
all=$(seconds 160) status=0
for set in . hosted; do
    export GPU_SECONDS=$((all - SECONDS > 30 ? all - SECONDS : 30))
    timeout $((GPU_SECONDS + 15)) "$BUILD/gpu-run" "$BUILD/gpu/$set" "$BUILD/gpu-out/$set" || status=$?
done
exit $status
