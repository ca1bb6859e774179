#!/bin/bash
# tests/cli/ground.sh - the program's outermost layer: verbs, exit codes, stdout and stderr.
set -u
. tests/cli/common.inc
# check NAME CODE COMMAND...: the command ends with CODE; its output is in out and err.
check() {
    local name=$1 wanted=$2
    shift 2
    "$@" >"$scratch/out" 2>"$scratch/err"
    local code=$?
    ((code == wanted)) && ok "$name" || not_ok "$name" "exit code $code, not $wanted: $(head -n 1 "$scratch/err")"
}
empty() { # NAME FILE
    [[ ! -s $scratch/$2 ]] && ok "$1" || not_ok "$1" "$(cat "$scratch/$2")"
}

check "without a verb the usage is an error" 2 "$MUSHER"
has "on stderr" err "usage: musher VERB"
empty "and not to stdout" out
check "help is no error" 0 "$MUSHER" --help
has "printed on stdout" out "usage: musher VERB"
check "the version is printed" 0 "$MUSHER" --version
has "on stdout" out "musher 0."
check "an unknown verb is refused" 2 "$MUSHER" vresion
has "with the nearest one" err "musher: unknown verb 'vresion'; did you mean 'version'?"
check "an unknown option is refused" 2 "$MUSHER" version --sede 4
has "with the nearest option" err "did you mean --seed?"
check "a failure under --json is refused as well" 2 "$MUSHER" version --json --sede
has "and is JSON on stdout" out '{"schema":1,"error":{"code":2,"message":"unknown option '
has "with messages on stderr" err "musher: unknown option"
check "an escape sequence in a name is refused" 2 "$MUSHER" $'\e[2J'
has "with the control characters escaped" err "'\\x1b[2J'"
check "help of a verb" 0 "$MUSHER" help version
has "is that verb's own" out "usage: musher version"
check "help of an unknown verb is refused" 2 "$MUSHER" help nothing-like-it
check "a full disk behind stdout is a failure" 6 bash -c '"$0" version >/dev/full' "$MUSHER"
"$MUSHER" --help | true
code=${PIPESTATUS[0]}
((code == 0 || code == 141)) && ok "a closed reader ends the program without a message" ||
    not_ok "a closed reader ends the program without a message" "exit code $code"
exit $bad
