#!/bin/bash
# tests/fuzz/fuzz.sh - runs the libFuzzer program on every format in turn, FUZZ_SECONDS each (60).
# usage: tests/fuzz/fuzz.sh [FORMAT...]        after make (tests/fuzz/fuzz.mk), from the root of the tree
# Seeds are the corpus, tests/fuzz/corpus/FORMAT, and fixtures of tests/ and examples/ that are our own. The dictionary has the keys of the reference
# (docs/reference/formats.md, which is generated from the readers' tables). New inputs stay in build-fuzz/corpus/FORMAT for the next
# run. A finding is build-fuzz/findings/FORMAT-...: exit code 1. FUZZ_MINIMISE=1: afterwards the corpus of the tree is replaced by a
# minimal set of small inputs with the same coverage.
set -u
fuzz=build-fuzz/tests/fuzz/fuzz
seconds=${FUZZ_SECONDS:-60}
[[ -x $fuzz ]] || {
    echo "tests/fuzz/fuzz.sh: no $fuzz; run make fuzz" >&2
    exit 1
}
formats=("$@")
((${#formats[@]})) || mapfile -t formats < <(FUZZ_FORMAT=list $fuzz)
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:${ASAN_OPTIONS:-} OPENBLAS_NUM_THREADS=1
mkdir -p build-fuzz/findings
grep -oE '^\| `[a-z0-9_]+`' docs/reference/formats.md | sed 's/| `\(.*\)`/"\1"/' | sort -u >build-fuzz/keys.dict

# seeds FORMAT: its fixtures, one a line
seeds() {
    case $1 in
        document) ls tests/data/jobs/*.yaml tests/data/jobs/bad/* tests/data/models/bad/* tests/data/models/tiny-*.json examples/*.json ;;
        model) ls tests/data/models/*.json tests/data/models/bad/*.json examples/*.json ;;
        job) ls tests/data/jobs/*.yaml tests/data/jobs/bad/* tests/data/harp/*.job.yaml examples/*job.yaml ;;
        cluster) ls tests/data/clusters/*.yaml tests/data/clusters/bad/* tests/data/topology/*.yaml examples/{team,rack}.yaml ;;
        plan) ls tests/data/plans/*.yaml tests/data/plans/bad/* examples/{served,islands,one}.yaml ;;
        faults) ls examples/faults.yaml ;;
        nccl-tests) ls tests/data/nccl_tests/*.{txt,json} tests/data/nccl_tests/bad/*.{txt,json} ;;
        xml | nccl-topology) ls tests/data/topology/*.xml ;;
        topo) ls tests/data/topology/*.txt ;;
    esac 2>/dev/null
}

# longest FORMAT: bytes of an input; a whole program or database has more than the others
longest() { case $1 in program) echo 32768 ;; database) echo 131072 ;; *) echo 16384 ;; esac; }

total=0 findings=0
for format in "${formats[@]}"; do
    own=build-fuzz/corpus/$format
    mkdir -p "$own" build-fuzz/seeds/"$format"
    while read -r file; do cp "$file" "build-fuzz/seeds/$format/$(tr / - <<<"$file")"; done < <(seeds "$format")
    before=$(ls build-fuzz/findings | wc -l)
    FUZZ_FORMAT=$format $fuzz -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len="$(longest "$format")" -use_value_profile=0 \
        -dict=build-fuzz/keys.dict -artifact_prefix="build-fuzz/findings/$format-" -print_final_stats=1 -verbosity=1 \
        "$own" $([[ -d tests/fuzz/corpus/$format ]] && echo "tests/fuzz/corpus/$format") "build-fuzz/seeds/$format" >"build-fuzz/$format.log" 2>&1
    code=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$format.log")
    new=$(($(ls build-fuzz/findings | wc -l) - before))
    ((code && !new)) && new=1
    coverage=$(grep -o 'cov: [0-9]*' "build-fuzz/$format.log" | tail -n 1)
    echo "$format: ${runs:-0} executions, ${coverage:-cov: 0}, $new findings"
    ((new)) && grep -m 3 -E '^(==[0-9]+==ERROR|SUMMARY|input: |round trip|.*runtime error)' "build-fuzz/$format.log" | cut -c1-300
    ((total += ${runs:-0}, findings += new))
    if [[ ${FUZZ_MINIMISE:-} ]]; then
        rm -rf build-fuzz/small && mkdir -p build-fuzz/small "tests/fuzz/corpus/$format"
        FUZZ_FORMAT=$format $fuzz -merge=1 -timeout=10 -max_len=2048 build-fuzz/small "tests/fuzz/corpus/$format" "$own" >>"build-fuzz/$format.log" 2>&1
        ls -Sr build-fuzz/small | head -n "${FUZZ_KEEP:-60}" | while read -r file; do cp "build-fuzz/small/$file" "tests/fuzz/corpus/$format/${file::12}"; done
    fi
done
echo "fuzz: $total executions of ${#formats[@]} formats, $findings findings"
((findings == 0))
