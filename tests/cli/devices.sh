#!/bin/bash
# tests/cli/devices.sh - the device catalogue, and what a cluster file states of a device: told in every output that depends on it.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6

says "the catalogue has H100-NVL" 0 "H100-NVL" "$MUSHER" devices
has "and marks derived values" out "*: derived"
says "JSON has every value's source" 0 '"fp16_flops": {"value": 154850000000000, "source": "NVIDIA RTX A4000' "$MUSHER" devices --json
has "a derived value says from what" out '"confidence": "derived"'
has "a value from memory says so" out '"source": "from memory: NVIDIA A16 datasheet", "date": "2021", "confidence": "unverified"'
has "a price has its day" out '"price_per_h": {"value": 3.49, "source": "RunPod secure cloud, runpod.io/pricing", "date": "2026-09-25"'

cat > job.yaml <<'END'
version: 1
model: {model_type: gpt2, n_embd: 2048, n_layer: 2, n_head: 16, n_positions: 1024, vocab_size: 512}
sequence_length: 1024
global_batch: 8
microbatch: 2
precision: bf16
END
team() { # TYPES
    cat <<END
version: 1
name: desk
device_types: [$1]
nodes: [{name: a, devices: [{type: rtx, count: 2}]}]
links: [{name: pcie, every: inside, bandwidth: 25 GB/s, latency: 5 us}]
END
}
team '{name: rtx, device: RTX-A6000}' > plain.yaml
team '{name: rtx, device: RTX-A6000, peak: {bf16: 309.7 TFLOP/s}, memory_bandwidth: 768 GB/s}' > twice.yaml
team '{name: rtx, device: TPU-v5e}' > tpu.yaml
line="rtx: peak bf16 309.7 TFLOP/s and memory bandwidth 768 GB/s stated by the cluster file"

says "show tells what a cluster states" 0 "$line" "$MUSHER" show twice.yaml
says "its power is in JSON" 0 '"power_w": 300, "list_price_per_h": 0.82' "$MUSHER" show plain.yaml --json
says "plan does" 0 "$line" "$MUSHER" plan job.yaml twice.yaml -o twice.plan --baseline even-pipeline
says "show of the plan does" 0 "$line" "$MUSHER" show twice.plan
says "simulate does" 0 "$line" "$MUSHER" simulate twice.plan
says "whatif does" 0 "$line" "$MUSHER" whatif twice.plan --without a.1
says "in JSON a field does" 0 '{"type": "rtx", "peak_bf16_flops": 309700000000000, "memory_Bps": 768000000000}' "$MUSHER" simulate twice.plan --json
fast=$(sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' out)
"$MUSHER" plan job.yaml plain.yaml -o plain.plan --baseline even-pipeline > out
grep -q "stated\|derived" out && not_ok "a cluster that states nothing prints no line" "$(cat out)" || ok "a cluster that states nothing prints no line"
"$MUSHER" simulate plain.plan --json > out
has "and JSON has no field" out '"iteration_ns"'
grep -q '"stated"' out && not_ok "none" "$(cat out)"
slow=$(sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' out)
# twice the catalogue's 154.85 TFLOP/s: between half and three quarters of the time, because the rest is bound by memory
((fast * 2 > slow && fast * 4 < slow * 3)) && ok "twice the peak takes $fast ns instead of $slow" || not_ok "twice the peak" "$fast ns, not about half of $slow"

sed 's/bf16/fp32/' job.yaml > fp32.yaml
says "a derived peak is named" 0 "rtx: fp32 of TPU-v5e, 32.8 TFLOP/s, is derived: a sixth of bf16" "$MUSHER" plan fp32.yaml tpu.yaml -o tpu.plan --baseline even-pipeline
says "in JSON too" 0 '"device": "TPU-v5e", "value": "fp32_flops", "number": 32800000000000' "$MUSHER" simulate tpu.plan --json
sed 's/TPU-v5e/RTX-A5000/' tpu.yaml > memory.yaml
says "a value from memory is named" 0 "rtx: memory bandwidth of RTX-A5000, 768 GB/s, is unverified: from memory: NVIDIA RTX A4000" "$MUSHER" plan job.yaml memory.yaml -o memory.plan --baseline even-pipeline
says "in JSON too" 0 '"unverified": [' "$MUSHER" simulate memory.plan --json
sed 's/bf16/fp16/' job.yaml > fp16.yaml
says "a precision that the device lacks" 3 "(TPU-v5e) computes in fp32 and bf16" "$MUSHER" plan fp16.yaml tpu.yaml -o x.plan
sed 's/TPU-v5e/H100/' tpu.yaml > near.yaml
says "an id that is none names those that come near" 3 "near.yaml:3:36: device_types[0].device: no device 'H100' in the catalogue; did you mean H100-SXM5, H100-PCIe or H100-NVL?" "$MUSHER" show near.yaml
sed 's/309.7 TFLOP\/s/309.7/' twice.yaml > bad.yaml
says "a peak without its unit" 3 "bad.yaml:3:60: device_types[0].peak.bf16: must be a speed such as 312 TFLOP/s, found '309.7'; a number needs a unit: write 309.7 TFLOP/s" "$MUSHER" show bad.yaml
says "cost without a price names the catalogue's" 3 "write price: 0.82/h, or price: 0/h if it is free; 0.82 is the catalogue's price of RTX-A6000 in USD" "$MUSHER" plan job.yaml plain.yaml -o x.plan --objective cost
exit $bad
