#!/bin/bash
# tests/cli/schedule.sh - musher schedule: by name and from a file, as text, CSV and JSON, and its errors.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6

# HARP's example: three stages, f = 1, b = 2, the second link occupied for 2: 46 with five forwards in flight.
harp=(--devices 3 --microbatches 12 --forward "1 ms" --backward "2 ms" --transfer "0 ms|2 ms")
says "1F1B" 0 "makespan 33 ms (33000000 ns, by the static pass)" "$MUSHER" schedule 1f1b --devices 4 --microbatches 8
says "a slow link" 0 "(66000000 ns" "$MUSHER" schedule 1f1b "${harp[@]}"
says "H-1F1B hides it" 0 "(46000000 ns" "$MUSHER" schedule h-1f1b "${harp[@]}"
says "warm-up counts by hand" 0 "(46000000 ns" "$MUSHER" schedule 1f1b "${harp[@]}" --warmup "5|4|1"
says "a timeline" 0 "     1  ...FFF" "$MUSHER" schedule 1f1b --devices 4 --microbatches 8 --timeline
says "ZB-V idles nowhere" 0 "last operation 0 ns" "$MUSHER" schedule zb-v --devices 4 --microbatches 8
says "occupied links of chunks" 0 "by the event loop" "$MUSHER" schedule zb-v --devices 4 --microbatches 8 --transfer "1 ms"
says "zero-bubble" 0 "zero-bubble: 4 devices" "$MUSHER" schedule zero-bubble --devices 4 --microbatches 8 --activation "2 B" --released "1 B" --limit "8 B"
says "too little memory" 4 "1f1b does not fit: device 0 needs 4 B, its limit is 3 B" "$MUSHER" schedule 1f1b --devices 4 --microbatches 4 --activation "1 B" --limit "3 B"
says "no zero-bubble order fits" 4 "no zero-bubble order" "$MUSHER" schedule zero-bubble --devices 4 --microbatches 4 --activation "2 B" --limit "1 B"

names=$("$MUSHER" schedule none --devices 2 --microbatches 2 2>&1 | sed -n "s/.*known: \([^(;]*\) (zero-bubble.*/\1/p" | tr -d ,)
[[ $names == *1f1b* ]] || not_ok "schedules are listed" "'$names'"
for name in $names zero-bubble; do
    shape=() && [[ $name == zb-v || $name == v-* ]] && shape=(--v-shaped)
    if "$MUSHER" schedule $name --devices 3 --microbatches 6 --csv cell.csv --json > one.json 2> err &&
        "$MUSHER" schedule cell.csv "${shape[@]}" --json > two.json 2>> err &&
        diff <(grep -v '"schedule"' one.json) <(grep -v '"schedule"' two.json) > difference; then
        ok "$name is written and read again"
    else
        not_ok "$name is written and read again" "$(cat err difference | head -c 300)"
    fi
done
"$MUSHER" schedule zb-h1 --devices 2 --microbatches 3 --csv - > out 2> err
[[ $(cat out) == "F0,F1,I0,W0,F2,I1,W1,I2,W2|F0,I0,F1,I1,W0,F2,I2,W1,W2" ]] && ok "the cell alone" || not_ok "the cell alone" "$(cat out)"
"$MUSHER" schedule 1f1b --devices 2 --microbatches 3 --trace s.trace > out 2> err && "$MUSHER" plot s.trace -o s.json 2>> err && [[ -s s.json ]] &&
    ok "a trace is drawn" || not_ok "a trace is drawn" "$(cat err)"

says "times beyond int64" 3 "nanoseconds of all 1000000 microbatches" "$MUSHER" schedule 1f1b --devices 1 --microbatches 1000000 --forward 1e6s
says "memory beyond int64" 3 "bytes of a device" "$MUSHER" schedule gpipe --devices 1 --microbatches 1000000 --activation "1e15 B"
says "no unlimited memory" 2 "--resident: 'inf': expected a size" "$MUSHER" schedule gpipe --devices 1 --microbatches 1 --resident inf
says "warm-ups of a schedule without any" 2 "--warmup is for named schedules" "$MUSHER" schedule zero-bubble --devices 2 --microbatches 2 --warmup 2
printf 'F0 F1 B0 B1\nF0 B0 F1 B1 # the last\n' > lines.txt
says "a file of lines" 0 "lines.txt: 2 devices, 2 microbatches" "$MUSHER" schedule lines.txt
printf 'F0 B0 F1 B1|F0 F1 B0 B1\n' > stuck.txt
says "a deadlock is named" 3 "deadlock: device 0 at B0 (waits for B0 of device 1), device 1 at F1" "$MUSHER" schedule stuck.txt
printf 'F0 X0\n' > letter.txt
says "a wrong phase letter is located" 3 "letter.txt:1:4: 'X': expected F, B" "$MUSHER" schedule letter.txt
says "a missing file" 3 "nowhere.csv" "$MUSHER" schedule nowhere.csv
says "an unknown name" 2 "unknown schedule '1f2b'; known: gpipe, 1f1b" "$MUSHER" schedule 1f2b
says "no devices and microbatches" 2 "needs --devices P and --microbatches M" "$MUSHER" schedule 1f1b
says "a list of another length" 2 "--forward: 2 values: expected 1 or 3" "$MUSHER" schedule 1f1b --devices 3 --microbatches 4 --forward "1 ms|2 ms"
says "a text that is not a time" 2 "--latency: 'soon': expected a time" "$MUSHER" schedule 1f1b --devices 3 --microbatches 4 --latency soon
says "a text that is not a size" 2 "--limit: 'much': expected a size" "$MUSHER" schedule 1f1b --devices 3 --microbatches 4 --limit much
says "interleaved in whole groups" 3 "6 microbatches are not a multiple of 4 devices" "$MUSHER" schedule interleaved --devices 4 --microbatches 6
says "counts that differ from the file" 3 "the options state other numbers" "$MUSHER" schedule lines.txt --devices 3
says "too many operations" 3 "operations" "$MUSHER" schedule 1f1b --devices 100000 --microbatches 10000000
says "too many stages" 3 "stages: expected at most" "$MUSHER" schedule interleaved --devices 100000 --microbatches 100000 --chunks 1000
says "two outputs on stdout" 2 "--csv -: with --json" "$MUSHER" schedule 1f1b --devices 2 --microbatches 2 --json --csv -

says "a searched order" 0 "lower bound of all orders" "$MUSHER" schedule searched --devices 3 --microbatches 6 --latency "1 ms|9 ms" --activation "2 B" --released "1 B" --limit "8 B"
says "a searched V" 0 "searched" "$MUSHER" schedule searched --devices 2 --microbatches 4 --chunks 2 --v-shaped
cat > cases.csv << 'END'
case,p,m,tF,tB,tW,tcomm_links,memF,memB,memW,mem_limit,best_known
one,2,3,4|4,5|5,3|3,1,2|2,-1|-1,-1|-1,4|4,100
none,2,3,4|4,5|5,3|3,1,2|2,-1|-1,-1|-1,1|4,
END
says "a table is searched" 0 "2 cases, 1 fit the memory, 1 proved optimal" "$MUSHER" schedule --cases cases.csv -o orders.csv --chunks 2
cp orders.csv first.csv && "$MUSHER" schedule --cases cases.csv -o orders.csv --chunks 2 > out && cmp -s first.csv orders.csv && ok "twice the same" || not_ok "twice the same" "$(diff first.csv orders.csv)"
says "its summary as JSON" 0 '"proved_optimal": 1' "$MUSHER" schedule --cases cases.csv --json
says "a table and a name" 2 "--cases takes no NAME" "$MUSHER" schedule 1f1b --cases cases.csv
says "three chunks of a table" 2 "--cases searches --chunks 1 or 2" "$MUSHER" schedule --cases cases.csv --chunks 3
says "an output without a table" 2 "--out is for --cases" "$MUSHER" schedule 1f1b --devices 2 --microbatches 2 -o x.csv
says "a budget without a search" 2 "--budget is for --cases and the schedule searched" "$MUSHER" schedule 1f1b --devices 2 --microbatches 2 --budget 5
says "nor for an order of a file" 2 "--budget is for" "$MUSHER" schedule lines.txt --budget 5
says "a search has a budget" 0 "searched" "$MUSHER" schedule searched --devices 2 --microbatches 2 --budget 500
says "a time limit without a table" 2 "--time-limit is for --cases" "$MUSHER" schedule searched --devices 2 --microbatches 2 --time-limit 5
says "neither NAME nor --cases" 2 "schedule needs a NAME or --cases" "$MUSHER" schedule
says "a missing table" 3 "none.csv" "$MUSHER" schedule --cases none.csv
sed 's/best_known/lower_bound/; s/,100$/,1000/' cases.csv > bound.csv
says "a wrong lower bound in the table" 5 "lower bound in 1 cases, the first one" "$MUSHER" schedule --cases bound.csv
exit $bad
