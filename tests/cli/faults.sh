#!/bin/bash
# tests/cli/faults.sh - fault scripts: every kind of fault happens in a run of emulated devices, once, and the run ends with the losses of an
# undisturbed one, to the bit; goodput predicts the same script.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
steps=40
export MUSHER_TIMEOUT=$((4 * ${SLOWDOWN:-1}))
cat >"$scratch/plan.yaml" <<'END'
version: 1
name: faulty
microbatch: 1
deterministic: true
replicas:
  - {microbatches: 4, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: a.1}]}
  - {microbatches: 4, stages: [{layers: [0, 3], device: b.0}, {layers: [4, 7], device: b.1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 8
  precision: fp32
  optimizer: {kind: adamw}
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, slowdown: 10, memory: 1 GiB}]
  nodes: [{name: a, host: localhost, devices: [{type: cpu}, {type: cpu}]}, {name: b, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links:
    - {name: ina, between: [a], bandwidth: 1 GB/s, latency: 10 us}
    - {name: inb, between: [b], bandwidth: 1 GB/s, latency: 10 us}
    - {name: bus, between: [a, b], bandwidth: 20 MB/s, latency: 50 us}
END
# script LINE...: $scratch/faults.yaml
script() {
    echo $'version: 1\nfaults:' >"$scratch/faults.yaml"
    printf '  - {%s}\n' "$@" >>"$scratch/faults.yaml"
}
numbers() { sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$1" | tr ',' '\n' | tr -d ' '; }
train=("$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps $steps --save "$scratch/saved" --save-every 5 --save-mode sync)
"${train[@]}" -q --json >"$scratch/undisturbed" 2>"$scratch/err" && ok "an undisturbed run" || not_ok "an undisturbed run" "$(cat "$scratch/err")"
has "reports its goodput" undisturbed '"goodput": {'
"$MUSHER" run -q "$scratch/plan.yaml" --data "$text" --steps 5 --resume "$scratch/saved" --json 2>"$scratch/err" | tr -d ' \n' >"$scratch/out"
grep -q '"goodput":{"goodput":[01][.0-9]*,[^}]*"steps":5,"restarts":0,' "$scratch/out"
check "of its own steps, if it was resumed" $?

# number KEY: of the output, the first
number() { sed -n "s/.*\"$1\": *\([-0-9.][-0-9.e]*\).*/\1/p" "$scratch/out" | head -n 1; }
# disturbed NAME RESTARTS LOST LOG OPTIONS: the script's faults happen and are logged; the end of the training is that of the undisturbed one
disturbed() {
    rm -rf "$scratch/saved"
    "${train[@]}" --max-restarts 4 --faults "$scratch/faults.yaml" --json "${@:5}" >"$scratch/out" 2>"$scratch/err"
    code=$?
    [[ $code == 0 ]] && ok "$1: exit code 0" || not_ok "$1: exit code 0" "$code: $(tail -n 5 "$scratch/err")"
    [[ $(grep -c '"happened": true' "$scratch/out") == $(grep -c kind: "$scratch/faults.yaml") ]]
    check "$1: all of its faults happened" $?
    has "$1: is logged" err "$4"
    [[ $(number restarts) == "$2" && $(number lost_steps) == "$3" ]] && ok "$1: $2 restarts, $3 lost steps" ||
        not_ok "$1: $2 restarts, $3 lost steps" "$(number restarts) $(number lost_steps)"
    numbers "$scratch/out" >"$scratch/last"
    [[ -s $scratch/last ]] && cmp -s "$scratch/last" <(numbers "$scratch/undisturbed" | tail -n "$(wc -l <"$scratch/last")")
    check "$1: with the losses of the undisturbed run" $?
    "$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --save-every 5 --max-restarts 4 "${@:5}" --json >"$scratch/predicted" 2>"$scratch/err"
    mv "$scratch/out" "$scratch/measured"
    cp "$scratch/predicted" "$scratch/out"
    [[ $(number restarts) == "$2" && $(number lost_steps) == "$3" && $(grep -c '"happens": true' "$scratch/predicted") == $(grep -c kind: "$scratch/faults.yaml") ]]
    check "$1: as goodput predicts" $?
}
script "kind: kill, device: a.1, at_step: 12"
disturbed kill 1 1 "fault: killed a.1 at step 12"
for phase in detection_ns launch_ns load_ns first_step_ns; do
    grep -q "\"$phase\": [1-9]" "$scratch/measured"
    check "its restart has $phase" $?
done
script "kind: stop, device: b.0, at_step: 14"
disturbed stop 1 3 "fault: stopped b.0 at step 14"
awk -v t="$(sed -n 's/.*"detection_ns": *\([0-9]*\).*/\1/p' "$scratch/measured")" -v limit="$MUSHER_TIMEOUT" 'BEGIN { exit !(t > limit * 0.9e9) }'
check "is detected after MUSHER_TIMEOUT" $?
script "kind: exit, device: a.0, at_step: 8, code: 9"
disturbed exit 1 2 "fault: a.0 ended with exit code 9 at step 8"
has "with its exit code in the reason of the restart" measured '"why": "rank 0 ended with exit code 9"'
script "kind: slow, device: a.0, at_step: 10, factor: 4, steps: 8" "kind: link_slow, link: bus, at_step: 25, factor: 8, steps: 8"
disturbed "a slow device and a slow link" 0 0 "a.0 is 4 times slower for 8 steps at step 10"
has "and the link" measured '"kind": "link_slow", "place": "bus", "happened": true, "step": 25'
awk -v slow="$(sed -n 's/.*"slow": *\([0-9]*\).*/\1/p' "$scratch/measured")" -v step="$(sed -n 's/.*"step_ns": *\([0-9]*\).*/\1/p' "$scratch/measured")" 'BEGIN { exit !(slow > 8 * step) }'
check "they cost time" $?
script "kind: disk_full, at_step: 9" "kind: kill, device: b.1, at_step: 13"
disturbed "a full disk, once" 1 7 "No space left on device; the run goes on"
script "kind: disk_full, at_step: 9, steps: 8" "kind: kill, device: b.1, at_step: 19"
disturbed "a full disk for eight steps" 1 13 "no space for checkpoints for 8 steps at step 9"
script "kind: host_lost, node: b, at_step: 12, back: 1 s" "kind: host_lost, node: b, at_step: 22"
disturbed "a host that is lost and comes back, and is replaced" 2 2 "fault: node b is back"
awk -v t="$(sed -n 's/.*"waiting": *\([0-9]*\).*/\1/p' "$scratch/measured")" 'BEGIN { exit !(t > 0.3e9) }'
check "the run waits for it" $?
script "kind: kill, device: a.0, at_step: 12" "kind: kill, device: b.0, at_step: 12" "kind: host_lost, node: a, at_step: 13"
disturbed "faults of one step happen one after the other" 3 4 "restart 3 of 4"
script "kind: host_lost, node: b, at_step: 12"
disturbed "a host that is lost for good" 1 1 "without b.0, b.1" --elastic
# With slow devices, so that the change pays.
script "kind: host_lost, node: b, at_step: 12, back_at_step: 14"
rm -rf "$scratch/saved"
sed 's/slowdown: 10,/slowdown: 150,/' "$scratch/plan.yaml" >"$scratch/slow.yaml"
"$MUSHER" run "$scratch/slow.yaml" "${train[@]:3}" --max-restarts 4 --faults "$scratch/faults.yaml" --json --elastic >"$scratch/out" 2>"$scratch/err"
[[ $? == 0 && $(number restarts) == 2 ]] && numbers "$scratch/out" | tail -n 5 | cmp -s - <(numbers "$scratch/undisturbed" | tail -n 5)
check "a host that comes back to an elastic run" $?
has "starts again with it" err "node b is back; start again after step"

# Random faults are the same in every run and in the prediction.
script "kind: kill, mtbf: 3 s, seed: 5, count: 2"
for i in 1 2; do "$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --save-every 5 --json >"$scratch/drawn$i" 2>"$scratch/err"; done
[[ $(grep -c '"kind": "kill"' "$scratch/drawn1") == 2 ]] && cmp -s "$scratch/drawn1" "$scratch/drawn2"
check "faults drawn by mtbf are the same again" $?
script "kind: kill, device: a.1, mtbf: 400 ms, seed: 5, count: 1"
rm -rf "$scratch/saved"
"${train[@]}" --max-restarts 4 --faults "$scratch/faults.yaml" --json >"$scratch/out" 2>"$scratch/err"
check "a run with a random fault" $?
"$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --save-every 5 --measured "$scratch/undisturbed" --json >"$scratch/drawn" 2>"$scratch/err"
at() { sed -n 's/.*"kind": "kill".*"at_ns": *\([0-9]*\).*/\1/p' "$1"; }
# of a rank that trains: the launcher looks every few ms, and is late on a busy machine
awk -v a="$(at "$scratch/drawn")" -v b="$(at "$scratch/out")" 'BEGIN { exit !(a > 0 && b >= a) }' && ok "which is not before its predicted time" || not_ok "which is not before its predicted time" "$(at "$scratch/drawn") $(at "$scratch/out")"
script "kind: kill, device: b.1, at: 400 ms"
rm -rf "$scratch/saved"
"${train[@]}" --max-restarts 4 --faults "$scratch/faults.yaml" --json >"$scratch/out" 2>"$scratch/err"
check "a fault at a time" $?
has "happens" out '"kind": "kill", "place": "b.1", "happened": true'
[[ $(sed -n 's/.*"b.1", "happened": true.*"at_ns": *\([0-9]*\).*/\1/p' "$scratch/out") -ge 400000000 ]]
check "not before it" $?

# Costs of an earlier run, and those that are given.
script "kind: kill, device: a.1, at_step: 12"
has_text() { grep -q -- "$2" "$scratch/out" && ok "$1" || not_ok "$1" "$(head -c 600 "$scratch/out")"; }
"$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --save-every 5 --measured "$scratch/undisturbed" --detect 70ms >"$scratch/out" 2>"$scratch/err"
has_text "goodput takes measured and given costs" "(measured), checkpoint .*(measured), detection 70 ms (given), launch and load .*(measured)"
"$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps >"$scratch/out" 2>"$scratch/err"
has_text "and says what it simulates and assumes" "step .*(simulated), checkpoint 0 ns (assumed)"
"$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --max-restarts 0 >"$scratch/out" 2>"$scratch/err"
has_text "a run that may not start again ends" "ends with an error: --max-restarts 0"

# What did not happen, and what cannot.
script "kind: kill, device: a.1, at_step: 4000"
rm -rf "$scratch/saved"
"${train[@]}" --max-restarts 1 --faults "$scratch/faults.yaml" --json >"$scratch/out" 2>"$scratch/err"
has "a fault behind the end is reported" err "this fault did not happen, because the run began behind its step or ended before, or its place was no longer in use: killed a.1"
has "and listed" out '"happened": false'
says "the same command again" 3 "of an earlier run" "${train[@]}" --max-restarts 1 --faults "$scratch/faults.yaml"
! grep -q "did not happen" "$scratch/err"
check "reports no fault of a run that has not begun" $?
"${train[@]}" --max-restarts 1 --faults "$scratch/faults.yaml" --json >"$scratch/failed.json" 2>"$scratch/err"
says "--measured of a run that ended with an error" 3 "error.message: --measured: this run ended with an error and has measured nothing: " \
    "$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --measured "$scratch/failed.json"
script "kind: kill, device: a.1, at_step: 4"
rm -rf "$scratch/saved"
says "without a restart the fault ends the run" 7 "was killed by signal 9" "${train[@]}" --faults "$scratch/faults.yaml"
bad_script() {
    script "$2"
    says "$1" 3 "$3" "${train[@]}" --max-restarts 1 --faults "$scratch/faults.yaml"
}
bad_script "an unknown kind" "kind: kil, device: a.1, at_step: 4" "faults.yaml:3:12: faults[0].kind: must be one of kill, stop, exit, slow, link_slow, disk_full, host_lost; found 'kil'; did you mean 'kill'?"
bad_script "an unknown key" "kind: kill, device: a.1, at_stop: 4" "did you mean 'at_step'?"
bad_script "an unknown device" "kind: kill, device: a.7, at_step: 4" "faults.yaml:3:26: faults[0].device: the plan uses no device 'a.7'"
bad_script "a key of another kind" "kind: kill, device: a.1, at_step: 4, factor: 3" "a fault of kind kill has no 'factor'"
bad_script "no time" "kind: kill, device: a.1" "one of at_step, at and mtbf"
bad_script "a slow device without a factor" "kind: slow, device: a.1, at_step: 3, steps: 3" "factor"
bad_script "an exit code of musher's own" "kind: exit, device: a.1, at_step: 3, code: 4" "own errors"
bad_script "an exit code above 255" "kind: exit, device: a.1, at_step: 3, code: 300" "300 must be 1, or 9 to 255"
bad_script "a node that comes back at a step without --elastic" "kind: host_lost, node: b, at_step: 3, back_at_step: 9" "needs --elastic"
sed 's/slowdown: 10, //' "$scratch/plan.yaml" >"$scratch/real.yaml"
script "kind: slow, device: a.1, at_step: 3, factor: 2, steps: 3"
says "a real device made slower" 3 "only emulated ones" "$MUSHER" run "$scratch/real.yaml" --data "$text" --faults "$scratch/faults.yaml"
says "faults of mpirun's ranks" 2 "forked ranks" "${train[@]}" --faults "$scratch/faults.yaml" --launcher mpirun
says "goodput with faults and without steps" 2 "needs --steps" "$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml"
exit $bad
