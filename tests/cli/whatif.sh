#!/bin/bash
# tests/cli/whatif.sh - an old plan on a changed cluster: plan --from, and whatif.
set -u
. tests/cli/common.inc
job=$scratch/job.yaml team=$scratch/team.yaml old=$scratch/old.yaml new=$scratch/new.yaml
small_job > "$job"
small_team > "$team"
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | sed -n "${3:-1}p"; }

says "a plan of three devices" 0 "found" "$MUSHER" plan "$job" "$team" -o "$old"

# --- plan --from ---
says "plan again without a device" 0 '"plan": "1 replica of 6 microbatches: layers 0-7 on a.0"' "$MUSHER" plan --from "$old" --without a.1 -o "$new" --json
grep -q 'device: a.1' "$new" && not_ok "which is in no stage" "it is" || ok "which is in no stage"
has "the job is the old plan's" new.yaml "global_batch: 6"
number "$scratch/out" iteration_ns > "$scratch/less"
says "and predicted again the same" 0 "\"iteration_ns\": $(cat "$scratch/less")" "$MUSHER" simulate "$new" --json
sed 's/devices: \[{type: fast}, {type: slow}\]/devices: [{type: fast}]/' "$team" > "$scratch/small.yaml"
says "the plan of the smaller cluster from its file" 0 "class searched completely" "$MUSHER" plan "$job" "$scratch/small.yaml" -o "$scratch/direct.yaml"
"$MUSHER" simulate "$scratch/direct.yaml" --json > "$scratch/direct.json"
[[ $(number "$scratch/direct.json" iteration_ns) == "$(cat "$scratch/less")" ]] && ok "is as fast" || not_ok "is as fast" "$(number "$scratch/direct.json" iteration_ns) and $(cat "$scratch/less")"
says "plan again with a node more" 0 "found" "$MUSHER" plan --from "$old" --with a --evaluations 1000 -o "$new"
has "it gets a free name" new.yaml "name: a2"
has "the old plan was a start" out "a new search, with the old plan adapted"
# Sixteen devices: an adapted plan may do without a search.
{
    printf 'version: 1\nname: sixteen\ndevice_types: [{name: h, device: H100-SXM5}]\nnodes: [{name: h, count: 4, devices: {type: h, count: 4}}]\n'
    printf 'links: [{name: nv, every: inside, bandwidth: 400 GB/s, latency: 1 us}, {name: lan, every: across, bandwidth: 25 GB/s, latency: 5 us}]\n'
} > "$scratch/sixteen.yaml"
says "a plan of sixteen devices" 0 "found" "$MUSHER" plan "$job" "$scratch/sixteen.yaml" -o "$scratch/sixteen.plan"
says "again from itself is an adapted plan" 0 "without a new search" "$MUSHER" plan --from "$scratch/sixteen.plan" -o "$new"
says "as JSON too" 0 '"from_plan": "adapted"' "$MUSHER" plan --from "$scratch/sixteen.plan" -o "$new" --json
says "unless evaluations are given" 0 "a new search, with the old plan adapted" "$MUSHER" plan --from "$scratch/sixteen.plan" --evaluations 50 -o "$new"
# By cost a plan on few devices stays the best one, though dear devices would make it faster.
{
    printf 'version: 1\nmodel: {model_type: gpt2, n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, vocab_size: 50304}\n'
    printf 'sequence_length: 1024\nprecision: bf16\nglobal_batch: 512\n'
} > "$scratch/wide.yaml"
sed 's/H100-SXM5}/H100-SXM5, price: 2\/h}/; s/count: 4, devices/count: 2, devices/' "$scratch/sixteen.yaml" > "$scratch/eight.yaml"
sed 's/price: 2/price: 20/; s/{name: h,/{name: dear,/g; s/type: h,/type: dear,/' "$scratch/eight.yaml" > "$scratch/dear.yaml"
says "the cheapest plan of eight devices" 0 '"cost"' "$MUSHER" plan "$scratch/wide.yaml" "$scratch/eight.yaml" --objective cost -o "$scratch/eight.plan" --json
number "$scratch/out" cost > "$scratch/eight"
says "with eight dear ones more" 0 '"from_plan"' "$MUSHER" plan --from "$scratch/eight.plan" --with "x=$scratch/dear.yaml:dear0" --with "y=$scratch/dear.yaml:dear1" --objective cost -o "$new" --json
awk -v a="$(number "$scratch/out" cost)" -v b="$(cat "$scratch/eight")" 'BEGIN { exit !(a > 0 && a <= b) }' && ok "is not dearer" || not_ok "is not dearer" "$(number "$scratch/out" cost), $(cat "$scratch/eight")"
# What if by cost: a plan on all eight devices is dearer than the cheapest, which a search finds, and money saved is said instead of time.
sed 's/count: 2, devices/count: 4, devices/' "$scratch/eight.yaml" > "$scratch/priced16.yaml"
says "the fastest plan of sixteen devices, priced" 0 "found" "$MUSHER" plan "$scratch/wide.yaml" "$scratch/priced16.yaml" -o "$scratch/fast16.plan"
says "what if by cost" 0 " saving " "$MUSHER" whatif "$scratch/fast16.plan" --link lan=50GB/s --objective cost
says "as JSON" 0 '"saving"' "$MUSHER" whatif "$scratch/fast16.plan" --link lan=50GB/s --objective cost --json
number "$scratch/out" cost 1 > "$scratch/whatif"
says "the cheapest plan of sixteen devices" 0 '"cost"' "$MUSHER" plan "$scratch/wide.yaml" "$scratch/priced16.yaml" --objective cost -o "$new" --json
awk -v a="$(cat "$scratch/whatif")" -v b="$(number "$scratch/out" cost)" 'BEGIN { exit !(a > 0 && a <= b) }' && ok "is not cheaper" || not_ok "is not cheaper" "$(cat "$scratch/whatif"), $(number "$scratch/out" cost)"
says "a time limit of part of a second" 4 "no plan was found within --time-limit 0.001;" "$MUSHER" plan "$scratch/wide.yaml" "$scratch/sixteen.yaml" -o "$new" --time-limit 0.001
says "a name may be given" 0 "found" "$MUSHER" plan --from "$old" --with "far=$team:b" --without b -o "$new"
has "by NAME=" new.yaml "name: far"
sed 's/global_batch: 6/global_batch: 4/' "$job" > "$scratch/job4.yaml"
says "another job on the same cluster" 0 "found" "$MUSHER" plan --from "$old" "$scratch/job4.yaml" -o "$new"
has "is planned" new.yaml "global_batch: 4"
says "twice the same bytes" 0 "" "$MUSHER" plan --from "$old" --without a.1 -o "$scratch/x.yaml" -q
"$MUSHER" plan --from "$old" --without a.1 -o "$scratch/y.yaml" > /dev/null && cmp -s "$scratch/x.yaml" "$scratch/y.yaml" && ok "indeed" || not_ok "indeed" "differ"
says "an unknown device is refused" 3 "devices are: a.0-1, b.0" "$MUSHER" plan --from "$old" --without z.0 -o "$new"
says "an unknown node is refused" 3 "nodes are: a, b" "$MUSHER" plan --from "$old" --with z -o "$new"
says "changes need an old plan" 2 "change the team of --from PLAN" "$MUSHER" plan "$job" "$team" --without a.1 -o "$new"
says "and not another cluster" 2 "and exclude CLUSTER" "$MUSHER" plan "$job" "$team" --from "$old" --with a --evaluations 1000 -o "$new"
says "without an old plan job and cluster are needed" 2 "plan needs JOB and CLUSTER, or --from PLAN" "$MUSHER" plan "$job" -o "$new"

# --- whatif ---
says "what if" 0 "old plan" "$MUSHER" whatif "$old" --evaluations 1000 --add b --without a.1 --without b --link lan=1GB/s --link a:b=2MB/s,5ms --together
has "the cluster as it is" out "as it is"
has "an additional node" out "add b"
has "a faster link" out "link lan=1GB/s"
has "why the old plan cannot run" out "old plan cannot run (without a.1): it uses a.1"
has "all at once" out "together"
"$MUSHER" whatif "$old" --evaluations 1000 --add b --without a.1 --link lan=1GB/s --link a:b=2MB/s,5ms --json > "$scratch/one.json"
"$MUSHER" whatif "$old" --evaluations 1000 --add b --without a.1 --link lan=1GB/s --link a:b=2MB/s,5ms --json --threads 3 > "$scratch/two.json"
diff <(grep -v search_s "$scratch/one.json") <(grep -v search_s "$scratch/two.json") > /dev/null && ok "the same by one thread and by three but for the time it took" || not_ok "the same by one thread and by three but for the time it took" "differ"
times=($(sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' "$scratch/one.json"))
[[ ${#times[@]} == 5 ]] && ok "a row a variant" || not_ok "a row a variant" "${times[*]}"
((times[1] <= times[0])) && ok "a node more never slows" || not_ok "a node more never slows" "${times[*]}"
((times[2] <= times[0])) && ok "nor does a faster link" || not_ok "nor does a faster link" "${times[*]}"
((times[3] >= times[0])) && ok "a slower link never helps" || not_ok "a slower link never helps" "${times[*]}"
[[ ${times[4]} == "$(cat "$scratch/less")" ]] && ok "a removed device: the plan of plan --from" || not_ok "a removed device: the plan of plan --from" "${times[4]}, not $(cat "$scratch/less")"
# A plan found for one change is tried with the others.
"$MUSHER" plan "$job" "$team" --evaluations 5 -o "$scratch/rough.yaml" > "$scratch/out"
"$MUSHER" whatif "$scratch/rough.yaml" --evaluations 60 --link lan=90MB/s --json > "$scratch/one.json"
"$MUSHER" whatif "$scratch/rough.yaml" --evaluations 60 --link lan=90MB/s --link lan=130MB/s --json > "$scratch/two.json"
[[ $(number "$scratch/two.json" iteration_ns 2) -le $(number "$scratch/one.json" iteration_ns 2) ]] && ok "beside a faster link no slower than alone" ||
    not_ok "beside a faster link no slower than alone" "$(number "$scratch/two.json" iteration_ns 2), more than $(number "$scratch/one.json" iteration_ns 2)"
# By cost the best of these devices is the one with a price that is low for its speed.
sed 's/slowdown: 2,/& price: 1\/h,/; s/slowdown: 5,/& price: 0.01\/h,/' "$team" > "$scratch/priced.yaml"
"$MUSHER" plan "$job" "$scratch/priced.yaml" -o "$scratch/fast.yaml" > /dev/null
"$MUSHER" whatif "$scratch/fast.yaml" --evaluations 300 --link lan=1GB/s --json > "$scratch/one.json"
says "by cost" 0 '"cost": ' "$MUSHER" whatif "$scratch/fast.yaml" --evaluations 300 --link lan=1GB/s --objective cost --json
cost() { sed -n 's/.*"cost": *\([-0-9.e]*\).*/\1/p' "$1"; }
paste <(cost "$scratch/out") <(cost "$scratch/one.json") | awk '{ if (!($1 < $2)) exit 1; n++ } END { exit n != 4 }' && ok "every variant has a cheaper plan" || not_ok "every variant has a cheaper plan" "$(cost "$scratch/out") and $(cost "$scratch/one.json")"
says "a limit that no plan keeps" 4 "no plan within the limits" "$MUSHER" whatif "$scratch/fast.yaml" --evaluations 300 --link lan=1GB/s --objective cost --min-rate 1e6
says "cost without prices" 3 "has no price" "$MUSHER" whatif "$old" --evaluations 50 --link lan=1GB/s --objective cost
says "no change" 2 "whatif needs a change" "$MUSHER" whatif "$old"
says "a slower device" 0 "slow a=2" "$MUSHER" whatif "$old" --slow a=2 --slow a=1 --evaluations 60 --json
paste -s <(sed -n 's/.*"old_plan_ns": *\([0-9]*\).*/\1/p' "$scratch/out") | awk '{ exit !($1 == $3 && $2 > 1.2 * $1) }' && ok "the old plan takes longer then, and as long with a factor of 1" ||
    not_ok "the old plan takes longer then, and as long with a factor of 1" "$(grep _ns "$scratch/out")"
says "a slower device that does not exist" 3 "slow 'q': no such device or node; devices are:" "$MUSHER" whatif "$old" --slow q=2
says "no factor" 3 "slow 'a=fast': expected DEVICE=FACTOR with a factor of 0.01 to 100, such as b.0=2" "$MUSHER" whatif "$old" --slow a=fast
says "an unknown link" 3 "links are: bus (a:a), lan (a:b)" "$MUSHER" whatif "$old" --link wan=1GB/s
says "an unknown end" 3 "nodes are: a, b" "$MUSHER" whatif "$old" --link a:c=1GB/s
says "no bandwidth" 3 "such as 25GB/s" "$MUSHER" whatif "$old" --link a:b=fast
says "a new link without a latency" 3 "a new link needs a latency" "$MUSHER" whatif "$old" --link a.0:b.0=1GB/s
says "--latency holds for all" 0 "link a.0:b.0=1GB/s" "$MUSHER" whatif "$old" --link a.0:b.0=1GB/s --latency 10us

# --- many devices ---
# Ten devices: the old plan, adapted to a slow thirteenth and fourteenth, is kept; planned anew it is never slower than by plan.
team_of() { # SLOW_NODES...
    printf 'version: 1\nname: w\ndevice_types: [{name: a, device: host, slowdown: 1, memory: 1 GiB}, {name: b, device: host, slowdown: 3.5, memory: 1 GiB}]\nnodes:\n'
    printf '  - {name: n%s, host: localhost, devices: [{type: a, count: 2}]}\n' 1 3 5
    printf '  - {name: n%s, host: localhost, devices: [{type: b, count: 2}]}\n' "$@"
    printf 'switches: [{name: sw}]\nlinks:\n'
    for n in 1 3 5 "$@"; do printf '  - {name: l%s, between: [n%s, sw], bandwidth: 100 MB/s, latency: 20 us}\n  - {name: i%s, between: [n%s], bandwidth: 1 GB/s, latency: 5 us}\n' "$n" "$n" "$n" "$n"; done
}
team_of 2 4 > "$scratch/ten.yaml"
team_of 2 4 6 > "$scratch/twelve.yaml"
printf 'version: 1\nmodel: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 64}\nsequence_length: 32\nglobal_batch: 32\n' > "$scratch/small.yaml"
"$MUSHER" plan "$scratch/small.yaml" "$scratch/ten.yaml" -o "$scratch/ten.plan" > /dev/null
number() { sed -n "s/.*\"$1\": *\([0-9]*\),.*/\1/p" "$2" | tail -n 1; }
"$MUSHER" plan "$scratch/small.yaml" "$scratch/twelve.yaml" -o "$new" --json > "$scratch/plan.json"
"$MUSHER" whatif "$scratch/ten.plan" --add 'n6=n2' --search --json > "$scratch/anew.json"
"$MUSHER" whatif "$scratch/ten.plan" --add 'n6=n2' --json > "$scratch/repaired.json"
[[ $(number iteration_ns "$scratch/anew.json") -le $(number iteration_ns "$scratch/plan.json") ]] && ok "--search is never slower than plan" ||
    not_ok "--search is never slower than plan" "$(number iteration_ns "$scratch/anew.json") > $(number iteration_ns "$scratch/plan.json")"
[[ $(number evaluated "$scratch/anew.json") -gt $(number evaluated "$scratch/repaired.json") ]] && ok "it plans anew" || not_ok "it plans anew" "$(number evaluated "$scratch/anew.json") candidates"
says "else a line tells it" 0 "the best plan is the old one adapted, and searched anew only where" "$MUSHER" whatif "$scratch/ten.plan" --add 'n6=n2'

fleet=$scratch/fleet.yaml
"$MUSHER" plan tests/data/jobs/gpt-2.6b.yaml tests/data/clusters/fleet64.yaml --baseline harp-published -o "$fleet" > /dev/null
says "above 8 devices the old plan is repaired, without a second search" 0 '"why": "not tried beside a warm start; --baseline tries it"' "$MUSHER" plan --from "$fleet" --without h0.3 -o "$new" --json
grep -q '"evaluated": [0-9]$\|"evaluated": [0-9],' "$scratch/out" && ok "in a few simulations" || not_ok "in a few simulations" "$(grep evaluated "$scratch/out")"
grep -q 'h0.3' <(sed '/^cluster:/,$d' "$new") && not_ok "without the device" "it is used" || ok "without the device"
# Independent of the machine's speed: interrupted later and later, until a variant is complete. --foreground: one signal, not two.
for seconds in 1 2 4 8 16; do
    timeout --foreground --preserve-status -s INT $seconds "$MUSHER" whatif "$fleet" --without h0.3 --without v1 --evaluations 1000000 > "$scratch/cut" 2> "$scratch/why"
    code=$?
    grep -q "as it is" "$scratch/cut" && break
done
[[ $code == 130 ]] && grep -q "as it is" "$scratch/cut" && grep -q "interrupted" "$scratch/why" && ok "an interrupted table has the results so far" || not_ok "an interrupted table has the results so far" "$(cat "$scratch/cut" "$scratch/why")"
# Signals of batch systems and terminals: the best plan so far is written, also if they are repeated.
for signal in INT TERM HUP; do
    rm -f "$new" "$scratch/why"
    "$MUSHER" plan tests/data/jobs/gpt-2.6b.yaml tests/data/clusters/fleet64.yaml -o "$new" --evaluations 1000000 -v > "$scratch/out" 2> "$scratch/why" &
    search=$!
    until grep -qs "best plan so far" "$scratch/why" || ! kill -0 $search 2> /dev/null; do sleep 0.1; done
    kill -$signal $search
    [[ $signal == INT ]] || kill -$signal $search
    wait $search
    code=$?
    [[ $code == 130 ]] && grep -q "interrupted: wrote the best of" "$scratch/why" && "$MUSHER" simulate "$new" > "$scratch/out" 2>&1 &&
        ok "SIG$signal: the best plan so far is written" || not_ok "SIG$signal: the best plan so far is written" "exit code $code: $(tail -n 3 "$scratch/why" "$scratch/out")"
done
says "a time limit below that of the first plan" 4 "no plan was found within --time-limit 1; give it more seconds" "$MUSHER" plan tests/bench/questions/llama-70b-4k.yaml tests/bench/questions/h32.yaml --baseline hap -o "$new" --time-limit 1
# The first limit in which this machine finds a candidate: long before the end of the search, which takes 20 s of a processor.
for seconds in 1 2 4 8; do
    "$MUSHER" plan examples/fleet-job.yaml examples/fleet-10240.yaml -o "$new" --time-limit $seconds > "$scratch/out" 2> "$scratch/why" && break
done
has "10,240 devices, cut off, have a plan" out "stopped by --time-limit"
has "whose time is called that of a sample" out "(sample): the search was stopped before this plan was simulated whole"
says "a search of 64 devices cut off has a plan" 0 "stopped by --time-limit" "$MUSHER" plan tests/data/jobs/gpt-2.6b.yaml tests/data/clusters/fleet64.yaml -o "$new" --evaluations 1000000 --time-limit $((2 * ${SLOWDOWN:-1}))
"$MUSHER" whatif "$fleet" --without h0.3 --json > "$scratch/one.json" 2> "$scratch/why" || cat "$scratch/why"
"$MUSHER" whatif "$fleet" --without h0.3 --json --threads 4 > "$scratch/two.json"
grep -q '"name": "without h0.3"' "$scratch/one.json" && diff <(grep -v search_s "$scratch/one.json") <(grep -v search_s "$scratch/two.json") > /dev/null && ok "many devices by four threads the same" || not_ok "many devices by four threads the same" "differ"
says "which can be simulated" 0 "found" "$MUSHER" simulate "$new"
says "no device left" 3 "no device would remain" "$MUSHER" whatif "$old" --without a,b
exit $bad
