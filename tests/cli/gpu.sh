#!/bin/bash
# tests/cli/gpu.sh - the checks of a GPU machine, on an emulated GPU (tests/standin): files, the two calls, import of their results.
# Small; only function is checked, because measured times have no meaning here. Kernels are loaded at their first launch, which
# waits for everything on the GPU, so a receive posted ahead must not depend on this rank then.
set -u
. tests/cli/common.inc
export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
export MUSHER_CUPTI_PLUGIN=$(realpath "$BUILD")/libmusher_cupti_standin.so
export STANDIN_NAME="NVIDIA H200" SMALL=1 GPU_SMALL=1 GPU_BUILT=1 STANDIN_LAZY=1 CUDA_MODULE_LOADING=LAZY
there=$scratch/there
mkdir "$there"
for p in check bench run; do ln -s "$(realpath "$BUILD/gpu-$p")" "$there/gpu-$p"; done

# ---- without files
says "without files the checks print how to get them" 3 "run 'make gpu-files'" tests/gpu/check.sh "$there"
says "an unknown call is refused" 2 "usage: tests/gpu/gpu.sh" tests/gpu/gpu.sh 3 "$scratch/got" "$there"

mkdir "$scratch/bad"
for line in "x 1 -3 1e-4 x:steps: '-3', expected a number from 1 to 1000000" "x 65 3 1e-4 x:ranks: '65', expected a number from 1 to 64" \
    "x 1 3 none x:limit: 'none', expected a number above 0" "x 1 3 1e-4:no file of losses is named" "x 1 3 1e-4 x 4:skipped steps: '4', expected a number from 0 to 3" \
    "dead x:ranks: '', expected a number from 1 to 64"; do
    printf '\n%s\n' "${line%%:*}" > "$scratch/bad/cases"
    says "a case that is none is refused with what it may be: ${line%%:*}" 3 "cases:2: ${line#*:}" "$BUILD/gpu-check" "$scratch/bad"
done
printf 'x -1\n' > "$scratch/bad/runs"
says "a wrong number of steps is refused" 1 "runs:1: steps: '-1', expected a number from 1" "$BUILD/gpu-run" "$scratch/bad" "$scratch"

# ---- on this machine
says "files are written" 0 "35 checks" tests/gpu/files.sh "$there/gpu"
[[ $(wc -l < "$there/gpu/runs") == 3 && -s $there/gpu/bench.0.program ]] && ok "benches and three plans among them" || not_ok "benches and three plans among them" "$(ls "$there/gpu")"

# ---- on the GPU machine, the first call
timeout $((600 * ${SLOWDOWN:-1})) tests/gpu/gpu.sh 1 "$scratch/got" "$there" > "$scratch/out" 2> "$scratch/err"
code=$?
((code == 0)) && ok "the first call" || not_ok "the first call" "exit $code: $(grep -v '^ok' "$scratch/out")"
for check in kernels {gpt,llama,mixtral}-{fp32,bf16} stages4{,-bf16,-fp16} uneven2{,-fp16} uneven2-zero1 clip-lion zero2{,-fp16} overflow double-tree offload-{optimizer,blocks,bf16} saved{,-streaming} shares3{,-bf16} collectives dead; do
    grep -q "^ok $check:" "$scratch/out" && ok "gpu-check: $check" || not_ok "gpu-check: $check" "$(grep "$check" "$scratch/out")"
done
grep -q "^ok overflow: .*, [1-5] steps skipped" "$scratch/out" && ok "steps that overflow are skipped there as here" ||
    not_ok "steps that overflow are skipped there as here" "$(grep overflow "$scratch/out")"
has "and no other" out "35 passed, 0 failed"
has "benches and plans ran" out "5 ran, 0 failed"
has "and those of host memory" out "4 ran, 0 failed"

# ---- on the GPU machine, the second call
printf 'torch eager tiny 1000 3.5 2.0 1000000\ntorch compile tiny 2000 3.5 2.0 2000000\n' > "$scratch/torch"
GPU_TORCH=$scratch/torch says "the second call" 0 "PyTorch compile 2000" tests/gpu/gpu.sh 2 "$scratch/got" "$there"
has "prints kernels beside lower bounds" out "bound by"
has "the overhead of a trace" out "trace "
has "and one with kernels" out "with kernels "
tar -xzf "$scratch/got/gpu-2.tar.gz" -C "$scratch" gpu-bench.json.gpt2-tiny.trace
says "the kernels of operators are read back" 0 "standin_product" "$MUSHER" show "$scratch/gpu-bench.json.gpt2-tiny.trace"
tar -xzf "$scratch/got/gpu-2.tar.gz" -C "$scratch" gpu-bench.json &&
    jq -e '.trained[0] as $t | .small and .copy_Bps > 0 and (.operators | length) > 20 and all(.operators[]; .median_s > 0)
        and any(.operators[].operator; contains(" bf16 ")) and any(.operators[].operator; contains("narrows"))
        and $t.model == "gpt2-tiny" and ($t.plain | length) == 2 and ($t.traced | length) == 2
        and $t.torch_compile.tokens_per_s == 2000' "$scratch/gpu-bench.json" > /dev/null &&
    ok "and all of it in JSON" || not_ok "and all of it in JSON" "$(head -c 300 "$scratch/gpu-bench.json")"

# A call that fails in the second group of kernels: the first group's rows are kept.
printf "none 1\n" > "$scratch/trained" && cp "$there/gpu/gpt2-tiny.program" "$scratch/none.program"
STANDIN_FAIL_AT=1000 says "kernels measured before a failure are printed" 1 "16 of 35 operators were measured" \
    "$BUILD/gpu-bench" "$scratch" "$scratch/torch" "$scratch/part.json"
jq -e '.operators_of_program == 35 and (.operators | length) == 16' "$scratch/part.json" > /dev/null && ok "and written" || not_ok "and written" "$(head -c 300 "$scratch/part.json")"

# ---- import on this machine
# Times of an emulated GPU have no meaning and may be too far from the benchmark for a calibration; so the test is repeated
# with runs of exactly the predicted times: the error is 0 before and after.
back=$scratch/back/gpu-out
mkdir "$scratch/back"
tar -xzf "$scratch/got/gpu-1.tar.gz" -C "$scratch/back"
says "predictions beside runs" 0 "calibrated" tests/gpu/predict.sh table "$there/gpu" "$back"
for plan in even uneven parallel state activations; do grep -q "^$plan .* ms .* %" "$scratch/out" && ok "of plan $plan" || not_ok "of plan $plan" "$(cat "$scratch/out")"; done
for plan in even uneven parallel; do
    "$MUSHER" simulate "$there/gpu/$plan.yaml" --db "$back/predict.db" --profile 1 --trace "$back/$plan.trace" > /dev/null
    sed -i '1s/"source":"sim"/"source":"cuda"/' "$back/$plan.trace"
done
says "predictions beside runs as predicted" 0 "calibrated on these runs" tests/gpu/predict.sh table "$there/gpu" "$back"
[[ $(grep -c '+0\.0 % .* +0\.0 %$' "$scratch/out") == 3 ]] && ok "are off by nothing" || not_ok "are off by nothing" "$(cat "$scratch/out")"
jq -e '(.plans | length) == 5 and all(.plans[:3][]; .calibrated_ns == .measured_ns and .measured_ns > 0)' "$back/predict.json" > /dev/null &&
    ok "in JSON too" || not_ok "in JSON too" "$(cat "$back/predict.json")"

# ---- inconsistent files are refused
profile=("$MUSHER" profile "$there/gpu/predict-job.yaml" "$there/gpu/predict-cluster.yaml" "$there/gpu/even.yaml")
says "a trace of other benchmarks is refused" 3 "do job, cluster and --repeats equal" "${profile[@]}" --repeats 5 --warm 0 --from "$back" --db "$scratch/x.db"
says "benchmarks that were not run are refused" 3 "bench.0.trace" "${profile[@]}" --from "$there" --db "$scratch/x.db"
says "--emit measures nothing" 2 "--emit excludes --db and --from" "${profile[@]}" --emit "$scratch/e" --db "$scratch/x.db"
small_job > "$scratch/job.yaml"
small_team > "$scratch/team.yaml"
says "host devices are refused" 3 "are for GPUs" "$MUSHER" profile "$scratch/job.yaml" "$scratch/team.yaml" --emit "$scratch/e"
exit $bad
