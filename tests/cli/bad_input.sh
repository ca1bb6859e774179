#!/bin/bash
# tests/cli/bad_input.sh - errors name their place, have the documented exit code and leave no partial output.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6

# refused NAME CODE TEXT COMMAND...: ends with CODE within 20 s, prints TEXT on stderr, leaves no new file but *.keep.
refused() {
    local name=$1 wanted=$2 text=$3
    shift 3
    timeout $((300 * ${SLOWDOWN:-1})) "$@" > out.keep 2> err.keep
    local code=$?
    if ((code != wanted)); then
        not_ok "$name" "exit code $code, not $wanted: $(head -c 300 err.keep)"
    elif ! grep -qF -- "$text" err.keep; then
        not_ok "$name" "'$text' is not in: $(head -c 400 err.keep)"
    elif ls | grep -qvE '\.(keep|yaml|json|txt)$'; then
        not_ok "$name" "left behind: $(ls | grep -vE '\.(keep|yaml|json|txt)$' | tr '\n' ' ')"
        find . -type f ! -name '*.keep' ! -name '*.yaml' ! -name '*.json' ! -name '*.txt' -delete
    else
        ok "$name"
    fi
}

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
seq 1 4000 > text.txt
"$MUSHER" plan job.yaml team.yaml -o plan.yaml > /dev/null 2> err.keep && ok "the good files plan" || not_ok "the good files plan" "$(cat err.keep)"
"$MUSHER" plan job.yaml team.yaml -o even.yaml --baseline even-pipeline > /dev/null 2> err.keep && ok "and the baseline" || not_ok "and the baseline" "$(cat err.keep)"

# edit FILE SED OUT
edit() { sed "$2" "$1" > "$3"; }

# Networks: emulated ones are simulated only.
cat > net.yaml <<'END'
version: 1
name: net
device_types: [{name: cpu, device: host, slowdown: 1.5, memory: 64 MiB}]
nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
switches: [{name: s}]
links: [{name: u0, between: [n.0, s], bandwidth: 1 GB/s, latency: 10 us}, {name: u1, between: [s, n.1], bandwidth: 1 GB/s, latency: 10 us}]
END
"$MUSHER" plan job.yaml net.yaml -o net-plan.yaml > /dev/null 2> err.keep && ok "a network plans" || not_ok "a network plans" "$(cat err.keep)"
"$MUSHER" simulate net-plan.yaml > out.keep 2> err.keep && ok "and simulates" || not_ok "and simulates" "$(cat err.keep)"
refused "an emulated network is not run" 3 "can be simulated, not run" "$MUSHER" run net-plan.yaml --data text.txt
edit net.yaml 's/, s\], /, r], /' bad.yaml
refused "an unknown switch" 3 "unknown node or switch 'r'" "$MUSHER" show bad.yaml
edit net.yaml 's/\[s, n.1\]/[s, n.0]/' bad.yaml
refused "two links of one pair" 3 "is given twice" "$MUSHER" show bad.yaml
edit net.yaml 's/{name: u1, .*}\]/{name: u1, between: [n.1], bandwidth: 1 GB\/s, latency: 1 us}]/' bad.yaml
refused "a link with one end" 3 "a single end must be a node" "$MUSHER" show bad.yaml
edit net-plan.yaml 's/\[s, n.1\]/[s, n]/' wide.yaml
"$MUSHER" simulate wide.yaml > out.keep 2> err.keep && ok "a node at a switch" || not_ok "a node at a switch" "$(cat err.keep)"

# Jobs.
refused "a missing file" 3 "nowhere.yaml" "$MUSHER" show nowhere.yaml
refused "a folder" 3 "." "$MUSHER" show .
refused "an endless file" 3 "/dev/zero" "$MUSHER" show /dev/zero
: > empty.yaml
refused "an empty file" 3 "empty.yaml" "$MUSHER" show empty.yaml
edit job.yaml 's/model.json/other.json/' j.yaml
refused "a job without its model" 3 "other.json" "$MUSHER" show j.yaml
echo '{"model_type": "bloom"}' > bloom.json
edit job.yaml 's/model.json/bloom.json/' j.yaml
refused "an unknown model_type lists the known ones" 3 "qwen3" "$MUSHER" show j.yaml
edit job.yaml 's/global_batch: 4/global_batch: 0/' j.yaml
refused "an empty batch" 3 "j.yaml:4" "$MUSHER" show j.yaml
edit job.yaml 's/microbatch: 1/layers: 7/' j.yaml
refused "an impossible layer count lists the possible ones" 3 "possible: 4, 6" "$MUSHER" show j.yaml
edit job.yaml 's/microbatch: 1/microbatch: 3/' j.yaml
refused "a microbatch that does not divide the batch" 3 "microbatch" "$MUSHER" show j.yaml
edit job.yaml 's/sequence_length: 24/sequence_length: 1e999/' j.yaml
refused "a number out of range" 3 "sequence_length" "$MUSHER" show j.yaml
edit job.yaml 's/sequence_length/sequence_lenght/' j.yaml
refused "a misspelt field lists the known ones" 3 "sequence_length" "$MUSHER" show j.yaml
head -c 60 job.yaml > j.yaml
refused "a truncated job" 3 "j.yaml" "$MUSHER" show j.yaml
printf '%0.s[' $(seq 1 5000) > j.yaml
refused "a deeply nested file" 3 "j.yaml" "$MUSHER" show j.yaml
printf 'version: 1\nmodel: &a [*a, *a]\n' > j.yaml
refused "aliases" 3 "j.yaml:2" "$MUSHER" show j.yaml
printf 'version: 1\nversion: 1\nmodel: x\n' > j.yaml
refused "a duplicate field" 3 "version" "$MUSHER" show j.yaml

{ cat job.yaml && echo 'layers: 1'; } > j.yaml
refused "impossible layers are refused with their line" 3 "musher: j.yaml:6:9: layers: the model cannot be cut into 1" "$MUSHER" show j.yaml
refused "also in a plan" 3 "musher: j.yaml:6:9: layers: the model cannot be cut into 1" "$MUSHER" plan j.yaml team.yaml -o p

# Clusters.
edit team.yaml 's/1 GB/0 GB/' c.yaml
refused "zero bandwidth" 3 "bandwidth" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/10 us/-10 us/' c.yaml
refused "negative latency" 3 "latency" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/{type: cpu}]/{type: gpu}]/' c.yaml
refused "an unknown device type lists the known ones" 3 "cpu" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/device: host, slowdown: 1.5/device: Xylophone/' c.yaml
refused "an unknown catalogue device lists the known ones" 3 "A100" "$MUSHER" plan job.yaml c.yaml -o p
refused "with its line and column" 3 "musher: c.yaml:3:36: device_types[0].device: no device 'Xylophone'" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/between: \[n\]/between: [m]/' c.yaml
refused "a link to an unknown node" 3 "m" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/64 MiB/64 KiB/' c.yaml
refused "memory below the model state: the number of devices needed is reported" 4 "about 9 devices" "$MUSHER" plan job.yaml c.yaml -o p
edit team.yaml 's/64 MiB/320 KiB/' c.yaml
refused "memory too small for any plan: the nearest miss is reported" 4 "nearest miss" "$MUSHER" plan job.yaml c.yaml -o p
edit c.yaml '/^links:/,$d' d.yaml
refused "where no plan fits, devices without links are named" 4 "no link joins " "$MUSHER" plan job.yaml d.yaml -o p
refused "a plan is no trace: what writes one is said" 3 "musher simulate --trace" "$MUSHER" plot even.yaml -o x.svg
edit team.yaml 's/slowdown: 1.5/slowdown: 0.5/' c.yaml
refused "a slowdown below one" 3 "slowdown" "$MUSHER" plan job.yaml c.yaml -o p

# Plans.
edit even.yaml 's/device: n.1/device: n.7/' p.yaml
refused "a plan with a missing device" 3 "n.7" "$MUSHER" simulate p.yaml
edit even.yaml 's/device: n.1/device: n.0/' p.yaml
refused "a device used twice" 3 "n.0" "$MUSHER" simulate p.yaml
edit even.yaml 's/layers: \[0, 3\]/layers: [0, 2]/' p.yaml
refused "a gap between stages is located" 3 "p.yaml:" "$MUSHER" simulate p.yaml
edit even.yaml 's/microbatches: 4/microbatches: 3/' p.yaml
refused "shares that do not add up" 3 "3" "$MUSHER" simulate p.yaml
edit even.yaml 's/layers: \[0, 3\], device: n.0/layers: [0, 3], device: n.0, order: "F0 B0 F1 B1 F2 B2 F3"/' p.yaml
refused "an order with a missing backward" 3 "B3" "$MUSHER" simulate p.yaml
edit even.yaml 's/layers: \[0, 3\], device: n.0/layers: [0, 3], device: n.0, order: "F0 B1 F1 B0 F2 B2 F3 B3"/' p.yaml
refused "a backward before its forward" 3 "F1" "$MUSHER" simulate p.yaml
sed 's/layers: \[0, 3\], device: n.0/layers: [0, 3], device: n.0, order: "F0 F1 F2 F3 B3 B2 B1 B0"/; s/layers: \[4, 7\], device: n.1/layers: [4, 7], device: n.1, order: "F0 B0 F1 B1 F2 B2 F3 B3"/' even.yaml > p.yaml
refused "orders that deadlock" 3 "p.yaml" "$MUSHER" simulate p.yaml
edit even.yaml '/^ *links:/,$d' p.yaml
refused "a truncated plan" 3 "p.yaml" "$MUSHER" simulate p.yaml
sed 's/memory: [^,}]*/memory: 64 KiB/' even.yaml > p.yaml
refused "a plan that does not fit lists the largest memory entries" 4 "n.0" "$MUSHER" simulate p.yaml

# Keys and options of earlier versions.
edit team.yaml 's/memory: 64 MiB/memory: 64 MiB, tensor_parallel: 2/' k.yaml
refused "a device type of several GPUs" 3 "k.yaml:3:90: device_types[0].tensor_parallel: unknown key 'tensor_parallel': a device type is one GPU now" "$MUSHER" show k.yaml
sed 's/{layers: \[0, 3\], device: n.0.*/{layers: [0, 7], devices: [n.0, n.1], sharding: {operators: [{match: "*", split: batch}]}}/; /layers: \[4, 7\]/d' even.yaml > k.yaml
refused "split is shard" 3 "sharding.operators[0].split: unknown key 'split': it is 'shard' now" "$MUSHER" simulate k.yaml
edit k.yaml 's/split: batch/shard: batch/' l.yaml
"$MUSHER" simulate l.yaml > out.keep 2> err.keep && ok "and simulates with it" || not_ok "and simulates with it" "$(cat err.keep)"
refused "--tensor-parallel" 2 "unknown option '--tensor-parallel': the search tries every tensor-parallel degree by itself" "$MUSHER" plan job.yaml team.yaml -o p --tensor-parallel 2
refused "--unshared" 2 "it is --no-sharding now" "$MUSHER" plan job.yaml team.yaml -o p --unshared

# Runs.
refused "no training text" 2 "--data" "$MUSHER" run even.yaml
echo hi > short.txt
refused "a training text that is too short" 3 "short.txt" "$MUSHER" run even.yaml --data short.txt --steps 1
refused "an MPI world of another size" 3 "2" mpirun --oversubscribe -n 3 "$MUSHER" run even.yaml --data text.txt --steps 1
refused "a missing checkpoint" 3 "nowhere" "$MUSHER" run even.yaml --data text.txt --steps 1 --resume nowhere
! grep -q interrupted err.keep && ok "and no rank is reported as interrupted" || not_ok "and no rank is reported as interrupted" "$(cat err.keep)"
refused "a checkpoint that is a file" 3 "text.txt" "$MUSHER" run even.yaml --data text.txt --steps 1 --save text.txt
refused "a read-only checkpoint folder" 6 "checkpoint folder '/proc/self/task' cannot be written" "$MUSHER" run even.yaml --data text.txt --steps 1000000 --save /proc/self/task
! grep -q interrupted err.keep && ok "nor was there" || not_ok "nor was there" "$(cat err.keep)"

# Pipes are refused, not waited for; "-" reads standard input.
mkfifo pipe.yaml
pipe="cannot read 'pipe.yaml': it is a pipe, not a regular file"
for verb in show run simulate check; do refused "musher $verb PIPE" 3 "$pipe" "$MUSHER" $verb pipe.yaml; done
for verb in lower plot; do refused "musher $verb PIPE" 3 "$pipe" "$MUSHER" $verb pipe.yaml -o out.keep; done
refused "a job that is a pipe" 3 "$pipe" "$MUSHER" plan pipe.yaml team.yaml -o out.yaml
refused "a plan that is a pipe" 3 "$pipe" "$MUSHER" whatif pipe.yaml --without n.0
refused "a trace that is a pipe" 3 "$pipe" "$MUSHER" compare pipe.yaml pipe.yaml
refused "a text that is a pipe" 3 "$pipe" "$MUSHER" run even.yaml --data pipe.yaml --steps 1
rm pipe.yaml
"$MUSHER" simulate - < even.yaml > out.keep 2> err.keep && grep -q "per iteration" out.keep && ok "a plan from standard input" || not_ok "a plan from standard input" "$(cat err.keep)"

# Traces and databases.
"$MUSHER" simulate even.yaml --trace sim.keep > /dev/null
"$MUSHER" simulate plan.yaml --trace other.keep > /dev/null
"$MUSHER" profile job.yaml team.yaml --db db.keep --repeats 3 > /dev/null 2> err.keep && ok "a profile" || not_ok "a profile" "$(cat err.keep)"
refused "a run that is a simulation" 3 "simulated" "$MUSHER" calibrate --db db.keep sim.keep
refused "calibrate without a database" 3 "none.keep" "$MUSHER" calibrate --db none.keep sim.keep
refused "a missing database" 3 "nowhere.db" "$MUSHER" simulate even.yaml --db nowhere.db
refused "a file that is not a database" 3 "job.yaml" "$MUSHER" simulate even.yaml --db job.yaml
refused "traces of two plans" 3 "plan" "$MUSHER" compare sim.keep other.keep
head -c 700 sim.keep > cut.keep
refused "a truncated trace" 3 "cut.keep" "$MUSHER" plot cut.keep -o x.png
sed 's/"begin_ns":[0-9]*/"begin_ns":-5/' sim.keep > negative.keep
refused "a negative time" 3 "negative.keep" "$MUSHER" plot negative.keep -o x.png
refused "an image of an unknown format" 2 ".svg" "$MUSHER" plot sim.keep -o x.bmp
refused "a missing folder" 6 "nowhere" "$MUSHER" plan job.yaml team.yaml -o nowhere/p.yaml
refused "JSON and data on one stdout" 2 "--json" "$MUSHER" simulate even.yaml --json --trace -
refused "a trace that cannot be written, before the training" 6 "nowhere" "$MUSHER" run even.yaml --data text.txt --steps 100000 --trace nowhere/t
"$MUSHER" lower even.yaml -o even.keep 2> /dev/null
refused "a program without training text" 2 "--data" "$MUSHER" run even.keep --steps 1
refused "a program instead of a plan" 3 "a program" "$MUSHER" show even.keep
edit job.yaml 's/microbatch: 1/microbatch: 1\nprecision: bf16/' j.yaml
refused "loading without loaders" 2 "--loaders" "$MUSHER" simulate even.yaml --load 30ms
refused "a reserve that is not a size" 2 "--reserve" "$MUSHER" memory even.yaml --reserve many
edit team.yaml 's/device: host/device: T4/g' turing.yaml
refused "bf16 on a GPU without bf16" 3 "(T4) computes in fp32, fp64 and fp16; \`precision: fp16\` of the job suits every device type of the cluster" "$MUSHER" plan j.yaml turing.yaml -o p
edit job.yaml 's/microbatch: 1/microbatch: 1\nprecision: bf16\nloss_scale: 1024/' k.yaml
refused "a loss scale in bf16" 3 "only precision fp16 has a loss scale" "$MUSHER" plan k.yaml team.yaml -o p
edit job.yaml 's/microbatch: 1/microbatch: 1\nprecision: fp16\nloss_scale: {initial: 0}/' k.yaml
refused "a loss scale of 0" 3 "must be at least" "$MUSHER" plan k.yaml team.yaml -o p
"$MUSHER" simulate even.yaml --trace s.keep > /dev/null
sed '1s/"source":"sim"/"source":"host"/' s.keep > r.keep
"$MUSHER" compare s.keep r.keep --json > out.keep 2> err.keep
"$MUSHER" compare s.keep other.keep --json > two.keep 2> /dev/null
for f in out.keep two.keep; do
    [[ $(grep -c '"schema"' $f) == 1 ]] && ok "one JSON object in $f" || not_ok "one JSON object in $f" "$(head -c 200 $f)"
done

# Wrong command lines end with 2.
refused "a schedule's name has a hint" 2 "did you mean '1f1b'?" "$MUSHER" schedule 1F1B --devices 2 --microbatches 2
refused "a baseline's name has a hint" 2 "did you mean 'hap'?" "$MUSHER" plan job.yaml team.yaml -o p --baseline HAP
refused "--baseline with --from" 2 "choose one" "$MUSHER" plan job.yaml team.yaml -o p --baseline ddp --from plan.yaml
refused "--what-if without --explain" 2 "--what-if needs --explain" "$MUSHER" simulate plan.yaml --what-if 3
refused "--threads without --samples" 2 "--threads needs --samples" "$MUSHER" simulate plan.yaml --threads 2
refused "--trace-memory without a reader of spans" 2 "--trace-memory needs --trace or --explain" "$MUSHER" simulate plan.yaml --trace-memory 1GiB
refused "--prefetch without --loaders" 2 "--prefetch needs --loaders" "$MUSHER" simulate plan.yaml --prefetch 2
refused "--latency without --link" 2 "--latency needs --link" "$MUSHER" whatif plan.yaml --without n.0 --latency 3us
refused "--gpus beside a plan" 2 "--gpus has no effect with PLAN" "$MUSHER" goodput plan.yaml --gpus 4
refused "--storage without a plan" 2 "--storage needs PLAN" "$MUSHER" goodput --storage 1GB/s
refused "--fastest of a model of operators" 2 "--fastest is for models of measured layers" "$MUSHER" plan job.yaml team.yaml -o p --fastest
refused "a picture on standard output" 2 "a picture is not written to standard output" "$MUSHER" plot s.keep -o -
refused "a schedule made for given times has a hint too" 2 "did you mean 'zero-bubble'?" "$MUSHER" schedule zero_bubble --devices 2 --microbatches 2
refused "--layers of a plan" 2 "--layers is for jobs; plan.yaml is a plan" "$MUSHER" show plan.yaml --layers
refused "--layers of a trace" 2 "--layers is for jobs; s.keep is a trace" "$MUSHER" show s.keep --layers
refused "a link without a unit" 3 "a number needs a unit: write 1 GB/s or 1 Gb/s" "$MUSHER" whatif plan.yaml --link n:n=1
refused "a job of no device" 2 "at least one device" "$MUSHER" goodput --gpus 0
refused "an algorithm of another collective" 2 "all-reduce has no algorithm pairs; expected all, ring" "$MUSHER" collective all-reduce team.yaml --algorithm pairs
edit team.yaml 's/1 GB\/s/60 MB/' k.yaml
refused "a rate without its second" 3 "a rate is per second: write 60 MB/s" "$MUSHER" show k.yaml
edit team.yaml 's/64 MiB/64 MB\/s/' k.yaml
refused "a size with a second" 3 "a size is not per second: write 64 MB" "$MUSHER" show k.yaml
edit team.yaml 's/memory: 64 MiB/memory: 64 MiB, price: 3 USD/' k.yaml
refused "a price with a currency" 3 "k.yaml:3:80: device_types[0].price: '3 USD' is not a price per hour: write 3/h, without a currency" "$MUSHER" show k.yaml
for text in "3.2 \/h" "-1\/h" "2e9\/h" "three"; do
    edit team.yaml "s/memory: 64 MiB/memory: 64 MiB, price: $text/" k.yaml
    case $text in 3.2*) hint="did you mean 3.2/h?" ;; three) hint="write 3.2/h, without a currency" ;; *) hint="a price is from 0/h (free) to 1e+09/h" ;; esac
    refused "a price of ${text/\\/}" 3 "is not a price per hour: $hint" "$MUSHER" show k.yaml
done
edit team.yaml 's/64 MiB/0 B/' k.yaml
refused "a device without memory" 3 "for example memory: 2 GiB" "$MUSHER" show k.yaml

# Counts of a short plan that exceed memory are refused with the numbers, before any allocation. The limit of
# 4,000,000 KiB would be exceeded without the check, with another message.
sized() { two_stages | sed "s/microbatches: 2/microbatches: $1/; s/global_batch: 2/global_batch: $1/; s/between: \[n\]/&, bandwidth: 1 GB\/s, latency: 10 us/"; }
bounded=(bash -c 'ulimit -v 4000000; exec "$@"' sh)
if [[ ${SLOWDOWN:-1} == 1 ]]; then # sanitizers reserve more address space than that
    sized 2000 > long.yaml
    "$MUSHER" simulate long.yaml --trace t --trace-memory 20MiB > out.keep 2> err.keep && grep -q "one steady step of one replica of each class" out.keep &&
        ok "a trace larger than memory is reduced to a steady step" || not_ok "a trace larger than memory is reduced to a steady step" "$(cat out.keep err.keep)"
    rm -f t
    sized 300000 > long.yaml
    refused "and its explanation" 6 "and explaining them takes" "${bounded[@]}" "$MUSHER" simulate long.yaml --explain
    refused "a reduced trace above --trace-memory" 6 "at most 1 KiB are allowed" "${bounded[@]}" "$MUSHER" simulate plan.yaml --trace t --trace-memory 1KiB
    refused "a text that is not a size" 2 "--trace-memory: 'much' is not a size" "$MUSHER" simulate plan.yaml --trace t --trace-memory much
    sized 16000000 | sed 's/layers: \[0, 3\], device: n.0}/layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.2}, {layers: [4, 5], device: n.3}/; s/layers: \[4, 7\]/layers: [6, 7]/; s/devices: \[{type: cpu}, {type: cpu}\]/devices: [{type: cpu, count: 4}]/' > calls.yaml
    for verb in simulate memory; do
        refused "$verb of more calls than memory holds" 6 "calls its stages 128000000 times a step" "${bounded[@]}" "$MUSHER" $verb calls.yaml
    done
fi
exit $bad
