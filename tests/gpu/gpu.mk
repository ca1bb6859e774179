# tests/gpu/gpu.mk - checks and benches that need a card (docs/card.md).
#
#   make gpu-files     where there are all libraries: programs of some plans, losses of the host, benches   (build/gpu)
#   make gpu-check     where there is a card: kernels, training, ranks, a dead peer
#   make gpu-run       there: what operators take, and three plans on emulated unequal devices; traces in build/gpu-out
#   make gpu-bench     there: kernels beside their floors, what traces cost, GPT-2 beside PyTorch
#   make gpu-sanitize  there: the kernels under compute-sanitizer
#   make gpu-predict   back where there are all libraries: predictions beside the runs that lie in build/gpu-out
# Those in the middle need gcc or clang, nvcc, cuBLAS and NCCL, and what gpu-files wrote; no MPI, OpenBLAS, zlib, document parser
# or Check. tests/gpu/card.sh asks for all of them in two calls.

GPU        := $(BUILD)/gpu
GPU_OBJ    := $(BUILD)/gpu-obj
GPU_PLAIN  := tests/gpu/plain
GPU_SRC    := $(filter-out core/document.c,$(wildcard core/*.c)) traces/trace.c traces/trace_io.c traces/trace_scan.c traces/quantile.c \
  $(filter-out exec/comm_mpi.c,$(wildcard exec/*.c)) $(wildcard $(GPU_PLAIN)/*.c)
GPU_COMPARE := tests/compare_kernels.c tests/kernel_problem.c
GPU_LIB    := $(GPU_OBJ)/parts.a
GPU_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -isystem $(GPU_PLAIN) $(WARN) -ffp-contract=off -pthread -MMD -MP $(CFLAGS) $(SANFLAGS)

$(GPU_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $< (gpu)"; $(CC) $(GPU_CFLAGS) -c $< -o $@

$(GPU_LIB): $(GPU_SRC:%.c=$(GPU_OBJ)/%.o)
	@rm -f $@; $(AR) rcs $@ $^

$(GPU)-check: $(GPU_OBJ)/tests/gpu/check.o $(GPU_COMPARE:%.c=$(GPU_OBJ)/%.o) $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU)-bench: $(GPU_OBJ)/tests/gpu/bench.o $(GPU_OBJ)/tests/gpu/bench_kernels.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU)-run: $(GPU_OBJ)/tests/gpu/run.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) $(SANFLAGS) -pthread $^ -o $@ -ldl -lpthread -lm

gpu-files: all
	@MUSHER=$(BUILD)/musher tests/gpu/files.sh $(GPU)

# Without a card in it, so that what runs on one is always built: `make check` does.
gpu-programs: $(GPU)-check $(GPU)-bench $(GPU)-run

ifeq ($(CUDA_PLUGIN),)
gpu-ready:
	@echo "no kernels can be built for a card: $(if $(SAN)$(TSAN),sanitizers know none,not found: $(strip $(CUDA_LACKS)))" >&2; exit 3
else
# A CUPTI that cannot be built against costs a column of the bench and nothing else.
gpu-ready: $(CUDA_PLUGIN) gpu-programs
	@$(if $(CUPTI_PLUGIN),$(MAKE) --no-print-directory $(CUPTI_PLUGIN) || echo "musher: no CUPTI plugin: no kernels below operators" >&2,:)
endif

gpu-check: gpu-ready
	@tests/gpu/check.sh $(BUILD)

gpu-run: gpu-ready
	@tests/gpu/run.sh $(BUILD)

gpu-bench: gpu-ready
	@tests/gpu/bench.sh $(BUILD)

gpu-sanitize: gpu-ready
	@tests/gpu/sanitize.sh $(BUILD) 100

gpu-predict: all
	@MUSHER=$(BUILD)/musher tests/gpu/predict.sh table $(GPU) $(GPU)-out

# `make check` runs them on an emulated card (tests/cli/gpu.sh).
tests: gpu-programs

.PHONY: gpu-files gpu-programs gpu-ready gpu-check gpu-run gpu-bench gpu-sanitize gpu-predict

-include $(wildcard $(GPU_OBJ)/*/*.d $(GPU_OBJ)/*/*/*.d $(GPU_OBJ)/*/*/*/*.d)
