#!/bin/bash
# tests/gates/r03_io_fails.sh - gate R3: the k-th operation on a file fails, for every k of every verb (cases.inc; tests/preload/disk.c).
# A command that ends with 0 has complete outputs, and no write, sync or rename of it has failed; one that fails ends with 6 (3 where an input cannot be
# read), names the file, and each of its files is the earlier or the complete one. A descriptor whose sync has failed is not synced again as it
# is: Linux reports a lost page once, so the second sync would succeed.
set -u
. tests/gates/common.inc
. tests/gates/cases.inc
unless_sanitized R3 "k-th I/O fails"
make_inputs
shims disk
counting=(env "DISK_NAME=$scratch/run" "DISK_REPORT=$scratch/report" "${shims[@]}")
share=${GATE_SHARE:-1} # one of so many failures, drawn; without MUSHER_LONG one of each command. GATE_ONLY: a verb; GATE_TELL=1: figures of each command

# The errors that an operation may have.
errors_of() {
    case $1 in
    open) echo EIO EMFILE EACCES EINTR ;;
    read) echo EIO EINTR SHORT ;;
    write) echo ENOSPC EIO EDQUOT EINTR SHORT ;;
    fsync) echo EIO ENOSPC EDQUOT EINTR ;;
    close) echo EIO ENOSPC EINTR ;;
    rename | link | mkdir | truncate) echo EIO ENOSPC EDQUOT ;;
    *) echo EIO ;;
    esac
}

# The name of a file that a message has to contain: not that of its temporary file, and that of a database for its journal.
shown() {
    local base=${1##*/}
    [[ $base =~ ^\.(.*)\.[0-9]+\.[0-9]+\.tmp$ ]] && base=${BASH_REMATCH[1]}
    case $1 in
    "$scratch/run") base=out ;; # the folder of the outputs, one of which the message names
    */stdout) base="standard output" ;;
    esac
    echo "${base%-journal}"
}

# fails K ERROR STAYS COMMAND...: prints what is wrong
fails() {
    local hidden k=$1 error=$2 stays=$3 code kind fd first path what before name=
    shift 3
    begin_case
    rm -f "$scratch/report"
    (cd "$scratch/run" && DISK_NAME=$scratch/run DISK_REPORT=$scratch/report DISK_FAIL=$k DISK_ERROR=$error DISK_STAYS=$stays \
        timeout $((60 * ${SLOWDOWN:-1})) "${shims[@]}" "$@" >stdout 2>"$scratch/err")
    code=$?
    IFS=$'\t' read -r kind fd first what < <(awk -F '\t' '$4 != "-"' "$scratch/report")
    [[ ${kind-} ]] || return # the run was shorter than its reference
    # SQLite ignores a failed sync of the folder of a new journal (os_unix.c, unixSync).
    before=$(awk -F '\t' '$4 != "-" { print last; exit } { last = $3 }' "$scratch/report")
    # Where failures stay, the first one may be harmless: then the message is about a later one.
    while read -r path; do name+=$(shown "$path")$'\n'; done < <(awk -F '\t' '$4 != "-" && !seen[$3]++ { print $3 }' "$scratch/report" | head -n 20)
    {
        case $code:$kind:$what in
        0:fsync:*) [[ $what == EINTR || $before == *-journal ]] || echo "the failure is ignored" ;;
        0:*:EINTR | 0:*:SHORT) ;;
        0:write:* | 0:rename:* | 0:mkdir:* | 0:truncate:*) echo "the failure is ignored" ;;
        0:*) ;;
        6:*) grep -qF -- "${name%$'\n'}" "$scratch/err" || echo "${name//$'\n'/ }is not named" ;;
        3:open:* | 3:read:*) grep -qF -- "${name%$'\n'}" "$scratch/err" || echo "${name//$'\n'/ }is not named" ;;
        *) echo "exit code $code" ;;
        esac
        hidden=
        # What was not removed; a generation of several ranks whose threads write, one of which ended the run (docs/decisions/32): the next one removes it.
        [[ $kind == unlink || ($kind == open && ${first##*/} == .step-*.tmp) || ($first == */.step-* && $* != *sync*) ]] && hidden=1
        left $code $hidden
        # A failed sync, and another of the same descriptor before it is written again (SQLite writes all old pages again) or closed.
        awk -F '\t' '$1 == "fsync" && $4 != "-" && $4 != "EINTR" { failed[$2] = 1; next } $1 == "close" || $1 == "write" { delete failed[$2] }
            $1 == "fsync" && $2 in failed { print $3 " is synced again"; exit }' "$scratch/report"
    } | sed "s|^|operation $k, $kind of ${first#"$scratch"/run/} with $what: |; \$s|\$| (exit code $code: $(head -c 160 "$scratch/err" | tr -d '\n|&\\'))|"
}

runs=0 wrong=0 points=0
for verb in $(verbs); do
    cases | grep -q "^$verb " || not_ok "$verb" "cases.inc has no case of it"
done
while read -r -a arguments; do
    command=("$MUSHER" "${arguments[@]}")
    [[ ${GATE_ONLY-} && ${arguments[0]} != $GATE_ONLY ]] && continue
    rm -f "$scratch/report"
    reference "${command[@]}"
    mapfile -t kinds < <(cut -f 1 "$scratch/report")
    ((${#kinds[@]} > 0)) || not_ok "${arguments[*]}" "no operation was seen"
    failures=()
    for ((k = 1; k <= ${#kinds[@]}; k++)); do
        for error in $(errors_of "${kinds[k - 1]}"); do
            failures+=("$k $error 0")
            [[ $error == ENOSPC || $error == EIO ]] && failures+=("$k $error 1")
        done
    done
    ((points += ${#kinds[@]}))
    draw ${#failures[@]} one
    ((long)) || failures=("${failures[one]}")
    tried=$runs
    for failure in "${failures[@]}"; do
        draw $share one
        ((long && one != 0)) && continue
        ((runs++))
        why=$(fails $failure "${command[@]}")
        [[ $why ]] && ((wrong += 1)) && not_ok "${arguments[*]}" "$why"
    done
    [[ ${GATE_TELL-} ]] && echo "${arguments[*]}: ${#kinds[@]} operations, $((runs - tried)) failures"
done < <(cases)
figure R3 "k-th I/O fails" "$(wc -w <<<"$(verbs)") verbs, $(thousands $points) operations, $(thousands $runs) failures, $wrong wrong"
exit $bad
