#!/bin/bash
# tests/cli/collectives.sh - random programs of collectives on real processes: results, the simulator's order, its time to the nanosecond.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
count=6
[[ ${MUSHER_LONG:-} ]] && count=120
for n in 1 2 3 4 6; do
    what="$count programs of collectives on $n ranks"
    mpirun --oversubscribe --bind-to none -n $n "$BUILD/tests/programs/collective_ranks" $((1000 * n)) $count > "$scratch/out" 2> "$scratch/err" &&
        grep -q "^ok" "$scratch/out" && ok "$what" || not_ok "$what" "$(head -c 300 "$scratch/err")"
done
exit $bad
