#!/bin/bash
# tools/hap.sh - HAP's clusters and models (arXiv 2401.05965) under every parallelisation, all simulated with the catalogue's prior.
#
#   even           a replica on each device, equal shares (data-parallel)
#   proportional   the same, shares by speed: the best that integer numbers of microbatches allow (plans generated here, simulated)
#   zero           the best of zero-1, zero-2, zero-3, fsdp and hsdp
#   hap            only a single sharded stage on all devices
#   harp-published HARP as its authors published it
#   harp           the search without sharded stages (--no-sharding): pipelines, replicas, shares
#   joined         the search with sharded stages
# usage: MUSHER=build/musher tools/hap.sh [FOLDER]      table.md, table.csv, hap.svg and every plan in FOLDER (build/hap)
#   HAP_CASES="hap8:vgg19 ..."  cells to compute      HAP_SECONDS=300   time limit of a search
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
MUSHER=${MUSHER:-$here/build/musher}
out=${1:-build/hap}
seconds=${HAP_SECONDS:-300}
cases=${HAP_CASES:-hap8:vgg19 hap8:vit hap8:bert hap8:bert-moe hap64:vgg19 hap64:vit hap64:bert hap64:bert-moe}
strategies="even proportional zero hap harp-published harp joined"

job_of() { echo "$here/tests/data/jobs/hap-$1.yaml"; }
team_of() { echo "$here/tests/data/clusters/$1.yaml"; }
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | head -n 1; }

# Writes nanoseconds to FOLDER/WAY.ns, or the error to FOLDER/WAY.why.
plan() { # FOLDER WAY JOB TEAM OPTIONS
    local at=$1/$2
    rm -f "$at.ns" "$at.why"
    if timeout "$seconds" "$MUSHER" plan "$3" "$4" -o "$at.yaml" --json "${@:5}" > "$at.json" 2> "$at.err"; then
        number "$at.json" iteration_ns > "$at.ns"
    else
        { sed -n 's/^musher: //p' "$at.err" | head -n 1 | cut -c 1-300 | grep . || echo "not within $seconds s"; } > "$at.why"
    fi
}

# Data-parallel plan with shares a for devices of the first node's type and b for the others, and this microbatch size.
with_shares() { # PLAN SIZE A B
    awk -v size="$2" -v a="$3" -v b="$4" '
        /^microbatch:/ { print "microbatch: " size; next }
        /^  - microbatches:/ { held = 1; next }
        /^    stages:/ && held { next }
        /^      - \{layers:/ && held {
            match($0, /device: [a-z]+/); print "  - microbatches: " (substr($0, RSTART + 8, RLENGTH - 8) == "v" ? a : b)
            print "    stages:"; held = 0
        }
        { print }' "$1"
}

proportional() { # FOLDER
    local even=$1/even.yaml at=$1/proportional fast slow batch size n a b ns best=
    rm -f "$at.ns" "$at.why"
    if [[ ! -s $1/even.ns ]]; then
        cp "$1/even.why" "$at.why"
        return
    fi
    fast=$(grep -c 'device: v' "$even") slow=$(grep -c 'device: p' "$even")
    batch=$(sed -n 's/.*global_batch: *\([0-9]*\).*/\1/p' "$even" | head -n 1)
    for size in 1 2 4 8 16 32 64 128; do
        n=$((batch / size))
        for ((b = 1; b * (fast + slow) <= n; b++)); do
            a=$(((n - slow * b) / fast))
            ((a * fast + b * slow == n && a * 10 >= b * 13 && a * 10 <= b * 22)) || continue
            with_shares "$even" $size $a $b > "$at.try.yaml"
            "$MUSHER" simulate "$at.try.yaml" --json > "$at.json" 2> "$at.err" || continue
            ns=$(number "$at.json" iteration_ns)
            [[ -n $best ]] && ((ns >= best)) && continue
            best=$ns
            mv "$at.try.yaml" "$at.yaml"
        done
    done
    rm -f "$at.try.yaml"
    if [[ -n $best ]]; then
        echo "$best" > "$at.ns"
    else
        echo "whole microbatches allow no shares between 1.3 and 2.2 to 1 that fit" > "$at.why"
    fi
}

zero() { # FOLDER JOB TEAM
    local w best=
    rm -f "$1/zero.ns" "$1/zero.why"
    for w in zero-1 zero-2 zero-3 fsdp hsdp; do
        plan "$1" $w "$2" "$3" --baseline $w
        [[ -s $1/$w.ns ]] || continue
        [[ -z $best ]] || (($(< "$1/$w.ns") < $(< "$best"))) && best=$1/$w.ns
    done
    if [[ -n $best ]]; then cp "$best" "$1/zero.ns"; else cat "$1"/{zero-1,zero-2,zero-3,fsdp,hsdp}.why 2> /dev/null | tail -n 1 > "$1/zero.why"; fi
}

cell() { # TEAM MODEL
    local at=$out/$1-$2 job team
    job=$(job_of "$2") team=$(team_of "$1")
    mkdir -p "$at"
    plan "$at" even "$job" "$team" --baseline data-parallel
    proportional "$at"
    zero "$at" "$job" "$team"
    plan "$at" hap "$job" "$team" --baseline hap
    plan "$at" harp-published "$job" "$team" --baseline harp-published
    plan "$at" harp "$job" "$team" --no-sharding
    plan "$at" joined "$job" "$team"
}

in_s() { awk -v ns="$1" 'BEGIN { printf "%.3f", ns / 1e9 }'; }

row() { # TEAM MODEL: seconds, and how many times the joined plan's
    local at=$out/$1-$2 w ns joined line="| $1 | $2 |" csv="$1 $2"
    joined=$(cat "$at/joined.ns" 2> /dev/null)
    for w in $strategies; do
        ns=$(cat "$at/$w.ns" 2> /dev/null)
        if [[ -n $ns ]]; then
            line+=" $(in_s "$ns")$([[ -n $joined ]] && awk -v a="$ns" -v b="$joined" 'BEGIN { printf " (%.2f)", a / b }') |"
            csv+=" $([[ -n $joined ]] && awk -v a="$ns" -v b="$joined" 'BEGIN { printf "%.4f", a / b }')"
        else
            line+=" - |" csv+=" nan"
            echo "- $1 $2 $w: $(cat "$at/$w.why" 2> /dev/null)" >> "$out/blanks"
        fi
    done
    echo "$line" >> "$out/table.md"
    echo "$csv" >> "$out/table.csv"
}

mkdir -p "$out"
: > "$out/blanks"
{
    echo "Seconds per iteration, simulated with the catalogue's prior (times the joined plan's):"
    echo
    echo "| cluster | model |$(printf ' %s |' $strategies)"
    echo "|---|---|$(printf -- '---|%.0s' $strategies)"
} > "$out/table.md"
echo "cluster model $strategies" > "$out/table.csv"
for c in $cases; do
    cell "${c%%:*}" "${c##*:}"
    row "${c%%:*}" "${c##*:}"
done
{
    echo
    cat "$out/blanks"
} >> "$out/table.md"
rm -f "$out/blanks"
cat "$out/table.md"
if command -v gnuplot > /dev/null; then
    gnuplot << PLOT
set terminal svg size 1200,480
set output "$out/hap.svg"
set style data histogram
set style histogram clustered gap 2
set style fill solid 0.8
set ylabel "times the joined plan's iteration"
set yrange [0:4]
set xtics rotate by -20
set key outside top horizontal
set datafile missing "nan"
plot for [k=3:9] "$out/table.csv" using k:xtic(strcol(1)." ".strcol(2)) title columnheader(k)
PLOT
fi
