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
has "replicas of a plan are a class" out "24 replicas of 4 microbatches: layers 0-"
says "memory has one line a class" 0 "(24 devices)" "$MUSHER" memory plan.yaml
"$MUSHER" simulate plan.yaml --trace all.trace > /dev/null 2> err && "$MUSHER" simulate plan.yaml --fold --trace one.trace.gz > /dev/null 2>> err || not_ok "traces" "$(cat err)"
gzip -dc one.trace.gz > one.trace
# The ring of all replicas leaves a node from its second device: the first devices of all nodes are alike, and the second ones.
grep -q '"stands_for":12,"alike":"n0-11.0"' one.trace && grep -q '"alike":"n0-11.1"' one.trace && ok "one device stands for all" || not_ok "one device stands for all" "$(head -c 600 one.trace)"
(($(wc -c < one.trace.gz) * 40 < $(wc -c < all.trace))) && ok "in a fortieth of the size" || not_ok "in a fortieth of the size" "$(ls -l)"
says "a folded trace is not compared" 3 "is folded (one device represents several)" "$MUSHER" compare one.trace.gz all.trace
"$MUSHER" plot one.trace.gz -o one.gp > out 2> err && grep -qF '\303\227\061\062' one.gp && ok "a row says how many it stands for" || not_ok "a row says how many it stands for" "$(cat err; head -c 900 one.gp)"
# Operators count for all that a device stands for.
"$MUSHER" simulate plan.yaml --fold --steps 1 --trace one.1.gz > /dev/null 2> err && "$MUSHER" simulate plan.yaml --steps 1 --trace all.1 > /dev/null 2>> err || not_ok "traces of one step" "$(cat err)"
"$MUSHER" show one.1.gz | grep matmul > one.ops
"$MUSHER" show all.1 | grep matmul > all.ops
[[ -s one.ops ]] && cmp -s one.ops all.ops && ok "operators of a folded trace count for all" || not_ok "operators of a folded trace count for all" "$(cat one.ops all.ops)"
"$MUSHER" show one.1.gz > out
has "and its devices too" out "24 devices, "
# Replicas that share fair links: equal ones still fall together exactly.
sed 's/up, count: 12, between: \[n, s\], bandwidth: 20 GB/up, count: 12, between: [n, s], sharing: fair, bandwidth: 20 GB/' fleet.yaml > fair.yaml
"$MUSHER" plan job.yaml fair.yaml --baseline data-parallel -o fair.plan.yaml > out 2> err || not_ok "a plan with contention" "$(cat err)"
says "a trace too large is of one replica and says so" 0 "one steady step of one replica of each class, 2 of 24 devices" "$MUSHER" simulate fair.plan.yaml --trace small.trace.gz --trace-memory 100kB
gzip -dc small.trace.gz | head -n 1 > head
has "its classes have equal times" head '"classes":"equal_times"'
says "what is too large to explain is explained by one replica" 0 "explained: one replica of each class without the traffic of the others, 1 of 24 devices" "$MUSHER" simulate fair.plan.yaml --explain --what-if 0 --trace-memory 1MB
kinds() { "$MUSHER" simulate fair.plan.yaml --explain --what-if 0 --json "$@" 2> err | grep -m 1 -o '"kinds": {[^}]*}' | grep -o '[0-9]*' | paste -sd ' '; }
some=$(kinds --trace-memory 1MB) all=$(kinds)
awk -v x="$some" -v y="$all" 'BEGIN {n = split(x, a); m = split(y, b); for (i = 1; i <= n; i++) {s += a[i]; t += b[i]; d += a[i] > b[i] ? a[i] - b[i] : b[i] - a[i]}; exit !(n && n == m && d < 0.1 * t)}' && ok "nearly as by all" || not_ok "nearly as by all" "$some; $all"
says "and refused where that is too large" 6 "--trace-memory" "$MUSHER" simulate fair.plan.yaml --trace small.trace --trace-memory 1kB
# The same bytes whatever else is asked for.
"$MUSHER" simulate plan.yaml --trace a.trace --samples 2 --threads 1 > /dev/null 2>&1 && "$MUSHER" simulate plan.yaml --trace b.trace --samples 2 --threads 3 > /dev/null 2>&1
cmp -s a.trace b.trace && cmp -s a.trace all.trace && ok "the trace does not depend on threads" || not_ok "the trace does not depend on threads" "$(ls -l)"
head -c 2000 small.trace.gz > cut.gz
[[ $(wc -c < small.trace.gz) -gt 2000 ]] || head -c 500 small.trace.gz > cut.gz
says "a truncated trace is refused" 3 "the gzip file is broken or truncated" "$MUSHER" show cut.gz
[[ -z $(find . -name '.*' -type f) ]] && ok "no temporary is left" || not_ok "no temporary is left" "$(ls -la)"
exit $bad
