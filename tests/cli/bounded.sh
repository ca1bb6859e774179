#!/bin/bash
# tests/cli/bounded.sh - inputs of absurd numbers end in bounded work. The limit is of processor time, so that a busy machine
# changes nothing: a case that does not end is killed at it.
set -u
root=$PWD
. tests/cli/common.inc
cd "$scratch" || exit 6

# within SECONDS COMMAND...: runs with a limit of processor time; output in out.keep and err.keep.
within() {
    local seconds=$(($1 * ${SLOWDOWN:-1}))
    shift
    timeout $((8 * seconds)) bash -c 'ulimit -t "$0"; exec "$@"' $seconds "$@" > out.keep 2> err.keep
}
# judge NAME ENDED CODE TEXT
judge() {
    if (($2 != $3)); then
        not_ok "$1" "exit code $2, not $3: $(head -c 300 err.keep)"
    elif ! cat out.keep err.keep | grep -qF -- "$4"; then
        not_ok "$1" "'$4' is not in: $(cat out.keep err.keep | head -c 400)"
    else
        ok "$1"
    fi
}

# Name of the case, its sequences, memory of a device, devices, exit code, message. Nothing fits 1 KiB, so no plan bounds
# the shares to search: of equal replicas only descending ones.
while IFS=: read -r name batch memory gpus code text; do
    cat > job.yaml <<END
version: 1
model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256}
sequence_length: 24
global_batch: $batch
microbatch: 1
END
    cat > team.yaml <<END
version: 1
name: box
device_types: [{name: t, device: host, slowdown: 1, memory: $memory}]
nodes: [{name: n, host: localhost, devices: [{type: t, count: $gpus}]}]
links: [{name: bus, between: [n], bandwidth: 1 GB/s, latency: 10 us}]
END
    within 30 "$MUSHER" plan job.yaml team.yaml --evaluations 5 --no-sharding -o case.yaml
    judge "$name" $? "$code" "$text"
done <<'TABLE'
shares of 65536 microbatches over four equal devices:65536:1 KiB:4:4:no feasible plan
shares over eight:4096:1 KiB:8:4:no feasible plan
a million microbatches:1048576:1 GiB:2:0:lower bound
TABLE

# Routes of 10,240 GPUs are found once each, not by a search over all links for every message.
within 20 "$MUSHER" collective all-reduce "$root/tests/data/fleets/one.yaml" --bytes 1MB
judge "a collective of 10,240 GPUs" $? 0 "leader"
exit $bad
