#!/bin/bash
# tests/cli/names.sh - no name controls a terminal, from any file, argument or variable, in the output of any verb.
set -u
root=$PWD
. tests/cli/common.inc
cd "$scratch" || exit 6
# As bytes, and in YAML and JSON notation; the last ones are invalid in any document.
raw=($'\e[2J' $'\e]0;x\a' $'\xc2\x9b31m' $'\x7f' $'a\rb' $'a\nb' $'\xe2\x80\xaex' $'\xe2\x81\xa6x' $'\x9b31m' $'\xff\xc3')
written=('\u001b[2J' '\u001b]0;x\u0007' '\u009b31m' '\u007f' 'a\rb' 'a\nb' '\u202ex' '\u2066x')
control=$'[\x01-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]'
# plain NAME FILE...: text without control characters.
plain() {
    local name=$1 file
    shift
    for file; do
        if LC_ALL=C grep -aqE "$control" "$file" || ! iconv -f UTF-8 -t UTF-8 "$file" > /dev/null 2>&1; then
            not_ok "$name" "$(LC_ALL=C grep -anE "$control|[^ -~]" "$file" | head -n 2 | cat -v)"
            return 1
        fi
    done
}
checked=0
# prints NAME CODES COMMAND...: ends with one of CODES, and its output is plain. Counted, not listed, because there are many.
prints() {
    local name=$1 codes=$2 code
    shift 2
    timeout $((60 * ${SLOWDOWN:-1})) "$@" > "$scratch/out" 2> "$scratch/err" < /dev/null
    code=$?
    [[ " $codes " == *" $code "* ]] || not_ok "$name" "exit code $code, not $codes: $(head -c 300 "$scratch/err" | cat -v)"
    plain "$name" "$scratch/out" "$scratch/err"
    checked=$((checked + 1))
}
# group NAME: one line for all checks since the last one.
group() {
    ((bad == was)) && ok "$1: $checked times" || echo "(of $1)"
    was=$bad checked=0
}
was=0

small_job > job.yaml
small_team > team.yaml
{ cat job.yaml | sed 's/{model_type: gpt2/{_name_or_path: small, model_type: gpt2/' && echo 'data: text.txt'; } > named.yaml
seq 1 4000 > text.txt
"$MUSHER" plan named.yaml team.yaml -o plan.yaml --evaluations 20 > out 2> err && "$MUSHER" simulate plan.yaml --trace sim.trace > out 2> err &&
    "$MUSHER" lower plan.yaml -o program > out 2> err && "$MUSHER" schedule 1f1b --devices 2 --microbatches 3 --csv order.csv > out 2> err && ok "good files" || not_ok "good files" "$(cat -v err)"

# The command line.
verbs=$("$MUSHER" --help | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for h in "${raw[@]}"; do
    n=$(printf %q "$h")
    prints "verb $n" 2 "$MUSHER" "$h"
    prints "help $n" 2 "$MUSHER" help "$h"
    prints "a variable $n" "0 2" env MUSHER_TIMEOUT="$h" "$MUSHER" version
    prints "a misspelled variable $n" 0 env "MUSHER_TIMEOU$h=1" "$MUSHER" version
done
for h in "${raw[0]}" "${raw[2]}" "${raw[5]}" "${raw[8]}"; do
    n=$(printf %q "$h")
    for verb in $verbs; do
        prints "$verb --$n" 2 "$MUSHER" "$verb" "--$h"
        prints "$verb --json $n" "0 2 3 4 8" "$MUSHER" "$verb" --json "$h" "$h.yaml"
        prints "$verb $n" "0 2 3 4 8" "$MUSHER" "$verb" "$h" --seed "$h"
    done
done
group "command lines"

# Input and output files.
for h in "${raw[@]}"; do
    n=$(printf %q "$h")
    mkdir "$h" && cp named.yaml team.yaml text.txt "$h"
    cp named.yaml "$h.yaml"
    prints "a job $n" 0 "$MUSHER" show "$h.yaml"
    prints "a plan $n" 0 "$MUSHER" plan "$h/named.yaml" "$h/team.yaml" -o "$h/plan.yaml" --evaluations 5
    prints "two plans $n as JSON" 0 "$MUSHER" plan "$h/named.yaml" "$h/team.yaml" -o "$h/two.yaml" --top 2 --evaluations 5 --json
    prints "show $n" 0 "$MUSHER" show "$h/plan.yaml"
    prints "a trace $n" 0 "$MUSHER" simulate plan.yaml --trace "$h.trace"
    prints "compare $n" "0 2 3" "$MUSHER" compare sim.trace "$h.trace"
    prints "plot $n" 0 "$MUSHER" plot "$h.trace" -o "$h.json" --json
    prints "a program $n" 0 "$MUSHER" lower plan.yaml -o "$h.program"
    prints "a file $n that is not a database" 3 "$MUSHER" simulate plan.yaml --db text.txt --profile 3
    prints "models in $n" 0 "$MUSHER" import sailor "$root/tests/data/sailor" --db "$h/new.db"
    grep -q "new.db" out || not_ok "models in $n are listed" "$(cat -v out)"
    prints "an order $n" 0 "$MUSHER" schedule 1f1b --devices 2 --microbatches 3 --csv "$h.csv" --json
    prints "a missing text $n" "2 3 6 7" "$MUSHER" run plan.yaml --data "$h.txt"
    rm -rf "./$h" "./$h".*
done
prints "a database" 0 "$MUSHER" profile named.yaml team.yaml --db "${raw[0]}.db" --repeats 3
group "names of files"

# Documents: a name is refused with its line and column.
# refuses FILE VERB...: the file has a control character in a name.
refuses() {
    local name=$1
    shift
    prints "$name" 3 "$@"
    grep -qE '[a-z.]+:[0-9]|: [a-z]' err || not_ok "$name" "no place: $(cat -v err)"
}
for h in "${written[@]}"; do
    q="\"x$h\""
    field() { awk -v from="$2" -v to="$3" 'i = index($0, from) { $0 = substr($0, 1, i - 1) to substr($0, i + length(from)) } { print }' "$1" > "$4"; }
    to=${q//\\/\\\\}
    field team.yaml "name: team" "name: $to" bad.yaml && refuses "a cluster $h" "$MUSHER" show bad.yaml
    refuses "a plan for cluster $h" "$MUSHER" plan job.yaml bad.yaml -o p.yaml
    field team.yaml "name: fast" "name: $to" bad.yaml && refuses "a type $h" "$MUSHER" show bad.yaml
    field team.yaml "type: fast" "type: $to" bad.yaml && refuses "a device's type $h" "$MUSHER" show bad.yaml
    field team.yaml "device: host" "device: $to" bad.yaml && refuses "a catalogue's device $h" "$MUSHER" show bad.yaml
    field team.yaml "name: a," "name: $to," bad.yaml && refuses "a node $h" "$MUSHER" show bad.yaml
    field team.yaml "host: localhost" "host: $to" bad.yaml && refuses "a host $h" "$MUSHER" show bad.yaml
    field team.yaml "name: bus" "name: $to" bad.yaml && refuses "a link $h" "$MUSHER" show bad.yaml
    field team.yaml "[a, b]" "[a, $to]" bad.yaml && refuses "an end of a link $h" "$MUSHER" show bad.yaml
    field team.yaml "bandwidth" "$to" bad.yaml && refuses "a key $h" "$MUSHER" show bad.yaml
    field named.yaml "small" "$to" bad.yaml && refuses "a model $h" "$MUSHER" show bad.yaml
    field named.yaml "model_type" "$to" bad.yaml && refuses "a model's key $h" "$MUSHER" show bad.yaml
    field named.yaml "gpt2" "$to" bad.yaml && refuses "a family $h" "$MUSHER" show bad.yaml
    for verb in show simulate memory "lower -o -" "whatif --without a.0 --evaluations 1" "run --data text.txt"; do
        set -- $verb
        field plan.yaml "name: " "name: $to #" bad.yaml && refuses "$1 a plan $h" "$MUSHER" "$1" bad.yaml "${@:2}"
        field plan.yaml "device: a.0" "device: $to" bad.yaml && refuses "$1 a plan's device $h" "$MUSHER" "$1" bad.yaml "${@:2}"
    done
    for what in plan id type name; do
        field sim.trace "\"$what\":\"" "\"$what\":\"$to" bad.trace && sed -i "s/\"$what\":\"\"x\(.*\)\"\"/&/; s/\"$what\":\"\"/\"$what\":\"/; s/\"$what\":\"\(x[^\"]*\)\"/\"$what\":\"\1/" bad.trace
        for verb in "compare sim.trace" "plot -o p.json" "plot -o p.svg" "calibrate --db none.db"; do
            set -- $verb
            refuses "$1 a trace's $what $h" "$MUSHER" "$@" bad.trace
        done
    done
    printf '{"version": 1, "model_type": "measured_layers", "sequence_length": 8, "tensor_parallel": [1], "layers": [{"name": "x%s", "cost": "0", "output": 1, "parameters": [1], "kept": [1]}, {"name": "h", "cost": "0", "output": 0, "parameters": [1], "kept": [1]}]}' "$h" > m.layers.json
    small_job | sed 's/^model:.*/model: m.layers.json/; s/sequence_length: 24/sequence_length: 8/' > bad.yaml
    refuses "a layer $h" "$MUSHER" show bad.yaml
    printf '{"results": [{"size": 8}], "devices": [{"hostname": "x%s", "device_info": "y"}], "args": ["all_reduce_perf"]}' "$h" > nccl.json
    refuses "a host of nccl-tests $h" "$MUSHER" import nccl-tests nccl.json --cluster team.yaml --db n.db
done
group "names in documents"
[[ ! -e p.yaml && ! -e p.json && ! -e p.svg && ! -e n.db ]] && ok "and nothing was written" || not_ok "and nothing was written" "$(ls)"

# Tables and other text, byte for byte.
for h in "${raw[@]}"; do
    n=$(printf %q "$h")
    printf 'component,category,count,window_days,gpus\n%s,GPU,3,10,20\n' "$h" > failures.csv
    codes=3 && [[ $h == *$'\n'* ]] && codes="3 0"
    prints "a component $n" "$codes" "$MUSHER" goodput --failures failures.csv --checkpoint 1s --samples 2
    prints "a component $n as JSON" "$codes" "$MUSHER" goodput --failures failures.csv --checkpoint 1s --samples 2 --json
    printf 'time_s,%s\n0,1\n9,0\n' "$h" > spot.csv
    prints "a type of spot devices $n" "3 2" "$MUSHER" goodput --spot spot.csv --checkpoint 1s --samples 2
    { printf '%s\n' "$h" && cat order.csv; } > bad.csv
    prints "an order $n" "0 2 3" "$MUSHER" schedule bad.csv
    sed "1s/^\([^,]*\),/\1,x,/" "$root/tests/data/schedules/schedule_cases.csv" | awk -v h="${h//$'\n'/ }" 'NR == 2 { $0 = h $0 } { print }' > cases.csv
    prints "cases $n" "0 2 3" "$MUSHER" schedule --cases cases.csv
    awk -v h="${h//$'\n'/ }" 'NR > 1 { i = index($0, ","); $0 = h substr($0, i) } { print }' "$root/tests/data/sailor/measured_gh200_opt350.csv" > plans.csv
    prints "measured plans $n" "0 2 3" "$MUSHER" validate --plans plans.csv --db none.db
    printf '<system version="1"><cpu numaid="%s" affinity="x"><pci busid="%s"/></cpu></system>\n' "$h" "$h" > topology.xml
    prints "a topology $n" 3 "$MUSHER" import nccl-topology topology.xml -o -
    printf '\tGPU0\tGPU1%s\nGPU0\t X \t%s\nGPU1\tNV1\t X \n' "$h" "$h" > topo.txt
    prints "a matrix $n" "0 2 3" "$MUSHER" import topo topo.txt --cluster team.yaml -o -
    printf '# nThread 1 nGpus %s\n# Rank  0 Group 0 Pid 1 on %s device 0 [0x00] %s\n' "$h" "$h" "$h" > nccl.txt
    prints "a text of nccl-tests $n" 3 "$MUSHER" import nccl-tests nccl.txt --cluster team.yaml --db n.db
    awk -v h="${h//$'\n'/ }" '{ gsub(/a\.0/, h) } { print }' program > bad.program
    prints "a program $n" "0 3" "$MUSHER" simulate bad.program
    printf '{"kind":"compute","x%s":1}\n' "$h" | cat <(head -n 1 sim.trace) - > bad.trace
    prints "a span $n" 3 "$MUSHER" compare bad.trace sim.trace
    printf 'version: 1\nname: x%s\n' "$h" > bad.yaml
    prints "a document $n" 3 "$MUSHER" show bad.yaml
done
group "tables and texts"
exit $bad
