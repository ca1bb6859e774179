#!/bin/bash
# tools/rank.sh - whether the plan predicted fastest is the fastest measured, and whether predicted and measured ranks agree.
#
# Cases: three emulated clusters × a GPT and a Mixtral, and unequal devices on one fast bus × wider models with few sequences a
# step, for which sharded operators may be fastest. In each case: profile; run even-pipeline and, if it shards operators and is not
# much slower, hap, and calibrate; then plan and, alternately, profile unmeasured operators or run the plan found beside the next two
# presets and calibrate, until the plan found has been run before. Then ten or more plans are simulated and run in rounds, each plan
# once a round, so that a slow period of the machine affects all of them:
#   found        the plan of the search
#   presets      every baseline that the executor supports
#   without-D    the best plan without device D of the plan found
#   top-N        plans among the 100 best, evenly spread over their predicted times
# All presets are included, the others up to ten plans; of plans with equal predictions to the nanosecond one is included.
# The time of a plan is the median over the rounds of the time that `run` reports. Rank correlation is Spearman's, ties share ranks.
# usage: MUSHER=build/musher tools/rank.sh [FOLDER]            results in FOLDER (build/rank), about forty minutes
#   Jobs and clusters are those of examples/rank; llama is another job.
#   RANK_CASES="sled:gpt ..."  cases to run         RANK_SECONDS=120 time for the runs of a case; at least two rounds
#   RANK_STEPS=3               steps of a run       RANK_ROUNDS=5    maximum number of rounds
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
MUSHER=${MUSHER:-$here/build/musher}
out=${1:-build/rank}
steps=${RANK_STEPS:-3} rounds=${RANK_ROUNDS:-5} seconds=${RANK_SECONDS:-120}
cases=${RANK_CASES:-sled:gpt sled:mixtral far:gpt far:mixtral islands:gpt islands:mixtral box:few-gpt box:few-mixtral}
wanted=10 # plans
turns=8   # plans made, at most
# One BLAS thread a rank, as in the tests, because ranks are devices.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

team_of() { [[ $1 == sled ]] && echo "$here/examples/team.yaml" || echo "$here/examples/rank/$1.yaml"; }
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | head -n 1; }
run() { "$MUSHER" run "$1" --steps "${steps_now:-$steps}" --data "$here/LICENSE" --json "${@:2}"; }
die() {
    echo "rank: $*" >&2
    exit 1
}

# Adds a plan to the list, unless one with the same prediction to the nanosecond (the same plan on other devices) is there.
enlist() { # FOLDER NAME MUSHER-PLAN-ARGUMENTS
    "$MUSHER" plan "${@:3}" --db "$1/profiles.db" -o "$1/$2.yaml" --json > "$1/one.json" 2> /dev/null || return 0
    grep -qx "$(number "$1/one.json" iteration_ns)" "$1/known" && return 0
    number "$1/one.json" iteration_ns >> "$1/known"
    echo "$2" >> "$1/plans"
}

profile() { # JOB CLUSTER FOLDER PLANS...; prints the number of operators measured
    "$MUSHER" profile "$1" "$2" "${@:4}" --db "$3/profiles.db" -q --json > "$3/profile.json" || die "profile failed"
    number "$3/profile.json" operators_measured
}

# Runs plans twice each, in turn, so that a slow period of the machine affects all of them; then calibrates on all runs so far.
learn() { # FOLDER PLANS...
    local i p name steps_now folder=$1
    shift
    for i in 1 2; do
        for p in "$@"; do
            name=${p##*/} name=${name%.*}
            [[ $name == hap ]] && steps_now=$((steps + 2)) || steps_now=$steps
            traces+=("$folder/learn.${#traces[@]}.$name")
            if ! run "$p" --trace "${traces[-1]}" > /dev/null 2> "$folder/err"; then
                [[ $name == top || $name == even-pipeline ]] && die "$p does not run: $(cat "$folder/err")"
                echo "   not used for calibration, because the executor does not support it: $name"
                unset 'traces[-1]'
                continue
            fi
            sed '/^name:/d; /^made_by:/d' "$p" | cksum >> "$folder/learned"
        done
    done
    "$MUSHER" calibrate --db "$folder/profiles.db" "${traces[@]}" > "$folder/calibrated" || die "calibrate failed"
    echo "   $(grep -o 'iteration error.*' "$folder/calibrated" | head -n 1), $((${#traces[@]} / 2)) plans run"
}

# The first calibration runs: a plan without sharded operators, and one with them, unless the cluster makes the latter far too
# slow.
calibrate() { # JOB TEAM FOLDER
    local db=$3/profiles.db taught=("$3/even-pipeline.yaml")
    "$MUSHER" plan "$1" "$2" --db "$db" -o "$3/even-pipeline.yaml" --baseline even-pipeline --json > "$3/even.json" || die "even-pipeline failed"
    if "$MUSHER" plan "$1" "$2" --db "$db" -o "$3/hap.yaml" --baseline hap --json > "$3/hap.json" 2> "$3/err" &&
        grep -q sharding "$3/hap.yaml" && (($(number "$3/hap.json" iteration_ns) < 2 * $(number "$3/even.json" iteration_ns))); then
        taught+=("$3/hap.yaml")
    fi
    profile "$1" "$2" "$3" "${taught[@]}" > /dev/null
    learn "$3" "${taught[@]}"
}

# The names of the presets that fit, the fastest first.
presets() {
    sed -n '/"baselines"/,/^  \]/s/.*"name": "\([^"]*\)", "iteration_ns": \([0-9][0-9]*\).*/\2 \1/p' "$1/plan.json" | sort -n | cut -d' ' -f2
}

# Plans and, alternately, profiles unmeasured operators of the plan found, or runs it beside the next two presets and calibrates,
# until the plan found has been run before. Presets are profiled together with the first plan, because plans are compared with them.
find_plan() { # JOB TEAM FOLDER
    local db=$3/profiles.db i n measured plans
    for ((i = 1; ; i++)); do
        rm -f "$3"/top.yaml*
        "$MUSHER" plan "$1" "$2" --db "$db" -o "$3/top.yaml" --top 100 --json > "$3/plan.json" || die "plan failed"
        ((i == turns)) && break
        plans=("$3/top.yaml")
        for n in 2 3 4 5; do [[ -e $3/top.yaml.$n ]] && plans+=("$3/top.yaml.$n"); done
        if ((i == 1)); then
            for n in $(presets "$3"); do
                "$MUSHER" plan "$1" "$2" --db "$db" -o "$3/$n.first" --baseline "$n" > /dev/null 2>&1 && plans+=("$3/$n.first")
            done
        fi
        measured=$(profile "$1" "$2" "$3" "${plans[@]}")
        echo "   round $i: found $(($(number "$3/plan.json" iteration_ns) / 1000)) us, $measured operators of ${#plans[@]} plans were not measured yet"
        ((measured)) && continue
        grep -qx "$(sed '/^name:/d; /^made_by:/d' "$3/top.yaml" | cksum)" "$3/learned" && break
        plans=("$3/top.yaml")
        for n in $(presets "$3" | head -n 2); do
            "$MUSHER" plan "$1" "$2" --db "$db" -o "$3/$n.first" --baseline "$n" > /dev/null 2>&1 && plans+=("$3/$n.first")
        done
        learn "$3" "${plans[@]}"
    done
    mv "$3/top.yaml" "$3/found.yaml"
    echo found > "$3/plans"
    number "$3/plan.json" iteration_ns > "$3/known"
}

# Writes the plan files, and their names to "plans", one a line.
prepare() { # JOB TEAM FOLDER
    local i d n traces=()
    profile "$1" "$2" "$3" > /dev/null
    calibrate "$1" "$2" "$3"
    find_plan "$1" "$2" "$3"
    for n in $(presets "$3"); do
        enlist "$3" "$n" "$1" "$2" --baseline "$n"
    done
    for d in $(sed -n '/^job:/q; s/.*device: \([^,}]*\).*/\1/p' "$3/found.yaml" | sort -u | tail -n 3); do
        (($(wc -l < "$3/plans") < wanted)) && enlist "$3" "without-$d" --from "$3/found.yaml" --without "$d"
    done
    # Indices in the list of the best, one for each interval of the range of their times.
    sed -n '/"top"/,/^  \]/s/.*"iteration_ns": \([0-9]*\),.*/\1/p' "$3/plan.json" > "$3/times"
    awk -v n=$((wanted - $(wc -l < "$3/plans"))) '{ t[NR] = $1 }
        END {
            for (k = 1; k <= n; k++) {
                goal = t[1] + (t[NR] - t[1]) * k / n; best = 0
                for (i = 2; i <= NR; i++)
                    if (!(i in used) && (!best || (t[i] - goal) ^ 2 < (t[best] - goal) ^ 2)) best = i
                if (best) { used[best] = 1; print best }
            }
        }' "$3/times" | sort -n > "$3/places"
    while read -r i; do
        mv "$3/top.yaml.$i" "$3/top-$i.yaml" && echo "top-$i" >> "$3/plans"
    done < "$3/places"
    rm -f "$3"/top.yaml.*
}

predict() { # FOLDER
    local p
    while read -r p; do
        "$MUSHER" simulate "$1/$p.yaml" --db "$1/profiles.db" --json > "$1/$p.sim.json" 2> "$1/err" || die "$p: $(cat "$1/err")"
    done < "$1/plans"
}

# Runs every plan once a round, every other round in reverse, so that a machine that slows down favours no plan. A plan that the
# executor refuses is listed and left out. A plan predicted three times as slow as the plan found runs only in the first round, two
# steps, and one ten times as slow a single step, because noise cannot change its rank.
measure() { # FOLDER
    local p r began=$SECONDS longest=0 start slow steps_now
    slow=$((3 * $(number "$1/found.sim.json" iteration_ns)))
    : > "$1/measured"
    for ((r = 1; r <= rounds; r++)); do
        ((r > 2 && SECONDS - began + longest > seconds)) && break
        start=$SECONDS
        while read -r p <&3; do
            steps_now=$steps
            if (($(number "$1/$p.sim.json" iteration_ns) > slow)); then
                ((r > 1)) && continue
                steps_now=2
                ((3 * $(number "$1/$p.sim.json" iteration_ns) > 10 * slow)) && steps_now=1
            fi
            if run "$1/$p.yaml" > "$1/run.json" 2> "$1/err" < /dev/null; then
                echo "$p $(number "$1/run.json" iteration_ns) $r" >> "$1/measured"
            else
                ((r == 1)) || die "$p ran once and then failed: $(cat "$1/err")"
                echo "   not run: $p: $(head -c 160 "$1/err" | head -n 1)"
                grep -vx -- "$p" "$1/plans" > "$1/plans.new"
                mv "$1/plans.new" "$1/plans"
            fi
        done 3< <(((r % 2)) && cat "$1/plans" || tac "$1/plans")
        ((SECONDS - start > longest)) && longest=$((SECONDS - start))
    done
}

# Prints the table, and a line for the summary: case, plans, rho, measured time found ÷ best preset.
table() { # CASE FOLDER
    while read -r p; do
        echo "plan $p $(number "$2/$p.sim.json" iteration_ns)"
    done < "$2/plans" | cat - <(sed 's/^/run /' "$2/measured") | awk -v name="$1" -v summary="$out/summary" "$(cat "$here/tools/ranks.awk")"'
    $1 == "plan" { n++; plan[n] = $2; at[$2] = n; predicted[n] = $3 }
    function is_preset(name) { return name !~ /^(found|without-.*|top-[0-9]*)$/ }
    $1 == "run" && $2 in at { i = at[$2]; runs[i] = runs[i] " " $3; count[i]++ }
    $1 == "run" && $2 == "found" { chosen[$4] = $3 }
    $1 == "run" && is_preset($2) && (!($4 in preset) || $3 < preset[$4]) { preset[$4] = $3 }
    END {
        for (i = 1; i <= n; i++) { measured[i] = median(runs[i], count[i]); noise[i] = spread }
        printf "   %-16s %12s %12s %8s %8s %6s %9s\n", "plan", "predicted", "measured", "error", "spread", "rank", "measured"
        for (i = 1; i <= n; i++)
            if (is_preset(plan[i]) && (!best || measured[i] < measured[best])) best = i
        for (i = 1; i <= n; i++)
            printf "   %-16s %9.1f ms %9.1f ms %+6.1f %% %6.1f %% %6.4g %9.4g\n", plan[i], predicted[i] / 1e6, measured[i] / 1e6,
                100 * (predicted[i] - measured[i]) / measured[i], 100 * noise[i], rank(predicted, i, n), rank(measured, i, n)
        rho = spearman(predicted, measured, n); ratio = measured[best] / measured[1]
        for (r in chosen) first += !(r in preset) || chosen[r] < preset[r]
        printf "   Spearman %.3f over %d plans; found is %.2f times as fast as the fastest preset (%s), measured, and faster than all in %d of %d rounds\n",
            rho, n, ratio, plan[best], first, count[1]
        printf "%s %d %.4f %.4f %s\n", name, n, rho, ratio, plan[best] >> summary
    }'
}

mkdir -p "$out"
rm -f "$out/summary"
start=$SECONDS
for c in $cases; do
    folder=$out/${c/:/-}
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "== ${c%:*}, ${c#*:}: emulated devices, $steps steps a run"
    prepare "$here/examples/rank/${c#*:}.yaml" "$(team_of "${c%:*}")" "$folder"
    predict "$folder"
    measure "$folder"
    table "$c" "$folder"
done
echo "== $((SECONDS - start)) s, $("$MUSHER" version | head -n 1), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"
awk '{
    printf "   %-14s Spearman %.3f over %2d plans, found %.2f times as fast as %s%s\n", $1, $3, $2, $4, $5, $4 < 1 ? "  NOT THE FASTEST" : ""
    if (NR == 1 || $3 < least) least = $3
    sum += $3; slower += $4 < 1
}
END {
    printf "   minimum %.3f, mean %.3f; found was faster than all presets in %d of %d\n", least, sum / NR, NR - slower, NR
    exit !(least >= 0.9 && !slower)
}' "$out/summary"
