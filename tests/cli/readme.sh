#!/bin/bash
# tests/cli/readme.sh - README is true: every command in its sh blocks runs, in order, from a folder like a fresh clone.
set -u
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/clone/build"
mkdir "$scratch/clone/tests"
cp -r README.md LICENSE examples "$scratch/clone"
cp -r tests/data "$scratch/clone/tests/data"
ln -s "$MUSHER" "$scratch/clone/build/musher"
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' README.md > "$scratch/commands"
cd "$scratch/clone" || exit 6
n=0
while IFS= read -r command; do
    [[ -n $command ]] || continue
    ((n++))
    if bash -c "$command" > "$scratch/out" 2>&1 < /dev/null; then
        echo "ok README: $command"
    else
        echo "not ok README: $command: exit code $?: $(tail -n 3 "$scratch/out")"
        bad=1
    fi
done < "$scratch/commands"
((n > 10)) && echo "ok README has $n commands" || { echo "not ok README has commands: $n"; bad=1; }
for verb in show profile plan whatif lower schedule simulate memory run compare calibrate import export collective goodput validate plot devices check version; do
    "$MUSHER" $verb --help > "$scratch/help" 2>&1 && grep -q "usage: musher $verb" "$scratch/help" &&
        echo "ok $verb --help" || { echo "not ok $verb --help: $(head -n 1 "$scratch/help")"; bad=1; }
done
# Its table of variables is help's, whole: marks of code apart.
"$MUSHER" --help | sed -n '/^Environment/,$p' | sed -n 's/^  \(MUSHER_[A-Z_]*\)=\(.*\)/| \1 | \2 |/p; s/^      \(.*\)/ \1 |/p' | paste -d '' - - > "$scratch/settings"
grep '^| `MUSHER_' README.md | tr -d '`' > "$scratch/table"
[[ $(wc -l < "$scratch/table") -gt 5 ]] && cmp -s "$scratch/settings" "$scratch/table" && echo "ok README has the variables of the environment" ||
    { echo "not ok README has the variables of the environment: $(diff "$scratch/settings" "$scratch/table")"; bad=1; }
exit $bad
