#!/bin/bash
# tests/cli/input.sh - "-" is standard input for every verb that reads a file; quantities without a unit are refused.
set -u
. tests/cli/common.inc

cd "$scratch" || exit 6

cat > model.json <<'END'
{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 256}
END
cat > job.yaml <<'END'
version: 1
model: model.json
sequence_length: 24
global_batch: 4
microbatch: 1
END
cat > team.yaml <<'END'
version: 1
name: two
device_types: [{name: cpu, device: host, slowdown: 1.5, memory: 64 MiB}]
nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
links: [{name: bus, between: [n], bandwidth: 1 GB/s, latency: 10 us}]
END
"$MUSHER" plan job.yaml team.yaml -o plan.yaml > /dev/null 2> err && "$MUSHER" simulate plan.yaml --trace sim.trace > /dev/null 2>> err &&
    ok "a plan and its trace" || not_ok "a plan and its trace" "$(cat err)"

# same NAME FILE COMMAND...: with FILE as its input, through a pipe and redirected, COMMAND prints what it prints of the file
# named in place of "-".
same() {
    local name=$1 file=$2 named=()
    shift 2
    for word in "$@"; do [ "$word" = - ] && named+=("$file") || named+=("$word"); done
    "${named[@]}" > named 2> err || not_ok "$name of a file" "$(cat err)"
    cat "$file" | "$@" > piped 2> err || not_ok "$name from a pipe" "$(cat err)"
    "$@" < "$file" > redirected 2> err || not_ok "$name, redirected" "$(cat err)"
    cmp -s named piped && cmp -s named redirected && ok "$name - is standard input" || not_ok "$name -" "$(diff named piped | head -5)"
}
same "show of a job" job.yaml "$MUSHER" show -
same "show of a cluster" team.yaml "$MUSHER" show -
same "show of a plan" plan.yaml "$MUSHER" show -
same "show of a trace" sim.trace "$MUSHER" show -
same "check" plan.yaml "$MUSHER" check -
same "lower" plan.yaml "$MUSHER" lower - --out=-
same "memory" plan.yaml "$MUSHER" memory -
same "simulate" plan.yaml "$MUSHER" simulate -
same "whatif" plan.yaml "$MUSHER" whatif - --without n.1
same "compare" sim.trace "$MUSHER" compare - sim.trace
same "plot" sim.trace "$MUSHER" plot - -o p.json
{ head -c 20 plan.yaml && cat && true; } < /dev/null | "$MUSHER" show - > out 2> err
[ $? = 3 ] && grep -q "standard input" err && ok "its error has line and column" || not_ok "its error has line and column" "$(cat err)"
"$MUSHER" compare - - < sim.trace > out 2> err
[ $? = 2 ] && grep -q "can be read only once" err && ok "standard input is one file" || not_ok "standard input is one file" "$(cat err)"
yes | timeout 60 "$MUSHER" compare - sim.trace > out 2> err
[ $? = 3 ] && ok "an endless input ends" || not_ok "an endless input ends" "$(cat err)"
"$MUSHER" run - --launcher mpirun --data sim.trace < plan.yaml > out 2> err
code=$?
if grep -q 'device: n.1' plan.yaml; then
    [ $code = 2 ] && grep -q "pass it as a file" err && ok "ranks read a file" || not_ok "ranks read a file" "$(cat err)"
fi

# refused NAME SED CODE TEXT: the cluster, edited by SED, is refused.
refused() {
    sed "$2" team.yaml > bad.yaml
    "$MUSHER" show bad.yaml > out 2> err
    [ $? = 3 ] && grep -qF -- "$3" err && ok "$1" || not_ok "$1" "$(cat err)"
}
refused "a bandwidth without a unit" 's/1 GB.s/60/' "bad.yaml:5:46: links[0].bandwidth: must be a rate such as 25 GB/s or 100 Gb/s, found '60'; a number needs a unit: write 60 GB/s or 60 Gb/s"
refused "a latency without a unit" 's/10 us/1/' "bad.yaml:5:63: links[0].latency: must be a time such as 5 us or 1.5 ms, found '1'; a number needs a unit: write 1 us or 1 ms"
refused "memory without a unit" 's/64 MiB/24/' "bad.yaml:3:65: device_types[0].memory: must be a size such as 80 GiB or 64 kB, found '24'; a number needs a unit: write 24 GB or 24 GiB"
"$MUSHER" memory plan.yaml --reserve 3 > out 2> err
[ $? = 2 ] && grep -qF "write 3 GB or 3 GiB" err && ok "an option without a unit" || not_ok "an option without a unit" "$(cat err)"
"$MUSHER" memory plan.yaml --reserve 0 > out 2> err && ok "zero needs no unit" || not_ok "zero needs no unit" "$(cat err)"

# A plan that run would refuse: check prints a warning, with --here an error.
"$MUSHER" check plan.yaml --here > out 2> err && ! grep -q "^warning  run" out && ok "a plan of this host is runnable here" || not_ok "a plan of this host is runnable here" "$(cat out err)"
sed 's/host: localhost/host: n7.invalid/' plan.yaml > away.yaml
"$MUSHER" check away.yaml > out 2> err
[ $? = 0 ] && grep -q "^warning  run *host n7.invalid does not resolve" out && ok "a host that is not here is a warning" || not_ok "a host that is not here is a warning" "$(cat out err)"
"$MUSHER" check away.yaml --here > out 2> err
[ $? = 8 ] && grep -q "^missing  run *host n7.invalid" out && ok "with --here a failure" || not_ok "with --here a failure" "$(cat out err)"
exit $bad
