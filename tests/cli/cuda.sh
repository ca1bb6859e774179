#!/bin/bash
# tests/cli/cuda.sh - the CUDA plugin from outside: found, refused, absent; the devices in `check`; profiles without them.
# GPUs are the stand-in's (tests/standin), so that this runs on a machine that has none.
set -u
. tests/cli/common.inc
export STANDIN_DEVICES=3 STANDIN_CAPABILITY=90,75 MUSHER_NCCL=/nowhere/libnccl.so.2
standin=$(realpath "$BUILD")/libmusher_cuda_standin.so

# ---- the build reports what it leaves out
unset MAKEFLAGS MFLAGS MAKEOVERRIDES SAN TSAN CC CFLAGS WERROR # flags of the calling make
says "a build without nvcc prints one line" 0 "no CUDA plugin: not found: nvcc (switched off by NVCC=)" make -s NVCC= cuda-skipped
says "a missing header is named" 0 "not found: nccl.h" \
    make -s NVCC=/bin/true CUDA_INC=/x CUDA_LIB=/x NCCL_INC= cuda-skipped

says "GPU checks print it too" 2 "no kernels can be built for a GPU: not found: nvcc (switched off by NVCC=)" make -s NVCC= BUILD="$scratch/none" gpu-check

# ---- no plugin, the wrong one, no driver
export MUSHER_CUDA_PLUGIN=$scratch/none.so
says "no plugin is a warning" 0 "warning  cuda" "$MUSHER" check
says "with --cuda it is an error" 8 "missing  cuda" "$MUSHER" check --cuda
export MUSHER_CUDA_PLUGIN=$BUILD/tests/plugins/other_abi.so
says "a plugin of another ABI is refused" 8 "has ABI 99, this program 1" "$MUSHER" check --cuda
head -c 20000 "$standin" > "$scratch/cut.so"
MUSHER_CUDA_PLUGIN=$scratch/cut.so says "a truncated plugin is refused" 8 "cut.so is truncated" "$MUSHER" check --cuda
MUSHER_TIMEOUT=soon says "a wrong environment variable is refused" 2 "environment variable MUSHER_TIMEOUT: 'soon', expected seconds above 0" "$MUSHER" check
MUSHER_TIMEUOT=3 says "a misspelled environment variable is reported" 0 "unknown environment variable MUSHER_TIMEUOT; did you mean MUSHER_TIMEOUT?" "$MUSHER" check
musher=$(realpath "$MUSHER")
(cd "$(dirname "$standin")" && MUSHER_CUDA_PLUGIN=$(basename "$standin") "$musher" check --cuda) > "$scratch/out" 2>&1
has "a plugin named without a folder is searched in the working directory" out "ok       cuda plugin"
export MUSHER_CUDA_PLUGIN=$standin
STANDIN_DRIVER=35 says "a missing driver is reported" 8 "no CUDA device: no NVIDIA driver is loaded (35)" "$MUSHER" check --cuda
STANDIN_DRIVER=35 says "in JSON as well" 0 '"reason": "no CUDA device: no NVIDIA driver is loaded (35)"' "$MUSHER" check --json
STANDIN_DEVICES=0 says "a missing GPU is reported" 8 "reports no GPU" "$MUSHER" check --cuda

# ---- devices
says "devices are listed" 0 "cuda 2 " "$MUSHER" check --cuda
has "with their precisions" out "stand-in sm_75, sm_75, 141 GiB, fp32, fp64, fp16, PCI 0000:11:00.0"
has "with their peer routes" out "reaches by NVLink 1, by the host 2"
has "and the reason without NCCL" out "warning  nccl                 devices cannot communicate directly without NCCL"
says "one JSON object" 0 '"index": 1, "name": "stand-in sm_75", "capability": 75' "$MUSHER" check --json
jq -e '.cuda | (.devices | length) == 3 and .nccl_version == 0' "$scratch/out" > /dev/null &&
    ok "it is JSON" || not_ok "it is JSON" "$(head -c 300 "$scratch/out")"

STANDIN_MULTIPROCESSORS=132 says "an opened GPU has its free memory" 0 "141 GiB free beside this program's context; plans reserve 512 MiB for a context" \
    "$MUSHER" check --cuda
has "and its partition sizes" out "132 multiprocessors, in parts that are multiples of 8, from 8 on"
STANDIN_DRIVER_VERSION=12020 says "an older driver has no partitions" 0 "green contexts need one for CUDA 12.5 or newer" "$MUSHER" check --cuda
says "all of it as JSON" 0 '"free_bytes": 151397597184' "$MUSHER" check --cuda --json

# ---- installed
make -n install CUDA_PLUGIN="$standin" > "$scratch/out" 2>&1
has "make install installs the plugin" out "install -D -m 755 $standin"
make -n install CUDA_PLUGIN="$standin" CUPTI_PLUGIN="$standin" > "$scratch/out" 2>&1
has "and the CUPTI plugin" out "$standin /usr/local/lib/musher/libmusher_cupti.so"
says "a toolkit without CUPTI is reported" 0 "no CUPTI plugin: not found: cupti.h" make -s CUDA_PLUGIN=x CUPTI_INC= cupti-skipped
mkdir -p "$scratch/usr/bin" "$scratch/usr/lib/musher"
cp "$MUSHER" "$scratch/usr/bin/musher"
cp "$standin" "$scratch/usr/lib/musher/libmusher_cuda.so"
unset MUSHER_CUDA_PLUGIN
export LD_LIBRARY_PATH=$(realpath "$BUILD")/standin
says "an installed plugin is found in ../lib/musher" 0 "lib/musher/libmusher_cuda.so" "$scratch/usr/bin/musher" check --cuda
cp "$standin" "$scratch/usr/bin/libmusher_cuda.so"
says "a plugin beside the program takes precedence" 0 "bin/libmusher_cuda.so" "$scratch/usr/bin/musher" check --cuda
unset LD_LIBRARY_PATH
export MUSHER_CUDA_PLUGIN=$standin

# ---- a plan and a profile for GPUs
small_job > "$scratch/job.yaml"
cat > "$scratch/gpus.yaml" <<'END'
version: 1
name: gpus
device_types: [{name: h, device: H100-SXM5}]
nodes: [{name: a, host: localhost, devices: [{type: h}, {type: h}]}]
links: [{name: nv, between: [a], bandwidth: 100 GB/s, latency: 5 us}]
END
says "a plan for GPUs" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/gpus.yaml" -o "$scratch/gpus.plan.yaml"
STANDIN_NAME="NVIDIA T4" says "another GPU type is reported as by run" 3 "of this host is NVIDIA T4" "$MUSHER" check "$scratch/gpus.plan.yaml"
MUSHER_ANY_GPU=1 STANDIN_NAME="NVIDIA T4" says "unless MUSHER_ANY_GPU=1" 0 "plan " "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DEVICES=1 says "a plan's absent GPU is missing" 8 "no cuda device 1: there are 1" "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "without a driver all are missing" 8 "missing  a.0 " "$MUSHER" check --here "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "a plan can be checked without a driver" 0 "no NVIDIA driver is loaded" "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "a profile without GPUs keeps the prior for them" 0 "its costs stay the catalogue's prior: no CUDA device" \
    "$MUSHER" profile "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/p.db" --repeats 3

# ---- the same operators, measured on a GPU: only their presence is checked, not their times
export STANDIN_DEVICES=1 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=2000000000
sed -i 's/devices: .*/devices: [{type: h}]}]/; /^links/d; s/H100-SXM5/H100-SXM5, memory: 1 GiB/' "$scratch/gpus.yaml"
says "a GPU is measured" 0 "copies     pinned memory, 64 MiB: host to device " \
    "$MUSHER" profile "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/gpu.db" --repeats 3 --warm 0
measured=$(sed -n 's/^profile 1: \([0-9]*\) unique operators.*/\1/p' "$scratch/out")
asked=$(grep -o 'measuring [0-9]*' "$scratch/err" | awk '{ n += $2 } END { print n }')
[[ -n $measured && $measured == "$asked" ]] && ok "every operator of it" || not_ok "every operator of it" "$measured of $asked"
says "and the measurement prices a plan" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/gpu.db" -o "$scratch/gpu.yaml"
says "its memory is broken down" 0 "matmul workspace" "$MUSHER" memory "$scratch/gpu.yaml"
has "with the memory of libraries" out "libraries: context and loaded code"
says "the plan runs" 0 "" "$MUSHER" run "$scratch/gpu.yaml" --data LICENSE --steps 3 --json
losses=$(grep '"losses"' "$scratch/out")

# ---- kernels of operators
kernels=("$MUSHER" run "$scratch/gpu.yaml" --data LICENSE --steps 3 --json --kernels)
export MUSHER_CUPTI_PLUGIN=$(realpath "$BUILD")/libmusher_cupti_standin.so
says "--kernels needs a trace" 2 "--kernels needs --trace FILE" "${kernels[@]}"
says "a run records its kernels" 0 "losses" "${kernels[@]}" --trace "$scratch/kernels.trace"
[[ -n $losses && $(grep '"losses"' "$scratch/out") == "$losses" ]] && ok "and has the same losses" || not_ok "and has the same losses" "$losses: $(cat "$scratch/out")"
head -n 1 "$scratch/kernels.trace" | grep -q '"schema":2.*"kernels_lost":0' && ok "its trace is of schema 2" || not_ok "its trace is of schema 2" "$(head -c 300 "$scratch/kernels.trace")"
says "show lists them by operator" 0 "% " "$MUSHER" show "$scratch/kernels.trace"
grep -q '^  attention  *[0-9].* %.*plain_forward<T> [0-9]* x ' "$scratch/out" && ok "with their names" || not_ok "with their names" "$(cat "$scratch/out")"
has "and those between operators" out "between operators"
says "as JSON" 0 '"kernels_lost": 0' "$MUSHER" show "$scratch/kernels.trace" --json
"$MUSHER" simulate -q "$scratch/gpu.yaml" --db "$scratch/gpu.db" --trace "$scratch/sim.trace" > /dev/null
says "compare lists them too" 0 "between operators" "$MUSHER" compare "$scratch/sim.trace" "$scratch/kernels.trace"
# The trace without its kernels is of the same run, and gives the same calibration.
mkdir "$scratch/without"
sed "1s/\"schema\":2/\"schema\":1/; 1s/\"kernels_lost\":[0-9]*,//; 1s/\"spans\":[0-9]*/\"spans\":$(($(grep -vc '^{"kind":"kernel"' "$scratch/kernels.trace") - 1))/
    /^{\"kind\":\"kernel\"/d" "$scratch/kernels.trace" > "$scratch/without/kernels.trace"
cp "$scratch/gpu.db" "$scratch/without/gpu.db"
says "calibrate uses a run" 0 '"spans_used": ' "$MUSHER" calibrate --db "$scratch/without/gpu.db" "$scratch/without/kernels.trace" --json --force
cp "$scratch/out" "$scratch/learned"
says "and one with kernels" 0 '"spans_used": ' "$MUSHER" calibrate --db "$scratch/gpu.db" "$scratch/kernels.trace" --json --force
cmp -s "$scratch/out" "$scratch/learned" && grep -q '"spans_used": [1-9]' "$scratch/learned" && ok "the same, to the digit" ||
    not_ok "the same, to the digit" "$(diff "$scratch/out" "$scratch/learned")"
"$MUSHER" plot "$scratch/kernels.trace" -o "$scratch/kernels.json" > /dev/null
grep -q '"cat":"kernel","name":"plain_forward<T>"' "$scratch/kernels.json" && ok "Perfetto gets a track of them" || not_ok "Perfetto gets a track of them" "$(head -c 300 "$scratch/kernels.json")"
STANDIN_CUPTI_DROP=7 says "lost kernel records are reported" 0 "" "${kernels[@]}" --trace "$scratch/lost.trace"
says "also by show" 0 "were lost by the profiler" "$MUSHER" show "$scratch/lost.trace"
STANDIN_CUPTI_FAIL_AT=3:35 says "a driver without profiling permission is reported" 6 "the driver lets only administrators profile" "${kernels[@]}" --trace "$scratch/x.trace"
MUSHER_CUPTI_PLUGIN=/nowhere.so says "a missing CUPTI plugin is reported" 8 "no CUPTI plugin" "${kernels[@]}" --trace "$scratch/x.trace"
[[ ! -e $scratch/x.trace ]] && ok "and no trace is written then" || not_ok "and no trace is written then" "there is one"

# ---- partitions of a GPU
export STANDIN_MULTIPROCESSORS=132 STANDIN_MEMORY=151397597184
cat > "$scratch/parts.yaml" <<'END'
version: 1
name: parts
device_types:
  - {name: half, device: H100-SXM5, slowdown: 4, multiprocessors: 64, memory: 2 GiB}
nodes: [{name: a, host: localhost, devices: [{type: half}]}]
END
says "a plan for a GPU partition" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/parts.yaml" -o "$scratch/part.yaml"
says "it runs, labelled as emulated" 0 "emulated devices" "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
STANDIN_DRIVER_VERSION=12020 says "an older driver refuses it" 8 "a slowdown emulates on the virtual clock alone" \
    "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
sed -i 's/: 64,/: 66,/' "$scratch/parts.yaml" "$scratch/part.yaml"
says "other partition sizes are refused" 3 "the nearest are 64 and 72" "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
exit $bad
