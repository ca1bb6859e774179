# tests/gpu/gpu.mk - checks and benches that need a GPU (docs/gpu.md).
#
#   make gpu-files     where there are all libraries: programs of some plans, losses of the host, benches   (build/gpu)
#   make gpu-check     where there is a GPU: kernels, training, ranks, collectives, a dead peer; compute-sanitizer
#   make gpu-run       there: what operators take, and three plans on emulated unequal devices; traces in build/gpu-out
#   make gpu-bench     there: kernels beside their floors, what traces cost, GPT-2 beside PyTorch
#   make gpu-sanitize  there: the kernels under compute-sanitizer
#   make gpu-predict   back where there are all libraries: predictions beside the runs that lie in build/gpu-out
# Those in the middle need gcc or clang, nvcc, cuBLAS and NCCL, and what gpu-files wrote; no MPI, OpenBLAS, zlib, document parser
# or Check. tests/gpu/gpu.sh asks for all of them in two calls. They end by themselves within nine minutes, the build among them: so it
# has all processors, and kernels for the GPUs that are there alone (CUDA_ARCHS= names others).

GPU_DIR    := $(BUILD)/gpu
GPU_OBJ    := $(BUILD)/gpu-obj
GPU_PLAIN  := tests/gpu/plain
GPU_SRC    := $(filter-out core/document/document.c,$(wildcard core/*/*.c)) traces/trace.c traces/spill.c traces/trace_io.c traces/trace_scan.c traces/quantile.c traces/saves.c \
  $(filter-out exec/comm/mpi.c $(PLUGINS),$(wildcard exec/*.c exec/*/*.c)) $(wildcard $(GPU_PLAIN)/*.c)
GPU_COMPARE := tests/support/compare_kernels.c tests/support/kernel_problem.c
# What meets the headers of $(GPU_PLAIN) in place of a library's is compiled once more; the rest is the program's own, and asks for no library.
GPU_TWICE  := $(addprefix exec/,host/backend_host.c checkpoint/checkpoint.c checkpoint/manifest.c data/data_file.c) $(GPU_PLAIN)/%
GPU_ONCE   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(GPU_TWICE),$(GPU_SRC)))
GPU_PARTS  := $(GPU_ONCE) $(patsubst %.c,$(GPU_OBJ)/%.o,$(filter $(GPU_TWICE),$(GPU_SRC)))
GPU_LIB    := $(GPU_OBJ)/parts.a
GPU_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -isystem $(GPU_PLAIN) $(WARN) -ffp-contract=off -pthread -MMD -MP $(CFLAGS) $(SANFLAGS)

$(GPU_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $< (gpu)"; $(CC) $(GPU_CFLAGS) -c $< -o $@

$(GPU_ONCE): $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -c $< -o $@

$(GPU_LIB): $(GPU_PARTS)
	@mkdir -p $(@D)
	@rm -f $@; $(AR) rcs $@ $^

$(GPU_DIR)-check: $(GPU_OBJ)/tests/gpu/check.o $(GPU_OBJ)/tests/gpu/collectives.o $(GPU_COMPARE:%.c=$(GPU_OBJ)/%.o) $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU_DIR)-bench: $(GPU_OBJ)/tests/gpu/bench.o $(GPU_OBJ)/tests/gpu/bench_kernels.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU_DIR)-run: $(GPU_OBJ)/tests/gpu/run.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

gpu-files: $(BUILD)/musher
	@MUSHER=$(BUILD)/musher tests/gpu/files.sh $(GPU_DIR)

# Without a GPU in it, so that what runs on one is always built: `make check` does.
gpu-programs: $(GPU_DIR)-check $(GPU_DIR)-bench $(GPU_DIR)-run

# A plugin that was built for more than the GPUs need stays as it is. Plain `make` builds for all again (cuda.archs in cuda.mk).
ifneq ($(filter gpu-ready demo-ready,$(MAKECMDGOALS)),)
ifeq ($(if $(CUDA_PLUGIN),$(origin CUDA_ARCHS)),file)
GPU_ARCHS := $(shell tests/gpu/archs.sh "$(NVCC)")
GPU_HAS := $(if $(wildcard $(CUDA_PLUGIN)),$(shell cat $(BUILD)/cuda.archs 2>/dev/null))
ifeq ($(GPU_ARCHS)$(filter gpu-ready,$(MAKECMDGOALS)),)
CUDA_ARCHS := $(or $(GPU_HAS),$(lastword $(CUDA_ARCHS)))
$(info musher: kernels for sm $(CUDA_ARCHS) alone, because this machine shows no GPU: plain make builds for all architectures)
else ifeq ($(GPU_ARCHS),)
$(info musher: kernels for all of sm $(CUDA_ARCHS), which takes long: CUDA_ARCHS= names fewer)
else
CUDA_ARCHS := $(if $(filter-out $(GPU_HAS),$(GPU_ARCHS)),$(GPU_ARCHS),$(GPU_HAS))
$(info musher: kernels for sm $(CUDA_ARCHS): here are GPUs of sm $(GPU_ARCHS) (CUDA_ARCHS= names others))
endif
endif
endif

ifeq ($(CUDA_PLUGIN),)
gpu-ready:
	@echo "no kernels can be built for a GPU: $(if $(SAN)$(TSAN),sanitizers know none,$(CUDA_WHY))" >&2; exit 3
else
gpu-ready: $(CUDA_PLUGIN) $(CUPTI_PLUGIN) gpu-programs
endif

# All lines of a recipe are expanded before the first one runs, so GPU_BEGAN is when the build began (seconds of the epoch).
gpu-check gpu-run gpu-bench:
	@$(MAKE) --no-print-directory $(JOBS) gpu-ready
	@GPU_BEGAN=$(shell date +%s) tests/gpu/$(@:gpu-%=%).sh $(BUILD)

gpu-sanitize:
	@$(MAKE) --no-print-directory $(JOBS) gpu-ready
	@tests/gpu/sanitize.sh $(BUILD) 100

gpu-predict: $(BUILD)/musher
	@MUSHER=$(BUILD)/musher tests/gpu/predict.sh table $(GPU_DIR) $(GPU_DIR)-out

# `make check` runs them on an emulated GPU (tests/cli/gpu.sh).
tests: gpu-programs

.PHONY: gpu-files gpu-programs gpu-ready gpu-check gpu-run gpu-bench gpu-sanitize gpu-predict

-include $(wildcard $(GPU_OBJ)/*/*.d $(GPU_OBJ)/*/*/*.d $(GPU_OBJ)/*/*/*/*.d $(GPU_OBJ)/*/*/*/*/*.d)
