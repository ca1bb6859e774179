#!/bin/bash
# tests/cli/evaluate.sh - validation loss, logs and event files of `run`. Every plan has the validation loss of one device, and its training has the
# same bits with evaluations as without; the best checkpoint is kept; a log goes on behind a resume and a restart without a step twice; the event
# file is decoded by code of its own.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME PRECISION REPLICAS [HEAD] [OPTIMIZER] [JOB]: eight sequences a step on four host devices
plan() {
    {
        printf 'version: 1\nname: %s\nmicrobatch: 1\n%s\nreplicas:\n%s\n' "$1" "${4:-}" "$3"
        four_hosts "$2" "${5:-adamw, lr: 1e-2}" | sed "/^  seed: 7/a\\  data: {files: [$text], validation: 0.1}${6:+\\n  $6}"
    } | sed '/^$/d' >"$scratch/$1.yaml"
}
# trained, evaluated NAME OPTIONS: six steps without and with evaluations
trained() { "$MUSHER" run -q "$scratch/$1.yaml" --steps 6 --json "${@:2}" 2>"$scratch/err" | jq -r '.losses[]'; }
evaluated() { "$MUSHER" run -q "$scratch/$1.yaml" --steps 6 --json --eval-every 2 --eval-batches 3 "${@:2}" 2>"$scratch/err" >"$scratch/run.json"; }
# agrees NAME LIMIT: training has the bits of a run without evaluations, validation losses are those of `want` up to the limit
agrees() {
    local code=1
    if evaluated "$1"; then
        jq -r '.losses[]' "$scratch/run.json" >"$scratch/with"
        jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/got"
        trained "$1" >"$scratch/without"
        [[ $(wc -l <"$scratch/got") == 3 && $(wc -l <"$scratch/without") == 6 ]] && cmp -s "$scratch/with" "$scratch/without" && within "$(distance "$scratch/want" "$scratch/got")" "$2"
        code=$?
    fi
    check "$1: one device's validation loss, and the same training" $code
}

one='  - {microbatches: 8, stages: [{layers: [0, 7], device: n.0}]}'
pipe='  - {microbatches: 8, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}'
chunks='  - {microbatches: 8, schedule: interleaved, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.0}, {layers: [6, 7], device: n.1}]}'
zb='  - {microbatches: 8, schedule: zb-h1, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 4], device: n.1, recompute: true}, {layers: [5, 7], device: n.2}]}'
unequal='  - {microbatches: 5, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 3, stages: [{layers: [0, 2], device: n.2}, {layers: [3, 7], device: n.3}]}'
zero3='  - {microbatches: 4, stages: [{layers: [0, 3], zero: 3, device: n.0}, {layers: [4, 7], zero: 3, device: n.1}]}
  - {microbatches: 4, stages: [{layers: [0, 3], zero: 3, device: n.2}, {layers: [4, 7], zero: 3, device: n.3}]}'
sharded='  - microbatches: 8
    stages:
      - layers: [0, 7]
        devices: [n.0, n.1]
        sharding:
          ratios: [[3, 1], [1, 1]]
          operators:
            - {match: "h.*.attn.*", shard: heads}
            - {match: "h.*.mlp.c_fc*", shard: features, ratio: 1}
            - {match: "h.*.mlp.gelu*", shard: features, ratio: 1}
            - {match: "h.*.mlp.c_proj", shard: inputs, ratio: 1}
            - {match: "lm_head", shard: vocabulary}
            - {match: "*", shard: none}'
kept='  - {microbatches: 8, stages: [{layers: [0, 3], device: n.0, offload: activations}, {layers: [4, 7], device: n.1}]}'
served='  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 5, stages: [{layers: [0, 7], device: n.1}]}'
for name in one pipe chunks zb unequal zero3 sharded kept; do plan "$name" fp64 "${!name}"; done
plan served fp64 "$served" 'parameter_server: {servers: [n.3], mode: bsp}'
evaluated one && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want"
for name in one pipe chunks zb unequal zero3 sharded kept served; do agrees "$name" 1e-9; done

# dropout has no effect on an evaluation, and is that of the training again behind it
plan dropped fp64 "$pipe" '' '' 'dropout: 0.2'
plan dropped1 fp64 "$one" '' '' 'dropout: 0.2'
evaluated dropped1 && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want"
agrees dropped 1e-9
plan calm fp64 "$one" '' 'sgd, lr: 1e-30' 'dropout: 0.5'
plan calm1 fp64 "$one" '' 'sgd, lr: 1e-30'
evaluated calm && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want" && evaluated calm1 && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/got" &&
    [[ $(wc -l <"$scratch/got") == 3 ]] && cmp -s "$scratch/want" "$scratch/got"
check "a model that does not change has one validation loss, with dropout or without" $?

# other trainings: the same bits as without evaluations
bits() {
    local code=1
    if evaluated "$1"; then
        jq -r '.losses[]' "$scratch/run.json" >"$scratch/with"
        trained "$1" >"$scratch/without"
        [[ $(wc -l <"$scratch/without") == 6 ]] && cmp -s "$scratch/with" "$scratch/without" && [[ $(jq '[.validation[].loss | select(. > 0)] | length' "$scratch/run.json") == 3 ]]
        code=$?
    fi
    check "$1: the same training with evaluations" $code
}
four='  - {microbatches: 8, stages: [{layers: [0, 1], device: n.0, warmup: 7}, {layers: [2, 3], device: n.1, warmup: 5}, {layers: [4, 5], device: n.2, warmup: 3}, {layers: [6, 7], device: n.3}]}'
plan delayed fp64 "$four" 'weight_versions: 2'
bits delayed
plan delayed1 fp64 "$one" 'weight_versions: 2'
evaluated delayed1 && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want"
agrees delayed 1e-9
islands='  - {microbatches: 4, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 4, stages: [{layers: [0, 3], device: n.2}, {layers: [4, 7], device: n.3}]}'
plan streamed fp64 "$islands" 'local_sgd: {every: 4, islands: [[0], [1]], outer: nesterov, lr: 0.7, momentum: 0.9, fragments: 2, delay: 1, alpha: 0.5}'
bits streamed
plan halves fp16 "$islands"
bits halves
plan coded fp32 "$pipe" 'compression: {pipeline: {kind: int8, rounding: stochastic}}'
bits coded

# emulated devices: the run's clock stops, so the trace of a run with evaluations has no gap and no span of theirs
{ small_job; echo "data: {files: [text.txt], validation: 0.1}"; } >"$scratch/job"
small_team >"$scratch/team"
"$MUSHER" plan -q "$scratch/job" "$scratch/team" --baseline even-pipeline -o "$scratch/team.yaml" >"$scratch/out" 2>&1
"$MUSHER" run -q "$scratch/team.yaml" --steps 6 --eval-every 1 --trace "$scratch/e.trace" --json >"$scratch/e.json" 2>"$scratch/err" &&
    "$MUSHER" run -q "$scratch/team.yaml" --steps 6 --trace "$scratch/p.trace" --json >"$scratch/p.json" 2>>"$scratch/err" &&
    [[ $(jq -c .losses "$scratch/e.json") == "$(jq -c .losses "$scratch/p.json")" ]] && grep -c . "$scratch/e.trace" >"$scratch/a" && grep -c . "$scratch/p.trace" >"$scratch/b" &&
    cmp -s "$scratch/a" "$scratch/b"
check "emulated devices: the trace has the spans of training alone" $?

# GPUs (the stand-in), through NCCL and through the host; mpirun
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    gpus() { plan "$1" fp32 "$2" "${3:-}" && sed -i 's/device: host, memory: 1 GiB/device: H100-SXM5, memory: 8 GiB/' "$scratch/$1.yaml"; }
    plan host1 fp32 "$one"
    evaluated host1 && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want"
    gpus gpu_chunks "$chunks"
    agrees gpu_chunks 1e-4
    gpus gpu_zero3 "$zero3"
    agrees gpu_zero3 1e-4
    gpus gpu_kept "$kept"
    agrees gpu_kept 1e-4
    export MUSHER_TRANSPORT=host
    agrees gpu_chunks 1e-4
    exit $bad
) || bad=1
evaluated one && jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/want"
"$MUSHER" run -q "$scratch/unequal.yaml" --launcher mpirun --steps 6 --eval-every 2 --eval-batches 3 --log "$scratch/mpi.jsonl" --json 2>"$scratch/err" >"$scratch/run.json" &&
    jq -r '.validation[].loss' "$scratch/run.json" >"$scratch/got" && within "$(distance "$scratch/want" "$scratch/got")" 1e-9 && [[ $(jq -c 'select(.loss).loss' "$scratch/mpi.jsonl") == "$(jq -c '.losses[]' "$scratch/run.json")" ]]
check "ranks of mpirun have the same, and its log has the run's losses" $?

# ---- the validation part
losses_of() { "$MUSHER" run -q "$@" --steps 4 --eval-every 4 --json 2>"$scratch/err"; }
head -c 36000 LICENSE >"$scratch/all.txt"
head -c 27000 "$scratch/all.txt" >"$scratch/front.txt"
tail -c 8976 "$scratch/all.txt" >"$scratch/back.txt" # behind the 1,125 samples of 24 tokens of the front
sed "s|data: {.*|data: {files: [$scratch/all.txt], validation: 0.25}|" "$scratch/one.yaml" >"$scratch/part.yaml"
sed "s|data: {.*|data: {files: [$scratch/front.txt], validation: $scratch/back.txt}|" "$scratch/one.yaml" >"$scratch/files.yaml"
losses_of "$scratch/part.yaml" >"$scratch/part.json" && losses_of "$scratch/files.yaml" >"$scratch/files.json"
losses_of "$scratch/one.yaml" --data "$scratch/all.txt" --validation 0.25 >"$scratch/option.json"
[[ $(jq -c '[.losses, .validation]' "$scratch/part.json") == "$(jq -c '[.losses, .validation]' "$scratch/option.json")" ]] && jq -e '.validation[0].loss > 1' "$scratch/part.json" >"$scratch/out"
check "--data and --validation are the job's data" $?
(($(jq '.losses | length' "$scratch/files.json") == 4)) && [[ $(jq -c .losses "$scratch/files.json") != "$(jq -c .losses "$scratch/part.json")" ]]
check "validation files" $?
# few SAMPLES TEXT: validation samples, of 24 tokens, fewer than the eight sequences of a batch, or not
few() {
    head -c $((24 * $1 + 1)) LICENSE >"$scratch/few.txt"
    says "$1 validation samples" 0 "" "$MUSHER" run "$scratch/unequal.yaml" --steps 2 --eval-every 1 --validation "$scratch/few.txt"
    [[ $(grep "validation samples are fewer" "$scratch/err" | sed 's/.*: //') == "$2" ]]
    check "$1 validation samples: '$2' once" $?
}
few 5 "3 of them count twice"
few 3 "each counts 2 times or more"
few 7 "1 of them counts twice"
few 8 ""
says "no validation samples" 2 "--eval-every needs validation samples" "$MUSHER" run "$scratch/one.yaml" --data "$text" --eval-every 2
says "a fraction above 1" 2 "a fraction is between 0 and 1" "$MUSHER" run "$scratch/one.yaml" --validation 1.5 --eval-every 2
says "a fraction of all samples" 3 "leaves none for training" "$MUSHER" run "$scratch/one.yaml" --validation 0.9999 --eval-every 2
sed 's/validation: 0.1/validation: 2/' "$scratch/one.yaml" >"$scratch/bad.yaml"
says "a fraction above 1 in the job" 3 "bad.yaml:14:61: job.data.validation" "$MUSHER" run "$scratch/bad.yaml" --eval-every 2
sed 's/validation: 0.1/validatoin: 0.1/' "$scratch/one.yaml" >"$scratch/bad.yaml"
says "a misspelt key" 3 "did you mean 'validation'" "$MUSHER" run "$scratch/bad.yaml" --eval-every 2
plan asp fp64 "$served" 'parameter_server: {servers: [n.3], mode: asp}'
says "workers without common steps" 2 "do not end a step together" "$MUSHER" run "$scratch/asp.yaml" --eval-every 2

# ---- the best checkpoint
plan rising fp64 "$pipe" '' 'sgd, lr: 0.5, schedule: {kind: wsd, warmup: 0, steps: 12, decay_steps: 1}'
"$MUSHER" run -q "$scratch/rising.yaml" --steps 12 --eval-every 2 --save "$scratch/saved" --save-every 3 --keep 1 --json >"$scratch/run.json" 2>"$scratch/err"
best=$(jq .best.step "$scratch/run.json") loss=$(jq .best.loss "$scratch/run.json")
[[ $best == "$(jq .step "$scratch/saved/best.json")" && $loss == "$(jq .validation_loss "$scratch/saved/best.json")" && $loss == "$(jq '[.validation[].loss] | min' "$scratch/run.json")" ]] &&
    [[ -d $(printf '%s/step-%08d' "$scratch/saved" "$best") && -d $scratch/saved/step-00000012 && $(ls -d "$scratch/saved"/step-* | wc -l) -le 2 ]]
check "the checkpoint of the lowest validation loss is kept beside the newest" $?
plan alone fp64 "$one" '' 'sgd, lr: 0.5, schedule: {kind: wsd, warmup: 0, steps: 12, decay_steps: 1}'
"$MUSHER" run -q "$scratch/alone.yaml" --steps 1 --eval-every 1 --resume "$(printf '%s/step-%08d' "$scratch/saved" "$best")" --json >"$scratch/again.json" 2>"$scratch/err"
check "and another plan resumes from it" $?

# ---- logs
"$MUSHER" run -q "$scratch/unequal.yaml" --steps 9 --eval-every 3 --log "$scratch/whole.jsonl" --json >"$scratch/run.json" 2>"$scratch/err"
[[ $(jq -c 'select(.loss).loss' "$scratch/whole.jsonl") == "$(jq -c '.losses[]' "$scratch/run.json")" && $(jq -c 'select(.validation_loss).validation_loss' "$scratch/whole.jsonl") == "$(jq -c '.validation[].loss' "$scratch/run.json")" ]]
check "a log has the losses of the run, to the bit" $?
jq -e -s '[.[] | select(.loss)] | length == 9 and all(.tokens == .step * 8 * 24 and .seconds > 0 and .learning_rate == 0.01 and .memory_bytes > 0 and .compute_s > 0)' "$scratch/whole.jsonl" >"$scratch/out"
check "and the other numbers" $?
shape() { jq -c '[.step, .loss, .validation_loss]' "$1"; }
"$MUSHER" run -q "$scratch/unequal.yaml" --steps 5 --eval-every 3 --log "$scratch/cut.jsonl" --save "$scratch/half" --save-every 4 --json >"$scratch/out" 2>"$scratch/err"
rm -rf "$scratch/half/step-00000005"
printf '{"step":6,"lo' >>"$scratch/cut.jsonl"
"$MUSHER" run -q "$scratch/unequal.yaml" --steps 9 --eval-every 3 --log "$scratch/cut.jsonl" --save "$scratch/half" --continue --json >"$scratch/out" 2>"$scratch/err"
[[ $(shape "$scratch/cut.jsonl") == "$(shape "$scratch/whole.jsonl")" && $(wc -l <"$scratch/cut.jsonl") == 12 ]] && jq -e -s '[.[].elapsed_s] | . == sort' "$scratch/cut.jsonl" >"$scratch/out"
check "a resumed run goes on with its log, without a step twice" $?
cat >"$scratch/faults.yaml" <<'END'
version: 1
faults:
  - {kind: exit, device: n.1, at_step: 6}
END
"$MUSHER" run -q "$scratch/unequal.yaml" --steps 9 --eval-every 3 --log "$scratch/killed.jsonl" --save "$scratch/restarts" --save-every 4 --max-restarts 1 \
    --faults "$scratch/faults.yaml" --json >"$scratch/out" 2>"$scratch/err"
[[ $(shape "$scratch/killed.jsonl") == "$(shape "$scratch/whole.jsonl")" ]]
check "a run that starts again, too" $?
cp LICENSE "$scratch/other"
says "a file that is no log" 3 "is no log of" "$MUSHER" run "$scratch/one.yaml" --steps 2 --log "$scratch/other"
cmp -s LICENSE "$scratch/other"
check "is left as it is" $?
cp "$scratch/whole.jsonl" "$scratch/kept.jsonl"
says "a log of an earlier run" 3 "kept.jsonl holds step 9 of an earlier run; name another file, or go on with that run" "$MUSHER" run "$scratch/unequal.yaml" --steps 2 --log "$scratch/kept.jsonl"
says "a log of an earlier run, one device" 3 "holds step 9 of an earlier run" "$MUSHER" run "$scratch/one.yaml" --steps 2 --log "$scratch/kept.jsonl"
cmp -s "$scratch/whole.jsonl" "$scratch/kept.jsonl"
check "is kept" $?
says "a log on standard output" 2 "expected --log FILE" "$MUSHER" run "$scratch/one.yaml" --steps 2 --log -
[[ ! -e ./- ]]
check "makes no file" $?
plan noisy fp64 "$unequal" 'gradient_noise_scale: true'
"$MUSHER" run -q "$scratch/noisy.yaml" --steps 3 --log "$scratch/noisy.jsonl" --json >"$scratch/out" 2>"$scratch/err"
jq -e -s 'length == 3 and all(.gradient_norm > 0)' "$scratch/noisy.jsonl" >"$scratch/out"
check "the norm of the gradient, where the program measures it" $?

# ---- event files, decoded by code of its own
"$MUSHER" run -q "$scratch/pipe.yaml" --steps 4 --eval-every 2 --tensorboard "$scratch/events" --log "$scratch/same.jsonl" --save "$scratch/tb" --json >"$scratch/out" 2>"$scratch/err"
"$MUSHER" run -q "$scratch/pipe.yaml" --steps 6 --eval-every 2 --tensorboard "$scratch/events" --log "$scratch/same.jsonl" --save "$scratch/tb" --continue --json >"$scratch/out" 2>"$scratch/err"
cat >"$scratch/decode.py" <<'END'
import json, os, struct, sys
table = []
for i in range(256):
    for _ in range(8): i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    table.append(i)
def crc(b):
    c = 0xFFFFFFFF
    for x in b: c = c >> 8 ^ table[(c ^ x) & 255]
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
assert crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
def fields(b):
    at, out = 0, []
    def varint():
        nonlocal at
        x = s = 0
        while True:
            c = b[at]; at += 1; x |= (c & 127) << s; s += 7
            if c < 128: return x
    while at < len(b):
        key = varint(); kind = key & 7
        if kind == 0: v = varint()
        else:
            n = {1: 8, 5: 4}.get(kind) or varint()
            v = b[at:at + n]; at += n
            assert len(v) == n
        out.append((key >> 3, v))
    return out
got, starts, first = {}, [], []
for name in sorted(os.listdir(sys.argv[1])):
    assert name.startswith("events.out.tfevents.")
    b = open(os.path.join(sys.argv[1], name), "rb").read(); at = 0; n = 0
    while at < len(b):
        length, c = struct.unpack_from("<QI", b, at)
        assert c == crc(b[at:at + 8])
        data = b[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", b, at + 12 + length)[0] == crc(data)
        at += 16 + length
        e = dict(fields(data))
        assert 1.5e9 < struct.unpack("<d", e[1])[0] < 1e11
        if n == 0: first.append(e[3])
        if 7 in e: starts.append((e[2], fields(e[7])))
        if 5 in e:
            for _, value in fields(e[5]):
                v = dict(fields(value))
                got.setdefault(v[1].decode(), []).append((e[2], struct.unpack("<f", v[2])[0]))
        n += 1
assert first == [b"brain.Event:2"] * 2, first
assert starts == [(5, [(1, 1)])], starts
single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
log = [json.loads(line) for line in open(sys.argv[2])]
assert got["train/loss"] == [(r["step"], single(r["loss"])) for r in log if "loss" in r] and len(got["train/loss"]) == 6
assert got["validation/loss"] == [(r["step"], single(r["validation_loss"])) for r in log if "validation_loss" in r] and len(got["validation/loss"]) == 3
assert set(got) >= {"train/learning_rate", "speed/tokens_per_s", "validation/perplexity"}
print("decoded")
END
says "an event file has the log's numbers, and a resumed run's begins with a session" 0 "decoded" python3 "$scratch/decode.py" "$scratch/events" "$scratch/same.jsonl"

# ---- pictures of losses
says "losses over steps" 0 "loss.png" "$MUSHER" plot "$scratch/whole.jsonl" "$scratch/noisy.jsonl" -o "$scratch/loss.png" --json
says "losses over tokens" 0 "loss.gp" "$MUSHER" plot "$scratch/whole.jsonl" "$scratch/noisy.jsonl" --over tokens -o "$scratch/loss.gp" --json
grep -q "set xlabel 'tokens'" "$scratch/loss.gp" && grep -q "^1728 " "$scratch/loss.gp" && [[ $(grep -c '^\$r.*<<' "$scratch/loss.gp") == 3 ]]
check "have a line of each run and one of its validation" $?
says "losses over hours" 0 "loss.svg" "$MUSHER" plot "$scratch/whole.jsonl" --over hours -o "$scratch/loss.svg" --json
says "a log beside another file" 3 "is no log of run --log" "$MUSHER" plot "$scratch/whole.jsonl" LICENSE -o "$scratch/loss.png"
sed '3s/"step":3/"step":"x"/' "$scratch/whole.jsonl" >"$scratch/bad.jsonl"
says "a damaged log" 3 "bad.jsonl:3:" "$MUSHER" plot "$scratch/bad.jsonl" -o "$scratch/loss.png"
says "--over of a trace" 2 "--over is for logs" "$MUSHER" plot "$scratch/p.trace" --over tokens -o "$scratch/loss.png"
exit $bad
