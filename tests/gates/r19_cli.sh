#!/bin/bash
# tests/gates/r19_cli.sh - R19: every verb of the verb table, in every environment: help, wrong options, missing and unreadable files, outputs
# that cannot be written, a closed or full standard output, a reader that leaves, locales with a decimal comma, terminals of any
# width; --json is one JSON object with the same numbers everywhere.
# usage: [BUILD=build] [MUSHER_LONG=1] tests/gates/r19_cli.sh        from the root of the tree, after make
set -u
root=$PWD
MUSHER=${MUSHER:-$root/${BUILD:-build}/musher}
. tests/cli/common.inc
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset LANG LC_ALL LC_NUMERIC NO_COLOR COLUMNS
cd "$scratch" || exit 6
cases=0 failures=0 left_out=
fails() {
    echo "not ok $1: $2" | cat -v
    ((failures++))
}
# ends NAME CODES COMMAND...: with one of CODES; output in out and err, without escape sequences
ends() {
    local name=$1 codes=$2 code
    shift 2
    ((cases++))
    timeout $((120 * ${SLOWDOWN:-1})) "$@" >out 2>err </dev/null
    code=$?
    [[ " $codes " == *" $code "* ]] || fails "$name" "exit code $code, not $codes: $(head -c 300 err)"
    grep -qP '\x1b' out err && fails "$name" "escape sequences without a terminal"
}

# ---- files ------------------------------------------------------------------------------------------------------------------
small_job >job.yaml && small_team >team.yaml && seq 1 4000 >text
M=$MUSHER
{
    "$M" plan job.yaml team.yaml -o plan.yaml --evaluations 20 && "$M" simulate plan.yaml --trace sim.trace && "$M" profile job.yaml team.yaml --db db --repeats 3 &&
        "$M" run plan.yaml --data text --steps 3 --trace run.trace --save ck
} >out 2>err || fails "good files" "$(cat err)"
cp "$root/tests/data/topology/two-4090.xml" "$root/tests/data/topology/two-4090.yaml" .
cp -r "$root/tests/data/sailor" sailor
"$M" import sailor sailor --db sailor.db -o sailor >out 2>err || fails "sailor" "$(cat err)"
# One command of each verb that prints numbers; "measured": they are of this moment. Each verb has one.
declare -A command=(
    [show]="plan.yaml" [profile]="job.yaml team.yaml --db other.db --repeats 3" [plan]="job.yaml team.yaml -o p.yaml --evaluations 20"
    [whatif]="plan.yaml --without b.0 --evaluations 5" [sweep]="job.yaml team.yaml --vary batch=6,12 --evaluations 5"
    [lower]="plan.yaml -o p.program" [schedule]="1f1b --devices 3 --microbatches 5" [simulate]="plan.yaml" [goodput]="plan.yaml --samples 3 --checkpoint 1s"
    [memory]="plan.yaml" [run]="plan.yaml --data text --steps 2" [checkpoint]="show ck" [launch]="slurm real.yaml -o p.sh" [compare]="sim.trace run.trace"
    [calibrate]="--db db run.trace --force" [import]="nccl-topology two-4090.xml -o c.yaml" [validate]="--plans sailor/measured_gh200_opt350.csv --db sailor.db --models sailor"
    [collective]="all-reduce team.yaml" [export]="sailor.yaml --format sailor -o -" [plot]="sim.trace -o p.svg" [report]="plan.yaml -o p.html"
    [devices]="" [check]="" [version]="")
measured=" profile run check calibrate "
sed 's/device: host, slowdown: [0-9]*, memory: 64 MiB/device: H100-SXM5/g; s/duplex: half/duplex: full/; s/{type: fast}, //; s/\[a\], bandwidth/[a], bandwidth/' team.yaml >cluster.yaml
"$M" plan job.yaml cluster.yaml -o real.yaml --baseline ddp >out 2>err || fails "a plan of GPUs" "$(cat err)"
cat >sailor-job.yaml <<END
version: 1
model: sailor/OPT-350.layers.json
sequence_length: 2048
global_batch: 8
END
verbs=$("$M" --help | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p')

# ---- what every verb has --------------------------------------------------------------------------------------------------
settings=(COLUMNS=1000000 COLUMNS=0 COLUMNS=-7 COLUMNS=wide COLUMNS=99999999999999999999 TERM=dumb TERM= NO_COLOR=1)
[[ ${MUSHER_LONG:-0} == 0 ]] && settings=(COLUMNS=0 COLUMNS=wide TERM=)
for verb in $verbs; do
    [[ ${command[$verb]+known} ]] || fails "$verb" "tests/gates/r19_cli.sh has no command of this verb"
    ends "$verb --help" 0 "$M" "$verb" --help
    cp out help
    grep -q "^usage: musher $verb" out || fails "$verb --help" "no usage"
    for setting in "${settings[@]}"; do
        ends "$setting $verb --help" 0 env "$setting" "$M" "$verb" --help
        cmp -s out help || fails "$setting $verb --help" "another text"
    done
    ends "$verb --no-such-option" 2 "$M" "$verb" --no-such-option
    grep -q -- "--no-such-option" err || fails "$verb --no-such-option" "it is not named: $(cat err)"
    ends "$verb --help on a full disk" 6 bash -c '"$@" >/dev/full' sh "$M" "$verb" --help
    ends "$verb --help on a closed output" 6 bash -c '"$@" >&-' sh "$M" "$verb" --help
    ends "$verb --help for a reader that leaves" "0 141" bash -c '"$@" | :; exit ${PIPESTATUS[0]}' sh "$M" "$verb" --help
    ends "$verb --json of a missing file" "0 2 3 8" "$M" "$verb" --json nowhere.yaml nowhere.too
    [[ -s out ]] && { jq -se 'length == 1' out >jq.out 2>&1 || fails "$verb --json of a missing file" "not one JSON value: $(head -c 200 out)"; }
done

# ---- unreadable files, and outputs in a folder that cannot be written --------------------------------------------------------
user=()
if [[ $(id -u) == 0 ]]; then
    if command -v setpriv >/dev/null; then user=(setpriv --reuid=65534 --regid=65534 --clear-groups); else left_out+=", unreadable files (root, no setpriv)"; fi
fi
if [[ $(id -u) != 0 || ${#user[@]} -gt 0 ]]; then
    mkdir locked && cp plan.yaml locked/secret.yaml && chmod 000 locked/secret.yaml && chmod 755 locked . && chmod 644 ./*.yaml
    if "${user[@]}" test -x "$M" && "${user[@]}" test -r "$scratch/plan.yaml"; then
        for verb in show simulate memory lower check; do
            words=() && [[ $verb == lower ]] && words=(-o -)
            ends "$verb an unreadable file" 3 "${user[@]}" "$M" "$verb" "$scratch/locked/secret.yaml" "${words[@]}"
        done
        chmod 555 locked
        ends "a plan into a read-only folder" 6 "${user[@]}" "$M" plan "$scratch/job.yaml" "$scratch/team.yaml" -o "$scratch/locked/p.yaml" --evaluations 5
        ends "a trace into a read-only folder" 6 "${user[@]}" "$M" simulate "$scratch/plan.yaml" --trace "$scratch/locked/t"
        ends "a program into a read-only folder" 6 "${user[@]}" "$M" lower "$scratch/plan.yaml" -o "$scratch/locked/t"
        [[ $(ls locked) == secret.yaml ]] || fails "a read-only folder" "$(ls locked)"
    else
        left_out+=", unreadable files (the program is not readable for others)"
    fi
fi

# ---- locales ------------------------------------------------------------------------------------------------------------------
locales=(C)
mkdir -p locale
names=(de_DE tr_TR)
[[ ${MUSHER_LONG:-0} == 0 ]] && names=(tr_TR) # it has a decimal comma too, and an i without a dot
for name in "${names[@]}"; do
    if command -v localedef >/dev/null && localedef -i $name -f UTF-8 "locale/$name.UTF-8" 2>err; then locales+=("$name.UTF-8"); else left_out+=", $name (localedef)"; fi
done
((${#locales[@]} < 2)) || [[ $(LOCPATH=$PWD/locale LC_ALL=${locales[-1]} bash -c 'printf %.1f 0,5' 2>/dev/null) == "0,5" ]] || left_out+=", a decimal comma (the locale has no effect here)"
[[ ${MUSHER_LONG:-0} == 0 ]] && locales=("${locales[@]: -1}")
cat >sailor-team.yaml <<END
version: 1
name: sailor
device_types: [{name: A100-40, device: A100-SXM4-40}]
nodes: [{name: n, host: localhost, devices: [{type: A100-40, count: 4}]}]
links: [{name: bus, between: [n], bandwidth: 100 GB/s, latency: 5 us}]
END
"$M" plan sailor-job.yaml sailor-team.yaml --db sailor.db -o sailor.yaml --evaluations 5 >out 2>err || fails "a plan of measured layers" "$(cat err)"
for verb in $verbs; do
    words=${command[$verb]-}
    codes=0 && [[ $verb == check ]] && codes="0 8"
    for form in "" --json; do
        [[ $form && ($verb == export) ]] && continue # its output is the other planner's JSON
        # shellcheck disable=SC2086
        ends "$verb $form" "$codes" "$M" $verb $words $form
        cp out plain
        [[ $form || $verb == export ]] && { jq -se 'length == 1' out >jq.out 2>&1 || fails "$verb $form" "not one JSON value: $(head -c 200 out)"; }
        for locale in "${locales[@]}"; do
            # shellcheck disable=SC2086
            ends "$locale: $verb $form" "$codes" env LOCPATH="$PWD/locale" LC_ALL=$locale LANG=$locale NO_COLOR=1 TERM=dumb COLUMNS=1000000 "$M" $verb $words $form
            if [[ $measured == *" $verb "* ]]; then
                [[ ! $form ]] || [[ $(jq -c 'paths | map(tostring) | join(".")' out | sort -u) == "$(jq -c 'paths | map(tostring) | join(".")' plain | sort -u)" ]] ||
                    fails "$locale: $verb $form" "other keys"
                grep -qE '[0-9],[0-9]* (ms|s|us|%)' out && fails "$locale: $verb $form" "a decimal comma: $(grep -E '[0-9],[0-9]* (ms|s|us|%)' out | head -n 1)"
            else
                diff <(sed 's/"search_s": *[0-9.e-]*//' plain) <(sed 's/"search_s": *[0-9.e-]*//' out) >diff || # how long the search took
                    fails "$locale: $verb $form" "another output: $(head -n 3 diff)"
            fi
        done
    done
done
((failures == 0)) && verdict="the same numbers in ${#locales[@]} locales" || verdict="$failures failures"
echo "R19 cli      $cases calls of $(wc -w <<<"$verbs") verbs, $verdict${left_out:+; left out: ${left_out#, }}"
((failures == 0))
