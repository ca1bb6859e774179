#!/bin/bash
# tests/gates/r09_hostile.sh - R9: hostile files. Every one is refused with the documented exit code and its place, within a
# time and memory limit; nothing is written, and no control character of a file reaches the terminal.
# usage: [BUILD=build] [MUSHER_LONG=1] tests/gates/r09_hostile.sh        from the root of the tree, after make; without MUSHER_LONG=1: fewer bytes and numbers
set -u
root=$PWD
MUSHER=${MUSHER:-$root/${BUILD:-build}/musher}
. tests/cli/common.inc
export OPENBLAS_NUM_THREADS=1
cd "$scratch" || exit 6
mkdir good files && cd files || exit 6
good=$scratch/good files=0 failures=0
control=$'[\x01-\x08\x0b-\x1f\x7f]'

fails() {
    echo "not ok $1: $2" | cat -v
    ((failures++))
}
# listed: every file with its size and time
listed() { find . "$good" -mindepth 1 -printf '%p %y %m %s %T@ %l\n'; }
# refused NAME CODES PLACE COMMAND...: ends within 20 s and 4 GiB with one of CODES; stderr matches PLACE; no file is made or changed.
refused() {
    local name=$1 codes=$2 place=$3 before code
    shift 3
    ((files++))
    before=$(listed)
    (
        [[ ${SLOWDOWN:-1} == 1 ]] && ulimit -v 4000000
        exec timeout $((20 * ${SLOWDOWN:-1})) "$@"
    ) >../out 2>../err </dev/null
    code=$?
    if [[ " $codes " != *" $code "* ]]; then
        fails "$name" "exit code $code, not $codes: $(head -c 300 ../out ../err)"
    elif ((code)) && ! grep -aqE -- "$place" ../err; then
        fails "$name" "no '$place' in: $(head -c 300 ../err)"
    elif LC_ALL=C grep -aqE "$control" ../out ../err || ! iconv -f UTF-8 -t UTF-8 ../out ../err >/dev/null 2>&1; then
        fails "$name" "control characters: $(LC_ALL=C grep -anE "$control" ../out ../err | head -n 2)"
    elif [[ $before != "$(listed)" ]]; then
        fails "$name" "it changed files: $(diff <(echo "$before") <(listed) | tail -n 2)"
    fi
}

# ---- good files, of which hostile ones are made; every reader of files with its command --------------------------------
small_job >"$good/job" && small_team >"$good/cluster"
echo '{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 256}' >"$good/model"
seq 1 4000 >"$good/text"
cp "$good/job" "$good/job.yaml" && cp "$good/cluster" "$good/team.yaml"
"$MUSHER" plan "$good/job" "$good/cluster" -o "$good/plan" --evaluations 20 >../out 2>../err &&
    "$MUSHER" simulate "$good/plan" --trace "$good/trace" >../out 2>../err &&
    "$MUSHER" lower "$good/plan" -o "$good/program" >../out 2>../err &&
    "$MUSHER" sweep "$good/job" "$good/cluster" --vary batch=6 --evaluations 10 -o "$good/sweep" >../out 2>../err &&
    "$MUSHER" run "$good/plan" --data "$good/text" --steps 1 --save "$good/checkpoints" >../out 2>../err || fails "good files" "$(cat ../err)"
"$MUSHER" profile "$good/job" "$good/cluster" --db "$good/db" --repeats 3 >../out 2>../err || fails "a good profile" "$(cat ../err)"
cp "$root/examples/faults.yaml" "$good/faults"
cp "$root/tests/fuzz/corpus/schedule/1f1b" "$good/schedule" && tr '|' '\n' <"$good/schedule" >../s && mv ../s "$good/schedule"
cp "$root/tests/data/nccl_tests/now.txt" "$good/nccl"
cp "$root/tests/data/nccl_tests/now.json" "$good/nccl-json"
cp "$root/tests/data/topology/two-4090.xml" "$good/xml" && cp "$root/tests/data/topology/two-4090.txt" "$good/topo"
cp "$root/tests/data/topology/two-4090.yaml" "$good/two.yaml"
cp "$root/tests/fuzz/corpus/failures/three" "$good/failures" && cp "$root/tests/fuzz/corpus/spot/seconds" "$good/spot"
cp "$root/tests/fuzz/corpus/cases/two" "$good/cases"
M=$MUSHER
declare -A command=(
    [job]="$M show FILE" [cluster]="$M plan $good/job FILE -o p.out" [plan]="$M simulate FILE" [trace]="$M plot FILE -o p.json"
    [program]="$M run FILE --data $good/text --steps 1" [faults]="$M goodput $good/plan --faults FILE --steps 10"
    [schedule]="$M schedule FILE" [nccl]="$M import nccl-tests FILE --cluster $good/two.yaml --db n.db"
    [nccl-json]="$M import nccl-tests FILE --cluster $good/two.yaml --db n.db"
    [xml]="$M import nccl-topology FILE -o c.yaml" [topo]="$M import topo FILE --cluster $good/two.yaml -o c.yaml"
    [failures]="$M goodput --failures FILE --gpus 8 --checkpoint 1s --samples 2" [spot]="$M goodput --spot FILE --checkpoint 1s --samples 2"
    [cases]="$M schedule --cases FILE" [sweep]="$M plot FILE -o p.svg" [db]="$M simulate $good/plan --db FILE"
)
# try KIND NAME [PLACE] [CODES]: the file x.KIND is refused by the kind's command.
try() {
    local words=${command[$1]//FILE/x.$1}
    # shellcheck disable=SC2086
    refused "$1: $2" "${4:-3}" "${3:-x\.$1}" $words
    rm -rf x.*
}

# ---- bytes: the same poison in every format ---------------------------------------------------------------------------
deep=$(printf '%*s' 100000 '' | tr ' ' '[')
kinds=(job cluster plan trace program faults schedule nccl nccl-json xml topo failures spot cases sweep db)
[[ ${MUSHER_LONG:-0} == 0 ]] && kinds=(trace faults topo)
for kind in "${kinds[@]}"; do
    : >x.$kind && try $kind "an empty file"
    { head -c 40 "$good/$kind" && printf '\0\0\0' && tail -c +41 "$good/$kind"; } >x.$kind && try $kind "NUL bytes"
    { printf '\xff\xfe\x80' && cat "$good/$kind"; } >x.$kind
    [[ $kind != nccl ]] && try $kind "invalid UTF-8 in front" # there it is a line of some log
    iconv -f UTF-8 -t UTF-16 "$good/$kind" >x.$kind 2>/dev/null || printf '\xff\xfea\0b\0' >x.$kind
    try $kind "UTF-16"
    head -c 5000 "$MUSHER" >x.$kind && try $kind "a program"
    printf '\e]0;owned\a\e[2J\n' >x.$kind && try $kind "escape sequences"
    printf %s "$deep" >x.$kind && try $kind "100000 brackets"
    mkdir x.$kind && try $kind "a folder"
    mkfifo x.$kind && try $kind "a pipe"
    ln -s /dev/zero x.$kind && try $kind "a link to /dev/zero"
    ln -s x.$kind x.$kind && try $kind "a link to itself"
    ln -s nowhere x.$kind && try $kind "a dangling link"
done

# ---- numbers, in every document that has them -----------------------------------------------------------------------------
numbers=(1e308 1e999 -1 .nan .inf NaN Infinity 18446744073709551616 99999999999999999999999999 0x10 1_000 '1 000' '[1]' '{a: 1}' null "''")
[[ ${MUSHER_LONG:-0} == 0 ]] && numbers=(1e999 .nan -1)
for number in "${numbers[@]}"; do
    sed "s/global_batch: .*/global_batch: $number/" "$good/job" >x.job && try job "global_batch: $number" 'x\.job:[0-9]+'
    sed "s/slowdown: 2/slowdown: $number/" "$good/cluster" >x.cluster && [[ $number != 1e308 ]] && try cluster "slowdown: $number" 'x\.cluster:[0-9]+'
    sed "s/bandwidth: 1 GB/bandwidth: $number GB/" "$good/cluster" >x.cluster && try cluster "bandwidth: $number GB/s" 'x\.cluster:[0-9]+'
    sed "s/^microbatch: .*/microbatch: $number/" "$good/plan" >x.plan && try plan "microbatch: $number" 'x\.plan:[0-9]+'
done
for number in 1e308 -5 9223372036854775808 '"x"' null '[]' 1.5; do
    sed "2s/\"begin_ns\":[0-9]*/\"begin_ns\":$number/" "$good/trace" >x.trace && try trace "begin_ns: $number" 'x\.trace:2'
    sed "2s/\"end_ns\":[0-9]*/\"end_ns\":$number/" "$good/trace" >x.trace && try trace "end_ns: $number" 'x\.trace:2'
    sed "1s/\"steps\":[0-9]*/\"steps\":$number/" "$good/trace" >x.trace && try trace "steps: $number" 'x\.trace'
done
for number in -1 1e999 nan inf two ''; do
    sed "2s/,[0-9]*,/,$number,/" "$good/spot" >x.spot && try spot "'$number' devices" 'x\.spot:2'
    sed "2s/,5,/,$number,/" "$good/failures" >x.failures && try failures "'$number' failures" 'x\.failures:2'
    sed "2s/5|5/$number|5/" "$good/cases" >x.cases && try cases "a time of '$number'" 'x\.cases:2'
done

# ---- documents: structure ----------------------------------------------------------------------------------------------------
{ cat "$good/job" && echo 'global_batch: 6'; } >x.job && try job "a duplicate key" 'x\.job:[0-9]+'
sed 's/^global_batch/&\n?/' "$good/job" >x.job && try job "a key without a value" 'x\.job:[0-9]+'
{ echo 'a: &a [x,x,x,x,x,x,x,x,x]' && for c in b c d e f g h i; do echo "$c: &$c [*a,*a,*a,*a,*a,*a,*a,*a,*a]"; done; } >x.job && try job "a billion laughs" 'x\.job:1'
sed 's/^global_batch: /&!!python\/object:os.system /' "$good/job" >x.job && try job "a tag" 'x\.job:[0-9]+'
{ cat "$good/job" && echo '---' && cat "$good/job"; } >x.job && try job "two documents" 'x\.job:[0-9]+'
{ echo '<<: {version: 1}' && cat "$good/job"; } >x.job && try job "a merge key" 'x\.job:[0-9]+'
sed 's/^global_batch/\tglobal_batch/' "$good/job" >x.job && try job "a tab" 'x\.job:[0-9]+'
{ printf 'version: 1\nmodel: "' && head -c 20000000 /dev/zero | tr '\0' a && echo '"'; } >x.job && try job "a name of 20 MB"
head -c 70000000 /dev/zero | tr '\0' '[' >x.job && try job "70 MB of brackets"
{ cat "$good/job" && head -c 70000000 /dev/zero | tr '\0' '#'; } >x.job && try job "70 MB of comment"
sed 's/^global_batch: .*/global_batch: "\\u0000"/' "$good/job" >x.job && try job "a NUL escape" 'x\.job:[0-9]+'
sed 's/^model: .*/model: ..\/..\/..\/..\/..\/..\/etc\/passwd/' "$good/job" >x.job && try job "a model outside of the folder" 'x\.job|passwd'
sed 's/^model: .*/model: \/etc\/passwd/' "$good/job" >x.job && try job "a model with an absolute path" 'passwd'
sed 's/^model: .*/model: x.job/' "$good/job" >x.job && try job "a job that is its own model" 'x\.job'
sed 's/^model: .*/model: \/dev\/zero/' "$good/job" >x.job && try job "a device as model" '/dev/zero'
for key in n_layer n_head n_embd vocab_size n_positions; do
    for number in 0 -1 9999999999 1e30; do
        sed "s/$key: [0-9]*/$key: $number/" "$good/job" >x.job && try job "$key: $number" "$key|x\.job:[0-9]+"
    done
done
# ---- clusters
edit() { sed "$1" "$good/cluster" >x.cluster; }
edit 's/devices: \[{type: slow}\]/devices: []/' && try cluster "a node of no GPU" 'x\.cluster:4'
edit 's/devices: \[{type: slow}\]/devices: [{type: slow, count: 1000000000}]/' && try cluster "a billion GPUs" 'x\.cluster:4'
edit 's/between: \[a, b\]/between: [a, a]/' && try cluster "a link of a node to itself" 'x\.cluster:[0-9]+'
edit 's/between: \[a, b\]/between: [a, c]/' && try cluster "a link to nowhere" 'x\.cluster:[0-9]+'
edit 's/name: b,/name: a,/' && try cluster "two nodes of one name" 'x\.cluster:4'
edit 's/20 MB/0 MB/' && try cluster "a link of no bandwidth" 'x\.cluster:[0-9]+'
edit 's/20 MB/1e-300 MB/' && try cluster "a link of hardly any bandwidth" 'x\.cluster:[0-9]+'
edit 's/300 us/1e300 us/' && try cluster "an endless latency" 'x\.cluster:[0-9]+'
edit 's/64 MiB/1e30 MiB/' && try cluster "endless memory" 'x\.cluster:[0-9]+'
edit 's/name: a,/name: "..\/..\/a",/' && try cluster "a node with a path as name" 'x\.cluster:4'
edit 's/name: a,/name: "a,b;rm -rf",/' && try cluster "a node with a command as name" 'x\.cluster:4'
sed 's/device: host, slowdown: [0-9]*, memory: 64 MiB/device: H100-SXM5/g; s/host: localhost/host: "$(touch owned)"/' "$good/cluster" >../cluster
"$MUSHER" plan "$good/job" ../cluster -o ../evil.plan --baseline ddp >../out 2>../err || fails "a plan of evil hosts" "$(cat ../err)"
for engine in ssh slurm ray; do
    refused "launch $engine: a host with a command as name" "3 0" 'no name of a host' "$MUSHER" launch $engine ../evil.plan -o -
    grep -q owned ../out && fails "launch $engine: a host with a command as name" "$(grep owned ../out)"
done
# ---- plans and programs
edit() { sed "$1" "$good/plan" >x.plan; }
edit 's/layers: \[0, [0-9]*\]/layers: [0, 99]/' && try plan "layers that the model lacks" 'x\.plan:[0-9]+'
edit 's/layers: \[0, [0-9]*\]/layers: [3, 0]/' && try plan "layers backwards" 'x\.plan:[0-9]+'
edit 's/microbatches: [0-9]*/microbatches: 0/' && try plan "no microbatch" 'x\.plan:[0-9]+'
edit 's/microbatches: [0-9]*/microbatches: 2147483647/' && try plan "too many microbatches" 'x\.plan:[0-9]+'
edit 's/device: [ab]\.[0-9]/device: z.9/' && try plan "a device that the cluster lacks" 'x\.plan:[0-9]+'
edit '/^replicas/,/^job/{/^job/!d}' && try plan "no replica" 'x\.plan|replicas'
edit 's/^steps: .*/steps: 99999999999/' && try plan "too many steps" 'x\.plan:[0-9]+'
two_stages | sed 's/between: \[n\]/&, bandwidth: 1 GB\/s, latency: 10 us/' >../two && for order in "B0 F0" "F0 F0 B0 B0" "F9 B9" "F-1" "F0 B1 F1 B0" "X0" ""; do
    sed "s/layers: \[0, 3\], device: n.0/&, order: \"$order\"/" ../two >x.plan && try plan "the order '$order'" 'x\.plan:[0-9]+'
done
lines=$(wc -l <"$good/program")
for n in 2 $((lines / 4)) $((lines / 2)) $((lines - 1)); do head -n "$n" "$good/program" >x.program && try program "cut after line $n" 'x\.program(:[0-9]+)?'; done
for n in 4 5 9 $((lines / 2)) $((lines - 2)); do
    sed "${n}s/[0-9][0-9]*/99999999999999999999/g" "$good/program" >x.program && try program "huge numbers in line $n" "x\.program:[0-9]+" '3 6'
    sed "${n}s/[0-9][0-9]*/-7/g" "$good/program" >x.program && try program "negative numbers in line $n" "x\.program:[0-9]+" '3 6'
done
sed '1s/[0-9][0-9]*$/999/' "$good/program" >x.program && try program "a version of the future" 'x\.program'
# ---- traces
sed '1s/"spans":[0-9]*/"spans":10000000/' "$good/trace" >x.trace && try trace "ten million spans that are not there" 'x\.trace'
sed '1s/"spans":[0-9]*/"spans":9000000000000000000/' "$good/trace" >x.trace && try trace "more spans than memory" 'x\.trace'
{ cat "$good/trace" && head -n 1 "$good/trace"; } >x.trace && try trace "a second header" 'x\.trace:[0-9]+'
sed '2s/"device":[0-9]*/"device":99/' "$good/trace" >x.trace && try trace "a device that is not there" 'x\.trace:2'
sed '2s/"stage":[0-9]*/"stage":-9/' "$good/trace" >x.trace && try trace "a stage that is not there" 'x\.trace:2'
sed '2s/"kind":"[a-z]*"/"kind":"teleport"/' "$good/trace" >x.trace && try trace "an unknown kind" 'x\.trace:2'
sed '2s/{/{"kind":"compute",/' "$good/trace" >x.trace && try trace "a duplicate field" 'x\.trace:2'
sed '1s/"schema":[0-9]*/"schema":99/' "$good/trace" >x.trace && try trace "a schema of the future" 'x\.trace'
head -c 2000000000 /dev/zero | gzip -1 >x.trace && try trace "a gzip bomb" 'x\.trace'
gzip -c "$good/trace" | gzip -c >x.trace && try trace "gzip in gzip" 'x\.trace'
gzip -c "$good/trace" | head -c 300 >x.trace && try trace "half of a gzip file" 'x\.trace'
# ---- XML, matrices, tables of other tools
for body in '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>' '<!DOCTYPE s [<!ENTITY a "b">]><system x="&a;"/>' '<system>&#x1b;</system>' '<system x="&lt;"/>' \
    '<system><![CDATA[x]]></system>' '<system></system><system></system>' '<system><cpu></system></cpu>' '<system a="1" a="2"/>' '<system' '<system a=1/>'; do
    echo "$body" >x.xml && try xml "$body" 'x\.xml(:[0-9]+)?'
done
{ for ((i = 0; i < 100000; i++)); do printf '<a>'; done; } >x.xml && try xml "100000 levels" 'x\.xml:1'
for cell in NV0 NV99999 NV-1 ABC X; do sed "2s/PHB/$cell/" "$good/topo" >x.topo && try topo "the relation $cell" 'x\.topo:[0-9]+'; done
sed 2d "$good/topo" >x.topo && try topo "a missing row" 'x\.topo'
{ printf 'GPU0' && for ((i = 1; i < 5000; i++)); do printf ' GPU%d' $i; done && echo; } >x.topo && try topo "5000 columns" 'x\.topo'
awk '$1 ~ /^[0-9]+$/ && $1 > 0 && !done { $6 = "0.00"; done = 1 } { print }' "$good/nccl" >x.nccl && try nccl "a collective of no time" 'x\.nccl:[0-9]+'
awk '$1 ~ /^[0-9]+$/ && !done { $1 = "18446744073709551616"; done = 1 } { print }' "$good/nccl" >x.nccl && try nccl "a size above 2^64" 'x\.nccl:[0-9]+'
printf 'component,category,count\n' >x.failures && try failures "missing columns" 'x\.failures:1'
printf 'time_s,a\n5,1\n4,1\n' >x.spot && try spot "time that runs backwards" 'x\.spot:3'
printf 'time_s,a\n0,"1\n' >x.spot && try spot "an open quote" 'x\.spot:2'
printf 'case,p,m\nx,2\n' >x.cases && try cases "a short row" 'x\.cases:[0-9]+'
# ---- databases
sql() { cp "$good/db" x.db && sqlite3 x.db "$1" && try db "$2" 'x\.db'; }
if command -v sqlite3 >/dev/null; then
    sql 'create view v as select 1' "a database with a view"
    sql 'create trigger t after insert on profile begin select 1; end' "a database with a trigger"
    sql 'pragma user_version = 9999' "a database of the future"
    sql 'create table more (x)' "a database with another table"
fi
# Damage in a place that SQLite does not use (reserved bytes, free space of a page) changes nothing: the same result, or a refusal.
"$MUSHER" simulate "$good/plan" --db "$good/db" >../expected 2>../err || fails "a good database" "$(cat ../err)"
for at in 16 18 24 28 52 100 200 4096 9000 20000; do
    (($(stat -c %s "$good/db") > at)) || continue
    cp "$good/db" x.db && printf '\xff\xff\xff\xff' | dd of=x.db bs=1 seek=$at conv=notrunc status=none && cp x.db ../damaged
    try db "4 bytes damaged at $at" 'x\.db' '0 3'
    "$MUSHER" simulate "$good/plan" --db ../damaged >../out 2>../err && ! cmp -s ../out ../expected && fails "db: damaged at $at" "another result"
done
head -c $(($(stat -c %s "$good/db") / 2)) "$good/db" >x.db && try db "half of a database"
# ---- checkpoints: paths of tensors
manifest=$(echo "$good"/checkpoints/step-*/manifest.json)
for path in ../../../etc/passwd /etc/passwd .hidden ''; do
    cp -r "$good/checkpoints" x.ck && sed -i "0,/\"file\": \"[^\"]*\"/s||\"file\": \"$path\"|" x.ck/step-*/manifest.json
    refused "checkpoint: a tensor in '$path'" 3 'x\.ck' "$MUSHER" run "$good/plan" --data "$good/text" --steps 1 --resume x.ck
    rm -rf x.ck
done
# ---- weights: a header that is none, in the place of a checkpoint's
for input in "$root"/tests/fuzz/corpus/safetensors/{refused,overlap,long} "$root/tests/fuzz/corpus/xml/"*; do
    mkdir x.weights && cp "$input" x.weights/model.safetensors
    refused "weights: ${input##*/}" 3 'x\.weights' "$MUSHER" run "$good/plan" --data "$good/text" --steps 1 --init x.weights
    refused "weights: ${input##*/}, shown" 3 'x\.weights' "$MUSHER" checkpoint show x.weights
    rm -rf x.weights
done
[[ -s $manifest ]] || fails "a checkpoint" "no manifest"

((failures == 0)) && verdict="all refused with their place" || verdict="$failures failures"
echo "R9 hostile   $files files, $verdict"
((failures == 0))
