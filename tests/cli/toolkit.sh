#!/bin/bash
# tests/cli/toolkit.sh - make with a working, broken or missing CUDA toolkit; kernels for the GPUs of the machine.
# The toolkit is the stand-in's headers and library under the real names, and a compiler that writes empty objects.
set -u
. tests/cli/common.inc
unset MAKEFLAGS MFLAGS MAKEOVERRIDES SAN TSAN CC CFLAGS WERROR CUDA_ARCHS CUDA_HOME NCCL_HOME NVCC_THREADS # flags of the calling make
kit=${scratch:?}/kit none=$scratch/none
mkdir -p "$kit"/{bin,include,lib} "$scratch/smi"
ln -s "$PWD"/tests/standin/*.h "$kit/include/"
for lib in cublasLt cublas cudart cupti; do ln -s "$(realpath "$BUILD/standin/libstandin.so")" "$kit/lib/lib$lib.so"; done
cat > "$kit/bin/nvcc" <<'END'
#!/bin/bash
case "$*" in
*--list-gpu-arch*) printf 'compute_%s\n' 75 80 86 89 90 ;;
*--dryrun*) [[ -z ${NATIVE:-} ]] || echo "#$ gcc -D__CUDA_ARCH_LIST__=$NATIVE -E" >&2 ;;
*)
    [[ -z ${UNSUPPORTED:-} ]] || { echo "error: #error -- unsupported GNU version!" >&2; exit 1; }
    while [[ $1 != -o ]]; do shift; done
    cc -x c -c /dev/null -o "$2"
    ;;
esac
END
printf '#!/bin/bash\n[[ ${GPUS:-} ]] || exit 9\nprintf "%%s\\n" $GPUS\n' > "$scratch/smi/nvidia-smi"
chmod +x "$kit/bin/nvcc" "$scratch/smi/nvidia-smi"
# asks NAME CODE TEXT ARGUMENTS...: output of make with this toolkit and these GPUs
asks() { says "$1" "$2" "$3" env PATH="$scratch/smi:$PATH" make NVCC="$kit/bin/nvcc" BUILD="$none" "${@:4}"; }
# notes NAME ARCHS: the build folder records kernels for these architectures, or for all
notes() { PATH="$scratch/smi:$PATH" make -s NVCC="$kit/bin/nvcc" BUILD="$none" ${2:+CUDA_ARCHS="$2"} "$none/cuda.archs" && ok "$1" || not_ok "$1" "$?"; }
# for_archs NAME CODE...: the commands of make -n compile kernels for these
for_archs() {
    local got
    got=$(grep -m 1 -e '-gencode' "$scratch/out" | grep -o 'code=[a-z]*_[0-9]*' | sed 's/code=//' | paste -sd ' ')
    [[ $got == "$2" ]] && ok "$1" || not_ok "$1" "${got:-none}, not $2"
}

# ---- kernels for the GPUs of this machine
GPUS="9.0 7.5 9.0" asks "two device classes are found" 0 "kernels for sm 75 90: here are GPUs of sm 75 90" -n gpu-ready
for_archs "and kernels are for them" "sm_75 sm_90 compute_90"
GPUS="9.0" CUDA_ARCHS=80 asks "CUDA_ARCHS takes precedence over GPUs" 0 "" -n gpu-ready
for_archs "and kernels are for its list" "sm_80 compute_80"
NATIVE=890 asks "without nvidia-smi the compiler's list is used" 0 "kernels for sm 89" -n gpu-ready
asks "without both the default is used" 0 "neither nvidia-smi nor nvcc tells which GPUs are here" -n gpu-ready
has "with a message" out "kernels for all of sm 75 80 86 89 90, which takes long"
for_archs "and kernels are for all" "sm_75 sm_80 sm_86 sm_89 sm_90 compute_90"
GPUS="12.0" asks "the default is used for a GPU unknown to the compiler" 0 "a GPU of sm_120, which this nvcc does not know" -n gpu-ready
for_archs "as it is newer than all" "sm_75 sm_80 sm_86 sm_89 sm_90 compute_90"
GPUS="9.0" asks "plain make does not query GPUs" 0 "NVCC" -n all
for_archs "and builds for all" "sm_75 sm_80 sm_86 sm_89 sm_90 compute_90"
asks "the demo builds for one architecture where there is no GPU" 0 "kernels for sm 90 alone" -n demo-ready
for_archs "and for no other" "sm_90 compute_90"
GPUS="8.0" asks "the demo builds for the GPU of this machine" 0 "kernels for sm 80: here are GPUs of sm 80" -n demo-ready
for_archs "and for no other" "sm_80 compute_80"
GPUS="9.0" asks "gpu-check builds for the GPUs as well" 0 "kernels for sm 90" -n gpu-check
mkdir -p "$none"
touch "$none/libmusher_cuda.so"
notes "a plugin's architectures are recorded" "80 90"
GPUS="9.0" asks "a plugin with the GPU's kernels is kept" 0 "kernels for sm 80 90: here are GPUs of sm 90" -n gpu-ready
GPUS="7.5" asks "a plugin without them is rebuilt" 0 "kernels for sm 75: here are GPUs of sm 75" -n gpu-ready
touch -d '1 hour ago' "$none/cuda.archs"
notes "the same architectures again" "80 90"
[[ $(find "$none/cuda.archs" -mmin +30) ]] && ok "nothing is compiled again" || not_ok "nothing is compiled again" "$(ls -l "$none")"
notes "other architectures" ""
[[ $(find "$none/cuda.archs" -mmin -30) ]] && ok "kernels are" || not_ok "kernels are" "$(ls -l "$none")"
rm -r "$none"

# ---- broken components: plain make leaves them out, explicit targets fail
broken() { rm "$kit/include/$1" && echo '#error of another release' > "$kit/include/$1"; }
asks "a toolkit that works is used" 0 "" -n all
grep -q "no CU.* plugin" "$scratch/out" && not_ok "with CUPTI" "$(grep "no CU.* plugin" "$scratch/out")" || ok "with CUPTI"
broken cupti.h
asks "a CUPTI that does not compile is left out with a reason" 0 "musher: no CUPTI plugin: CUPTI is here and does not work: $kit/include/cupti.h:1:2: error: #error" -s cupti-skipped
asks "in one line" 0 "no CUPTI plugin" -n all
grep -q "cupti/plugin.c" "$scratch/out" && not_ok "and is not built" "$(grep "cupti/plugin.c" "$scratch/out")" || ok "and is not built"
asks "requested explicitly it is an error" 2 "#error of another release" -s "$none/libmusher_cupti.so"
asks "also if it is missing" 2 "no CUPTI plugin can be built: not found: cupti.h" -s CUPTI_INC= "$none/libmusher_cupti.so"
rm "$kit/lib/libcublas.so" && echo "no library" > "$kit/lib/libcublas.so"
asks "a broken library is reported" 0 "musher: no CUDA plugin: CUDA is here and does not work: " -s cuda-skipped
has "by name" out "libcublas.so"
ln -sf "$(realpath "$BUILD/standin/libstandin.so")" "$kit/lib/libcublas.so"
touch "$kit/bin/nvcc" # a changed compiler is tested again
UNSUPPORTED=1 asks "an incompatible host compiler is reported" 0 "does not work: error: #error -- unsupported GNU version!; the host executor is complete" -s cuda-skipped
broken nccl.h
asks "a header that does not compile is reported" 0 "does not work: $kit/include/nccl.h:1:2: error: #error" -s cuda-skipped
asks "GPU checks fail with it" 2 "no kernels can be built for a GPU: CUDA is here and does not work" -s gpu-check
asks "also the target of the plugin" 2 "of another release" -s "$none/libmusher_cuda.so"
asks "and without a toolkit" 2 "no CUDA plugin can be built: not found: nvcc" -s NVCC= "$none/libmusher_cuda.so"
exit $bad
