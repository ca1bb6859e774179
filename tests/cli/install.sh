#!/bin/bash
# tests/cli/install.sh - make install and uninstall into a folder; completion in bash.
set -u
. tests/cli/common.inc
unset MAKEFLAGS MAKELEVEL MFLAGS
into() { make -s "$1" BUILD="$BUILD" NVCC= DESTDIR="$scratch/dest" PREFIX=/opt/musher > "$scratch/out" 2> "$scratch/err"; }
into install && ok "make install" || not_ok "make install" "$(tail -n 3 "$scratch/err")"
at=$scratch/dest/opt/musher
for file in bin/musher share/man/man1/musher.1 share/bash-completion/completions/musher share/zsh/site-functions/_musher \
    share/doc/musher/{LICENSE,README.md,ARCHITECTURE.md,docs/measurements.md,docs/reference/commands.md,docs/reference/formats.md,examples/job.yaml,examples/team.yaml}; do
    [[ -s $at/$file ]] && ok "installed $file" || not_ok "installed $file" "missing"
done
diff -rq examples "$at/share/doc/musher/examples" > "$scratch/diff" && ok "all examples" || not_ok "all examples" "$(cat "$scratch/diff")"
(cd "$at/share/doc/musher/examples" && "$at/bin/musher" show job.yaml > "$scratch/out" 2>&1) && ok "the installed program reads an example" || not_ok "the installed program reads an example" "$(cat "$scratch/out")"

# completes NAME EXPECTED WORD...: what bash offers for the last word, sorted, joined by spaces.
completes() {
    local name=$1 expected=$2 found
    shift 2
    found=$(cd "$scratch" && bash -c '
        source "$0"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _musher
        printf "%s\n" "${COMPREPLY[@]}" | sort | paste -sd " "' "$at/share/bash-completion/completions/musher" "$at/bin/musher" "$@")
    [[ $found == "$expected" ]] && ok "$name" || not_ok "$name" "'$found', not '$expected'"
}
cp examples/team.yaml "$scratch/team.yaml"
mkdir "$scratch/tech"
completes "verbs" "goodput" go
completes "verbs of help" "simulate" help si
completes "long options" "--objective" plan --ob
completes "options of every verb" "--verbose" show --verb
completes "values of a choice" "cost rate time" plan --objective ""
completes "values behind an equals sign" "cost" plan --objective = c
completes "names of baselines" "zero-1 zero-2 zero-3" plan --baseline zero-
completes "files" "team.yaml tech" show te
completes "folders" "tech" run --save te
completes "devices of the cluster on the line" "b b.0" collective all-reduce team.yaml --devices b
completes "devices behind a comma" "a.0,b a.0,b.0" collective all-reduce team.yaml --devices a.0,b
completes "formats to import" "nccl-tests nccl-topology" import nccl
completes "nothing behind an unknown verb" "" nothing ""
into uninstall && ok "make uninstall" || not_ok "make uninstall" "$(tail -n 3 "$scratch/err")"
[[ -z $(find "$scratch/dest" -type f) ]] && ok "uninstall leaves no file" || not_ok "uninstall leaves no file" "$(find "$scratch/dest" -type f | head -n 3)"
exit $bad
