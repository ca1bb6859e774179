#!/bin/bash
# tests/cli/late.sh - lanes on devices with discrete memory, beside ranks on the host: random programs, bitwise equal to the host.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# late NAME RANKS WHAT FIRST COUNT MODE LEAST: of these seeds at least so many have as many devices as ranks.
late() {
    rm -rf "$scratch/saves"
    mkdir "$scratch/saves"
    timeout $((300 * ${SLOWDOWN:-1})) mpirun --oversubscribe --bind-to none -n $2 "$BUILD/tests/programs/late_ranks" $3 $4 $5 $6 "$scratch/saves" > "$scratch/out" 2> "$scratch/err"
    local n
    n=$(sed -n 's/^ok \([0-9]*\)$/\1/p' "$scratch/out")
    ((${n:-0} >= $7)) && ok "$1 ($n programs)" || not_ok "$1" "${n:-none}: $(head -c 400 "$scratch/err")"
}
more=1
[[ ${MUSHER_LONG:-} ]] && more=10
for n in 2 3 4; do
    late "pipelines of $n devices, late as can be" $n pipelines $((n * 1000)) $((24 * more)) lazy 2
    late "pipelines of $n devices, on threads" $n pipelines $((n * 1000)) $((24 * more)) threads 2
    late "collectives of $n devices, late as can be" $n collectives $((n * 1000)) $((6 * more)) lazy 6
    late "collectives of $n devices, on threads" $n collectives $((n * 1000)) $((6 * more)) threads 6
done
late "operators shared by 2 devices, late as can be" 2 shared 2000 $((2 * more)) lazy 2
late "operators shared by 4 devices, on threads" 4 shared 4000 $((2 * more)) threads 2
# A device that fails ends all ranks with its name and the call.
two_stages > "$scratch/plan.yaml"
"$MUSHER" lower "$scratch/plan.yaml" -o "$scratch/two.program" 2> /dev/null
for at in 600 900; do
    LATE_FAILS_AT=$at timeout $((300 * ${SLOWDOWN:-1})) mpirun --oversubscribe --bind-to none -n 2 "$BUILD/tests/programs/exec_ranks" run 20 --late threads --on 01 "$scratch/two.program" > "$scratch/out" 2> "$scratch/err"
    code=$?
    ((code != 0 && code != 124)) && grep -q "rank 1 (n.1): .*late device: call $at" "$scratch/err" && ok "a device that fails at call $at is named" ||
        not_ok "a device that fails at call $at is named" "$code: $(head -c 400 "$scratch/err")"
done
exit $bad
