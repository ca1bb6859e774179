#!/bin/bash
# tests/cli/sailor.sh - measured layers: import, validate, plan and simulate; run refuses them.
set -u
data=$PWD/tests/data/sailor
. tests/cli/common.inc
cd "$scratch" || exit 6
ends() { says "$@"; }

ends "import" 0 "201 operator rows, 15 link curves, 1 models" "$MUSHER" import sailor "$data" --db sailor.db
[[ -s OPT-350.layers.json && -s sailor.db ]] && ok "a model and a database" || not_ok "a model and a database" "$(ls)"
ends "validate" 0 "15 rows, 15 predicted" "$MUSHER" validate --plans "$data/measured_gh200_opt350.csv" --db sailor.db
ends "validate as JSON" 0 '"n_predicted": 15' "$MUSHER" validate --plans "$data/measured_gh200_opt350.csv" --db sailor.db --json
cp out first
"$MUSHER" validate --plans "$data/measured_gh200_opt350.csv" --db sailor.db --json > second
cmp -s first second && ok "the same bytes again" || not_ok "the same bytes again" "they differ"
ends "validate plans without a database" 2 "--db" "$MUSHER" validate --plans "$data/measured_gh200_opt350.csv"
ends "validate without a database" 2 "--db" "$MUSHER" validate --plans x.csv
ends "a missing table of plans" 3 "x.csv" "$MUSHER" validate --plans x.csv --db sailor.db
ends "a missing folder of models" 3 "layers.json" "$MUSHER" validate --plans "$data/measured_gh200_opt350.csv" --db sailor.db --models "$data"
ends "a missing folder" 3 "nowhere" "$MUSHER" import sailor nowhere --db q.db
[[ ! -e q.db ]] && ok "nothing half-written" || not_ok "nothing half-written" "q.db"

cp -r "$data" evil && chmod -R u+w evil && sed -i 's|"OPT-350"|"../OPT-350"|' evil/profiles_tmp.json evil/llm_info.json
ends "a model named like a path" 3 "is not a model name" "$MUSHER" import sailor evil --db q.db
ends "a missing output folder" 6 "nowhere/OPT-350" "$MUSHER" import sailor "$data" --db q.db -o nowhere
[[ ! -e q.db ]] && ok "and no profile without its models" || not_ok "and no profile without its models" "q.db"
# A signal between the commit of the profile and the renaming of its models.
mkdir signalled && cp sailor.db signalled && echo old > signalled/OPT-350.layers.json
shims disk
DISK_GONE=-journal DISK_SIGNAL=15 ends "a signal after the commit" 130 "interrupted" "${shims[@]}" "$MUSHER" import sailor "$data" --db signalled/sailor.db
cmp -s OPT-350.layers.json signalled/OPT-350.layers.json && ok "leaves the models with their profile" || not_ok "leaves the models with their profile" "$(head -c 100 signalled/OPT-350.layers.json)"
# A second model of 300 equal layers on 1 to 64 GPUs: its file is larger than the database, and its last.
{
    printf '{"OPT-350":' && tr -d '\n' < "$data/llm_info.json" | sed 's/^[^:]*://; s/}$//'
    printf ',"WIDE":{' && for ((c = 1; c <= 64; c++)); do
        printf '%s"%d":{' "$( ((c > 1)) && echo ,)" $c
        for ((i = 0; i < 300; i++)); do printf '%s"%d":{"params_floats":%d,"act_output_floats":9,"act_input_floats":8,"act_mem_floats":%d}' "$( ((i)) && echo ,)" $i $((1234567890 / c)) $((987654321 / c)); done
        printf '}'
    done && printf '}}'
} > info.json
{
    tr -d '\n' < "$data/profiles_tmp.json" | sed 's/}$//'
    printf ',"WIDE":{"GH-96":{"1":{"1":{' && for ((i = 0; i < 300; i++)); do printf '%s"%d":[0.001,0.002,0.001]' "$( ((i)) && echo ,)" $i; done && printf '}}}}}'
} > times.json
cp -r "$data" two && chmod -R u+w two && cp info.json two/llm_info.json && cp times.json two/profiles_tmp.json
mkdir out.two && cp sailor.db out.two
ends "two models" 0 "2 models" "$MUSHER" import sailor two --db out.two/new.db
large=$(stat -c %s out.two/WIDE.layers.json) small=$(stat -c %s out.two/new.db)
((large > 2 * small)) && ok "the last one is larger than the database" || not_ok "the last one is larger than the database" "$large bytes, $small bytes"
echo old > out.two/OPT-350.layers.json && rm out.two/WIDE.layers.json out.two/new.db
# undone NAME KIB TEXT: with files of at most KIB nothing is imported, and old files are unchanged: the database row for row, a model of before, no file more.
undone() {
    sha256sum out.two/* > before
    ends "$1" 6 "$3" bash -c 'ulimit -f $1; shift; exec "$@"' - "$2" "$MUSHER" import sailor two --db out.two/sailor.db
    sha256sum --quiet -c before > /dev/null 2>&1 && [[ $(ls -A out.two | tr '\n' ' ') == "OPT-350.layers.json sailor.db " ]] && ok "$1: all is as before" || not_ok "$1: all is as before" "$(ls -lA out.two)"
}
undone "a last model that cannot be written" $((large / 2048)) "cannot write 'out.two/WIDE.layers.json'"
sed 's/"299":\[0.001,0.002,0.001\]/"299":[0.001,0.002]/' times.json > two/profiles_tmp.json
sha256sum out.two/* > before
ends "a last model that is malformed" 3 "must be [forward s, backward s, update s], has 2" "$MUSHER" import sailor two --db out.two/sailor.db
sha256sum --quiet -c before && [[ $(ls -A out.two | tr '\n' ' ') == "OPT-350.layers.json sailor.db " ]] && ok "is not imported, nor the models before it" || not_ok "is not imported, nor the models before it" "$(ls -lA out.two)"
cp "$data"/*.json two
undone "a profile that cannot be written behind its models" $(($(stat -c %s sailor.db) / 1024)) "out.two/sailor.db'"
ends "and without the limit" 0 "profile 2 in" "$MUSHER" import sailor two --db out.two/sailor.db
cmp -s OPT-350.layers.json out.two/OPT-350.layers.json && [[ $(ls -A out.two | wc -l) == 2 ]] && ok "all is there" || not_ok "all is there" "$(ls -lA out.two)"
sed 's/^\(clariden[^,]*,[^,]*N4_D1.json\),[^,]*,/\1,7,/' "$data/measured_gh200_opt350.csv" > nodes.csv
ends "another number of nodes is noted" 0 "nodes is 7, predicted on" "$MUSHER" validate --plans nodes.csv --db sailor.db

cat > job.yaml <<'END'
version: 1
model: OPT-350.layers.json
sequence_length: 2048
global_batch: 32
microbatch: 4
END
cat > team.yaml <<'END'
version: 1
name: sailor
device_types:
  - {name: gh, device: GH200-96, reserve: 5.06 GB}
  - {name: a100, device: A100-SXM4-40, reserve: 3 GB}
nodes:
  - {name: a, devices: {type: gh, count: 4}}
  - {name: b, devices: {type: a100, count: 4}}
links:
  - {name: bus, every: inside, overlap: false}
  - {name: ab, between: [a, b], overlap: false}
END
ends "a job of measured layers is shown" 0 "26 layers" "$MUSHER" show job.yaml
ends "and planned" 0 "found" "$MUSHER" plan job.yaml team.yaml --db sailor.db -o plan.yaml
ends "and simulated" 0 "per iteration" "$MUSHER" simulate plan.yaml --db sailor.db
ends "whatif with a slower link: its latency was measured" 0 "link ab=10MB/s" "$MUSHER" whatif plan.yaml --db sailor.db --evaluations 50 --link ab=10MB/s
ends "and not run" 3 "it has no operators to run" "$MUSHER" run plan.yaml --data job.yaml
ends "a check warns of it" 0 "simulate predicts the plan" "$MUSHER" check plan.yaml
ends "without a profile" 3 "ab" "$MUSHER" simulate plan.yaml
sed 's/sequence_length: 2048/sequence_length: 1024/' job.yaml > short.yaml
ends "another length than was measured" 3 "2048" "$MUSHER" plan short.yaml team.yaml --db sailor.db -o p.yaml
sed 's/microbatch: 4/microbatch: 4\nprecision: bf16/' job.yaml > half.yaml
ends "another precision than was measured" 3 "fp32" "$MUSHER" plan half.yaml team.yaml --db sailor.db -o p.yaml

mixed=$(dirname "$data")/sailor_mixed
"$MUSHER" import sailor "$mixed" --db mixed.db -q > /dev/null
job=$mixed/opt.yaml team=$mixed/a8-v8.yaml
ends "eight and eight GPUs with tensor parallelism 1, 2 or 4" 0 "costs" "$MUSHER" plan "$job" "$team" --db mixed.db -o mixed.yaml
ends "is simulated" 0 "per iteration" "$MUSHER" simulate mixed.yaml --db mixed.db
ends "and exported" 0 "num_stages" "$MUSHER" export mixed.yaml --format sailor -o -
ends "whatif, although its links have curves, not bandwidths" 0 "add v1" "$MUSHER" whatif mixed.yaml --db mixed.db --add v1 --link a0:a1=1GB/s,5us --link net=1GB/s,5us
! grep -q "cannot run" out && ok "and the plan runs on each of those teams" || not_ok "and the plan runs on each of those teams" "$(cat out)"
ends "replanned with an additional node" 0 "found" "$MUSHER" plan --from mixed.yaml --db mixed.db --with v1 -o more.yaml
grep -q "name: v12" more.yaml && ok "which is there" || not_ok "which is there" "$(tail -n 12 more.yaml)"
sed '/name: v,/{s/count: 2,/count: 1,/; p; s/name: v,/name: w,/; s/count: 4/count: 2/}' "$team" > uneven.yaml
ends "on a node of four GPUs and one of two" 0 "found" "$MUSHER" plan "$job" uneven.yaml --db mixed.db --evaluations 300 -o again.yaml
ends "which is simulated" 0 "found: " "$MUSHER" simulate again.yaml --db mixed.db
[[ $(grep -c "{name: v100," again.yaml) == 1 ]] && ok "each type is given once" || not_ok "each type is given once" "$(grep "name: v100" again.yaml)"
ends "unequal shares are reported" 0 "replicas' shares or numbers differ" "$MUSHER" export mixed.yaml --format sailor -o mixed.json
ends "also in the JSON of the export" 0 '"equal_shares": false' "$MUSHER" export mixed.yaml --format sailor -o mixed.json --json
ends "an export of another format" 2 "known: sailor" "$MUSHER" export mixed.yaml --format paper -o x
ends "an export without a file" 2 "--out FILE" "$MUSHER" export mixed.yaml --format sailor
ends "a minimum rate that no plan reaches" 4 "within the limits" "$MUSHER" plan "$job" "$team" --db mixed.db --min-rate 5 -o x.yaml
ends "a rate without a budget" 2 "max-cost" "$MUSHER" plan "$job" "$team" --db mixed.db --objective rate -o x.yaml
ends "the cheapest plan has a lower bound of cost" 0 "% dearer than the" "$MUSHER" plan "$job" "$team" --db mixed.db --objective cost --min-rate 0.02 --evaluations 50 -o cheap.yaml
ends "measured layers have no FLOPs" 0 "MFU        unknown: measured layers have no FLOPs" "$MUSHER" show cheap.yaml --db mixed.db
ends "as JSON too" 0 '"cost_gap": 0.' "$MUSHER" plan "$job" "$team" --db mixed.db --objective cost --evaluations 50 -o cheap.yaml --json
sed '0,/, price: [0-9.]*\/h/s//, price: 0\/h/' "$team" > partly.yaml
ends "devices of price 0 have no bound of cost" 0 "no lower bound of cost" "$MUSHER" plan "$job" partly.yaml --db mixed.db --objective cost --evaluations 50 -o cheap.yaml
sed 's/, price: [0-9.]*\/h//' "$team" > free.yaml
ends "without prices no cost is printed" 4 "s per iteration" "$MUSHER" plan "$job" free.yaml --db mixed.db --min-rate 5 --evaluations 50 -o x.yaml
ends "cost without prices" 3 "price" "$MUSHER" plan "$job" free.yaml --db mixed.db --objective cost -o x.yaml
exit $bad
