#!/bin/bash
# tests/gates/r20_soak.sh - R20: questions planned, simulated and described again and again in one process: the same bytes each time, resident memory flat
# to 1 %, no descriptor left open. Short: 10 s on two small clusters. Long: SOAK_SECONDS (an hour; R20 asks for a day), also on clusters of 8 and 64 devices.
# usage: [BUILD=build] [MUSHER_LONG=1 SOAK_SECONDS=86400] tests/gates/r20_soak.sh      from the root of the tree, after make tests
set -u
root=$PWD
export BUILD=${BUILD:-build} OPENBLAS_NUM_THREADS=1
MUSHER=${MUSHER:-$root/$BUILD/musher}
. tests/gates/common.inc
small_job >"$scratch/job.yaml"
small_team >"$scratch/team.yaml"
cp examples/team.yaml "$scratch/four.yaml"
clusters=("$scratch/team.yaml" "$scratch/four.yaml") seconds=10
if [[ $long == 1 ]]; then
    seconds=${SOAK_SECONDS:-3600}
    sed 's/devices: \[{type: fast}, {type: slow}\]/devices: {type: fast, count: 5}/; s/devices: \[{type: slow}\]/devices: {type: slow, count: 3}/; $a \  - {name: second, between: [b], bandwidth: 1 GB/s, latency: 20 us}' "$scratch/team.yaml" >"$scratch/eight.yaml"
    sed 's/devices: \[{type: fast}, {type: slow}\]/devices: {type: fast, count: 40}/; s/devices: \[{type: slow}\]/devices: {type: slow, count: 24}/; $a \  - {name: second, between: [b], bandwidth: 1 GB/s, latency: 20 us}' "$scratch/team.yaml" >"$scratch/sixty-four.yaml"
    clusters+=("$scratch/eight.yaml" "$scratch/sixty-four.yaml")
fi
if nm -D "$MUSHER" | grep -q '__[at]san_init'; then
    figure R20 soak "not under a sanitizer, which keeps freed memory"
    exit 0
fi
# One arena, so that the short form need not wait until every thread's arena has had every size.
export MALLOC_ARENA_MAX=1
if read -r rounds hash early late used used_late open < <("$programs/soak" "$seconds" "$scratch/job.yaml" "${clusters[@]}" 2>"$scratch/err") && [[ ! -s $scratch/err ]]; then
    figure R20 soak "$(thousands "$rounds") rounds in $seconds s, all with hash $hash; resident memory $(thousands "$early") and $(thousands "$late") KB, allocated $(thousands "$used") and $(thousands "$used_late") KB, $open descriptors"
else
    not_ok "R20 soak" "${rounds-0} rounds, ${early-} and ${late-} KB: $(cat "$scratch/err")"
fi
exit $bad
