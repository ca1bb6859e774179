#!/bin/bash
# tests/cli/elastic.sh - devices that come and go in mid-run (run --elastic --hostfile), limits of restarts, the trace of a run of several starts, and
# the short form of tests/bench/elastic.sh: random faults, and a program that is itself killed. Results are those of an undisturbed run, to the bit.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
steps=90
# plan NAME SLOWDOWN SLOWDOWN-OF-LAST: six replicas of one device, two on each node. With 300 a step of five devices takes 0.45 s: the step that a sixth one
# saves must be worth the search of a plan, which takes 2 s on a loaded machine.
plan() {
    printf 'version: 1\nname: %s\nmicrobatch: 1\ndeterministic: true\nreplicas:\n' "$1"
    for device in a.0 a.1 b.0 b.1 c.0 c.1; do echo "  - {microbatches: 2, stages: [{layers: [0, 7], device: $device}]}"; done
    cat <<END
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 12
  precision: fp32
  optimizer: {kind: adamw}
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, slowdown: $2, memory: 1 GiB}, {name: last, device: host, slowdown: $3, memory: 1 GiB}]
  nodes: [{name: a, host: localhost, devices: [{type: cpu}, {type: cpu}]}, {name: b, host: localhost, devices: [{type: cpu}, {type: cpu}]}, {name: c, host: localhost, devices: [{type: cpu}, {type: last}]}]
  links: [{name: ina, between: [a], bandwidth: 1 GB/s, latency: 10 us}, {name: inb, between: [b], bandwidth: 1 GB/s, latency: 10 us},
    {name: inc, between: [c], bandwidth: 1 GB/s, latency: 10 us}, {name: ab, between: [a, b], bandwidth: 400 MB/s, latency: 20 us}, {name: ac, between: [a, c], bandwidth: 400 MB/s, latency: 20 us}, {name: bc, between: [b, c], bandwidth: 400 MB/s, latency: 20 us}]
END
}
plan six 300 300 >"$scratch/six.yaml"
plan slow 150 9000 >"$scratch/slow.yaml"
hosts() { # NAME...: the hostfile, replaced as a whole
    printf '%s slots=2 # of the job\n' "$@" >"$scratch/hosts.new"
    mv "$scratch/hosts.new" "$scratch/hosts.txt"
}
value() { jq -r "$1" "$scratch/out"; }
newest() { ls -d "$scratch/saved/step-"* 2>/dev/null | tail -n 1; }
reached() { # STEP: a checkpoint of it or of a later one is there, or the run has ended
    local wanted=$scratch/saved/step-$(printf %08d "$1")
    until [[ $(newest) > $wanted || $(newest) == "$wanted" ]] || ! kill -0 $run 2>/dev/null; do sleep 0.02; done
}
logged() { until grep -q -- "$1" "$scratch/err" || ! kill -0 $run 2>/dev/null; do sleep 0.05; done; }
tensors() { jq -r '.data.sequences, (.tensors[] | "\(.name) \(.crc32)")' "$(ls -d "$1"/step-* | tail -n 1)/manifest.json" | sort; }
train=("$MUSHER" run --data "$text" --json)
elastic=(--save "$scratch/saved" --save-every 5 --max-restarts 3 --elastic --hostfile "$scratch/hosts.txt")
"${train[@]}" -q "$scratch/six.yaml" --steps $steps --save "$scratch/undisturbed" >"$scratch/undisturbed.json" 2>"$scratch/err"
check "an undisturbed run" $?
tensors "$scratch/undisturbed" >"$scratch/tensors"
as_undisturbed() { # NAME
    local n=$(value '.losses | length')
    [[ $n -gt 0 && $(jq -c .losses "$scratch/out") == "$(jq -c ".losses[-$n:]" "$scratch/undisturbed.json")" ]]
    check "$1: with the losses of the undisturbed run" $?
    [[ $(wc -l <"$scratch/tensors") -gt 20 ]] && tensors "$scratch/saved" | cmp -s - "$scratch/tensors"
    check "$1: and its parameters and state" $?
    [[ -z $(pgrep -f "$scratch/six.yaml") && -z $(find "$scratch/saved" -name '*.tmp' -o -name '.step*') ]]
    check "$1: no process and no temporary file is left" $?
}

# ---- 6 -> 5 -> 6 -> 4 at steps drawn from a seed
RANDOM=11
leave=$((5 + RANDOM % 10)) lost=$((RANDOM % 10))
printf 'version: 1\nfaults: [{kind: host_lost, node: b, at_step: %d}]\n' $((68 + lost)) >"$scratch/faults.yaml"
hosts a b c
"${train[@]}" "$scratch/six.yaml" --steps $steps "${elastic[@]}" --faults "$scratch/faults.yaml" --trace "$scratch/run.trace" >"$scratch/out" 2>"$scratch/err" &
run=$!
reached $leave
hosts a b c.0
logged "start again"
hosts a b c
wait $run
check "6, 5, 6 and 4 devices" $?
[[ $(value '[.restarts[].devices] | join(" ")') == "5 6 4" ]] && ok "in this order" || not_ok "in this order" "$(value '.restarts'; tail -n 5 "$scratch/err")"
[[ $(value '.restarts[0] | "\(.failed) \(.why) \(.without)"') == "false $scratch/hosts.txt no longer lists c.1 c.1" ]]
check "a device leaves the hostfile" $?
[[ $(value '.adaptations[0] | "\(.taken) \(.what)"') == "true $scratch/hosts.txt lists c.1" && $(value '.restarts[1].failed') == false ]]
check "and is taken in again, because that pays" $?
[[ $(value '.restarts[2] | "\(.failed) \(.without)"') == "true b.0, b.1" && $(value .goodput.restarts) == 3 ]]
check "a node is lost" $?
jq -e '.goodput | .parts_ns.fewer > 5 * .step_ns' "$scratch/out" >"$scratch/fewer" # steps on 5 and 4 devices have three rounds of microbatches in place of two
check "steps on fewer devices are counted as such" $?
as_undisturbed "6, 5, 6 and 4 devices"
# its trace: four times of training, which do not overlap, from time 0 to the end of the last step
grep '"stream":"run"' "$scratch/run.trace" | jq -s -c 'sort_by(.begin_ns)' >"$scratch/spans"
[[ $(jq '[.[] | select(.kind == "train")] | length' "$scratch/spans") == 4 && $(jq '[.[] | select(.kind == "restart")] | length' "$scratch/spans") == 3 && $(jq '[.[] | select(.kind == "replan")] | length' "$scratch/spans") == 3 ]]
check "its trace has all starts, and the searches of plans" $?
jq -e '[.[] | select(.kind == "train")] | .[0].begin_ns < 1e8 and (.[0].name | startswith("steps 1 to ")) and (.[0].name | endswith("on 6 devices")) and (.[3].name | endswith("to '$steps' on 4 devices"))' "$scratch/spans" >"$scratch/err"
check "from the first step to the last one" $?
jq -e '[.[] | select(.kind != "replan" or (.name | startswith("without")))] as $s | [range(1; $s | length) | $s[.].begin_ns >= $s[. - 1].end_ns and $s[.].begin_ns - $s[. - 1].end_ns < 1e9] | all' "$scratch/spans" >"$scratch/err"
check "without overlap and without a gap" $?
jq -es --slurpfile all "$scratch/spans" '[.[] | select(.kind == "compute")] | min_by(.begin_ns).begin_ns >= ($all[0] | map(select(.kind == "train")) | last.begin_ns)' <(grep '"kind":"compute"' "$scratch/run.trace") >"$scratch/err"
check "operators are those of the last start, on the same axis" $?
"$MUSHER" show "$scratch/run.trace" >"$scratch/out" 2>"$scratch/err" && "$MUSHER" plot "$scratch/run.trace" -o "$scratch/chrome.json" 2>"$scratch/err"
check "the trace can be shown and exported" $?

# ---- a hostfile at the start; a device that does not pay
rm -rf "$scratch/saved"
hosts a b c.0
"${train[@]}" "$scratch/slow.yaml" --steps $steps "${elastic[@]}" >"$scratch/out" 2>"$scratch/err" &
run=$!
reached 5
hosts a b c
wait $run
check "five of six devices at the start" $?
has "they are the listed ones" err "hosts.txt does not list c.1; planned for 5 devices"
[[ $(value '.adaptations[0].taken') == false && $(value '.adaptations[0].why') == "the best plan found takes "* && $(value .restarts) == null ]]
check "a device that is too slow is not taken in, and the reason is reported" $?
rm -rf "$scratch/saved"
hosts a b
"${train[@]}" "$scratch/six.yaml" --steps 40 "${elastic[@]}" >"$scratch/out" 2>"$scratch/err" &
run=$!
reached 5
echo "a slots=2" >"$scratch/hosts.txt" && echo "b2" >>"$scratch/hosts.txt"
wait $run
check "a hostfile with an error" $?
has "changes nothing" err "the list of devices stays: $scratch/hosts.txt:2: the plan's cluster has no node, host or device 'b2'"

# ---- limits
rm -rf "$scratch/saved"
hosts a b c
printf 'version: 1\nfaults: [{kind: kill, device: a.1, at_step: 12}]\n' >"$scratch/faults.yaml"
says "fewer devices than --min-devices" 75 "5 devices are left, fewer than --min-devices 6; the newest checkpoint, of step 10, is in $scratch/saved: start again with --continue" \
    "${train[@]}" "$scratch/six.yaml" --steps $steps "${elastic[@]}" --save-mode sync --faults "$scratch/faults.yaml" --min-devices 6
has "is an error of --json too" out '"code":75'
"${train[@]}" "$scratch/six.yaml" --steps $steps "${elastic[@]}" --min-devices 6 --continue >"$scratch/out" 2>"$scratch/err"
check "which --continue goes on from, once they are back" $?
as_undisturbed "a run that ended at a limit"
hosts a b
says "too few at the start" 75 "4 devices are left, fewer than --min-devices 5; no rank was started" "${train[@]}" "$scratch/six.yaml" --steps 9 "${elastic[@]}" --min-devices 5 --continue
rm -rf "$scratch/saved"
says "more time lost than --max-lost" 75 "were lost by failures and changes, more than --max-lost 1 us; the newest checkpoint" \
    "${train[@]}" "$scratch/six.yaml" --steps $steps --save "$scratch/saved" --save-every 5 --max-restarts 3 --faults "$scratch/faults.yaml" --max-lost 1us
rm -rf "$scratch/saved"
"${train[@]}" "$scratch/six.yaml" --steps 20 --save "$scratch/saved" --save-every 5 --max-restarts 3 --faults "$scratch/faults.yaml" --max-lost 1h >"$scratch/out" 2>"$scratch/err"
check "less time lost than --max-lost" $?
says "--max-lost is a time" 2 "--max-lost" "${train[@]}" "$scratch/six.yaml" --steps 9 --save "$scratch/x" --max-restarts 1 --max-lost many
says "--min-devices without --elastic" 2 "--elastic" "${train[@]}" "$scratch/six.yaml" --steps 9 --save "$scratch/x" --max-restarts 1 --min-devices 2
printf 'a\nd.0\n' >"$scratch/hosts.txt"
says "an unknown name in the hostfile" 3 "hosts.txt:2: the plan's cluster has no node, host or device 'd.0'" "${train[@]}" "$scratch/six.yaml" --steps 9 "${elastic[@]}"
printf 'a\na.0 b\n' >"$scratch/hosts.txt"
says "two names in a line" 3 "hosts.txt:2: one name a line, found 'b' after 'a.0'" "${train[@]}" "$scratch/six.yaml" --steps 9 "${elastic[@]}"
echo "# none" >"$scratch/hosts.txt"
says "an empty hostfile" 3 "hosts.txt: no device is listed" "${train[@]}" "$scratch/six.yaml" --steps 9 "${elastic[@]}"
says "no hostfile" 3 "hosts.txt" "${train[@]}" "$scratch/six.yaml" --steps 9 --save "$scratch/x" --max-restarts 1 --elastic --hostfile "$scratch/none/hosts.txt"

# ---- random faults, and a program that is killed
nice bash tests/bench/elastic.sh 3 3 >"$scratch/out" 2>"$scratch/err" && ok "random faults, and a killed program: $(tail -n 1 "$scratch/out")" || not_ok "random faults, and a killed program" "$(cat "$scratch/out" "$scratch/err" | grep -v "^[0-9]" | head -c 1500)"
exit $bad
