#!/bin/bash
# tests/cli/fleet.sh - equal devices of a large cluster are folded: show, memory, and the trace of a folded simulation.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6
small_job | sed 's/global_batch: 6/global_batch: 96/' > job.yaml
cat > fleet.yaml <<'END'
version: 1
name: fleet
device_types: [{name: g, device: A100-SXM4-40}]
nodes: [{name: n, count: 12, devices: {type: g, count: 2}}]
switches: [{name: s}]
links:
  - {name: nv, count: 12, between: [n], bandwidth: 200 GB/s, latency: 2 us}
  - {name: up, count: 12, between: [n, s], bandwidth: 20 GB/s, latency: 5 us}
END
says "equal devices and links of a cluster are one line" 0 "n0-11.0-1  g: A100-SXM4-40, 40 GB (37.3 GiB) (24 devices)" "$MUSHER" show fleet.yaml
[ "$(wc -l < out)" = 4 ] && ok "and no other" || not_ok "and no other" "$(cat out)"
"$MUSHER" show fleet.yaml --all > out
[ "$(wc -l < out)" = 49 ] && ok "--all has one line each" || not_ok "--all has one line each" "$(wc -l < out)"
"$MUSHER" plan job.yaml fleet.yaml --baseline data-parallel -o plan.yaml > out 2> err || not_ok "a plan" "$(cat err)"
has "replicas of a plan are a class" out "replicas 0-23: 4 × [g: 0-"
says "memory has one line a class" 0 "(24 devices)" "$MUSHER" memory plan.yaml
"$MUSHER" simulate plan.yaml --trace all.trace > /dev/null 2> err && "$MUSHER" simulate plan.yaml --fold --trace one.trace.gz > /dev/null 2>> err || not_ok "traces" "$(cat err)"
gzip -dc one.trace.gz > one.trace
grep -q '"stands_for":24,"alike":"n0-11.0-1"' one.trace && ok "one device stands for all" || not_ok "one device stands for all" "$(head -c 600 one.trace)"
(($(wc -c < one.trace.gz) * 40 < $(wc -c < all.trace))) && ok "in a fortieth of the size" || not_ok "in a fortieth of the size" "$(ls -l)"
says "a folded trace is not compared" 3 "is folded (one device represents several)" "$MUSHER" compare one.trace.gz all.trace
"$MUSHER" plot one.trace.gz -o one.gp > out 2> err && grep -qF '\303\227\062\064' one.gp && ok "a row states the number of its devices" || not_ok "a row states the number of its devices" "$(cat err; head -c 900 one.gp)"
exit $bad
