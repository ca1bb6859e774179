#!/bin/bash
# tests/cli/data.sh - training data of every form, learning-rate schedules: the same losses from the same tokens in another form, on other plans and
# after a resume; errors.
set -u
. tests/cli/common.inc
small_job | sed 's/vocab_size: 256/vocab_size: 300/; $a precision: fp64' >"$scratch/base.job"
small_team >"$scratch/team.yaml"
head -c 4000 LICENSE >"$scratch/text.txt"
iconv -f utf-8 -t utf-16le "$scratch/text.txt" >"$scratch/tokens.bin"
iconv -f utf-8 -t utf-32le "$scratch/text.txt" >"$scratch/wide.bin"
le32() { printf "\\x$(printf %02x $(($1 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 >> 16 & 255)))\\x$(printf %02x $(($1 >> 24 & 255)))"; }
{ le32 20240520; le32 1; le32 4000; head -c 1012 /dev/zero; cat "$scratch/tokens.bin"; } >"$scratch/llm.bin"
{ printf 'MMIDIDX\0\0'; le32 1; le32 0; printf '\x08'; le32 2; le32 0; le32 3; le32 0; le32 1000; le32 3000
  for x in 0 2000 0 1 2; do le32 $x; le32 0; done; } >"$scratch/mega.idx"
cp "$scratch/tokens.bin" "$scratch/mega.bin"

plan() { # NAME KEYS [OPTION...]: a plan of the job with more keys
    { cat "$scratch/base.job"; echo "$2"; } >"$scratch/$1.job"
    "$MUSHER" plan "$scratch/$1.job" "$scratch/team.yaml" -q -o "$scratch/$1.yaml" "${@:3}" >"$scratch/out" 2>&1 || cat "$scratch/out"
}
losses() { "$MUSHER" run --json "$@" 2>"$scratch/err" | jq -c '[.losses[] | . * 1e6 | round]'; } # plans agree to rounding of fp64
plan bytes "data: text.txt"
want=$(losses "$scratch/bytes.yaml" --steps 4)
[[ $want == *,*,*,* ]] && ok "bytes" || not_ok "bytes" "$want $(cat "$scratch/err")"
same() { # NAME COMMAND...
    local got
    got=$(losses "${@:2}")
    [[ $got == "$want" ]] && ok "$1" || not_ok "$1" "$got, not $want: $(cat "$scratch/err")"
}
same "tokens of 16 bits" "$scratch/bytes.yaml" --steps 4 --data "$scratch/tokens.bin" --data-form uint16
same "tokens of 32 bits" "$scratch/bytes.yaml" --steps 4 --data "$scratch/wide.bin" --data-form uint32
same "llm.c's form is found" "$scratch/bytes.yaml" --steps 4 --data "$scratch/llm.bin"
same "Megatron's form is found" "$scratch/bytes.yaml" --steps 4 --data "$scratch/mega.bin"
plan mega "data: {form: megatron, files: [mega]}" --baseline data-parallel
same "a form in the job, another plan" "$scratch/mega.yaml" --steps 4

# ---- several files, epochs, resume
head -c 1000 LICENSE >"$scratch/a.txt"
tail -c 3000 LICENSE >"$scratch/b.txt"
plan two "data: {files: [{path: a.txt, weight: 3}, {path: b.txt, weight: 1}]}"
plan other "data: {files: [{path: a.txt, weight: 3}, {path: b.txt, weight: 1}]}" --baseline data-parallel
want=$(losses "$scratch/two.yaml" --steps 12)
same "weighted files on another plan" "$scratch/other.yaml" --steps 12
rest=$("$MUSHER" run "$scratch/two.yaml" --steps 5 --save "$scratch/saved" -q >"$scratch/out" 2>&1; losses "$scratch/other.yaml" --steps 7 --resume "$scratch/saved")
[[ $rest == "$(jq -c '.[5:]' <<<"$want")" ]] && ok "a resumed run goes on with the next samples" || not_ok "a resumed run goes on with the next samples" "$rest, not the end of $want"
plan alone "data: a.txt"
[[ $(losses "$scratch/alone.yaml" --steps 4) != "$(jq -c '.[:4]' <<<"$want")" ]] && ok "the second file is read" || not_ok "the second file is read" same

# ---- the learning rate
plan cosine "$(printf 'data: text.txt\noptimizer: {kind: sgd, lr: 0.2, schedule: {kind: cosine, warmup: 3, steps: 8, min_lr: 0.02}}')"
want=$(losses "$scratch/cosine.yaml" --steps 8)
plan cosine2 "$(printf 'data: text.txt\noptimizer: {kind: sgd, lr: 0.2, schedule: {kind: cosine, warmup: 3, steps: 8, min_lr: 0.02}}')" --baseline data-parallel
same "a schedule on another plan" "$scratch/cosine2.yaml" --steps 8
"$MUSHER" lower -q "$scratch/cosine.yaml" -o "$scratch/program" >/dev/null
same "in a program" "$scratch/program" --steps 8 --data "$scratch/text.txt"
rest=$("$MUSHER" run "$scratch/cosine.yaml" --steps 5 --save "$scratch/half" -q >"$scratch/out" 2>&1; losses "$scratch/cosine2.yaml" --steps 3 --resume "$scratch/half")
[[ $rest == "$(jq -c '.[5:]' <<<"$want")" ]] && ok "a resumed run goes on with the rate" || not_ok "a resumed run goes on with the rate" "$rest, not the end of $want"
plan constant "$(printf 'data: text.txt\noptimizer: {kind: sgd, lr: 0.2}')"
[[ $(losses "$scratch/constant.yaml" --steps 8) != "$want" ]] && ok "it changes the training" || not_ok "it changes the training" same
# SGD by warm-up: the first step has a third of the rate
plan third "$(printf 'data: text.txt\noptimizer: {kind: sgd, lr: 0.0666666666666666666}')"
[[ $(losses "$scratch/third.yaml" --steps 2) == "$(jq -c '.[:2]' <<<"$want")" ]] && ok "the first step of three of warm-up has a third of it" || not_ok "the first step of three of warm-up has a third of it" other
[[ $("$MUSHER" run "$scratch/cosine.yaml" --steps 8 --json 2>/dev/null | jq '.last_learning_rate') == 0.02 ]] && ok "the last rate" || not_ok "the last rate" other
says "the schedule is printed" 0 "cosine from 0.2 to 0.02 in 8 steps, 3 of warm-up" "$MUSHER" show "$scratch/cosine.yaml"

"$MUSHER" run "$scratch/cosine.yaml" --steps 8 >"$scratch/out" 2>"$scratch/err" && ! grep -q "schedule of the learning rate" "$scratch/err"
check "a run as long as its schedule" $?
"$MUSHER" run "$scratch/cosine.yaml" --steps 11 --save "$scratch/past" --save-every 4 --max-restarts 1 >"$scratch/out" 2>"$scratch/err" &&
    [[ $(grep -c "the schedule of the learning rate ends with step 8: the learning rate stays at its minimum, 0.02, in steps 9 to 11$" "$scratch/err") == 1 ]]
check "a longer one has a warning" $?
says "so has one behind its end" 0 "in steps 12 to 14" "$MUSHER" run "$scratch/cosine.yaml" --steps 3 --resume "$scratch/past"

# ---- refused
says "a form that is not stated" 3 'write `form: uint16, uint32 or bytes`' "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/tokens.bin"
says "an unknown form" 2 "uint16" "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/tokens.bin" --data-form uint17
says "a form without its file" 2 "--data-form is the form of --data FILE" "$MUSHER" run "$scratch/bytes.yaml" --data-form uint16
says "a token beyond the vocabulary" 3 "the model's vocabulary has 300" "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/text.txt" --data-form uint16
says "a form of images" 3 "form cifar10 is of images, the model of text" "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/text.txt" --data-form cifar10
head -c 500 "$scratch/llm.bin" >"$scratch/cut"
says "a short header" 3 "is shorter than llm.c's header of 1024 bytes" "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/cut"
rm "$scratch/mega.bin"
says "an index without its tokens" 3 "mega.bin" "$MUSHER" run "$scratch/bytes.yaml" --data "$scratch/mega.idx"
{ cat "$scratch/base.job"; echo "data: {form: uint61, files: [a.txt]}"; } >"$scratch/bad.job"
says "a form in the job" 3 "bad.job:7:14" "$MUSHER" plan "$scratch/bad.job" "$scratch/team.yaml" -o "$scratch/bad.yaml"
exit $bad
