#!/bin/bash
# tests/gpu/archs.sh NVCC - the architectures of the GPUs of this machine, ascending: "75 90". Says nothing where nobody tells which
# they are, or where NVCC does not know one of them; stderr has why.
# nvidia-smi is asked first, since it needs nothing but the driver; else NVCC, which looks for GPUs itself (-arch=native).
set -u
nvcc=${1:-nvcc}
of_driver() { timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^ *\([0-9]*\)\.\([0-9]\) *$/\1\2/p'; }
# The compiler's own words for what it would do; where it finds no GPU it warns, and takes its default.
of_compiler() {
    local said
    said=$(timeout 20 "$nvcc" -arch=native --dryrun -x cu -c /dev/null 2>&1) || return
    [[ $said == *"Cannot find valid GPU"* ]] && return
    sed -n 's/.*-D__CUDA_ARCH_LIST__=\([0-9,]*\)[^0-9,].*/\1/p' <<<"$said" | head -n 1 | tr ',' '\n' | sed -n 's/0$//p'
}
archs=$(of_driver)
[[ $archs ]] || archs=$(of_compiler)
[[ $archs ]] || { echo "neither nvidia-smi nor nvcc tells which GPUs are here" >&2; exit 0; }
known=$("$nvcc" --list-gpu-arch 2>/dev/null)
for a in $archs; do
    [[ -z $known ]] || grep -qx "compute_$a" <<<"$known" || { echo "there is a GPU of sm_$a, which this nvcc does not know" >&2; exit 0; }
done
sort -nu <<<"$archs" | paste -sd ' '
