#!/bin/bash
# tests/gates/r04_memory_fails.sh - gate R4: the k-th request for memory fails (malloc, calloc, realloc, memalign; mmap), in every verb (cases.inc;
# tests/preload/fail_alloc.c). The command ends with 6 and says how many bytes were needed, and each of its files is the earlier or the complete one.
# k is every one of the first 50 (of 50 / GATE_SHARE), then as many that a generator draws, and the last, and every call of mmap; without MUSHER_LONG one of each case.
set -u
. tests/gates/common.inc
. tests/gates/cases.inc
unless_sanitized R4 "k-th allocation fails"
make_inputs
export FAIL_ALLOC_IN=${MUSHER##*/}
shims fail_alloc
counting=(env "FAIL_ALLOC_COUNT=$scratch/count" "FAIL_MMAP_COUNT=$scratch/maps" "${shims[@]}")
first=$((50 / ${GATE_SHARE:-1})) drawn=$((50 / ${GATE_SHARE:-1}))
((long)) || first=0 drawn=1

# fails VARIABLE K COMMAND...: prints what is wrong
fails() {
    local variable=$1 k=$2 code wanted='out of memory: [1-9][0-9]* bytes were needed$'
    shift 2
    begin_case
    rm -f "$scratch/count"
    (cd "$scratch/run" && env "$variable=$k" "${variable}_COUNT=$scratch/count" timeout 60 "${shims[@]}" "$@" >stdout 2>"$scratch/err")
    code=$?
    [[ $variable == FAIL_MMAP ]] && wanted='[Mm]emory|MiB|bytes|space'
    {
        if ((code == 0)); then # another number of requests than in the reference, or a map that has a substitute
            [[ $variable == FAIL_MMAP ]] || (($(cat "$scratch/count") < k)) || [[ ${*:2:1} == run ]] || echo "the failure is ignored"
        elif ((code != 6)); then
            echo "exit code $code"
        elif ! grep -qE "$wanted" "$scratch/err"; then
            echo "the bytes are not said"
        elif [[ " $* " == *" --json "* ]] && ! grep -q '^{"schema":1,"error":{"code":6,"message":"' "$scratch/run/stdout"; then
            echo "no object of --json: $(head -c 100 "$scratch/run/stdout")"
        fi
        left $code
    } | sed "s|^|$variable=$k: |; \$s|\$| (exit code $code: $(head -c 160 "$scratch/err" | tr -d '\n|&\\'))|"
}

runs=0 wrong=0 requests=0
# try VARIABLE K COMMAND...
try() {
    local why
    why=$(fails "$@")
    ((runs++))
    [[ $why ]] && ((wrong += 1)) && not_ok "${*:4}" "$why"
}
for verb in $(verbs); do
    cases | grep -q "^$verb " || not_ok "$verb" "cases.inc has no case of it"
done
while read -r -a arguments; do
    [[ ${GATE_ONLY-} && ${arguments[0]} != $GATE_ONLY ]] && continue
    command=("$MUSHER" "${arguments[@]}")
    reference "${command[@]}"
    n=$(cat "$scratch/count") maps=$(cat "$scratch/maps")
    ((n > 0)) || not_ok "${arguments[*]}" "no request was seen"
    ((requests += n))
    for ((k = 1; k <= n && k <= first; k++)); do try FAIL_ALLOC $k "${command[@]}"; done
    for ((i = 0; i < drawn && n > first; i++)); do
        draw $((n - first)) k
        try FAIL_ALLOC $((first + 1 + k)) "${command[@]}"
    done
    ((long)) || continue
    try FAIL_ALLOC "$n" "${command[@]}"
    for ((k = 1; k <= maps; k++)); do try FAIL_MMAP $k "${command[@]}"; done
done < <(cases)
figure R4 "k-th allocation fails" "$(wc -w <<<"$(verbs)") verbs, $(thousands $requests) allocations, $(thousands $runs) failures, $wrong wrong"
exit $bad
