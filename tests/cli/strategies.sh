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
"$MUSHER" plan "$scratch/job.yaml" "$scratch/slow.yaml" --allow local-sdg -o "$scratch/p.yaml" >"$scratch/out" 2>"$scratch/err"
[[ $? == 2 ]] && grep -q "no strategies 'local-sdg'; known: local-sgd compress; did you mean 'local-sgd'?" "$scratch/err"
check "an unknown set is refused" $?
exit $bad
