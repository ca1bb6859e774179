#!/bin/bash
# tests/cli/collective.sh - collectives from outside: times by algorithm, tables of nccl-tests in and out of a profile.
set -u
root=$PWD
data=$root/tests/data/nccl_tests
. tests/cli/common.inc
cd "$scratch" || exit 6

cat > pair.yaml <<'END'
version: 1
name: pair
device_types: [{name: a100, device: A100-SXM4-80}]
nodes:
  - {name: a, host: sled1, devices: [{type: a100, count: 4}]}
  - {name: b, host: sled2, devices: [{type: a100, count: 4}]}
links:
  - {name: nva, between: [a], bandwidth: 240 GB/s, latency: 5 us}
  - {name: nvb, between: [b], bandwidth: 240 GB/s, latency: 5 us}
  - {name: ib, between: [a, b], bandwidth: 25 GB/s, latency: 5 us}
END

# Two devices, one link: 2 · (5 us + 500 MB / 25 GB/s = 20 ms).
says "a ring of two, computed by hand" 0 '"closed_ns": 40010000, "simulated_ns": 40010000' \
    "$MUSHER" collective all-reduce pair.yaml -b 1GB -a ring --devices a.0,b.0 --json
says "NVIDIA devices have NCCL's estimate" 0 "NCCL estimates" "$MUSHER" collective all-reduce pair.yaml
says "all-to-all has no estimate" 0 "does not price all-to-all" "$MUSHER" collective all-to-all pair.yaml
says "shards in proportion" 0 "grouped" "$MUSHER" collective all-gather pair.yaml --shards 4,1,1,1,1,1,1,1
says "impossible algorithms have a reason" 0 "hierarchical needs the same number of members" \
    "$MUSHER" collective all-reduce pair.yaml --devices a.0,a.1,b.0
says "a selected impossible algorithm is an error" 3 "hierarchical needs the same number of members" \
    "$MUSHER" collective all-reduce pair.yaml --devices a.0,a.1,b.0 -a hierarchical
says "an unknown kind" 2 "did you mean 'all-reduce'" "$MUSHER" collective allreduce pair.yaml
says "an unknown algorithm" 2 "expected all, ring, tree" "$MUSHER" collective all-reduce pair.yaml -a rings
says "an unknown device" 3 "no device 'c.0'" "$MUSHER" collective all-reduce pair.yaml --devices a.0,c.0
says "a duplicate device" 2 "names a.0 twice" "$MUSHER" collective all-reduce pair.yaml --devices a.0,a.0
says "0 bytes" 2 "--bytes '0'" "$MUSHER" collective all-reduce pair.yaml --bytes 0
says "shards of an all-reduce" 2 "--shards is for" "$MUSHER" collective all-reduce pair.yaml --shards 1,1
says "an unknown NCCL version" 2 "known: 2.28.9, 2.30" "$MUSHER" collective all-reduce pair.yaml --nccl 1.0

says "nccl-tests text becomes a profile" 0 "profile 1 (parent 0): all-reduce of 4 ranks on 1 nodes, 7 sizes" \
    "$MUSHER" import nccl-tests "$data/now.txt" --cluster pair.yaml --db p.db
says "a second table is added to the profile" 0 "profile 2 (parent 1): all-gather of 4 ranks on 2 nodes" \
    "$MUSHER" import nccl-tests "$data/all_gather_old.txt" --cluster pair.yaml --db p.db
says "JSON too" 0 '"profile_id": 3' "$MUSHER" import nccl-tests "$data/now.json" --cluster pair.yaml --db p.db --json
says "the first table remains, and takes precedence over the prior" 0 "measured          32.4 us" \
    "$MUSHER" collective all-reduce pair.yaml -b 1MiB --db p.db --devices a.0,a.1,a.2,a.3
says "older profiles stay" 0 "no estimate" "$MUSHER" collective all-to-all pair.yaml --db p.db --profile 1
says "import formats are listed as on the command line" 0 "nccl-topology: " "$MUSHER" import --help
says "a misspelled format" 2 "did you mean 'nccl-tests'" "$MUSHER" import nccl-test "$data/now.txt"
says "no --cluster" 2 "needs --cluster and --db" "$MUSHER" import nccl-tests "$data/now.txt" --db p.db
says "a broken file" 3 "cut_row.txt:16: the row ends" \
    "$MUSHER" import nccl-tests "$data/bad/cut_row.txt" --cluster pair.yaml --db p.db
if grep -qa "SECRET_TOKEN\|must-not-be-kept" p.db; then
    not_ok "the environment is not kept" "it is in the database"
else
    ok "the environment is not kept"
fi
# A measured table prices collectives in simulate and plan: all-reduces of 90 ms lead to a plan without any.
quad() { # us of 1 KiB, of 1 GiB: a table of nccl-tests
    sed -n 1,13p "$data/now.txt" | sed 's/maxBytes 4194304/maxBytes 1073741824/'
    for row in "1024 $1" "1073741824 $2"; do
        set -- $row
        awk -v b="$1" -v t="$2" 'BEGIN { a = b / t / 1000; printf "%12d %13d     float     sum      -1 %9.2f %7.2f %7.2f       0 %9.2f %7.2f %7.2f     N/A\n", b, b / 4, t, a, a * 1.5, t, a, a * 1.5 }'
    done
    printf '%s\n' "# Out of bounds values : 0 OK" "# Avg bus bandwidth    : 31.0" "#" "# Collective test concluded: all_reduce_perf"
}
cp "$root/examples/small-gpt.json" .
cat > quad.yaml <<'END'
version: 1
name: quad
device_types: [{name: a100, device: A100-SXM4-80}]
nodes:
  - {name: a, host: sled1, devices: [{type: a100, count: 4}]}
links:
  - {name: nva, between: [a], bandwidth: 240 GB/s, latency: 5 us}
END
cat > job.yaml <<'END'
version: 1
model: small-gpt.json
sequence_length: 256
global_batch: 64
microbatch: [4, 8, 16]
precision: fp32
optimizer: {kind: adamw, lr: 5e-4, weight_decay: 0}
seed: 7
END
quad 90000 95000 > slow.txt
says "a plan on stated links uses all-reduce" 0 "" "$MUSHER" plan job.yaml quad.yaml -o links.yaml
if grep -q "zero:" links.yaml || [ "$(grep -c "device: a" links.yaml)" != 4 ]; then
    not_ok "stated links: replicas that all-reduce" "$(grep "device: a" links.yaml)"
else
    ok "stated links: replicas that all-reduce"
fi
says "a table of slow all-reduces" 0 "profile 1" "$MUSHER" import nccl-tests slow.txt --cluster quad.yaml --db slow.db
says "the same job with the table" 0 "" "$MUSHER" plan job.yaml quad.yaml --db slow.db -o table.yaml
grep -q "zero:" table.yaml && ok "the table makes another plan: no all-reduce of gradients" ||
    not_ok "the table makes another plan: no all-reduce of gradients" "$(grep "device: a" table.yaml)"
ms() { "$MUSHER" simulate "$@" --json 2> /dev/null | sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' | head -1; }
without=$(ms links.yaml) with=$(ms links.yaml --db slow.db)
[ "${without:-0}" -gt 0 ] && [ "${with:-0}" -gt $((without + 90000000)) ] &&
    ok "a simulated all-reduce has the measured time" ||
    not_ok "a simulated all-reduce has the measured time" "$without ns without the table, $with ns with it"
says "the critical path contains it" 0 "collective on a" "$MUSHER" simulate links.yaml --db slow.db --explain

# NCCL's model prices them where the cluster states its version: on slow stated links the plan is a pipeline, with NVLink it sums.
sed 's/240 GB/2 GB/' quad.yaml > slow.yaml
sed 's/^name: .*/&\nnccl: 2.28.9/' slow.yaml > nccl.yaml
says "a plan on slow links" 0 "" "$MUSHER" plan job.yaml slow.yaml -o pipeline.yaml
says "the same job where NCCL runs" 0 "" "$MUSHER" plan job.yaml nccl.yaml -o sums.yaml
[ "$(grep -c "^  - microbatches" pipeline.yaml)" -lt 4 ] && [ "$(grep -c "^  - microbatches" sums.yaml)" = 4 ] &&
    ok "NCCL's model makes another plan: four replicas" ||
    not_ok "NCCL's model makes another plan: four replicas" "$(grep "device: a" pipeline.yaml sums.yaml)"
grep -q '^  nccl: "2.28.9"' sums.yaml && ok "the plan has the key" || not_ok "the plan has the key" "$(sed -n '/^cluster/,$p' sums.yaml)"
sed '/^  nccl: /d' sums.yaml > without.yaml
without=$(ms without.yaml) with=$(ms sums.yaml)
[ "${with:-0}" -gt 0 ] && [ "${without:-0}" -gt $((2 * with)) ] && ok "without the key the links price them" ||
    not_ok "without the key the links price them" "$without ns without the key, $with ns with it"
says "what priced them is named" 0 "collectives are priced by NCCL model: " "$MUSHER" simulate sums.yaml --explain
says "in JSON too" 0 '"priced_by": "NCCL model"' "$MUSHER" simulate sums.yaml --explain --json
says "a table is named" 0 "collectives are priced by measured table: " "$MUSHER" simulate links.yaml --db slow.db --explain
says "a profile serves the cluster with the key and without" 0 "measured" \
    "$MUSHER" collective all-reduce nccl.yaml -b 1MB --db slow.db
sed 's/2.28.9/2.28.8/' nccl.yaml > bad.yaml
says "an NCCL without model" 3 "bad.yaml:3:7: nccl: no cost model of NCCL 2.28.8; known: 2.28.9, 2.30; did you mean '2.28.9'" \
    "$MUSHER" plan job.yaml bad.yaml -o never.yaml
sed 's/A100-SXM4-80/host/' nccl.yaml > bad.yaml
says "NCCL without an NVIDIA GPU" 3 "no device type of the cluster is an NVIDIA GPU" "$MUSHER" plan job.yaml bad.yaml -o never.yaml
sed 's/A100-SXM4-80/host, slowdown: 1.5, memory: 1 GiB/' nccl.yaml > bad.yaml
says "NCCL of emulated devices" 3 "bad.yaml:3:7: nccl: collectives of emulated devices are not NCCL's" \
    "$MUSHER" plan job.yaml bad.yaml -o never.yaml

"$MUSHER" collective all-reduce pair.yaml --json > one.json 2> /dev/null
"$MUSHER" collective all-reduce pair.yaml --json > two.json 2> /dev/null
cmp -s one.json two.json && ok "same question, same bytes" || not_ok "same question, same bytes" "they differ"
exit $bad
