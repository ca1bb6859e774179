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
grep -q '"stands_for":12,"alike":"n0-11.0"' one.trace && ok "one device of a node stands for those of all nodes" || not_ok "one device of a node stands for those of all nodes" "$(head -c 600 one.trace)"
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
# Replicas of two shapes that contend for links, so that nothing falls together exactly.
sed 's/up, count: 12, between: \[n, s\], bandwidth: 20 GB/up, count: 12, between: [n, s], sharing: fair, bandwidth: 20 GB/' fleet.yaml > fair.yaml
"$MUSHER" plan job.yaml fair.yaml --baseline data-parallel -o fair.plan.yaml > out 2> err || not_ok "a plan with contention" "$(cat err)"
says "a trace too large is of one replica and says so" 0 "one steady step of one replica of each class, 1 of 24 devices" "$MUSHER" simulate fair.plan.yaml --trace small.trace.gz --trace-memory 60kB
gzip -dc small.trace.gz | head -n 1 > head
has "its classes have the same shape" head '"classes":"equal_shape"'
says "what is too large to explain is explained by one replica" 0 "explained: one replica of each class without the traffic of the others, 1 of 24 devices" "$MUSHER" simulate fair.plan.yaml --explain --what-if 0 --trace-memory 1MB
# Stages of 1 to 11 layers, so that no two devices are equal: one line a class of replicas.
cat > many.yaml << 'END'
version: 1
name: many
device_types: [{name: g, device: A100-SXM4-40}, {name: h, device: H100-SXM5}]
nodes: [{name: n, devices: {type: g, count: 11}}, {name: m, devices: {type: h, count: 11}}]
links: [{name: nv, every: inside, bandwidth: 200 GB/s, latency: 2 us}, {name: ib, every: across, bandwidth: 20 GB/s, latency: 5 us}]
END
sed 's/n_layer: 2/n_layer: 31/; s/n_embd: 32/n_embd: 512/' job.yaml > deep.yaml
{
    printf 'version: 1\nname: deep\nmicrobatch: 1\nreplicas:\n'
    for node in n m; do
        awk -v n=$node 'BEGIN { printf "  - {microbatches: 48, stages: ["; for (s = 0; s < 11; s++) printf "%s{layers: [%d, %d], device: %s.%d}", s ? ", " : "", s * (s + 1) / 2, (s + 1) * (s + 2) / 2 - 1, n, s; print "]}" }'
    done
    echo job:; sed 's/^/  /' deep.yaml; echo cluster:; sed 's/^/  /' many.yaml
} > deep.plan.yaml
"$MUSHER" simulate deep.plan.yaml --explain --what-if 0 > out 2> err || not_ok "a plan of many classes" "$(cat err)"
grep -q '^  replica 0: busy [0-9.]* to [0-9.]* %, peak memory .* (11 devices)$' out && ok "use is one line a class of replicas" || not_ok "use is one line a class of replicas" "$(cat out)"
grep -q '^  replica 1: means: busy ' out && ok "explained devices too" || not_ok "explained devices too" "$(cat out)"
says "equal lanes of a lowered plan share a line" 0 "musher: m.0, n.0: layers 0-0, 4 procedures" "$MUSHER" lower deep.plan.yaml -o deep.program
says "memory too" 0 "  replica 1: the fullest, m." "$MUSHER" memory deep.plan.yaml
"$MUSHER" simulate deep.plan.yaml --explain --what-if 0 --all > out
(($(grep -c '^  m\.[0-9]* ' out) == 22)) && ok "--all has every device" || not_ok "--all has every device" "$(cat out)"
# Sharded stages of one kind are one line, and those of another kind another.
{
    printf 'version: 1\nname: shards\nmicrobatch: 2\nreplicas:\n'
    for n in $(seq 0 16); do
        printf '  - {microbatches: 3, stages: [{layers: [0, 7], devices: [n%s.0, n%s.1], sharding: {ratios: [[1, %s]], operators: [{match: "*.attn.*", shard: heads}, {match: "*", shard: batch}]}}]}\n' $n $n $((n < 5 ? 3 : 1))
    done
    echo job:; sed 's/^/  /; s/global_batch: 96/global_batch: 102/; /microbatch:/d' job.yaml
    echo cluster:; sed 's/^/  /; s/count: 12/count: 17/' fleet.yaml
} > shards.yaml
says "sharded stages of one kind are one line" 0 "  12 sharded stages: 2 devices; ratios 50 %, 50 %; heads: *.attn.*; batch: *" "$MUSHER" show shards.yaml
has "of another kind another" out "  5 sharded stages: 2 devices; ratios 25 %, 75 %; "
"$MUSHER" show shards.yaml --all > out
(($(grep -c '^  replica [0-9]*, stage 0: layers 0-7 on' out) == 17)) && ok "--all has every stage" || not_ok "--all has every stage" "$(cat out)"
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
