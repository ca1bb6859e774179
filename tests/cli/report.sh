#!/bin/bash
# tests/cli/report.sh - musher report: one page that loads nothing, well formed, whatever the names; the same bytes again.
set -u
. tests/cli/common.inc
job=$scratch/job.yaml team=$scratch/team.yaml plan=$scratch/p.yaml even=$scratch/e.yaml page=$scratch/r.html
small_job > "$job"
small_team > "$team"
"$MUSHER" plan "$job" "$team" -o "$plan" --evaluations 200 > "$scratch/out" && "$MUSHER" plan "$job" "$team" -o "$even" --baseline even-pipeline > "$scratch/out" && ok "two plans" || not_ok "two plans" "$(cat "$scratch/out")"

# makes NAME COMMAND...: ends well and prints nothing.
makes() {
    "${@:2}" > "$scratch/out" 2> "$scratch/err" && [[ ! -s $scratch/out && ! -s $scratch/err ]] && ok "$1" || not_ok "$1" "$(cat "$scratch/out" "$scratch/err" | head -n 3)"
}
# shows NAME TEXT: the page has the text.
shows() { grep -qF -- "$2" "$page" && ok "$1" || not_ok "$1" "'$2' is not in the page"; }
# well_formed NAME FILE: every element is closed in its order, attributes are quoted, '<' and '&' of texts are escaped.
well_formed() {
    awk '
    function fail(why) { print FILENAME ":" FNR ": " why; bad = 1; exit }
    BEGIN { split("meta br hr img input link", names, " "); for (i in names) empty[names[i]] = 1 }
    { text = text $0 "\n" }
    END {
        if (bad) exit 1
        sub(/^<!DOCTYPE html>/, "", text)
        while (match(text, /<[^>]*>/)) {
            between = substr(text, 1, RSTART - 1)
            tag = substr(text, RSTART + 1, RLENGTH - 2)
            text = substr(text, RSTART + RLENGTH)
            if (open[depth] != "style") {
                gsub(/&(amp|lt|gt|quot|#39);/, "", between)
                if (between ~ /[&<>]/) { print "not escaped: " between; exit 1 }
            }
            if (substr(tag, 1, 1) == "/") {
                if (open[depth] != substr(tag, 2)) { print "</" substr(tag, 2) "> closes <" open[depth] ">"; exit 1 }
                depth--
                continue
            }
            name = tag
            sub(/[ \/].*/, "", name)
            rest = substr(tag, length(name) + 1)
            while (match(rest, /^ [a-zA-Z-]+="[^"<>]*"/)) rest = substr(rest, RLENGTH + 1)
            if (rest !~ /^\/?$/) { print "attributes of <" tag ">"; exit 1 }
            n++
            if (rest == "/" || name in empty) continue
            open[++depth] = name
        }
        if (depth) { print "<" open[depth] "> stays open"; exit 1 }
        if (n < 50) { print n " elements"; exit 1 }
    }' "$2" > "$scratch/form" && ok "$1" || not_ok "$1" "$(head -c 300 "$scratch/form")"
}
# Nothing is loaded: no script, and no address but one inside the page.
self_contained() {
    if grep -qiE '<(script|link|img|iframe|object|embed|base|use|image)[ >/]|@import|url\(|https?:|//[a-z]|javascript:|[ "]on[a-z]+=' "$2"; then
        not_ok "$1" "$(grep -oiE '<(script|link|img|iframe|object|embed|base|use|image)[ >/].{0,40}|@import.{0,40}|url\(.{0,40}|https?:.{0,40}|//[a-z].{0,40}|javascript:|[ "]on[a-z]+=' "$2" | head -n 3)"
    elif grep -oE '(href|src)="[^"]*"' "$2" | grep -qv '="#'; then
        not_ok "$1" "$(grep -oE '(href|src)="[^"]*"' "$2" | grep -v '="#' | head -n 3)"
    else
        ok "$1"
    fi
}

makes "a page of a plan" "$MUSHER" report "$plan" -o "$page"
well_formed "it is well formed" "$page"
self_contained "it loads nothing" "$page"
for part in Question Alternatives "Replicas and stages" "Timeline of a steady iteration" "Memory over that iteration" "Where the time goes" Sensitivity Assumptions; do shows "it has: $part" ">$part<"; done
shows "dark mode" "@media(prefers-color-scheme:dark)"
shows "narrow screens" 'name="viewport" content="width=device-width'
shows "no search was asked for" "No search was asked for (--search)"
shows "the memory's limit" "of 64 MiB"
shows "the source of the costs" "roofline: peak"
for id in $(grep -o 'href="#[^"]*"' "$page" | cut -d'"' -f2); do grep -qF "id=\"${id#\#}\"" "$page" || not_ok "the anchor $id" "missing"; done

shows "its peak memory" "fullest device ("
shows "MFU" "<span>MFU (HFU "
! grep -q "cost of the run" "$page" && ok "nor the cost of a run" || not_ok "nor the cost of a run" "$(grep -o '.\{40\}cost of the run' "$page")"
sed 's/name: fast,/name: fast, price: 3.6\/h,/; s/name: slow,/name: slow, price: 0.9\/h,/' "$plan" > "$scratch/priced.yaml"
makes "a run of 1T tokens" "$MUSHER" report "$scratch/priced.yaml" --tokens 1T -o "$page"
shows "its days" "for 1T tokens, without failures"
shows "its cost" "cost of the run"
says "a count that is none" 2 "--tokens: '1X' is not a count" "$MUSHER" report "$plan" --tokens 1X -o "$page"

makes "two plans and a search" "$MUSHER" report "$plan" "$even" --search --evaluations 200 -o "$page"
well_formed "well formed" "$page"
self_contained "self-contained" "$page"
shows "the given plan" ">even-pipeline (e.yaml)<"
shows "the found one" "found by the search"
shows "textbook plans" ">data-parallel<"
shows "the bound" "Lower bound"
shows "the gap" "above the lower bound, at most"

# Times are those of simulate.
"$MUSHER" simulate "$even" --json > "$scratch/sim.json"
"$MUSHER" report "$even" -o "$page" --json > "$scratch/report.json"
ns=$(sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' "$scratch/sim.json" | head -n 1)
grep -q "\"iteration_ns\": $ns}" "$scratch/report.json" && ok "the time is that of simulate" || not_ok "the time is that of simulate" "$ns: $(cat "$scratch/report.json")"

# The same bytes.
"$MUSHER" report "$plan" "$even" --search --evaluations 200 -o "$scratch/one.html" --threads 1
"$MUSHER" report "$plan" "$even" --search --evaluations 200 -o "$scratch/two.html" --threads 2
"$MUSHER" report "$plan" "$even" --search --evaluations 200 -o - > "$scratch/three.html"
cmp -s "$scratch/one.html" "$scratch/two.html" && cmp -s "$scratch/one.html" "$scratch/three.html" && ok "the same bytes again, by two threads, and on standard output" || not_ok "the same bytes again, by two threads, and on standard output" "$(cmp "$scratch/one.html" "$scratch/two.html"; cmp "$scratch/one.html" "$scratch/three.html")"

# Names that are markup.
evil='<script>alert(1)</script>\&amp;"x"' # the backslash is sed's
sed "s|^name: .*|name: '$evil'|; s|name: team|name: '<img src=x onerror=alert(2)>'|; s|model: {|model: {name: '</title><script>', |" "$even" > "$scratch/evil.yaml"
sed -i "s|name: lan,|name: \"<b>'lan\", |; s|{name: lan |{name: \"<b>'lan\" |" "$scratch/evil.yaml"
makes "names that are markup" "$MUSHER" report "$scratch/evil.yaml" -o "$page"
well_formed "are escaped" "$page"
! grep -qiE '<(script|img)' "$page" && ok "and no element" || not_ok "and no element" "$(grep -oiE '<(script|img).{0,30}' "$page" | head -n 2)"
shows "but shown" '&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;&quot;x&quot;'
shows "the cluster's too" '&lt;img src=x onerror=alert(2)&gt;'

# Many devices: classes, not rows.
fleet=$scratch/fleet.yaml
"$MUSHER" plan tests/data/jobs/gpt-2.6b.yaml tests/data/clusters/fleet64.yaml --baseline megatron -o "$fleet" > "$scratch/out" 2> "$scratch/err" || not_ok "a plan of 64 devices" "$(cat "$scratch/err")"
makes "a page of 64 devices" "$MUSHER" report "$fleet" -o "$page"
well_formed "is well formed" "$page"
self_contained "and loads nothing" "$page"
n=$(grep -c "^  - microbatches" "$fleet")
rows=$(grep -oE "Replicas [0-9]+-[0-9]+ \([0-9]+\): [0-9]+ microbatches each" "$page" | grep -oE "\([0-9]+\)" | tr -d "()")
((n == $(awk '{ s += $1 } END { print s }' <<< "$rows") && $(wc -w <<< "$rows") <= 4)) && ok "equal replicas are one row" || not_ok "equal replicas are one row" "$n replicas in rows of $rows"
grep -q 'A row is a class of devices with equal calls' "$page" && (($(wc -c < "$page") < 3000000)) && ok "and short" || not_ok "and short" "$(wc -c < "$page") bytes"

# A chain of the overflow flag through more ranks than a ring simulates one by one, folded over two equal replicas.
{
    printf 'version: 1\nname: chain\nmicrobatch: 1\nreplicas:\n'
    for r in 0 1; do
        awk -v r=$r 'BEGIN { printf "  - {microbatches: 2, stages: ["; for (s = 0; s < 38; s++) printf "%s{layers: [%d, %d], device: n%d.%d}", s ? ", " : "", s, s, r, s; print "]}" }'
    done
    cat << 'END'
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 17, n_head: 4, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 4
  precision: fp16
cluster:
  version: 1
  name: long
  device_types: [{name: t4, device: T4}]
  nodes: [{name: n, count: 2, devices: {type: t4, count: 38}}]
  links:
    - {name: in, every: inside, bandwidth: 16 GB/s, latency: 5 us, sharing: fair}
    - {name: lan, every: across, bandwidth: 1 GB/s, latency: 20 us, sharing: fair}
END
} > "$scratch/chain.yaml"
makes "a page of a folded chain" "$MUSHER" report "$scratch/chain.yaml" -o "$page"

# Many microbatches: a box of the timeline is one stroke, and a step of the memory one step of the edge.
sed 's/global_batch: 6/global_batch: 600/' "$job" > "$scratch/job600.yaml"
"$MUSHER" plan "$scratch/job600.yaml" "$team" --baseline even-pipeline -o "$scratch/p600.yaml" > "$scratch/out" || not_ok "a plan of 600 microbatches" "$(cat "$scratch/out")"
makes "a page of 600 microbatches" "$MUSHER" report "$scratch/p600.yaml" -o "$page"
well_formed "is well formed too" "$page"
(($(wc -c < "$page") < 100000)) && ok "and small" || not_ok "and small" "$(wc -c < "$page") bytes"

# Experts.
sed 's/^model: .*/model: {model_type: mixtral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, num_local_experts: 4, num_experts_per_tok: 2}/' "$job" > "$scratch/experts.yaml"
"$MUSHER" plan "$scratch/experts.yaml" "$team" --baseline even-pipeline -o "$scratch/moe.yaml" > "$scratch/out" || not_ok "a plan of experts" "$(cat "$scratch/out")"
makes "a page of experts" "$MUSHER" report "$scratch/moe.yaml" -o "$page"
says "show separates thousands" 0 "  parameters        " "$MUSHER" show "$scratch/experts.yaml"
grep -qE '^  parameters +[0-9]{2},[0-9]{3} \(' "$scratch/out" && grep -qE '^  active +[0-9]{2},[0-9]{3} of them' "$scratch/out" && ok "in both numbers" || not_ok "in both numbers" "$(head -n 3 "$scratch/out")"
active=$("$MUSHER" show "$scratch/experts.yaml" --json | sed -n 's/.*"active_parameters": \([0-9]*\)\([0-9][0-9][0-9]\),.*/\1,\2/p')
shows "has the parameters of a token" "<td>Active parameters per token</td><td>$active</td>"
shows "and the experts" "2 of 4 a layer for one token"

# Wrong input.
says "no output" 2 "out" "$MUSHER" report "$plan"
says "an output that is an input" 2 "out" "$MUSHER" report "$plan" -o "$plan"
says "an option of a search that was not asked for" 2 "--evaluations needs --search" "$MUSHER" report "$plan" -o "$page" --evaluations 5
sed 's/global_batch: 6/global_batch: 12/' "$job" > "$scratch/job12.yaml"
"$MUSHER" plan "$scratch/job12.yaml" "$team" -o "$scratch/p12.yaml" --baseline even-pipeline > "$scratch/out"
says "plans of two jobs" 3 "its job differs" "$MUSHER" report "$plan" "$scratch/p12.yaml" -o "$page"
sed 's/bandwidth: 20 MB/bandwidth: 40 MB/' "$even" > "$scratch/e2.yaml"
makes "but two clusters are allowed" "$MUSHER" report "$even" "$scratch/e2.yaml" -o "$page"
[[ $(grep -c '<h3>Cluster ' "$page") == 2 ]] && ok "and both are shown" || not_ok "and both are shown" "$(grep -o '<h3>Cluster.*' "$page")"
says "no plan" 3 "" "$MUSHER" report "$job" -o "$page"
says "a folder that does not exist" 6 "cannot" "$MUSHER" report "$plan" -o "$scratch/none/r.html"
exit $bad
