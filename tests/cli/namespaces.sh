#!/bin/bash
# tests/cli/namespaces.sh - two hosts that are network namespaces of this machine, with TCP between them: ranks train as on one host, to the bit; links
# between the hosts are measured; a killed rank and a link that goes down end the run. tests/bench/namespaces.sh compares times.
set -u
. tests/cli/common.inc
. tests/support/namespaces.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1 TMPDIR=$scratch
why=$(spaces_missing)
if [[ $why ]]; then
    echo "left out: hosts in network namespaces, because $why"
    exit "$bad"
fi
spaces_make 2 || {
    not_ok "two hosts" "they cannot be made"
    exit $bad
}

# Messages of 96 KiB and chunks of sums of 1.8 MB cross the hosts, so that they travel in several pieces and in more than begin at once.
cat > "$scratch/plan.yaml" <<'END2'
version: 1
name: two-hosts
microbatch: 2
steps: 1
replicas:
  - {microbatches: 1, stages: [{layers: [0, 2], device: a.0}, {layers: [3, 5], device: a.1}, {layers: [6, 7], device: b.0}]}
  - {microbatches: 1, stages: [{layers: [0, 7], device: b.1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 192, n_layer: 2, n_head: 2, n_positions: 64, vocab_size: 256}
  sequence_length: 64
  global_batch: 4
END2
# cluster COUNT LINKS: two hosts of so many devices
cluster() {
    printf '%s\n' 'version: 1' 'name: two-hosts' 'device_types: [{name: cpu, device: host, memory: 1 GiB}]' \
        "nodes: [{name: a, host: h0, devices: {type: cpu, count: $1}}, {name: b, host: h1, devices: {type: cpu, count: $1}}]" "$2"
}
{
    echo cluster:
    cluster 2 'links: [{name: in-a, between: [a]}, {name: in-b, between: [b]}, {name: lan, between: [a, b]}]' | sed 's/^/  /'
} >> "$scratch/plan.yaml"
train=("$scratch/on" h0 "$MUSHER" run "$scratch/plan.yaml" --agent "$scratch/agent" --data "$root/LICENSE")

says "two hosts train" 0 "per iteration" "${train[@]}" --steps 2 --save "$scratch/apart"
says "one host trains" 0 "per iteration" "$MUSHER" run "$scratch/plan.yaml" --any-host --data LICENSE --steps 2 --save "$scratch/together"
diff -r "$scratch/apart" "$scratch/together" > "$scratch/err"
check "with the same parameters" $?
printf '%s\n' h0 h1 h0 > "$scratch/hosts"
for what in collectives wires; do
    says "$what of three ranks on two hosts" 0 ok "$scratch/on" h0 mpirun --mca plm rsh --mca plm_rsh_agent "$scratch/agent" --hostfile "$scratch/hosts" --map-by seq --oversubscribe --bind-to none -n 3 "$root/$BUILD/tests/programs/exec_ranks" $what
done

# Links: without an agent those of other hosts keep what the file states.
small_job > "$scratch/job.yaml"
cluster 1 'links: [{name: lan, between: [a, b], bandwidth: 1 GB/s, latency: 50 us}]' > "$scratch/direct.yaml"
cluster 1 $'switches: [{name: net}]\nlinks: [{name: card-a, between: [a, net], bandwidth: 1 GB/s, latency: 50 us}, {name: card-b, between: [b, net], bandwidth: 1 GB/s, latency: 50 us}]' > "$scratch/switched.yaml"
measure=("$scratch/on" h0 "$MUSHER" profile "$scratch/job.yaml" --repeats 3 --db "$scratch/profiles.db")
says "a link to another host needs an agent" 0 "link lan: not both ends are on this machine (--agent measures other hosts)" "${measure[@]}" "$scratch/direct.yaml"
grep -q 'link lan' "$scratch/out" && not_ok "and is not measured without" "$(cat "$scratch/out")" || ok "and is not measured without"
says "with one it is measured" 0 "link lan" "${measure[@]}" "$scratch/direct.yaml" --agent "$scratch/agent"
says "so are links at a switch" 0 "links card-a and card-b between a.0 and b.0" "${measure[@]}" "$scratch/switched.yaml" --agent "$scratch/agent"
[[ $(grep -cE 'link card-[ab] .*, measured, residual' "$scratch/out") == 2 ]] && ok "each of them" || not_ok "each of them" "$(cat "$scratch/out")"
says "no measurement, no agent" 2 "--agent is for measurements" "$MUSHER" profile "$scratch/job.yaml" "$scratch/direct.yaml" --emit "$scratch/benches" --agent ssh
says "forked ranks have no agent" 2 "leave --launcher fork out" "$MUSHER" run "$scratch/plan.yaml" --data LICENSE --agent ssh --launcher fork
sed 's/host: h1/host: localhost/' "$scratch/plan.yaml" > "$scratch/local.yaml"
says "a host without a name" 3 "its host is localhost; name the host of each node" "$MUSHER" run "$scratch/local.yaml" --data LICENSE --agent ssh

# started NAME: trains without end, until a first checkpoint; then $run is the process.
started() {
    MUSHER_TIMEOUT=$((5 * ${SLOWDOWN:-1})) "${train[@]}" --steps 1000000 --save "$scratch/$1" --save-every 1 > "$scratch/out" 2> "$scratch/err" &
    run=$!
    until compgen -G "$scratch/$1/step-*/manifest.json" > /dev/null || ! kill -0 $run 2> /dev/null; do sleep 0.1; done
}
# ended NAME TEXT
ended() {
    wait $run
    local code=$?
    [[ $code == 7 ]] && grep -qE "$2" "$scratch/err" && ok "$1 ends the run" || not_ok "$1 ends the run" "exit code $code: $(tail -n 3 "$scratch/err")"
}
ranks() {
    local pid
    for pid in $(ip netns pids "$space-$1"); do
        [[ $(readlink "/proc/$pid/exe") == "$(realpath "$MUSHER")" && $(tr '\0' ' ' < "/proc/$pid/environ") == *OMPI_COMM_WORLD_RANK=* ]] && echo "$pid"
    done
}
started killed
kill -KILL "$(ranks h1 | head -n 1)"
ended "a killed rank of the other host" "rank [23] was killed by signal 9"
started cut
ip -n "$space-h1" link set eth0 down
ended "a link that goes down" "did not respond for|waited for"
exit $bad
