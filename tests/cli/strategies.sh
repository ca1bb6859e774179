#!/bin/bash
# tests/cli/strategies.sh - `plan --allow`: plans whose training is not the synchronous one, in a table and in files of their own, which
# simulate to the same time and really run.
set -u
. tests/cli/common.inc
cat LICENSE >"$scratch/text.txt"

# cluster BANDWIDTH [SLOWDOWN of site b]: two sites of two host devices
cluster() {
    cat <<END
version: 1
name: sites
device_types: [{name: p, device: host, memory: 1 GiB, slowdown: 8}, {name: q, device: host, memory: 1 GiB, slowdown: ${2:-8}}]
nodes: [{name: a, host: localhost, devices: {type: p, count: 2}}, {name: b, host: localhost, devices: {type: q, count: 2}}]
links:
  - {name: in-a, between: [a], bandwidth: 1 GB/s, latency: 10 us}
  - {name: in-b, between: [b], bandwidth: 1 GB/s, latency: 10 us}
  - {name: net, between: [a, b], bandwidth: $1, latency: 1 ms}
END
}
cat >"$scratch/job.yaml" <<'END'
version: 1
model: {model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 257}
sequence_length: 32
global_batch: 16
precision: fp32
optimizer: {kind: adamw, lr: 1e-3}
END
cluster '1 MB/s' >"$scratch/slow.yaml"
cluster '1 MB/s' 24 >"$scratch/uneven.yaml"

# value FILE [STRATEGY]: iteration_ns of the plan, or of a strategy's
value() {
    awk -v of="${2:-}" -F '[:,]' '/"strategies"/ { inside = 1 }
        (inside || !of) && /"name"/ { gsub(/[ "]/, "", $2); name = $2 }
        /"iteration_ns"/ && (of ? inside && name == of : !inside) { gsub(/ /, "", $2); print $2; exit }' "$1"
}

for name in slow uneven; do
    "$MUSHER" plan "$scratch/job.yaml" "$scratch/$name.yaml" --allow local-sgd,compress -o "$scratch/$name.plan" --json >"$scratch/$name.json" 2>"$scratch/err"
    check "$name: plans" $?
    for strategy in diloco local-sgd streaming-diloco bf16-sums fp16-sums int8-sums power-sgd; do
        ns=$(value "$scratch/$name.json" $strategy)
        again=$("$MUSHER" simulate "$scratch/$name.plan.$strategy" --json 2>"$scratch/err" | sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
        [[ $ns && $ns == "$again" ]]
        check "$name: the file of $strategy has the time that was printed ($ns, $again ns)" $?
    done
done
(($(value "$scratch/slow.json" diloco) < $(value "$scratch/slow.json")))
check "islands that exchange every 500 steps take less time over a slow link" $?
grep -q 'islands: \[' "$scratch/slow.plan.diloco" && grep -q 'every: 500' "$scratch/slow.plan.diloco"
check "DiLoCo's plan states its islands and steps" $?
! grep -q local_sgd "$scratch/slow.plan"
check "the plan itself is synchronous" $?
grep -q '"assumption": "assumed 1: Douillard' "$scratch/uneven.json"
check "progress has its assumption and source" $?
# The slower site has fewer samples: 16 samples at 3 : 1.
awk '/^  - microbatches/ { n = $3 } /devices?: *\[?b\./ { b += n } /devices?: *\[?a\./ { a += n } END { exit !(a >= 2 * b && b > 0) }' "$scratch/uneven.plan.diloco"
check "islands share the batch by their speed" $?
# 12 and 4 samples a step: of the divisors of 500 and of 8, an update in every 4th step has 16 samples, nearest to 12.
grep -q 'every: \[500, 125\]' "$scratch/uneven.plan.diloco" && grep -q 'every: \[8, 2\]' "$scratch/uneven.plan.local-sgd" && grep -q 'every: 100$' "$scratch/uneven.plan.streaming-diloco" &&
    grep -q 'every: 500$' "$scratch/slow.plan.diloco" && grep -q '"assumption": ".*accumulate up to 4 steps for an update' "$scratch/uneven.json" && ! grep -q 'accumulate' "$scratch/slow.json"
check "the slower island makes fewer updates, as its assumption states" $?
# Memory for whole state on no device: ZeRO inside islands.
sed 's/, {name: q[^}]*}//; s/type: q/type: p/; s/memory: 1 GiB/memory: 2300 KiB/' "$scratch/slow.yaml" >"$scratch/small.yaml"
"$MUSHER" plan "$scratch/job.yaml" "$scratch/small.yaml" --allow local-sgd -o "$scratch/small.plan" >"$scratch/out" 2>"$scratch/err" && grep -q 'zero: [123]' "$scratch/small.plan.diloco" && ! grep -q hybrid_shard "$scratch/small.plan.diloco" &&
    "$MUSHER" run -q "$scratch/small.plan.diloco" --data "$scratch/text.txt" --steps 3 >/dev/null 2>"$scratch/err"
check "islands shard their state where memory needs it, and it really runs" $?
# Nine nodes in three groups: nine islands are more than the source of DiLoCo's progress covers; where there is no other division they are stated.
nodes() {
    echo "version: 1"
    echo "name: nine"
    echo "device_types: [{name: p, device: host, memory: 1 GiB, slowdown: 8}]"
    echo "nodes: [$(for i in 0 1 2 3 4 5 6 7 8; do echo "{name: n$i, host: localhost, devices: {type: p, count: 1}},"; done)]"
    echo "switches: [{name: w}, {name: g0}, {name: g1}, {name: g2}]"
    echo "links:"
    for i in 0 1 2 3 4 5 6 7 8; do echo "  - {name: l$i, between: [n$i, g$((i / 3))], bandwidth: $1, latency: 1 ms}"; done
    for i in 0 1 2; do echo "  - {name: b$i, between: [g$i, w], bandwidth: 1 MB/s, latency: 1 ms}"; done
}
sed 's/global_batch: 16/global_batch: 72/' "$scratch/job.yaml" >"$scratch/job72.yaml"
nodes '4 MB/s' >"$scratch/nine.yaml"
nodes '1 MB/s' >"$scratch/flat.yaml"
for name in nine flat; do "$MUSHER" plan "$scratch/job72.yaml" "$scratch/$name.yaml" --allow local-sgd -o "$scratch/$name.plan" --evaluations 300 --json >"$scratch/$name.json" 2>"$scratch/err"; done
islands() { sed -n 's/^ *islands: *//p' "$scratch/$1" | tr -cd '[' | wc -c; }
[[ $(islands nine.plan.diloco) == 4 && $(islands flat.plan.diloco) == 10 ]] && grep -q '"assumption": "[^"]*; 9 islands, for which Douillard et al. 2023 report diminishing returns, would take' "$scratch/nine.json" &&
    grep -q "of this plan's 9 islands Douillard et al. 2023 report diminishing returns beyond 8" "$scratch/flat.json"
check "more islands than a source covers come last, and are stated" $?

for strategy in diloco streaming-diloco int8-sums power-sgd; do
    "$MUSHER" run -q "$scratch/slow.plan.$strategy" --data "$scratch/text.txt" --steps 3 --json >"$scratch/run.json" 2>"$scratch/err"
    check "the plan of $strategy really runs" $?
done

"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" --allow local-sgd -o "$scratch/p.yaml" >"$scratch/out" 2>"$scratch/err"
grep -q 'plans that train differently' "$scratch/out" && grep -q 'diloco .*times as fast' "$scratch/out" && ! grep -q 'fp16-sums' "$scratch/out"
check "the table has the allowed strategies only" $?
"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" >"$scratch/out" 2>"$scratch/err"
! grep -q 'train differently' "$scratch/out"
check "without --allow there is none" $?

# A sweep has the best of them at every point: over a slow link local SGD, over a fast one nothing is gained.
"$MUSHER" sweep "$scratch/job.yaml" "$scratch/slow.yaml" --vary link:net=1MB/s,10GB/s --allow local-sgd -o "$scratch/s.csv" --picture "$scratch/s.svg" >"$scratch/out" 2>"$scratch/err"
check "a sweep allows strategies" $?
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "strategy_s") at = i; next } { print $2 / $at }' "$scratch/s.csv" >"$scratch/gains"
awk 'NR == 1 { slow = $1 } NR == 2 { fast = $1 } END { exit !(NR == 2 && slow > 1.3 && fast < 1.1 && fast > 0.5) }' "$scratch/gains"
check "its gain falls with the bandwidth between islands ($(paste -sd ' ' "$scratch/gains"))" $?
grep -q -- '--allow' "$scratch/out" && grep -q 'diloco' "$scratch/out"
check "the table names the strategy of a point" $?
grep -q 'trained differently' "$scratch/s.svg"
check "and the picture has its times" $?
grep -A2 'best over link:net, by effective time' "$scratch/out" | tr '\n' ' ' | grep -q ' 1 MB/s .*\(diloco\|local-sgd\) .*every 500 steps'
check "the region of the slow link has its training and its plan" $?
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) { if ($i == "diloco_s") s = NF - i; if ($i == "diloco_progress") p = NF - i }; next } { n += $(NF - s) > 0 && $(NF - p) == 1 } END { exit n != 2 }' "$scratch/s.csv"
check "the CSV has time and progress of each strategy" $?
"$MUSHER" plot "$scratch/s.csv" -o "$scratch/again.svg" 2>"$scratch/err" && grep -q 'effective samples/s' "$scratch/again.svg" && cmp -s "$scratch/s.svg" "$scratch/again.svg"
check "and the picture is drawn again from it" $?
sed 's/,diloco_progress/,diloco_speed/' "$scratch/s.csv" >"$scratch/wrong.csv"
says "columns of strategies come in pairs" 3 "then NAME_s and NAME_progress of each strategy" "$MUSHER" plot "$scratch/wrong.csv" -o "$scratch/w.svg"
"$MUSHER" sweep "$scratch/job.yaml" "$scratch/slow.yaml" --vary link:net=1MB/s,10GB/s --vary batch=8,16 --allow local-sgd --json >"$scratch/json" 2>"$scratch/err"
[[ $(grep -c '"with": "batch=' "$scratch/json") -ge 4 && $(grep -c '"by_time_alone": true' "$scratch/json") -ge 2 ]]
check "regions of every other axis's values, by effective time and by time alone" $?

# --- presets of another training ---

for preset in diloco powersgd horovod-fp16 tf-mirrored; do
    "$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/preset.yaml" --baseline $preset --json >"$scratch/json" 2>"$scratch/err"
    check "preset $preset" $?
    ns=$(sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' "$scratch/json" | head -n 1)
    again=$("$MUSHER" simulate "$scratch/preset.yaml" --json 2>"$scratch/err" | sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
    [[ $ns && $ns == "$again" ]] && grep -q "^name: $preset" "$scratch/preset.yaml"
    check "$preset: its file has the time that was printed ($ns, $again ns)" $?
    [[ $preset == tf-mirrored ]] && wanted=0 || wanted=1
    [[ $(grep -c '"assumption": "assumed 1' "$scratch/json") == $wanted && $(grep -c '"lower_bound_ns": null' "$scratch/json") == $wanted ]]
    check "$preset: progress with its source, and no bound, of another training only" $?
    "$MUSHER" run -q "$scratch/preset.yaml" --data "$scratch/text.txt" --steps 2 --json >"$scratch/run.json" 2>"$scratch/err"
    check "$preset really runs" $?
done
"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/preset.yaml" --baseline diloco >"$scratch/out" 2>"$scratch/err"
grep -q 'every: 500' "$scratch/preset.yaml" && grep -q 'trains differently (data parallel in every island' "$scratch/out" && ! grep -q 'lower bound' "$scratch/out"
check "DiLoCo's preset states its training in place of a bound" $?
"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --json >"$scratch/json" 2>"$scratch/err"
grep -q '"name": "tf-mirrored"' "$scratch/json" && ! grep -q '"name": "\(diloco\|powersgd\|horovod-fp16\)"' "$scratch/json"
check "presets of another training are not among the textbook plans of a search" $?
sed 's/precision: fp32/precision: bf16/' "$scratch/job.yaml" >"$scratch/half.yaml"
says "a job in bf16 has no horovod-fp16" 4 "baseline horovod-fp16: messages of gradients of a job in bf16 have 16 bits anyway" "$MUSHER" plan "$scratch/half.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --baseline horovod-fp16
says "--allow without a strategy" 2 "names no strategy" "$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --allow ""
says "a preset beside --allow" 2 "choose one" "$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --baseline diloco --allow compress
says "an unknown preset" 2 "did you mean 'powersgd'?" "$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --baseline powersdg
sed 's/, {name: b, host.*/]/; /name: in-b/d; /name: net/d' "$scratch/slow.yaml" >"$scratch/one.yaml"
says "one site has no islands" 4 "baseline diloco: no links divide the cluster into islands" "$MUSHER" plan "$scratch/job.yaml" "$scratch/one.yaml" -o "$scratch/p.yaml" --baseline diloco

# --- by cost: site b costs a hundred times as much, so that a plan on a alone is cheap, and one on both sites is fast ---

sed 's|{name: p, device: host,|& price: 1/h,|; s|{name: q, device: host,|& price: 100/h,|' "$scratch/slow.yaml" >"$scratch/priced.yaml"
costs() {
    "$MUSHER" plan "$scratch/job.yaml" "$scratch/priced.yaml" --allow local-sgd,compress -o "$scratch/p.yaml" --json "$@" 2>"$scratch/err" |
        awk -F '[:,]' '/"strategies"/ { on = 1 } on && /"name"/ { name = $2 } on && /"iteration_ns"/ { ns = $2 } on && /"cost"/ { print $2, ns, name }'
}
costs --objective cost >"$scratch/costs" && sort -g -c "$scratch/costs" 2>"$scratch/err" && [[ $(wc -l <"$scratch/costs") -ge 4 ]]
check "by cost the table begins with the cheapest ($(awk '{ printf "%s ", $1 }' "$scratch/costs"))" $?
costs >"$scratch/times" && ! sort -g -k 2,2 -c "$scratch/costs" 2>/dev/null && sort -g -k 2,2 -c "$scratch/times" 2>"$scratch/err"
check "by time with the fastest" $?

# --- stale gradients: the set `stale`, and presets with parameter servers ---

for name in slow uneven; do
    "$MUSHER" plan "$scratch/job.yaml" "$scratch/$name.yaml" --allow stale -o "$scratch/$name.plan" --json >"$scratch/$name.json" 2>"$scratch/err"
    for strategy in ssp asp; do
        ns=$(value "$scratch/$name.json" $strategy)
        "$MUSHER" simulate "$scratch/$name.plan.$strategy" --json >"$scratch/json" 2>"$scratch/err"
        again=$(sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' "$scratch/json" | head -n 1)
        [[ $ns && $ns == "$again" ]] && grep -q "mode: $strategy" "$scratch/$name.plan.$strategy" && grep -q 'rate: inverse' "$scratch/$name.plan.$strategy"
        check "$name: the file of $strategy has the time that was printed ($ns, $again ns), and Adam's rate" $?
    done
done
grep -q 'bound: 3' "$scratch/uneven.plan.ssp" && grep -q 'servers: \[b\.[01]\]' "$scratch/uneven.plan.asp"
check "ssp has a bound of 3, and one of the slow devices is the server" $?
awk -F '[:,]' '/"strategies"/ { on = 1 } on && /"progress"/ { p = $2 } on && /"mean_staleness"/ { n++; if (!(p > 0.5 && p <= 1 && $2 > 1 && $2 <= 2.2)) bad = 1 } END { exit bad || n != 2 }' "$scratch/uneven.json" &&
    grep -q '"assumption": "assumed from the simulated mean staleness: .*Giladi' "$scratch/uneven.json"
check "progress is of the mean staleness of three workers, with its assumption and source" $?
"$MUSHER" run -q "$scratch/uneven.plan.asp" --data "$scratch/text.txt" --steps 4 --json >"$scratch/run.json" 2>"$scratch/err" && grep -q '"mode": "asp"' "$scratch/run.json"
check "the plan of asp really runs" $?
sed 's/kind: adamw, lr: 1e-3/kind: sgd, lr: 0.1/' "$scratch/job.yaml" >"$scratch/sgd.yaml"
for preset in ps-sync:bsp ps-async:asp tf-parameter-server:asp ssp:ssp; do
    "$MUSHER" plan "$scratch/sgd.yaml" "$scratch/uneven.yaml" -o "$scratch/preset.yaml" --baseline ${preset%:*} --json >"$scratch/json" 2>"$scratch/err"
    check "preset ${preset%:*}" $?
    ns=$(sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' "$scratch/json" | head -n 1)
    again=$("$MUSHER" simulate "$scratch/preset.yaml" --json 2>"$scratch/err" | sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
    [[ $ns && $ns == "$again" ]] && grep -q "mode: ${preset#*:}" "$scratch/preset.yaml" && ! grep -q 'rate:' "$scratch/preset.yaml"
    check "${preset%:*}: its file has the mode, SGD's rate, and the time that was printed ($ns, $again ns)" $?
    "$MUSHER" run -q "$scratch/preset.yaml" --data "$scratch/text.txt" --steps 2 --json >"$scratch/run.json" 2>"$scratch/err"
    check "${preset%:*} really runs" $?
done
"$MUSHER" plan "$scratch/sgd.yaml" "$scratch/uneven.yaml" -o "$scratch/preset.yaml" --baseline ps-sync >"$scratch/out" 2>"$scratch/err"
grep -q 'trains synchronously' "$scratch/out"
check "ps-sync trains synchronously" $?
# Pipelines without a flush: from the textbook pipeline where the plan found has none, and by preset.
for name in slow uneven; do
    ns=$(value "$scratch/$name.json" pipedream-2bw)
    again=$("$MUSHER" simulate "$scratch/$name.plan.pipedream-2bw" --json 2>"$scratch/err" | sed -n 's/^ *"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
    [[ $ns && $ns == "$again" ]] && grep -q '^weight_versions: 2' "$scratch/$name.plan.pipedream-2bw" && [[ $(grep -c 'layers:' "$scratch/$name.plan.pipedream-2bw") -gt 1 ]]
    check "$name: the file of pipedream-2bw has two weight versions, and the time that was printed ($ns, $again ns)" $?
done
"$MUSHER" run -q "$scratch/uneven.plan.pipedream-2bw" --data "$scratch/text.txt" --steps 3 --json >"$scratch/run.json" 2>"$scratch/err"
check "it really runs" $?
"$MUSHER" plan "$scratch/job.yaml" "$scratch/uneven.yaml" -o "$scratch/preset.yaml" --baseline pipedream-2bw >"$scratch/out" 2>"$scratch/err"
grep -q '^weight_versions: 2' "$scratch/preset.yaml" && grep -q 'trains differently (balanced pipelines without a flush' "$scratch/out"
check "preset pipedream-2bw" $?
sed 's/precision: fp32/precision: fp16/' "$scratch/job.yaml" >"$scratch/fp16.yaml"
says "a job in fp16 has none" 4 "baseline pipedream-2bw: the loss scale of a job in fp16 may skip an update" "$MUSHER" plan "$scratch/fp16.yaml" "$scratch/uneven.yaml" -o "$scratch/p.yaml" --baseline pipedream-2bw
# Node b is too slow to work, and nothing else is idle.
sed 's/slowdown: 24/slowdown: 4000/' "$scratch/uneven.yaml" >"$scratch/idle.yaml"
"$MUSHER" plan "$scratch/job.yaml" "$scratch/idle.yaml" --allow stale -o "$scratch/idle.plan" >"$scratch/out" 2>"$scratch/err"
! grep -q 'device: b' "$scratch/idle.plan" && grep -q 'servers: \[b\.0\]' "$scratch/idle.plan.asp" && grep -q 'device: a.1' "$scratch/idle.plan.asp"
check "an idle device is a server" $?
says "a job in bf16 has no parameter server" 4 "baseline ssp: parameter servers take jobs in fp32 or fp64; this one is in bf16" "$MUSHER" plan "$scratch/half.yaml" "$scratch/slow.yaml" -o "$scratch/p.yaml" --baseline ssp
says "nor have two devices" 4 "two workers and a server need three devices" "$MUSHER" plan "$scratch/job.yaml" "$scratch/one.yaml" -o "$scratch/p.yaml" --baseline ps-async
"$MUSHER" sweep "$scratch/job.yaml" "$scratch/slow.yaml" --vary link:net=1MB/s,10GB/s --allow stale -o "$scratch/s.csv" >"$scratch/out" 2>"$scratch/err" && awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "asp_progress") at = NF - i; next } { n += $(NF - at) > 0.5 && $(NF - at) <= 1 } END { exit n != 2 }' "$scratch/s.csv"
check "a sweep has time and progress of stale training at each point" $?

# --- islands whose plans shard a parameter differently ---

cat >"$scratch/unlike.yaml" <<'END'
version: 1
name: unlike
device_types: [{name: p, device: host, slowdown: 8, memory: 1.5 MiB}, {name: q, device: host, slowdown: 8, memory: 1 GiB}]
nodes: [{name: a, host: localhost, devices: {type: p, count: 2}}, {name: b, host: localhost, devices: {type: q, count: 1}}]
links:
  - {name: in-a, between: [a], bandwidth: 10 GB/s, latency: 1 us}
  - {name: net, between: [a, b], bandwidth: 1 MB/s, latency: 1 ms}
END
"$MUSHER" plan "$scratch/job.yaml" "$scratch/unlike.yaml" --allow local-sgd -o "$scratch/p.yaml" >"$scratch/out" 2>"$scratch/err"
tr -s ' \n' '  ' <"$scratch/out" | grep -q 'diloco - 2 islands: [^;]*is sharded differently in some replicas; all must keep the same shards of it; 2 islands with room for anchors: an island of 2 devices alone: no feasible plan'
check "a strategy without a plan has the reason of every attempt" $?
"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" --allow local-sdg -o "$scratch/p.yaml" >"$scratch/out" 2>"$scratch/err"
[[ $? == 2 ]] && grep -q "no strategies 'local-sdg'; known: local-sgd compress stale; did you mean 'local-sgd'?" "$scratch/err"
check "an unknown set is refused" $?
exit $bad
