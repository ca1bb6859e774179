#!/bin/bash
# tests/gpu/gpu.sh CALL OUT [BUILD] - the day a GPU is there: two calls, each below ten minutes by the sum of its limits, on a
# machine that has a compiler, nvcc, cuBLAS, NCCL and little else. BUILD/gpu was written before by `make gpu-files`.
#   1   builds what it needs; the checks; benches and plans of the prediction (gpu-run)
#   2   builds where the machine is another one; PyTorch and the bench; kernels under compute-sanitizer
# OUT/gpu-CALL.tar.gz is all that it leaves; OUT/gpu-CALL.txt what it said. Exit 1: something failed.
# GPU_BUILT=1: everything is built already. GPU_CALL_SECONDS=570: seconds of the call. SLOWDOWN=4: limits are so many times as long (tests under sanitizers). Back where musher has its libraries: tests/gpu/predict.sh table BUILD/gpu FOLDER, of
# what lies in the first archive's gpu-out.
set -u
call=${1:-} out=${2:-} BUILD=${3:-build}
slow=${SLOWDOWN:-1} limit=$((${GPU_CALL_SECONDS:-570} * slow)) # of the ten minutes
status=0
[[ $call == [12] && -n $out ]] || {
    echo "usage: tests/gpu/gpu.sh 1|2 OUT [BUILD]" >&2
    exit 2
}
mkdir -p "$out" "$BUILD/gpu-out"
# part NAME SECONDS COMMAND...: so long at most, and no longer than the call has.
part() {
    local name=$1 seconds=$(($2 * slow)) left=$((limit - SECONDS)) code=0
    shift 2
    ((seconds > left)) && seconds=$left
    echo "--- $name (at most $seconds s)"
    if ((seconds < 5)); then
        echo "not ok $name: no time is left"
        status=1
        return
    fi
    GPU_SECONDS=$((seconds > 40 ? seconds - 20 : seconds)) timeout -k 5 "$seconds" "$@" || code=$?
    ((code)) && { echo "not ok $name: exit $code"; status=1; }
    echo "--- $name: ${SECONDS} s so far"
}
build() { make -s -j"$(nproc)" BUILD="$BUILD" WERROR= gpu-ready; }
export -f build
export BUILD
all_parts() {
    local kept there=() f
    [[ -n ${GPU_BUILT:-} ]] || part build 200 bash -c build
    if [[ $call == 1 ]]; then
        part check $(((limit - SECONDS) / slow - 165)) env GPU_LATER=1 tests/gpu/check.sh "$BUILD"
        part predict 160 tests/gpu/run.sh "$BUILD"
        kept=(gpu-out)
    else
        part bench 400 tests/gpu/bench.sh "$BUILD"
        [[ -n ${GPU_SMALL:-} ]] || part sanitize 100 tests/gpu/sanitize.sh "$BUILD" 45
        kept=(gpu-bench.json gpu-torch.txt gpu-memcheck.log gpu-racecheck.log $(cd "$BUILD" && ls gpu-bench.json.*.trace 2>/dev/null))
    fi
    for f in "${kept[@]}"; do [[ -e $BUILD/$f ]] && there+=("$f"); done
    tar -czf "$out/gpu-$call.tar.gz" -C "$BUILD" "${there[@]}" || status=1
    return $status
}
all_parts 2>&1 | tee "$out/gpu-$call.txt"
exit "${PIPESTATUS[0]}"
