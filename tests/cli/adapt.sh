#!/bin/bash
# tests/cli/adapt.sh - a device, and a link, that become slower in mid-run are named within ten steps, and --adapt on takes a plan for the changed
# speeds; the parameters are those of an undisturbed run, to the bit. Slow devices are those of a fault script. Each operator takes the same CPU time
# on a preloaded clock, so that only the script changes speeds; by the predicted times a new plan saves many times the cost of a change.
set -u
. tests/cli/common.inc
shims cpu_clock
text=$scratch/text.txt
cat LICENSE >"$text"
cat >"$scratch/job.yaml" <<'END'
version: 1
model: {model_type: gpt2, n_embd: 32, n_layer: 6, n_head: 2, n_positions: 24, vocab_size: 257}
sequence_length: 24
global_batch: 12
microbatch: 1
precision: fp32
optimizer: {kind: adamw, lr: 1e-3}
seed: 7
END
cat >"$scratch/team.yaml" <<'END'
version: 1
name: team
device_types: [{name: d, device: host, slowdown: 60, memory: 1 GiB}]
nodes: [{name: a, host: localhost, devices: {type: d, count: 2}}, {name: b, host: localhost, devices: {type: d, count: 1}}]
links:
  - {name: bus, between: [a], bandwidth: 400 MB/s, latency: 20 us}
  - {name: net, between: [a, b], bandwidth: 200 MB/s, latency: 50 us}
END
script() { printf 'version: 1\nfaults: [%s]\n' "$1" >"$scratch/faults.yaml"; }
steps=140 # 8 s by the clock of the devices: time for a search
cat >"$scratch/plan.yaml" <<END
version: 1
name: equal
microbatch: 1
deterministic: true
replicas:
  - {microbatches: 4, stages: [{layers: [0, 15], device: a.0}]}
  - {microbatches: 4, stages: [{layers: [0, 15], device: a.1}]}
  - {microbatches: 4, stages: [{layers: [0, 15], device: b.0}]}
job:
$(sed 's/^/  /' "$scratch/job.yaml")
cluster:
$(sed 's/^/  /' "$scratch/team.yaml")
END
run() { CPU_CLOCK_NS=$tick "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --data "$text" --json "$@" >"$scratch/out" 2>"$scratch/err"; }
value() { jq -r "$1" "$scratch/out"; }

tick=100
run --steps $steps --save "$scratch/undisturbed" --adapt advise && [[ $(value '.adaptations') == null && ! $(cat "$scratch/err") =~ "times as long" ]]
check "nothing is reported in an undisturbed run" $?
jq -c '.losses' "$scratch/out" >"$scratch/losses"
tick=500

# ---- a device
script "{kind: slow, device: b.0, at_step: 15, factor: 3, steps: 1000}"
run --steps $steps --faults "$scratch/faults.yaml" --adapt advise && [[ $(value '.adaptations[0].what') == "operators of b.0 take "*" times as long as at first" ]]
check "a device that is three times as slow is named" $?
value '.adaptations[0] | "\(.step) \(.taken) \(.old_ns) \(.new_ns)"' >"$scratch/said"
read -r step taken old_ns new_ns <"$scratch/said"
((step >= 15 && step <= 25)) && ok "within ten steps" || not_ok "within ten steps" "$(cat "$scratch/said")"
[[ $taken == false && $(value '.adaptations[0].why') == "advice only: a new plan would take "* ]] && ((new_ns < old_ns)) && ok "advice prints what a new plan would bring" ||
    not_ok "advice prints what a new plan would bring" "$(value '.adaptations[0]')"
run --steps $steps --faults "$scratch/faults.yaml" --adapt on --save "$scratch/saved" && [[ $(value '.adaptations[0].taken') == true && $(value '.restarts[0].failed') == false ]]
check "a new plan is taken" $?
[[ $(value '.adaptations[0].plan') == *"replica"* && $(value '.restarts[0].why') == "operators of b.0"* ]] && ok "it is printed, and why" || not_ok "it is printed, and why" "$(cat "$scratch/out")"
n=$(value '.losses | length')
((n < steps && n > steps / 3)) && [[ $(value '.losses' | jq -c .) == "$(jq -c ".[$steps - $n:]" "$scratch/losses")" ]]
check "with the losses of the undisturbed run" $?
tensors() { # FOLDER: checksum of the values of every tensor of the newest checkpoint
    local folder
    folder=$(ls -d "$1"/step-* | tail -n 1)
    jq -r '.. | objects | select(.name? and .offset? != null) | "\(.name) \(.file) \(.offset) \(.bytes)"' "$folder/manifest.json" | sort | while read -r name file offset bytes; do
        echo "$name $(tail -c +$((offset + 1)) "$folder/$file" | head -c "$bytes" | md5sum)"
    done
}
tensors "$scratch/undisturbed" >"$scratch/a" && tensors "$scratch/saved" >"$scratch/b" && (($(wc -l <"$scratch/a") > 20)) && cmp -s "$scratch/a" "$scratch/b"
check "and its parameters and state" $?

# ---- a failure before the decision
script "{kind: slow, device: b.0, at_step: 15, factor: 3, steps: 1000}, {kind: kill, device: a.1, at_step: 20}"
rm -rf "$scratch/saved"
run --steps $steps --faults "$scratch/faults.yaml" --adapt on --max-restarts 1 --save "$scratch/saved" --save-every 5 && [[ $(value '[.adaptations[].taken] | any') == true && $(value '[.restarts[].failed] | any') == true ]]
check "a plan is taken although a rank is killed meanwhile" $?
tensors "$scratch/saved" >"$scratch/b" && cmp -s "$scratch/a" "$scratch/b"
check "with the same parameters and state" $?

# ---- it recovers: the plan of before pays again
script "{kind: slow, device: b.0, at_step: 15, factor: 3, steps: 20}"
tick=100
run --steps 60 --faults "$scratch/faults.yaml" --adapt advise && grep -q "operators of b.0 take as long as at first" "$scratch/err"
check "a device that recovers is named too" $?
tick=500

# ---- a link
script "{kind: link_slow, link: net, at_step: 15, factor: 20, steps: 1000}"
run --steps $steps --faults "$scratch/faults.yaml" --adapt advise && [[ $(value '.adaptations[0].what') == *"messages on link net take "*" times as long as at first"* && $(value '[.adaptations[].what] | join(" ")') != *operators* ]]
check "a slow link is named, and no device" $?

# ---- refused
says "no folder for the checkpoint" 2 "--adapt on stops with a checkpoint: pass --save DIR, or --adapt advise" "$MUSHER" run "$scratch/plan.yaml" --data "$text" --adapt on
says "an unknown mode" 2 "off, advise, on" "$MUSHER" run "$scratch/plan.yaml" --data "$text" --adapt yes
sed 's/deterministic: true/local_sgd: {every: 2, islands: [[0], [1], [2]]}/' "$scratch/plan.yaml" >"$scratch/local.yaml"
says "another training" 3 "--adapt: the plan has local_sgd, and new plans are of synchronous training" "$MUSHER" run "$scratch/local.yaml" --data "$text" --adapt advise
"$MUSHER" lower -q "$scratch/plan.yaml" -o "$scratch/program" >/dev/null
says "a program file" 2 "--adapt plans again, and a program file has no plan" "$MUSHER" run "$scratch/program" --data "$text" --adapt advise
says "--db without a use" 2 "--db is for the new plans of --elastic and --adapt" "$MUSHER" run "$scratch/plan.yaml" --data "$text" --db "$scratch/none.db"

# ---- the next plan knows
"$MUSHER" profile "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/profiles.db" >/dev/null 2>"$scratch/err"
"$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/profiles.db" --profile 1 --evaluations 500 -o "$scratch/before.yaml" >/dev/null 2>>"$scratch/err"
check "a profile, and a plan for it" $?
script "{kind: slow, device: b.0, at_step: 15, factor: 3, steps: 1000}, {kind: link_slow, link: net, at_step: 15, factor: 20, steps: 1000}"
run --steps 40 --faults "$scratch/faults.yaml" --adapt advise --db "$scratch/profiles.db" && grep -q "profile 2 in .*, from profile 1: operators of b.0 x [23]" "$scratch/err" && grep -q "link net x 1[0-9]\|link net x 2" "$scratch/err"
check "a run stores the changed speeds as the next profile" $?
ns() { "$MUSHER" simulate "$scratch/$1.yaml" --db "$scratch/profiles.db" --profile "$2" --json 2>>"$scratch/err" | jq .iteration_ns; }
"$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/profiles.db" --evaluations 500 -o "$scratch/after.yaml" >/dev/null 2>"$scratch/err" &&
    (($(ns plan 2) > $(ns plan 1) * 2)) && (($(ns after 2) < $(ns plan 2) * 3 / 4)) && [[ $(grep -c "slowdown" "$scratch/after.yaml") == $(grep -c "slowdown" "$scratch/before.yaml") ]]
known=$?
echo "plan 1: $(ns plan 1) ns, 2: $(ns plan 2) ns; after: $(ns after 2) ns" >>"$scratch/err"
check "the next plan knows: it gives the slow device less, and states the cluster as it is" $known

# ---- a host, all devices of which become slower together
script "{kind: slow, device: a.0, at_step: 15, factor: 3, steps: 1000}, {kind: slow, device: a.1, at_step: 15, factor: 3, steps: 1000}"
run --steps 60 --faults "$scratch/faults.yaml" --adapt advise && [[ $(value '.adaptations[0].what') == "operators of all devices of host a take "*" times as long as at first" &&
    $(value '.adaptations[0].causes | join(" ")') == host && $(grep -c "operators of" "$scratch/err") == 1 ]]
check "a host of which all devices are slower is named, and none of them" $?

# ---- input data that is late
shims disk
sed 's/slowdown: 60/slowdown: 6/' "$scratch/plan.yaml" >"$scratch/fast.yaml"
"${shims[@]}" env DISK_NAME=text.txt DISK_READ_MS=40 DISK_READS=160 "$MUSHER" run "$scratch/fast.yaml" --data "$text" --json --steps 40 --adapt advise >"$scratch/out" 2>"$scratch/err" &&
    [[ $(value '[.adaptations[].causes[]] | unique | join(" ")') == data && $(value '.adaptations[0].what') == "input data of "*": a step takes "*" times as long as at first beside the same operators" &&
        $(value '.adaptations[0].why') == "no plan makes input data faster" ]]
check "input data that is late is the cause" $?
exit $bad
