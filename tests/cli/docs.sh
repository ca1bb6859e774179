#!/bin/bash
# tests/cli/docs.sh - docs/reference equals the output of `make docs`, and the manual page is valid.
set -u
. tests/cli/common.inc
mkdir "$scratch/reference"
"$BUILD/docs/generate/generate" "$scratch/reference" 2> "$scratch/err" || not_ok "docs are generated" "$(cat "$scratch/err")"
diff -r docs/reference "$scratch/reference" > "$scratch/diff" && ok "docs/reference is up to date" ||
    not_ok "docs/reference is up to date" "run \`make docs\`: $(head -n 6 "$scratch/diff")"
for verb in $("$MUSHER" --help | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    grep -q "^## musher $verb\$" docs/reference/commands.md || { not_ok "$verb in commands.md" "missing"; continue; }
    "$MUSHER" help "$verb" | grep -oE -- '--[a-z-]+' | sort -u | while read -r option; do
        grep -qF -- "$option" docs/reference/commands.md || echo "$verb $option"
    done
done > "$scratch/missing"
[[ ! -s $scratch/missing ]] && ok "every option is in commands.md" || not_ok "every option is in commands.md" "$(cat "$scratch/missing")"
for verb in $("$MUSHER" --help | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$MUSHER" help "$verb" | sed '/^usage:/d; /^examples:/,$d' | awk -v v="$verb" 'length > 80 { print v ": " $0 }'
done > "$scratch/wide"
[[ ! -s $scratch/wide ]] && ok "help fits 80 columns" || not_ok "help fits 80 columns" "$(head -n 3 "$scratch/wide")"
if command -v groff > /dev/null; then
    groff -man -ww -Tutf8 -P -c -P -b -P -u docs/reference/musher.1 > "$scratch/page" 2> "$scratch/err"
    [[ ! -s $scratch/err ]] && ok "groff has no warnings" || not_ok "groff has no warnings" "$(head -n 3 "$scratch/err")"
    has "the manual page has its sections" page "EXIT STATUS"
fi
exit $bad
