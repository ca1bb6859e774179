#!/bin/bash
# tests/cli/checkpoint.sh - checkpoints as weights: what an uneven plan with ZeRO 3 saves is the same file as what one device saves, verifies, is shown
# and converted; `init` from it by another plan gives the same loss on the same tokens; weights that are not the model's are refused by name.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
head -c 25 LICENSE >"$text" # one sample, so all steps have the same tokens

# plan NAME REPLICAS [MODEL PRECISION]
plan() {
    printf 'version: 1\nname: %s\nmicrobatch: 1\nreplicas:\n%s\n' "$1" "$2" >"$scratch/$1.yaml"
    four_hosts "${4:-fp32}" 'adamw, lr: 1e-2' >>"$scratch/$1.yaml"
    [[ ${3-} ]] && sed -i "s/  model: .*/  model: {$3}/" "$scratch/$1.yaml"
}
# loss NAME OPTIONS...: that of the next step
loss() { losses "$1" 1 "${@:2}"; }
# equal TITLE ONE OTHER: two losses, but for the order of additions
equal() {
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && (a - b) / a < 1e-6 && (b - a) / a < 1e-6) }' && ok "$1" || not_ok "$1" "$2 and $3: $(head -c 300 "$scratch/err")"
}
# Two pipelines whose stages have three and five layers.
uneven='  - {microbatches: 4, stages: [{layers: [0, 2], device: n.0, zero: 3}, {layers: [3, 7], device: n.1, zero: 3}]}
  - {microbatches: 4, stages: [{layers: [0, 2], device: n.2, zero: 3}, {layers: [3, 7], device: n.3, zero: 3}]}'
alone='  - {microbatches: 8, stages: [{layers: [0, 7], device: n.0}]}'
halves='  - {microbatches: 8, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}'
sharded='  - microbatches: 8
    stages:
      - layers: [0, 7]
        devices: [n.0, n.1]
        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}'
plan uneven "$uneven"
plan alone "$alone"
plan halves "$halves"
plan sharded "$sharded"
header() { head -c $((8 + $(od -A n -t u8 -N 8 "$1"))) "$1"; }
ck=$scratch/ck weights=$scratch/weights
for name in uneven alone sharded; do
    "$MUSHER" run -q "$scratch/$name.yaml" --data "$text" --steps 3 --save "$scratch/$name.ck" >"$scratch/out" 2>"$scratch/err" || not_ok "$name trains" "$(cat "$scratch/err")"
    [[ $(ls "$scratch/$name.ck/step-00000003" | tr '\n' ' ') == "config.json manifest.json model.safetensors optimizer.safetensors " ]]
    check "$name: the files" $?
    cmp -s <(header "$scratch/$name.ck/step-00000003/model.safetensors") <(header "$scratch/uneven.ck/step-00000003/model.safetensors")
    check "$name: the same places of tensors as of any plan" $?
done
cp -r "$scratch/uneven.ck" "$ck"
step=$ck/step-00000003
says "verify" 0 "84 tensors, headers and sizes are right, and the CRC of each" "$MUSHER" checkpoint verify "$ck"
says "show" 0 "step 3, 24 sequences (global batch 8), seed 7, adamw, fp32" "$MUSHER" checkpoint show "$step"
has "tensors" out "transformer.h.1.mlp.c_fc.weight     F32    32 x 128                    16384  model.safetensors"
has "parameters in all" out "34688 in 28 tensors, 136 KiB in 1 file"
says "show --json" 0 '"parameters": 34688' "$MUSHER" checkpoint show "$ck" --json
resumed=$(loss uneven --resume "$ck")
for name in alone halves sharded; do equal "init of the plan $name" "$resumed" "$(loss $name --init "$step")"; done
says "convert" 0 "28 tensors, 271 KiB in 6 files" "$MUSHER" checkpoint convert "$ck" -o "$weights" --dtype fp64 --max-shard 64kB
says "verify what was converted" 0 "the format has no CRCs" "$MUSHER" checkpoint verify "$weights"
equal "init from several files of another dtype" "$resumed" "$(loss halves --init "$weights")"
sed 's|^  seed: 7|  seed: 8\n  init: weights|' "$scratch/halves.yaml" >"$scratch/job.yaml"
equal "init in the job, with any seed" "$resumed" "$(loss job)"
says "bf16" 0 "67.8 KiB in 1 file" "$MUSHER" checkpoint convert "$weights" -o "$scratch/half" --dtype bf16
[[ $(loss halves --init "$scratch/half") != "$resumed" ]]
check "and its values are rounded" $?
"$MUSHER" checkpoint convert "$scratch/half" -o "$scratch/again" --dtype fp32 >"$scratch/out" 2>"$scratch/err" && "$MUSHER" checkpoint convert "$scratch/again" -o "$scratch/twice" --dtype bf16 >"$scratch/out" 2>"$scratch/err"
cmp -s "$scratch/half/model.safetensors" "$scratch/twice/model.safetensors"
check "bf16, fp32 and bf16 again: the same bytes" $?
says "convert into a folder that exists" 3 "exists; convert writes a new folder" "$MUSHER" checkpoint convert "$ck" -o "$weights"
says "convert without a folder" 2 "the folder to write is missing: -o DIR" "$MUSHER" checkpoint convert "$ck"
says "an option of convert" 2 "--dtype" "$MUSHER" checkpoint verify "$ck" --dtype fp32

# Half precision: the masters decide. Experts are apart on disk, in the order of the model whatever the order on the devices.
plan alone "$alone" '' bf16
"$MUSHER" run -q "$scratch/alone.yaml" --data "$text" --steps 2 --save "$scratch/bf16.ck" >"$scratch/out" 2>"$scratch/err"
"$MUSHER" checkpoint show "$scratch/bf16.ck" >"$scratch/out" && ! grep -q BF16 "$scratch/out" && [[ $(grep -c ' F32 ' "$scratch/out") == 28 ]]
check "bf16: parameters are saved as fp32" $?
equal "init in bf16" "$(loss alone --resume "$scratch/bf16.ck")" "$(loss alone --init "$scratch/bf16.ck/step-00000002")"
moe='model_type: mixtral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, num_local_experts: 4'
plan moe "$alone" "$moe"
plan zero "$uneven" "$moe"
"$MUSHER" run -q "$scratch/zero.yaml" --data "$text" --steps 2 --save "$scratch/moe.ck" >"$scratch/out" 2>"$scratch/err" || not_ok "experts train" "$(cat "$scratch/err")"
says "experts apart" 0 "model.layers.1.block_sparse_moe.experts.3.w2.weight" "$MUSHER" checkpoint show "$scratch/moe.ck"
equal "init of experts" "$(loss zero --resume "$scratch/moe.ck")" "$(loss moe --init "$scratch/moe.ck/step-00000002")"

# Weights that are not this model's, and what is damaged.
plan halves "$halves"
refused() { says "$1" 3 "$2" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$scratch/bad"; }
says "init from a folder of checkpoints" 3 "or one checkpoint, DIR/step-" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$ck"
says "init from another model" 3 "is not one of the model" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$scratch/moe.ck/step-00000002"
# bad SED: weights whose header is changed, without a change of its length
bad() { rm -rf "$scratch/bad" && mkdir "$scratch/bad" && LC_ALL=C sed "s/$1/" "$step/model.safetensors" >"$scratch/bad/model.safetensors"; }
bad 'transformer.ln_f.bias/transformer.ln_g.bias'
refused "a name" "tensor transformer.ln_g.bias is not one of the model; did you mean 'transformer.ln_f.bias'?"
bad '"shape":\[32,96\]/"shape":[96,32]'
refused "a shape" "tensor transformer.h.0.attn.c_attn.weight has shape (96, 32), the model's (32, 96)"
bad 'F32/F16'
refused "a dtype" "bytes are not what its shape takes in F16"
bad 'data_offsets/data_offsetz'
refused "a key" "did you mean 'data_offsets'?"
cp "$step/model.safetensors" "$scratch/bad" && truncate -s -4 "$scratch/bad/model.safetensors"
refused "a truncated file" "is truncated: tensor transformer.wte.weight"
cp "$step/model.safetensors" "$scratch/bad" && printf 'x' >>"$scratch/bad/model.safetensors"
refused "a byte too many" "its tensors end at byte"
for file in model optimizer; do
    rm -rf "$scratch/damaged" && cp -r "$step" "$scratch/damaged"
    printf '\x55' | dd of="$scratch/damaged/$file.safetensors" bs=1 seek=$(($(stat -c %s "$step/$file.safetensors") - 99)) conv=notrunc 2>"$scratch/err"
    says "a damaged byte of $file" 3 "$file.safetensors': tensor transformer.wte.weight" "$MUSHER" checkpoint verify "$scratch/damaged"
done
rm -rf "$scratch/damaged" && cp -r "$step" "$scratch/damaged" && LC_ALL=C sed -i 's/transformer.ln_f.bias/transformer.ln_g.bias/' "$scratch/damaged/model.safetensors"
says "a damaged header" 3 "its header does not have tensor transformer.ln_f.bias where the manifest has it" "$MUSHER" checkpoint verify "$scratch/damaged"
exit $bad
