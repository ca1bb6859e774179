#!/bin/bash
# tests/cli/cuda.sh - the CUDA plugin from outside: found, refused, absent; what check tells of devices; profiles without them.
# GPUs are the stand-in's (tests/standin), so that this runs on a machine that has none.
set -u
. tests/cli/common.inc
export STANDIN_DEVICES=3 STANDIN_CAPABILITY=90,75 MUSHER_NCCL=/nowhere/libnccl.so.2
standin=$(realpath "$BUILD")/libmusher_cuda_standin.so

# ---- the build says what it leaves out
unset MAKEFLAGS MFLAGS MAKEOVERRIDES SAN TSAN CC CFLAGS WERROR # what the make around this was told
says "a build without nvcc says so in a line" 0 "no CUDA plugin: not found: nvcc (switched off by NVCC=)" make -s NVCC= cuda-skipped
says "and tells a header that is missing" 0 "not found: nccl.h" \
    make -s NVCC=/bin/true CUDA_INC=/x CUDA_LIB=/x NCCL_INC= cuda-skipped

says "checks for a GPU say so too" 2 "no kernels can be built for a GPU: not found: nvcc (switched off by NVCC=)" make -s NVCC= BUILD="$scratch/none" gpu-check

# ---- no plugin, the wrong one, no driver
export MUSHER_CUDA_PLUGIN=$scratch/none.so
says "no plugin is a warning" 0 "warning  cuda" "$MUSHER" check
says "unless a device is asked for" 8 "missing  cuda" "$MUSHER" check --cuda
export MUSHER_CUDA_PLUGIN=$BUILD/tests/plugins/other_abi.so
says "a plugin of another ABI is refused" 8 "has ABI 99, this program 1" "$MUSHER" check --cuda
head -c 20000 "$standin" > "$scratch/cut.so"
MUSHER_CUDA_PLUGIN=$scratch/cut.so says "one that was cut off is refused" 8 "cut.so is cut off" "$MUSHER" check --cuda
MUSHER_TIMEOUT=soon says "a wrong variable of the environment is refused" 2 "environment variable MUSHER_TIMEOUT: 'soon', expected seconds above 0" "$MUSHER" check
MUSHER_TIMEUOT=3 says "one that is nearly ours is told" 0 "unknown environment variable MUSHER_TIMEUOT; did you mean MUSHER_TIMEOUT?" "$MUSHER" check
musher=$(realpath "$MUSHER")
(cd "$(dirname "$standin")" && MUSHER_CUDA_PLUGIN=$(basename "$standin") "$musher" check --cuda) > "$scratch/out" 2>&1
has "a plugin that is named without its folder is the one that lies here" out "ok       cuda plugin"
export MUSHER_CUDA_PLUGIN=$standin
STANDIN_DRIVER=35 says "no driver is told" 8 "no CUDA device: no NVIDIA driver is loaded (35)" "$MUSHER" check --cuda
STANDIN_DRIVER=35 says "in JSON as well" 0 '"reason": "no CUDA device: no NVIDIA driver is loaded (35)"' "$MUSHER" check --json
STANDIN_DEVICES=0 says "no GPU is told" 8 "shows no GPU" "$MUSHER" check --cuda

# ---- devices
says "devices are listed" 0 "cuda 2 " "$MUSHER" check --cuda
has "with what they compute in" out "stand-in sm_75, sm_75, 141 GiB, fp32, fp64, fp16, PCI 0000:11:00.0"
has "and whom they reach how" out "reaches by NVLink 1, by the host 2"
has "and without NCCL why" out "warning  nccl                 devices cannot talk to one another without NCCL"
says "one JSON object" 0 '"index": 1, "name": "stand-in sm_75", "capability": 75' "$MUSHER" check --json
jq -e '.cuda | (.devices | length) == 3 and .nccl_version == 0' "$scratch/out" > /dev/null &&
    ok "it is JSON" || not_ok "it is JSON" "$(head -c 300 "$scratch/out")"

STANDIN_MULTIPROCESSORS=132 says "an opened GPU tells what it has free" 0 "141 GiB free beside this program's context; plans reserve 512 MiB for a context" \
    "$MUSHER" check --cuda
has "and in which parts it can be had" out "132 multiprocessors, in parts that are multiples of 8, from 8 on"
STANDIN_DRIVER_VERSION=12020 says "an older driver has none" 0 "parts of a GPU need one for CUDA 12.5 or newer" "$MUSHER" check --cuda
says "and it all is JSON" 0 '"free_bytes": 151397597184' "$MUSHER" check --cuda --json

# ---- installed
make -n install CUDA_PLUGIN="$standin" > "$scratch/out" 2>&1
has "make install takes the plugin along" out "install -D -m 755 $standin"
make -n install CUDA_PLUGIN="$standin" CUPTI_PLUGIN="$standin" > "$scratch/out" 2>&1
has "and CUPTI's" out "$standin /usr/local/lib/musher/libmusher_cupti.so"
says "a toolkit without CUPTI is told" 0 "no CUPTI plugin: not found: cupti.h" make -s CUDA_PLUGIN=x CUPTI_INC= cupti-skipped
mkdir -p "$scratch/usr/bin" "$scratch/usr/lib/musher"
cp "$MUSHER" "$scratch/usr/bin/musher"
cp "$standin" "$scratch/usr/lib/musher/libmusher_cuda.so"
unset MUSHER_CUDA_PLUGIN
export LD_LIBRARY_PATH=$(realpath "$BUILD")/standin
says "an installed plugin is found in ../lib/musher" 0 "lib/musher/libmusher_cuda.so" "$scratch/usr/bin/musher" check --cuda
cp "$standin" "$scratch/usr/bin/libmusher_cuda.so"
says "one beside the program goes before it" 0 "bin/libmusher_cuda.so" "$scratch/usr/bin/musher" check --cuda
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
STANDIN_NAME="NVIDIA T4" says "one that is another GPU is told as run would" 3 "of this host is NVIDIA T4" "$MUSHER" check "$scratch/gpus.plan.yaml"
MUSHER_ANY_GPU=1 STANDIN_NAME="NVIDIA T4" says "unless any will do" 0 "plan " "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DEVICES=1 says "a plan's GPU that is not here is missing" 8 "no cuda device 1: there are 1" "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "so are all where there is no driver" 8 "missing  a.0 " "$MUSHER" check --here "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "a machine without a driver may check a plan all the same" 0 "no NVIDIA driver is loaded" "$MUSHER" check "$scratch/gpus.plan.yaml"
STANDIN_DRIVER=35 says "a profile without GPUs leaves them to the prior" 0 "its costs stay the catalogue's prior: no CUDA device" \
    "$MUSHER" profile "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/p.db" --repeats 3

# ---- the same operators, measured on a GPU: what is checked is that every one is, not what it takes
export STANDIN_DEVICES=1 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=2000000000
sed -i 's/devices: .*/devices: [{type: h}]}]/; /^links/d; s/H100-SXM5/H100-SXM5, memory: 1 GiB/' "$scratch/gpus.yaml"
says "a GPU is measured" 0 "copies     pinned memory, 64 MiB: host to device " \
    "$MUSHER" profile "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/gpu.db" --repeats 3 --warm 0
measured=$(sed -n 's/^profile 1: \([0-9]*\) unique operators.*/\1/p' "$scratch/out")
asked=$(grep -o 'measuring [0-9]*' "$scratch/err" | awk '{ n += $2 } END { print n }')
[[ -n $measured && $measured == "$asked" ]] && ok "every operator of it" || not_ok "every operator of it" "$measured of $asked"
says "and what was measured prices a plan" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/gpu.db" -o "$scratch/gpu.yaml"
says "its memory is told part by part" 0 "workspace of products" "$MUSHER" memory "$scratch/gpu.yaml"
has "libraries' part as well" out "libraries: the context and what it loads"
says "which trains there" 0 "" "$MUSHER" run "$scratch/gpu.yaml" --data LICENSE --steps 3 --json
losses=$(grep '"losses"' "$scratch/out")

# ---- what ran in operators
kernels=("$MUSHER" run "$scratch/gpu.yaml" --data LICENSE --steps 3 --json --kernels)
export MUSHER_CUPTI_PLUGIN=$(realpath "$BUILD")/libmusher_cupti_standin.so
says "--kernels needs a trace" 2 "--kernels needs --trace FILE" "${kernels[@]}"
says "a run tells its kernels" 0 "losses" "${kernels[@]}" --trace "$scratch/kernels.trace"
[[ -n $losses && $(grep '"losses"' "$scratch/out") == "$losses" ]] && ok "and has the same losses" || not_ok "and has the same losses" "$losses: $(cat "$scratch/out")"
head -n 1 "$scratch/kernels.trace" | grep -q '"schema":2.*"kernels_lost":0' && ok "its trace is of schema 2" || not_ok "its trace is of schema 2" "$(head -c 300 "$scratch/kernels.trace")"
says "show tells them by operator" 0 "% " "$MUSHER" show "$scratch/kernels.trace"
grep -q '^  attention  *[0-9].* %.*plain_forward<T> [0-9]* x ' "$scratch/out" && ok "with their names" || not_ok "with their names" "$(cat "$scratch/out")"
has "and what ran between" out "between operators"
says "so does JSON" 0 '"kernels_lost": 0' "$MUSHER" show "$scratch/kernels.trace" --json
"$MUSHER" simulate -q "$scratch/gpu.yaml" --db "$scratch/gpu.db" --trace "$scratch/sim.trace" > /dev/null
says "compare tells them too" 0 "between operators" "$MUSHER" compare "$scratch/sim.trace" "$scratch/kernels.trace"
# The run without its kernels is the same run, and teaches the same (however long it took here).
mkdir "$scratch/without"
sed "1s/\"schema\":2/\"schema\":1/; 1s/\"kernels_lost\":[0-9]*,//; 1s/\"spans\":[0-9]*/\"spans\":$(($(grep -vc '^{"kind":"kernel"' "$scratch/kernels.trace") - 1))/
    /^{\"kind\":\"kernel\"/d" "$scratch/kernels.trace" > "$scratch/without/kernels.trace"
cp "$scratch/gpu.db" "$scratch/without/gpu.db"
says "calibrate learns from a run" 0 '"spans_used": ' "$MUSHER" calibrate --db "$scratch/without/gpu.db" "$scratch/without/kernels.trace" --json --force
cp "$scratch/out" "$scratch/learned"
says "and from one with kernels" 0 '"spans_used": ' "$MUSHER" calibrate --db "$scratch/gpu.db" "$scratch/kernels.trace" --json --force
cmp -s "$scratch/out" "$scratch/learned" && grep -q '"spans_used": [1-9]' "$scratch/learned" && ok "the same, to the digit" ||
    not_ok "the same, to the digit" "$(diff "$scratch/out" "$scratch/learned")"
"$MUSHER" plot "$scratch/kernels.trace" -o "$scratch/kernels.json" > /dev/null
grep -q '"cat":"kernel","name":"plain_forward<T>"' "$scratch/kernels.json" && ok "Perfetto gets a track of them" || not_ok "Perfetto gets a track of them" "$(head -c 300 "$scratch/kernels.json")"
STANDIN_CUPTI_DROP=7 says "what is lost is told" 0 "" "${kernels[@]}" --trace "$scratch/lost.trace"
says "by show as well" 0 "were lost by the profiler" "$MUSHER" show "$scratch/lost.trace"
STANDIN_CUPTI_FAIL_AT=3:35 says "a driver that forbids it is told" 6 "the driver lets only administrators profile" "${kernels[@]}" --trace "$scratch/x.trace"
MUSHER_CUPTI_PLUGIN=/nowhere.so says "so is a plugin that is not there" 8 "no CUPTI plugin" "${kernels[@]}" --trace "$scratch/x.trace"
[[ ! -e $scratch/x.trace ]] && ok "and no trace is written then" || not_ok "and no trace is written then" "there is one"

# ---- parts of a GPU
export STANDIN_MULTIPROCESSORS=132 STANDIN_MEMORY=151397597184
cat > "$scratch/parts.yaml" <<'END'
version: 1
name: parts
device_types:
  - {name: half, device: H100-SXM5, slowdown: 4, multiprocessors: 64, memory: 2 GiB}
nodes: [{name: a, host: localhost, devices: [{type: half}]}]
END
says "a plan for a part of a GPU" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/parts.yaml" -o "$scratch/part.yaml"
says "trains on it, and is called emulated" 0 "emulated devices" "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
STANDIN_DRIVER_VERSION=12020 says "but not by an older driver" 8 "a slowdown emulates on the virtual clock alone" \
    "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
sed -i 's/: 64,/: 66,/' "$scratch/parts.yaml" "$scratch/part.yaml"
says "nor in any size" 3 "the nearest are 64 and 72" "$MUSHER" run "$scratch/part.yaml" --data LICENSE --steps 2
exit $bad
