# exec/cuda/cuda.mk - the CUDA plugin: build/libmusher_cuda.so, opened at run time and linked with nothing of ours.
#
# Built by plain `make` where nvcc and the headers and libraries of cuBLAS and NCCL are found and a file of nothing but them
# compiles; else one line says what is missing or wrong. Who asks for the plugin by its name, or for what needs it, gets an error
# instead. `make NVCC=` builds without it. C files go through $(CC), only kernels (.cu) through nvcc.
# What the plugin needs of core it carries itself, so that it asks nothing of the program but its own one function.
#   CUDA_HOME=folder       of the toolkit (default: where nvcc is)        NCCL_HOME=folder   of NCCL (default: the toolkit, /usr)
#   CUDA_ARCHS="75 90"     architectures; a toolkit before 13 may add 60 and 70; the last one also as PTX for newer GPUs
#   NVCC_THREADS=n         architectures that nvcc compiles at once

ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME) /usr/local/cuda)) $(shell command -v nvcc 2>/dev/null))
endif
CUDA_ROOT := $(if $(CUDA_HOME),$(CUDA_HOME),$(if $(NVCC),$(abspath $(dir $(realpath $(NVCC)))/..)))
CUDA_MACHINE := $(shell uname -m)-linux
CUDA_INC_DIRS := $(addsuffix /include,$(CUDA_ROOT) $(CUDA_ROOT)/targets/$(CUDA_MACHINE)) /usr/include
CUDA_LIB_DIRS := $(addprefix $(CUDA_ROOT)/,lib64 lib targets/$(CUDA_MACHINE)/lib) /usr/lib/$(CUDA_MACHINE)-gnu /usr/lib64
NCCL_INC_DIRS := $(addsuffix /include,$(NCCL_HOME)) $(CUDA_INC_DIRS) /usr/local/include
# folder of $(1) among the folders $(2)
cuda_find = $(patsubst %/$(1),%,$(firstword $(wildcard $(addsuffix /$(1),$(2)))))
CUDA_INC := $(call cuda_find,cublasLt.h,$(CUDA_INC_DIRS))
CUDA_LIB := $(call cuda_find,libcublasLt.so,$(CUDA_LIB_DIRS))
# PyTorch brings NCCL along as a package of its own; asked for where the toolkit has none.
NCCL_INC := $(or $(call cuda_find,nccl.h,$(NCCL_INC_DIRS)),$(if $(NVCC),$(call cuda_find,nccl.h,$(shell python3 -c \
  'import nvidia; print(*[p + "/nccl/include" for p in nvidia.__path__])' 2>/dev/null))))
CUDA_LACKS := $(if $(NVCC),$(if $(wildcard $(NVCC)),,$(NVCC)) $(if $(CUDA_INC),,cublasLt.h) $(if $(CUDA_LIB),,libcublasLt.so) \
  $(if $(NCCL_INC),,nccl.h),$(if $(filter undefined file,$(origin NVCC)),nvcc,nvcc (switched off by NVCC=)))
CUDA_LACKS := $(strip $(CUDA_LACKS))

# Goals that have a use for the plugin: the others shall not wait for a compiler to be tried.
CUDA_ASKED := $(filter all install demo-ready rank hap tests checked cuda-skipped cupti-skipped gpu-ready,$(or $(MAKECMDGOALS),all))
CUDA_TRY = $(CC) -fsyntax-only -isystem $(CUDA_INC) -isystem $(NCCL_INC) -include cublasLt.h -include cublas_v2.h \
  -include cuda_runtime_api.h -include nccl.h -x c /dev/null && $(NVCC) -std=c++17 -x cu -c /dev/null -o $(BUILD)/cuda.tried.o && \
  $(CC) -shared $(BUILD)/cuda.tried.o -o $(BUILD)/cuda.tried.so -L$(CUDA_LIB) -lcublasLt -lcublas -lcudart -lstdc++
CUDA_WRONG := $(if $(CUDA_LACKS)$(SAN)$(TSAN),,$(if $(CUDA_ASKED),$(shell exec/cuda/works.sh $(BUILD)/cuda.tried \
  '$(NVCC) g++ $(CUDA_INC)/cublasLt.h $(NCCL_INC)/nccl.h $(CUDA_LIB:%=%/libcublas.so) $(CUDA_LIB:%=%/libcudart.so) $(firstword $(CC))' '$(CUDA_TRY)')))
CUDA_WHY := $(if $(CUDA_LACKS),not found: $(CUDA_LACKS),CUDA is here and does not work: $(CUDA_WRONG))
# Sanitized builds have the stand-in alone: kernels cannot be instrumented.
CUDA_PLUGIN := $(if $(CUDA_LACKS)$(CUDA_WRONG)$(SAN)$(TSAN),,$(BUILD)/libmusher_cuda.so)

CUDA_VERSION := $(if $(CUDA_INC),$(shell sed -n 's/^.define CUDA_VERSION \([0-9]*\).*/\1/p' $(CUDA_INC)/cuda.h 2>/dev/null))
CUDA_ARCHS ?= 75 80 86 89 90
NVCC_THREADS ?= 2
NVCC_FLAGS = -std=c++17 -O3 -I. --threads $(NVCC_THREADS) -Wno-deprecated-gpu-targets \
  $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
  -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
  -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-O2

CUDA_C    := $(wildcard exec/cuda/*.c)
CUDA_CU   := $(wildcard exec/cuda/*.cu)
# What a plugin contains of the other folders: errors, memory, the operator table and what that refers to.
CUDA_CORE := $(addprefix core/base/,arena.c error.c log.c rng.c settings.c utf8.c) $(wildcard core/graph/*.c) exec/clock.c exec/op_values.c
CUDA_OBJ  := $(CUDA_C:%.c=$(BUILD)/%.o) $(CUDA_CU:%.cu=$(BUILD)/%.cu.o) $(CUDA_CORE:%.c=$(BUILD)/pic/%.o)

all: $(if $(CUDA_PLUGIN),$(CUDA_PLUGIN),cuda-skipped)

cuda-skipped:
	@$(if $(SAN)$(TSAN),:,echo "musher: no CUDA plugin: $(CUDA_WHY); the host executor is complete without it")

# The architectures of what lies in $(BUILD): others, and kernels are compiled again.
$(BUILD)/cuda.archs: always
	@mkdir -p $(@D)
	@echo "$(strip $(CUDA_ARCHS))" >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# None of these needs a library of the other folders: they build on a machine that has a GPU and little else.
$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $< (plugin)"; $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/exec/cuda/%.o: exec/cuda/%.c $(BUILD)/cuda.archs
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -DCUDA_OLDEST=$(firstword $(CUDA_ARCHS)) \
	  -isystem $(CUDA_INC) -isystem $(NCCL_INC) -c $< -o $@

$(BUILD)/exec/cuda/%.cu.o: exec/cuda/%.cu $(BUILD)/cuda.archs
	@mkdir -p $(@D)
	@echo "  NVCC $<"; $(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

cuda-missing:
	@echo "musher: no CUDA plugin can be built: not found: $(CUDA_LACKS)" >&2; exit 3

$(BUILD)/libmusher_cuda.so: $(if $(CUDA_LACKS),cuda-missing,$(CUDA_OBJ)) exec/cuda/cuda.mk
	@echo "  LD $@"; $(CC) -shared $(LDFLAGS) -pthread -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(CUDA_LIB) $(CUDA_OBJ) -o $@ \
	  -L$(CUDA_LIB) -lcublasLt -lcublas -lcudart -lstdc++ -ldl -lpthread -lm

# Against the stand-in's headers, which are always here.
CUDA_HDR := $(filter-out %/launch.h,$(wildcard exec/cuda/*.h exec/cupti/*.h))
headers: $(patsubst %,$(BUILD)/%.alone,$(filter-out $(HDR_FIRST),$(CUDA_HDR)))
$(CUDA_HDR:%=$(BUILD)/%.alone): ALL_CFLAGS += -isystem tests/standin

# Plugins that are wrong in one thing each, for the tests of what is refused.
PLUGIN_WRONG := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/plugins/*.c))

tests: $(PLUGIN_WRONG)
$(BUILD)/tests/run: | $(PLUGIN_WRONG)

$(BUILD)/tests/plugins/%.so: tests/plugins/%.c exec/plugin.h exec/backend.h exec/activity.h | libraries
	@mkdir -p $(@D)
	@echo "  LD $@"; $(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -fPIC -shared $< -o $@

.PHONY: cuda-skipped cuda-missing

-include $(CUDA_OBJ:.o=.d)
include exec/cupti/cupti.mk
-include tests/standin/standin.mk
