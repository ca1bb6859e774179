# tests/gpu/gpu.mk - checks and benches that need a card.
#
#   make gpu-files   where there are all libraries: programs of some plans, and the losses of the host   (build/gpu)
#   make gpu-check   where there is a card: kernels, training, ranks, a dead peer, compute-sanitizer
#   make gpu-bench   kernels beside their floors, GPT-2 beside PyTorch
# The last two need gcc or clang, nvcc, cuBLAS and NCCL, and what gpu-files wrote; no MPI, OpenBLAS, zlib, document parser or Check.

GPU        := $(BUILD)/gpu
GPU_OBJ    := $(BUILD)/gpu-obj
GPU_PLAIN  := tests/gpu/plain
GPU_SRC    := $(filter-out core/document.c,$(wildcard core/*.c)) traces/trace.c traces/trace_io.c traces/trace_scan.c traces/quantile.c \
  $(filter-out exec/comm_mpi.c,$(wildcard exec/*.c)) $(wildcard $(GPU_PLAIN)/*.c)
GPU_COMPARE := tests/compare_kernels.c tests/kernel_problem.c
GPU_LIB    := $(GPU_OBJ)/parts.a
GPU_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -isystem $(GPU_PLAIN) $(WARN) -ffp-contract=off -pthread -MMD -MP $(CFLAGS)

$(GPU_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $< (gpu)"; $(CC) $(GPU_CFLAGS) -c $< -o $@

$(GPU_LIB): $(GPU_SRC:%.c=$(GPU_OBJ)/%.o)
	@rm -f $@; $(AR) rcs $@ $^

$(GPU)-check: $(GPU_OBJ)/tests/gpu/check.o $(GPU_COMPARE:%.c=$(GPU_OBJ)/%.o) $(GPU_LIB)
	@echo "  LD $@"; $(CC) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU)-bench: $(GPU_OBJ)/tests/gpu/bench.o $(GPU_OBJ)/tests/gpu/bench_kernels.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) -pthread $^ -o $@ -ldl -lpthread -lm

$(GPU)-run: $(GPU_OBJ)/tests/gpu/run.o $(GPU_LIB)
	@echo "  LD $@"; $(CC) -pthread $^ -o $@ -ldl -lpthread -lm

gpu-files: all
	@MUSHER=$(BUILD)/musher tests/gpu/files.sh $(GPU)

# Without a card in it, so that what runs on one is always built: `make check` does.
gpu-programs: $(GPU)-check $(GPU)-bench $(GPU)-run

gpu-check: $(BUILD)/libmusher_cuda.so $(GPU)-check
	@tests/gpu/check.sh $(BUILD)

gpu-bench: $(BUILD)/libmusher_cuda.so $(GPU)-bench
	@tests/gpu/bench.sh $(BUILD)

.PHONY: gpu-files gpu-programs gpu-check gpu-bench

-include $(wildcard $(GPU_OBJ)/*/*.d $(GPU_OBJ)/*/*/*.d $(GPU_OBJ)/*/*/*/*.d)
