#!/bin/bash
# tests/cli/readme.sh - every command in the sh blocks of README and the guide runs, in order, from a folder like a fresh clone.
set -u
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/clone/build"
mkdir "$scratch/clone/tests"
cp -r README.md LICENSE docs examples "$scratch/clone"
cp -r tests/data "$scratch/clone/tests/data"
ln -s "$MUSHER" "$scratch/clone/build/musher"
mapfile -t pages < <(sed -n 's/^| \[\([a-z-]*\.md\)\].*/docs\/guide\/\1/p' docs/guide/README.md)
for page in docs/guide/*.md; do # a page missing in the table of contents would not be tested
    [[ $page == docs/guide/README.md || " ${pages[*]} " == *" $page "* ]] || { echo "not ok docs/guide/README.md lists $page"; bad=1; }
done
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' README.md docs/guide/README.md "${pages[@]}" > "$scratch/commands"
cd "$scratch/clone" || exit 6
words() { tr -s ' \n' '  ' | sed 's/^ //; s/ $//'; }
n=0
while IFS= read -r command; do
    [[ -n $command ]] || continue
    ((n++))
    if bash -c "$command" > "$scratch/out" 2>&1 < /dev/null; then
        echo "ok $command"
        [[ $command == "build/musher plan examples/llama-8b.yaml examples/rack.yaml -o "* ]] && words < "$scratch/out" > "$scratch/printed"
    else
        echo "not ok $command: exit code $?: $(tail -n 3 "$scratch/out")"
        bad=1
    fi
done < "$scratch/commands"
# Every line of README's example is a part of what the command prints, however the lines are wrapped.
words() { tr -s ' \n' '  ' | sed 's/^ //; s/ $//'; }
"$MUSHER" plan examples/llama-8b.yaml examples/rack.yaml -o build/example.yaml | words > "$scratch/printed"
shown=0
while IFS= read -r line; do
    line=$(words <<< "$line")
    grep -qF -- "$line" "$scratch/printed" && ((++shown)) || { echo "not ok README's example: not printed: $line"; bad=1; }
done < <(sed -n '/^The search takes about/,/^The fastest plan found/s/^    //p' README.md)
((shown > 10)) && echo "ok $shown lines of README's example" || { echo "not ok lines of README's example: $shown"; bad=1; }
((n > 30)) && echo "ok README and the guide have $n commands" || { echo "not ok README and the guide have commands: $n"; bad=1; }
for verb in show profile plan whatif sweep report lower schedule simulate memory run checkpoint launch compare calibrate import export collective goodput validate plot devices check version; do
    "$MUSHER" $verb --help > "$scratch/help" 2>&1 && grep -q "usage: musher $verb" "$scratch/help" &&
        echo "ok $verb --help" || { echo "not ok $verb --help: $(head -n 1 "$scratch/help")"; bad=1; }
done
(($(wc -l < "$scratch/clone/README.md") <= 110)) && echo "ok README fits two screens" || { echo "not ok README has more than 110 lines"; bad=1; }
exit $bad
