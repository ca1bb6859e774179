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

# A flipped bit of a parameter: the manifest's CRC counts wherever parameters are read, that of the optimizer's state where it is read.
flip() { printf "\\x$(printf %02x $((0x$(od -A n -t x1 -j "$2" -N 1 "$1" | tr -d ' ') ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>"$scratch/err"; }
size=$(stat -c %s "$step/model.safetensors")
rm -rf "$scratch/damaged" && cp -r "$step" "$scratch/damaged" && flip "$scratch/damaged/optimizer.safetensors" $((size - 99))
equal "init beside a damaged state of the optimizer" "$resumed" "$(loss halves --init "$scratch/damaged")"
flip "$scratch/damaged/model.safetensors" $((size - 99))
says "init from a flipped bit" 3 "is damaged (its CRC differs)" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$scratch/damaged"
says "convert of a flipped bit" 3 "is damaged (its CRC differs)" "$MUSHER" checkpoint convert "$scratch/damaged" -o "$scratch/never"
[[ ! -e $scratch/never ]]
check "writes nothing" $?
says "convert to standard output" 2 "expected -o DIR" "$MUSHER" checkpoint convert "$ck" -o -

# A folder whose newest checkpoint is damaged does not verify; config.json counts.
"$MUSHER" run -q "$scratch/uneven.yaml" --data "$text" --steps 1 --resume "$ck" --save "$ck" >"$scratch/out" 2>"$scratch/err"
says "two whole ones" 0 "step-00000004: 84 tensors" "$MUSHER" checkpoint verify "$ck"
flip "$ck/step-00000004/model.safetensors" $((size - 99))
says "the newest is damaged" 3 "of step 4, is damaged; the newest that is whole is of step 3" "$MUSHER" checkpoint verify "$ck"
has "and why" err "is damaged (its CRC differs)"
has "and the older one is whole" out "step-00000003: 84 tensors"
says "the newest is damaged, as JSON" 3 '"crc32": true' "$MUSHER" checkpoint verify "$ck" --json
for text_of in 'n_embd: 32' '{"n_embd": 32' '[1]'; do
    rm -rf "$scratch/damaged" && cp -r "$step" "$scratch/damaged" && printf '%s\n' "$text_of" >"$scratch/damaged/config.json"
    says "config.json is '$text_of'" 3 "damaged/config.json" "$MUSHER" checkpoint verify "$scratch/damaged"
done
says "is no reason to refuse its weights" 0 "is not compared with the plan's" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$scratch/damaged"

# config.json with another value than the plan's model: a warning with both, in an order of the keys.
llama='model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, vocab_size: 256, max_position_embeddings: 32'
plan llama "$alone" "$llama, rope_theta: 10000"
plan other "$alone" "${llama/num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8/num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16}, rope_theta: 500000"
"$MUSHER" run -q "$scratch/llama.yaml" --data "$text" --steps 1 --save "$scratch/llama.ck" >"$scratch/out" 2>"$scratch/err" || not_ok "llama trains" "$(cat "$scratch/err")"
for from in --init --resume; do
    says "$from: another rope_theta" 0 "config.json' has rope_theta 10000, the plan's model 500000" "$MUSHER" run "$scratch/other.yaml" --data "$text" --steps 1 $from "$scratch/llama.ck/step-00000001"
    has "$from: other heads" err "config.json' has num_attention_heads 4, the plan's model 2"
    [[ $(grep -c "config.json' has" "$scratch/err") == 4 ]]
    check "$from: nothing else" $?
    says "$from: the same model" 0 "" "$MUSHER" run "$scratch/llama.yaml" --data "$text" --steps 1 $from "$scratch/llama.ck/step-00000001"
    ! grep -q "config.json" "$scratch/err"
    check "$from: no warning" $?
done
says "another family" 3 "config.json' has model_type llama, the plan's model gpt2" "$MUSHER" run "$scratch/halves.yaml" --data "$text" --steps 1 --init "$scratch/llama.ck/step-00000001"

# Another optimizer: its state is of no use, the weights are.
sed 's/adamw, lr/lion, lr/' "$scratch/halves.yaml" >"$scratch/lion.yaml"
says "another optimizer" 3 "has optimizer adamw, the program has lion; train on with adamw, or start from its weights: --init $step" "$MUSHER" run "$scratch/lion.yaml" --data "$text" --steps 1 --resume "$step"
advice=$(grep -o -- '--init .*' "$scratch/err" | head -n 1)
says "the advice is right" 0 "" "$MUSHER" run "$scratch/lion.yaml" --data "$text" --steps 1 $advice
exit $bad
