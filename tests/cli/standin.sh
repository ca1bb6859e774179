#!/bin/bash
# tests/cli/standin.sh - on the stand-in a missing event is a race that the thread sanitizer reports; with the event there is none.
# Only the stand-in's runtime is built with the sanitizer, by the compiler of the tree.
set -u
. tests/cli/common.inc
program=$scratch/standin_race
if ! ${CC:-gcc} -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=thread -pthread -I. -isystem tests/standin tests/programs/standin_race.c \
    tests/standin/{books,runtime,memory,streams,launches,emulator,fiber,shared_memory,cupti}.c -o "$program" >"$scratch/log" 2>&1; then
    if echo 'int main(void){return 0;}' | ${CC:-gcc} -fsanitize=thread -x c - -o "$scratch/none" 2>/dev/null; then
        not_ok "the stand-in's runtime builds with the thread sanitizer" "$(head -c 400 "$scratch/log")"
    else
        ok "races of the stand-in: this compiler has no thread sanitizer"
    fi
    exit $bad
fi
for case in event host upload; do
    says "$case: ordered accesses are no race" 0 "$case: done" "$program" $case
done
for case in no-event early-event no-wait asked late-upload; do
    says "$case: unordered accesses are a race" 66 "data race" "$program" $case
done

# ---- the CUPTI stand-in and its plugin, with buffers of a few records
twin=(tests/standin/{books,runtime,memory,streams,launches,emulator,fiber,shared_memory,cupti}.c
    exec/cupti/{plugin,records}.c core/base/{arena,error,rng}.c exec/clock.c)
for sanitizer in thread address,undefined; do
    if ${CC:-gcc} -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=$sanitizer -pthread -I. -isystem tests/standin tests/programs/activity_race.c "${twin[@]}" \
        -lm -o "$scratch/activity" >"$scratch/log" 2>&1; then
        STANDIN_CUPTI_BUFFER=256 says "records of two threads, under -fsanitize=$sanitizer" 0 "every copy came back once" "$scratch/activity"
    else
        not_ok "CUPTI's plugin builds with -fsanitize=$sanitizer" "$(head -c 400 "$scratch/log")"
    fi
done
says "an unknown case is refused" 2 "no case 'evnt'" "$program" evnt
exit $bad
