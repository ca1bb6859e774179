#!/bin/bash
# tests/cli/plot.sh - musher plot: no name is a gnuplot command, only the image is written, and it is complete.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6
"$MUSHER" schedule 1f1b --devices 2 --microbatches 3 --trace plain.trace > out 2> err && ok "a trace" || not_ok "a trace" "$(cat err)"
# Names that a trace may have: everything but control characters.
sed '1s/"plan":"1f1b"/"plan":"`touch PWNED` {a}_b^c @m $c0 \\\\n"/; 1s/"id":"d0"/"id":"a\\"\\u0027;!touch PWNED 50%d %s"/; 1s/"id":"d1"/"id":"`touch PWNED`$(touch PWNED) \\\\140 |ü"/' plain.trace > odd.trace

is_png() { [[ $(head -c 8 "$1" | od -An -tx1 | tr -d ' ') == 89504e470d0a1a0a && $(tail -c 8 "$1" | od -An -tx1 | tr -d ' ') == 49454e44ae426082 ]]; }
is_svg() { [[ $(head -c 5 "$1") == '<?xml' && $(tail -n 1 "$1") == '</svg>' ]] || tail -n 3 "$1" | grep -qx '</svg>'; }
# listed: the names in this folder, byte by byte.
listed() { find . -mindepth 1 -print0 | sort -z | od -An -c; }

names=(plain $'a\n!touch PWNED\n' $'a\r\n!touch PWNED #' "a'b" 'a"b' '"; !touch PWNED; "' '`touch PWNED`' '$(touch PWNED)' '|touch PWNED; cat >' '-x' '~root' '@m' '{a}_b^c' '$c0' 'a\nb' '\140touch PWNED\140'
    '%d%s%03d' $'\x01\x1b[2J\x7f' $'\xff\xfe' $'\xc2\x9b' 'ü' ' ' '#' ';!touch PWNED;' '<cat' 'STDOUT')
mkdir pictures
cd pictures || exit 6
for name in "${names[@]}"; do
    shown=$(printf %q "$name")
    for ending in png svg gp; do
        file=$name.$ending
        LC_ALL=C timeout $((60 * ${SLOWDOWN:-1})) "$MUSHER" plot ../odd.trace -o "$file" > ../out 2> ../err || { not_ok "$shown.$ending" "exit $?: $(cat ../err)"; continue; }
        [[ -s ../err ]] && not_ok "$shown.$ending without a warning" "$(cat ../err)"
        made=./$file
        if [[ $ending == gp ]]; then
            cp "./$file" ../script.gp
            LC_ALL=C.UTF-8 gnuplot ../script.gp > ../out 2> ../err || not_ok "gnuplot on $shown.gp" "$(cat ../err)"
            made=./$file.png
            ! LC_ALL=C grep -q '[^ -~]' "./$file" || not_ok "$shown.gp in plain characters" "$(LC_ALL=C grep -n '[^ -~]' "./$file" | head -n 3)"
        fi
        { [[ $ending == svg ]] && is_svg "$made" || is_png "$made"; } || { not_ok "$shown.$ending" "no image: $(ls)"; continue; }
        rm -f "./$file" "$made"
        [[ -z $(ls -A) ]] && ok "$shown.$ending and nothing else" || { not_ok "$shown.$ending and nothing else" "$(ls -A)"; rm -rf ./* ./.[!.]*; }
    done
done
cd .. || exit 6
[[ -z $(find . -name '*PWNED*') ]] && ok "no name was a command" || not_ok "no name was a command" "$(find . -name '*PWNED*')"
"$MUSHER" plot odd.trace -o odd.svg && has "a name is shown as it is" odd.svg 'predicted `touch PWNED`$(touch PWNED) \140 |ü<' && has "the percent sign too" odd.svg '50%d %s<'
has "markup has no effect" odd.svg '{a}_b^c @m $c0 \n'

# Files beside the image are unchanged.
cd pictures || exit 6
echo kept > victim
cp ../plain.trace t.png.gp
ln -s victim t.png.part.png
ln -s victim t.png.tmp
before=$(listed)
"$MUSHER" plot t.png.gp -o t.png
is_png t.png && cmp -s ../plain.trace t.png.gp && [[ $(cat victim) == kept ]] && rm t.png && [[ $(listed) == "$before" ]] && ok "files beside the image are unchanged" || not_ok "files beside the image are unchanged" "$(ls -A)"
touch picture.png
ln -s picture.png link.png
"$MUSHER" plot t.png.gp -o link.png
[[ -L link.png ]] && is_png picture.png && ok "through a link, which stays one" || not_ok "through a link, which stays one" "$(ls -lA)"
rm -f link.png picture.png
"$MUSHER" plot t.png.gp -o old.png && "$MUSHER" plot t.png.gp -o old.svg && cp old.png ../whole.png && cp old.svg ../whole.svg || not_ok "two images" ""
before=$(listed) sums=$(sha256sum ./*)

# fails NAME TEXT COMMAND...: ends with 6, and the folder is unchanged.
fails() {
    says "$1" 6 "${@:2}"
    [[ $(listed) == "$before" && $(sha256sum ./*) == "$sums" ]] && ok "$1: the old file is unchanged" || not_ok "$1: the old file is unchanged" "$(ls -lA)"
}
# draws NAME TEXT FILE COMMAND: the image FILE by a gnuplot that is COMMAND.
mkdir ../bin ../none
draws() {
    printf '#!%s\n%s\n' "$BASH" "$4" > ../bin/gnuplot && chmod +x ../bin/gnuplot
    fails "$1" "$2" env PATH="$PWD/../bin:$PATH" "$MUSHER" plot t.png.gp -o "$3"
}
fails "without gnuplot" "gnuplot is not installed; -o NAME.gp writes only the script" env PATH="$PWD/../none" "$MUSHER" plot t.png.gp -o old.png
draws "an incomplete image" "cut off after 700 bytes" old.png 'head -c 700 ../whole.png'
draws "no image" "cut off after 0 bytes" old.png 'exit 0'
draws "all but its end" "cut off" old.png 'head -c -12 ../whole.png'
draws "an image and trailing bytes" "cut off" old.png 'cat ../whole.png; echo'
draws "an image with a gap" "cut off" old.png 'head -c 500 ../whole.png; tail -c 500 ../whole.png'
draws "the header of an image" "cut off" new.png 'head -c 8 ../whole.png'
draws "an incomplete SVG" "cut off" old.svg 'head -c 3000 ../whole.svg'
draws "the wrong format" "cut off" old.svg 'cat ../whole.png'
draws "a failure" "gnuplot failed (exit code 3)" old.png 'cat ../whole.png; exit 3'
draws "gnuplot killed" "gnuplot failed (signal 9)" new.svg 'kill -9 $$'
# A file-size limit emulates a full disk: the image has some kB, gnuplot's input none.
printf '#!%s\nexec cat ../whole.svg\n' "$BASH" > ../bin/gnuplot
fails "a full disk" "cannot write 'old.svg'" bash -c 'ulimit -f 12; PATH=$1:$PATH exec "$2" plot t.png.gp -o old.svg' - "$PWD/../bin" "$MUSHER"
fails "a full disk from the first byte" "" bash -c 'ulimit -f 1; exec "$1" plot t.png.gp -o old.svg' - "$MUSHER"
mkdir ../home
printf 'set print "-"\nprint "not a picture"\nset output "elsewhere.txt"\n' > ../home/.gnuplot
HOME=$PWD/../home "$MUSHER" plot t.png.gp -o set.svg > ../out 2> ../err && cmp -s set.svg old.svg && rm set.svg && [[ $(listed) == "$before" ]] && ok "a .gnuplot in the home folder is not read" || not_ok "a .gnuplot in the home folder is not read" "$(cat ../err; ls -lA)"
ln -s /dev/full full.png
before=$(listed) sums=$(find . -type f -exec sha256sum {} +)
"$MUSHER" plot t.png.gp -o full.png > ../out 2> ../err
[[ $? == 6 && $(listed) == "$before" && $(find . -type f -exec sha256sum {} +) == "$sums" ]] && ok "a full device" || not_ok "a full device" "$(cat ../err; ls -lA)"

# --- memory, textbook plans, many devices ---
cd .. || exit 6
small_job > job.yaml
small_team > team.yaml
"$MUSHER" plan job.yaml team.yaml -o p.yaml --baseline data-parallel > out && "$MUSHER" plan job.yaml team.yaml -o q.yaml --evaluations 100 --json > search.json && "$MUSHER" simulate p.yaml --trace p.trace > out && ok "a plan, its trace, a search" || not_ok "a plan, its trace, a search" "$(cat out)"
for kind in "p.trace --memory" search.json; do
    # shellcheck disable=SC2086
    "$MUSHER" plot $kind -o k.png 2> err && is_png k.png && "$MUSHER" plot $kind -o k.svg 2> err && is_svg k.svg && "$MUSHER" plot $kind -o k.gp 2> err && ok "plot $kind" || not_ok "plot $kind" "$(cat err)"
    cp k.gp k2.gp
    # shellcheck disable=SC2086
    "$MUSHER" plot $kind -o k.gp && cmp -s k.gp k2.gp && ok "the same again" || not_ok "the same again" "differ"
    [[ $kind == search.json ]] || cp k.gp memory.gp
done
has "a bar for the found plan" k.gp '"found '
has "and for a textbook plan" k.gp '"data-parallel '
has "a panel for a device with its limit" memory.gp 'of 64 MiB'
has "classes of slots" memory.gp "optimizer state"
says "memory of a trace without a plan" 3 "plain.trace: has no plan" "$MUSHER" plot plain.trace --memory -o x.png
says "memory of two traces" 2 "--memory draws one file, not 2" "$MUSHER" plot p.trace p.trace --memory -o x.png
says "memory of a search" 2 "--memory is for a trace; search.json is a search" "$MUSHER" plot search.json --memory -o x.png
says "memory as a Chrome trace" 2 "--memory draws a picture" "$MUSHER" plot p.trace --memory -o x.json
says "something else" 3 "" "$MUSHER" plot job.yaml -o x.png
"$MUSHER" plan "$root/tests/data/jobs/gpt-2.6b.yaml" "$root/tests/data/clusters/fleet64.yaml" --baseline megatron -o many.yaml > out && "$MUSHER" simulate many.yaml --trace many.trace > out && "$MUSHER" plot many.trace -o many.gp && "$MUSHER" plot many.trace --memory -o memory.gp && ok "64 devices" || not_ok "64 devices" "$(cat out)"
rows=$(sed -n 's/^set ytics (//p' many.gp | grep -o '"' | wc -l)
((rows / 2 <= 32)) && grep '^set ytics' many.gp | grep -qF '\303\227' && ok "are classes with their numbers" || not_ok "are classes with their numbers" "$rows quotes: $(grep '^set ytics' many.gp | head -c 300)"
[[ -z $(find . -name '*PWNED*') ]] && ok "still no name was a command" || not_ok "still no name was a command" "$(find . -name '*PWNED*')"
exit $bad
