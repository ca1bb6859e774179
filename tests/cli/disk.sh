#!/bin/bash
# tests/cli/disk.sh - a slow disk fails no run; a full disk or a truncated text fails it with the name of the file, but for a run that starts again
# after failures or adapts: it goes on, and the next checkpoint is tried.
set -u
. tests/cli/common.inc
two_stages > "$scratch/plan.yaml"

# The output of rank 0 at the end may take longer than MUSHER_TIMEOUT; its death or stop meanwhile is detected.
limit=$((3 * ${SLOWDOWN:-1}))
launcher=()
# ends NAME CODE TEXT SHIM...: a run whose trace is written to the disk that DISK_* describe
ends() {
    shims "${@:4}"
    MUSHER_TIMEOUT=$limit DISK_NAME=end.trace says "$1" "$2" "$3" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" "${launcher[@]}" --steps 1 --data LICENSE --trace "$scratch/end.trace"
}
DISK_SECONDS=$((2 * limit)) ends "a trace that is slow to write" 0 "per iteration" disk
[[ -s $scratch/end.trace ]] && ok "and is written" || not_ok "and is written" "$(ls "$scratch")"
launcher=(--launcher mpirun) # forked ranks need a shared file
DISK_SECONDS=$((2 * limit)) ends "and without liveness checks between ranks" 0 "per iteration" disk no_memfd
launcher=()
DISK_SIGNAL=9 ends "rank 0 killed while it writes" 7 "rank 0 was killed by signal 9" disk
DISK_SIGNAL=19 ends "rank 0 stopped while it writes" 7 "rank 0 (n.0) is stopped" disk

# On a full disk the error names the file, on any rank.
shims disk
for file in optimizer.safetensors manifest.json; do
    DISK_FULL=1 DISK_NAME=$file says "a full disk between steps" 6 "" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data LICENSE --save "$scratch/full" --save-every 1 --json
    grep -q "^{.*\"code\":6,\"message\":\"checkpoint of step 1: cannot write '.*$file': No space left on device\"" "$scratch/out" && ok "$file is named in the JSON object" || not_ok "$file is named in the JSON object" "$(cat "$scratch/out")"
    [[ $(grep -c "No space left" "$scratch/err") == 1 ]] && ok "and stderr, once" || not_ok "and stderr, once" "$(cat "$scratch/err")"
done
DISK_FULL=1 ends "a full disk at the end" 6 "end.trace': No space left on device" disk

# emptied NAME COMMAND...: a run (files out and err) that begins on a full disk, which has space again after the first warning
emptied() {
    local name=$1 run n
    shift
    rm -rf "$scratch/kept"
    touch "$scratch/full-now"
    : > "$scratch/err"
    DISK_FULL=1 DISK_WHILE=$scratch/full-now "$@" > "$scratch/out" 2> "$scratch/err" &
    run=$!
    for ((n = 0; n < 600 * ${SLOWDOWN:-1}; n++)); do
        grep -q "the run goes on" "$scratch/err" && break
        kill -0 $run 2> /dev/null || break
        sleep 0.1
    done
    rm "$scratch/full-now"
    wait $run
    check "$name: ends with exit code 0" $?
    grep -q "^musher: warning: checkpoint of step .*; the run goes on, and '$scratch/kept' keeps its earlier checkpoints" "$scratch/err"
    check "$name: the full disk is a warning" $?
    [[ -z $(compgen -G "$scratch/kept/.step-*") ]]
    check "$name: no temporary folder is left" $?
}
for file in model.safetensors optimizer.safetensors manifest.json; do
    for mode in async sync; do
        DISK_NAME=$file emptied "$file, $mode" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 1500 --data LICENSE --save "$scratch/kept" --save-every 100 --save-mode $mode --keep 99 --max-restarts 1 --json
        saved=$(ls "$scratch/kept" | wc -l)
        ((saved > 2 && saved < 15)) && [[ -d $scratch/kept/step-00001500 ]] && ok "$file, $mode: later checkpoints are written" || not_ok "$file, $mode: later checkpoints are written" "$(ls "$scratch/kept")"
    done
done
# The ranks of three equal replicas stop for a new plan, because one device becomes slow.
cat > "$scratch/adapt.yaml" << 'END'
version: 1
name: equal
microbatch: 1
replicas:
  - {microbatches: 4, stages: [{layers: [0, 15], device: a.0}]}
  - {microbatches: 4, stages: [{layers: [0, 15], device: a.1}]}
  - {microbatches: 4, stages: [{layers: [0, 15], device: b.0}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 6, n_head: 2, n_positions: 24, vocab_size: 257}
  sequence_length: 24
  global_batch: 12
  precision: fp32
  optimizer: {kind: adamw, lr: 1e-3}
cluster:
  version: 1
  name: team
  device_types: [{name: d, device: host, slowdown: 6, memory: 1 GiB}]
  nodes: [{name: a, host: localhost, devices: {type: d, count: 2}}, {name: b, host: localhost, devices: {type: d, count: 1}}]
  links: [{name: bus, between: [a], bandwidth: 400 MB/s, latency: 20 us}, {name: net, between: [a, b], bandwidth: 200 MB/s, latency: 50 us}]
END
printf 'version: 1\nfaults: [{kind: slow, device: b.0, at_step: 15, factor: 3, steps: 1000}]\n' > "$scratch/slow.yaml"
DISK_NAME=optimizer.safetensors emptied "an adapting run" "${shims[@]}" "$MUSHER" run "$scratch/adapt.yaml" --steps 300 --data LICENSE --faults "$scratch/slow.yaml" --adapt on --save "$scratch/kept" --json
has "an adapting run: the new plan is taken at a later step" err "start again after step"
grep -q '"taken": true' "$scratch/out" && [[ -d $scratch/kept/step-00000300 ]]
check "an adapting run: to the end" $?

# A text that is truncated while a run reads it.
cp LICENSE "$scratch/text"
"$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data "$scratch/text" --save "$scratch/cut" --save-every 1 > "$scratch/out" 2> "$scratch/err" &
run=$!
for _ in $(seq 600); do
    compgen -G "$scratch/cut/step-*" > /dev/null && break
    sleep 0.1
done
truncate -s 0 "$scratch/text"
wait $run
code=$?
[[ $code == 3 ]] && grep -q "cannot read '$scratch/text': .*truncated" "$scratch/err" && ok "a text that is truncated is an error" ||
    not_ok "a text that is truncated is an error" "exit code $code: $(head -c 300 "$scratch/err")"
exit $bad
