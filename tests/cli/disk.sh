#!/bin/bash
# tests/cli/disk.sh - a slow disk fails no run; a full disk or a truncated text fails it with the name of the file.
set -u
. tests/cli/common.inc
two_stages > "$scratch/plan.yaml"

# The output of rank 0 at the end may take longer than MUSHER_TIMEOUT; its death or stop meanwhile is detected.
limit=$((3 * ${SLOWDOWN:-1}))
launcher=()
# ends NAME CODE TEXT SHIM...: a run whose trace is written to the disk that DISK_* describe
ends() {
    shims "${@:4}"
    MUSHER_TIMEOUT=$limit DISK_NAME=end.trace says "$1" "$2" "$3" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" "${launcher[@]}" --steps 1 --data LICENSE --trace "$scratch/end.trace"
}
DISK_SECONDS=$((2 * limit)) ends "a trace that is slow to write" 0 "per iteration" disk
[[ -s $scratch/end.trace ]] && ok "and is written" || not_ok "and is written" "$(ls "$scratch")"
launcher=(--launcher mpirun) # forked ranks need a shared file
DISK_SECONDS=$((2 * limit)) ends "and without liveness checks between ranks" 0 "per iteration" disk no_memfd
launcher=()
DISK_SIGNAL=9 ends "rank 0 killed while it writes" 7 "rank 0 was killed by signal 9" disk
DISK_SIGNAL=19 ends "rank 0 stopped while it writes" 7 "rank 0 (n.0) is stopped" disk

# On a full disk the error names the file, on any rank.
shims disk
for file in stage-0001.bin manifest.json; do
    DISK_FULL=1 DISK_NAME=$file says "a full disk between steps" 6 "" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data LICENSE --save "$scratch/full" --save-every 1 --json
    grep -q "^{.*\"code\":6,\"message\":\"checkpoint of step 1: cannot write '.*$file': No space left on device\"" "$scratch/out" && ok "$file is named in the JSON object" || not_ok "$file is named in the JSON object" "$(cat "$scratch/out")"
    [[ $(grep -c "No space left" "$scratch/err") == 1 ]] && ok "and stderr, once" || not_ok "and stderr, once" "$(cat "$scratch/err")"
done
DISK_FULL=1 ends "a full disk at the end" 6 "end.trace': No space left on device" disk

# A text that is truncated while a run reads it.
cp LICENSE "$scratch/text"
"$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data "$scratch/text" --save "$scratch/cut" --save-every 1 > "$scratch/out" 2> "$scratch/err" &
run=$!
for _ in $(seq 600); do
    compgen -G "$scratch/cut/step-*" > /dev/null && break
    sleep 0.1
done
truncate -s 0 "$scratch/text"
wait $run
code=$?
[[ $code == 3 ]] && grep -q "cannot read '$scratch/text': .*truncated" "$scratch/err" && ok "a text that is truncated is an error" ||
    not_ok "a text that is truncated is an error" "exit code $code: $(head -c 300 "$scratch/err")"
exit $bad
