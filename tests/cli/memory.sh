#!/bin/bash
# tests/cli/memory.sh - a failed allocation, in musher or in any library, ends the program with code 6 and the number of
# requested bytes, with one JSON object under --json, and leaves no temporary file.
# Of the allocations of a verb those at 1, 2, … and at growing distances fail; with MUSHER_LONG=1 about 150
# at equal distances, which is every one of a small verb.
set -u
. tests/cli/common.inc
musher=$(realpath "$MUSHER") shim=$(realpath "$BUILD")/tests/preload/fail_alloc.so data=$(realpath tests/data)
if nm -D "$musher" | grep -q '__[at]san_init'; then
    echo "ok sanitizers have their own allocation functions" # and their own report
    exit 0
fi
cd "$scratch" || exit 6
small_job > job.yaml
small_team > team.yaml
two_stages > two.yaml
cat > pair.yaml << 'END'
version: 1
name: pair
device_types: [{name: a100, device: A100-SXM4-80}]
nodes: [{name: a, host: sled1, devices: [{type: a100, count: 4}]}]
links: [{name: nva, between: [a], bandwidth: 240 GB/s, latency: 5 us}]
END
"$musher" plan job.yaml team.yaml -q -o plan.yaml > /dev/null && "$musher" simulate plan.yaml -q --trace sim.trace > /dev/null || not_ok "the inputs are made" "$?"

# fails K COMMAND...: the K-th allocation fails. Prints the reason if the exit is wrong. A run may end before that
# allocation, because a database has grown.
fails() {
    local k=$1 wanted='^musher: out of memory: [1-9][0-9]* bytes were needed$' message code
    shift
    rm -f count
    FAIL_ALLOC=$k FAIL_ALLOC_COUNT=count LD_PRELOAD=$shim timeout $((60 * ${SLOWDOWN:-1})) "$@" > out 2> err
    code=$?
    message=$(grep -E "$wanted" err)
    if ((code == 0 && $(cat count) < k)); then return; fi
    if [[ $code != 6 || -z $message ]]; then
        echo "request $k: exit code $code: $(head -c 200 err)"
    elif [[ " $* " == *" --json "* && $(cat out) != '{"schema":1,"error":{"code":6,"message":"'"${message#musher: }"'"}}' ]]; then
        echo "request $k: not one object with the message: $(head -c 200 out)"
    elif [[ -n $(find . -name '*.tmp') ]]; then
        echo "request $k: left $(find . -name '*.tmp')"
    fi
}

# every NAME TRIES COMMAND...: about TRIES of its allocations fail, one a run; among them the last one, during the output.
every() {
    local name=$1 tries=$2 n k why=
    shift 2
    FAIL_ALLOC_COUNT=count LD_PRELOAD=$shim "$@" > out 2> err || why="without a failure: $(head -c 200 err)"
    n=$(cat count)
    ((n)) || why="no request was seen"
    for ((k = 1; k <= n && ${#why} == 0; k += 1 + (${MUSHER_LONG:-0} ? n / 150 : k * 6 / tries))); do why=$(fails "$k" "$@"); done
    if [[ -z $why ]]; then why=$(fails "$n" "$@"); fi
    [[ -z $why ]] && ok "$name" || not_ok "$name" "$why"
}

every "a version" 10 "$musher" version --json
every "a job is shown" 20 "$musher" show job.yaml --json
every "a cluster is shown" 20 "$musher" show team.yaml
every "a plan is made" 40 "$musher" plan job.yaml team.yaml --threads 1 --json -o found.yaml
every "a plan is shown" 25 "$musher" show plan.yaml --json
every "a plan is simulated" 25 "$musher" simulate plan.yaml --json --trace out.trace
every "a plan is lowered" 20 "$musher" lower plan.yaml --json -o out.program
every "a trace is shown" 20 "$musher" show sim.trace
every "two traces are compared" 25 "$musher" compare sim.trace sim.trace --json
every "a trace is drawn" 20 "$musher" plot sim.trace --json -o out.svg
every "a collective" 25 "$musher" collective all-reduce team.yaml --json
every "a collective by algorithm" 20 "$musher" collective all-reduce team.yaml -b 1MiB
every "goodput" 25 "$musher" goodput plan.yaml --json
every "a topology is imported" 20 "$musher" import nccl-topology "$data/topology/eight-h100.xml" -o cluster.yaml --json
every "Sailor's profiles are imported" 20 "$musher" import sailor "$data/sailor" --db sailor.db --json
every "a table of collectives is imported" 25 "$musher" import nccl-tests "$data/nccl_tests/now.json" --cluster pair.yaml --db p.db --json
says "a failed import leaves its database unchanged" 0 "measured" "$musher" collective all-reduce pair.yaml -b 1MiB --db p.db --devices a.0,a.1,a.2,a.3
says "with the single profile of the successful import" 3 "no profile 2; it has 1" "$musher" collective all-reduce pair.yaml --db p.db --profile 2
every "the database can be read" 25 "$musher" collective all-reduce pair.yaml -b 1MiB --db p.db --json
every "explain" 25 "$musher" simulate plan.yaml --explain --json

# A launched rank passes the error to its launcher, whose object of --json contains it.
says "a rank without memory" 6 "" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MUSHER_LAUNCHED=1 FAIL_ALLOC=300 LD_PRELOAD="$shim" "$musher" run two.yaml --steps 1 --data job.yaml --json
grep -qE '^musher rank failure: 6 rank 0: out of memory: [1-9][0-9]* bytes were needed$' err && [[ $(wc -l < err) == 1 && ! -s out ]] && ok "reports to its launcher alone" || not_ok "reports to its launcher alone" "$(head -c 300 out err)"

# limited KIB THREADS: runs with a limit of address space; the loader may fail (127), or BLAS at the start of its threads (130).
limited() {
    local code
    (
        ulimit -v "$1"
        OPENBLAS_NUM_THREADS=$2 timeout $((60 * ${SLOWDOWN:-1})) "$musher" plan job.yaml team.yaml --json -q -o limited.yaml > out 2> err
    )
    code=$?
    case $code in
    0) grep -q '"iteration_ns"' out || echo "$1 KiB: no plan: $(head -c 200 out)" ;;
    6) grep -q '^musher: out of memory: [1-9][0-9]* bytes were needed$' err && grep -q '^{"schema":1,"error":{"code":6,' out || echo "$1 KiB: $(head -c 200 err out)" ;;
    127) grep -q "error while loading shared libraries" err || echo "$1 KiB: $(head -c 200 err)" ;;
    130) grep -q "OpenBLAS blas_thread_init: pthread_create failed" err || echo "$1 KiB: $(head -c 200 err)" ;;
    *) echo "$1 KiB: exit code $code: $(head -c 200 err)" ;;
    esac
    find . -name '*.tmp'
}
why=
for ((kib = 110000; kib <= 280000 && ${#why} == 0; kib += ${MUSHER_LONG:-0} ? 2000 : 17000)); do why=$(limited $kib 1; limited $kib 2); done
[[ -z $why ]] && ok "a plan in little address space" || not_ok "a plan in little address space" "$why"
exit $bad
