#!/bin/bash
# tests/cli/parameter_server.sh - workers that push gradients to parameter servers and pull parameters (core/lower/servers.c), really run.
# One update a step is the synchronous training; every order of arrivals is replayed to the bit, also over a checkpoint; a worker that is
# killed ends an asynchronous run later, with exit code 7 and a complete result.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME OPTIMIZER SERVER [PRECISION]: three workers of unequal shares on n.0 … n.2, the server on n.3
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
${3:+parameter_server: $3}
replicas:
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2}]}
$(four_hosts "${4:-fp64}" "$2")
END
}
# told NAME STEPS OPTIONS: like losses, with what is printed on stderr
told() {
    "$MUSHER" run "$scratch/$1.yaml" --data "$text" --json --steps "$2" "${@:3}" 2>"$scratch/err" >"$scratch/run.json" || return 1
    sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$scratch/run.json" | tr ',' '\n' | tr -d ' '
}
sgd='sgd, lr: 0.1' adamw='adamw, lr: 1e-3'

for optimizer in "$sgd" "$adamw"; do
    plan sync "$optimizer" ''
    losses sync 6 >"$scratch/sync"
    for mode in 'mode: bsp' 'mode: ssp, bound: 0'; do
        plan served "$optimizer" "{servers: [n.3], $mode}"
        losses served 6 >"$scratch/served"
        [[ $(wc -l <"$scratch/served") == 6 ]] && within "$(distance "$scratch/sync" "$scratch/served")" 1e-9
        check "one update a step is the synchronous training: ${optimizer%,*}, $mode" $?
        cp "$scratch/served" "$scratch/served.${mode: -1}"
    done
    cmp -s "$scratch/served.p" "$scratch/served.0"
    check "and bound 0 has the bits of bsp: ${optimizer%,*}" $?
done
cat >"$scratch/two.yaml" <<END
$(sed -n '1,/^replicas/p' "$scratch/served.yaml" | sed 's/servers: .n.3./servers: [n.3, n.2]/')
  - {microbatches: 4, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 4, stages: [{layers: [0, 7], device: n.1}]}
$(four_hosts fp64 "$adamw")
END
losses two 6 >"$scratch/two"
within "$(distance "$scratch/sync" "$scratch/two")" 1e-9
check "and on two servers" $?

for server in 'mode: asp' 'mode: ssp, bound: 2, rate: inverse' 'mode: asp, rate: inverse, drop_above: 1'; do
    plan served "$adamw" "{servers: [n.3], $server}"
    losses served 12 --arrivals "$scratch/log" >"$scratch/first"
    losses served 12 --replay "$scratch/log" --arrivals "$scratch/log.again" >"$scratch/again"
    [[ $(wc -l <"$scratch/first") == 12 && $(wc -l <"$scratch/log") == 37 ]] && cmp -s "$scratch/first" "$scratch/again" && cmp -s "$scratch/log" "$scratch/log.again"
    check "a logged order of arrivals gives the same bits and staleness: $server" $?
done
# The log has each worker's steps in order; what it calls dropped is staler than the bound.
awk 'NR > 1 { if ($3 != ++step[$2]) bad = 1; if (($5 == "dropped") != ($4 > 1)) bad = 1; n += $5 == "dropped" } END { exit bad || NR != 37 }' "$scratch/log"
check "and is consistent" $?
dropped=$(awk '$5 == "dropped"' "$scratch/log" | wc -l)
"$MUSHER" run -q "$scratch/served.yaml" --data "$text" --steps 12 --replay "$scratch/log" --json >"$scratch/out" 2>"$scratch/err"
has "dropped gradients are counted" out "\"dropped\": $dropped"
# Workers have 3, 3 and 2 of 8 microbatches. The rate is that of the applied ones.
awk 'NR > 1 { n = $2 < 2 ? 3 : 2; all += n; if ($5 == "applied") applied += n } END { print applied / all }' "$scratch/log" >"$scratch/share"
number() { sed -n "s/^ *\"$1\": *\([^,]*\),*\$/\1/p" "$scratch/out" | head -n 1; }
((dropped)) && awk -v share="$(cat "$scratch/share")" -v ns="$(number iteration_ns)" -v rate="$(number tokens_per_s)" -v told="$(number applied)" \
    'BEGIN { r = rate / (share * 8 * 24 * 1e9 / ns); exit !(r > 0.999 && r < 1.001 && told > share - 1e-4 && told < share + 1e-4) }'
check "and not in the measured rate" $?
"$MUSHER" simulate "$scratch/served.yaml" --json >"$scratch/out" 2>"$scratch/err"
awk -v ns="$(number iteration_ns)" -v rate="$(number samples_per_s)" -v told="$(number applied)" \
    'BEGIN { r = rate / (told * 8 * 1e9 / ns); exit !(r > 0.999 && r < 1.001 && told > 0.1 && told < 1) }'
check "nor in the simulated one" $?

# Servers, staleness and each worker's own parameters are in a checkpoint.
plan served "$adamw" '{servers: [n.3], mode: ssp, bound: 2, rate: inverse}'
losses served 9 --save "$scratch/whole" --save-every 5 --arrivals "$scratch/log" >"$scratch/first"
awk 'NR == 1 || $3 <= 5' "$scratch/log" >"$scratch/log.1"
awk 'NR == 1 { $4 = 5 } NR == 1 || $3 > 5' "$scratch/log" >"$scratch/log.2"
losses served 5 --save "$scratch/part" --replay "$scratch/log.1" >"$scratch/again"
losses served 4 --resume "$scratch/part" --replay "$scratch/log.2" --arrivals "$scratch/log.again" >>"$scratch/again"
[[ $(wc -l <"$scratch/first") == 9 ]] && cmp -s "$scratch/first" "$scratch/again" && cmp -s "$scratch/log.2" "$scratch/log.again"
check "a resumed run continues with the same bits and staleness" $?
plan sync "$adamw" ''
told sync 2 --resume "$scratch/part" >"$scratch/out"
[[ $(wc -l <"$scratch/out") == 2 ]]
check "and with gradients added by all-reduces" $?
warned="has the own parameters of 3 workers; training continues from the servers'"
[[ $(grep -cF "$warned" "$scratch/err") == 1 ]] && ! grep -q compression "$scratch/err"
check "which continues from the servers' parameters" $?
for mode in 'mode: bsp' 'mode: ssp, bound: 0'; do
    plan served "$adamw" "{servers: [n.3], $mode}"
    told served 2 --resume "$scratch/part" >"$scratch/served"
    [[ $(wc -l <"$scratch/served") == 2 ]] && within "$(distance "$scratch/out" "$scratch/served")" 1e-9 && grep -qF "$warned" "$scratch/err"
    check "and so does one update a step: $mode" $?
done
losses served 2 --save "$scratch/bsp" >/dev/null && told served 2 --resume "$scratch/bsp" >/dev/null && ! grep -q "checkpoint '" "$scratch/err"
check "whose checkpoint gives no warning" $?
# Two workers: the server's version, 3 · 5 updates, goes on, and nothing that it has now is stale.
sed '/microbatches: 2/d; s/microbatches: 3/microbatches: 4/' "$scratch/served.yaml" | sed 's/^parameter_server.*/parameter_server: {servers: [n.3], mode: asp}/' >"$scratch/pair.yaml"
told pair 2 --resume "$scratch/part" --save "$scratch/pair" --arrivals "$scratch/log" >/dev/null
[[ $(checkpoint_values "$scratch/pair" parameter_server#1/3 | awk 'NR == 1 { print $1 }') == 19 ]] && grep -qF "$warned" "$scratch/err" && awk 'NR > 1 && $4 > 2 { exit 1 }' "$scratch/log"
check "another number of workers keeps the version" $?

# A worker that is killed. It is the last one, whose rank has the highest process number.
plan served "$sgd" '{servers: [n.3], mode: asp}'
ranks() { cat /proc/$run/task/*/children 2>/dev/null | tr ' ' '\n' | grep . | sort -n; }
victim() { ranks | tail -1; }
# ends_early SIGNAL OPTIONS: a run whose last worker gets the signal; its code in $code
ends_early() {
    "$MUSHER" run "$scratch/served.yaml" --data "$text" --steps 4000 --json "${@:2}" >"$scratch/out" 2>"$scratch/err" &
    run=$!
    until [[ $(ranks | wc -l) == 4 ]] || ! kill -0 $run; do sleep 0.05; done
    sleep 1
    kill "-$1" "$(victim)"
    wait $run
    code=$?
}
ends_early KILL --save "$scratch/killed"
((code == 7)) || cat "$scratch/err"
check "a run without one of its workers ends with exit code 7" $((code != 7))
has "its end is reported" err "worker 2 (rank 3, n.2) has ended after step"
has "and which one in the result" out "\"ended_workers\": [2]"
has "and its signal" err "rank 3 was killed by signal 9"
[[ $(grep -c '"schema"' "$scratch/out") == 1 && $(sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$scratch/out" | tr ',' '\n' | awk '$1 > 0 && $1 < 7' | wc -l) == 4000 ]]
check "and the others have done all their steps" $?

losses served 2 --resume "$scratch/killed" --arrivals "$scratch/log.killed" >"$scratch/again"
[[ $(wc -l <"$scratch/again") == 2 ]] && awk '$2 == 2 && $4 > 9 { bad = 1 } END { exit bad || NR != 7 }' "$scratch/log.killed"
check "and resumed, the killed one begins with the servers' parameters of now" $?
ends_early TERM
[[ $code == 7 && $(grep -c '"schema"' "$scratch/out") == 1 ]] && ! grep -q interrupted "$scratch/err" && grep -q '"ended_workers": \[2\]' "$scratch/out"
check "a worker that gets SIGTERM prints nothing for itself" $?
export MUSHER_TIMEOUT=$((8 * ${SLOWDOWN:-1}))
ends_early STOP
unset MUSHER_TIMEOUT
[[ $code == 7 ]] && grep -q '"ended_workers": \[2\]' "$scratch/out" && grep -q "rank 3 was killed by signal 9" "$scratch/err"
check "a stopped worker is killed, and the others have done all their steps" $?

# errors
refused() { says "$1" "$2" "$3" "$MUSHER" "${@:4}"; }
plan served "$sgd" '{servers: [n.3], mode: spp}'
refused "a mode that there is not" 3 "served.yaml:4:" simulate "$scratch/served.yaml"
plan served "$sgd" '{servers: [n.3], mode: asp, bound: 2}'
refused "a bound without ssp" 3 "only mode: ssp has a bound" simulate "$scratch/served.yaml"
for key in 'rate: inverse' 'drop_above: 1'; do
    plan served "$sgd" "{servers: [n.3], mode: ssp, bound: 0, $key}"
    refused "a key without effect: $key" 3 "mode: ssp with bound: 0 has no stale gradients" simulate "$scratch/served.yaml"
done
plan served "$sgd" '{servers: [n.3], mode: asp, drop_abov: 2}'
refused "a key that there is not" 3 "drop_above" simulate "$scratch/served.yaml"
plan served "$sgd" '{servers: [n.2], mode: asp}'
refused "a server with a stage" 3 "a server is a device of its own" simulate "$scratch/served.yaml"
plan served "$sgd" '{servers: [n.3], mode: bsp}'
refused "a log where nothing arrives in its own order" 2 "--arrivals: this plan has no parameter server" run "$scratch/served.yaml" --data "$text" --arrivals "$scratch/log"
plan served "$sgd" '{servers: [n.3], mode: asp}'
refused "a log of another plan" 3 ":1: a log of another plan" run "$scratch/served.yaml" --data "$text" --steps 9 --replay "$scratch/log"
losses served 3 --arrivals "$scratch/log" >/dev/null
refused "a log that ends before the run" 3 "has 9 arrivals of this server, the run needs more" run "$scratch/served.yaml" --data "$text" --steps 4 --replay "$scratch/log"
sed '3s/ [0-9]* applied/ 7 applied/' "$scratch/log" >"$scratch/log.other"
refused "a log with another staleness" 3 "has staleness 7 in the log and" run "$scratch/served.yaml" --data "$text" --steps 3 --replay "$scratch/log.other"
sed -i '3s/applied/done/' "$scratch/log"
refused "a log with a bad line" 3 "log:3: must be: server worker step staleness" run "$scratch/served.yaml" --data "$text" --steps 3 --replay "$scratch/log"
refused "an explanation of steps that differ" 3 "no step repeats another" simulate "$scratch/served.yaml" --explain
exit $bad
