# exec/cupti/cupti.mk - the CUPTI plugin: build/libmusher_cupti.so, what kernels ran in an operator; included by exec/cuda/cuda.mk.
#
# Built by plain `make` where the CUDA plugin is and CUPTI lies beside the toolkit, in its folders or in extras/CUPTI; else one line
# says what is missing. `make CUPTI_INC=` builds without it.

CUPTI_INC := $(call cuda_find,cupti.h,$(CUDA_INC_DIRS) $(CUDA_ROOT)/extras/CUPTI/include)
CUPTI_LIB := $(call cuda_find,libcupti.so,$(CUDA_LIB_DIRS) $(CUDA_ROOT)/extras/CUPTI/lib64)
CUPTI_LACKS := $(if $(CUPTI_INC),,cupti.h) $(if $(CUPTI_LIB),,libcupti.so)
CUPTI_PLUGIN := $(if $(CUDA_PLUGIN),$(if $(strip $(CUPTI_LACKS)),,$(BUILD)/libmusher_cupti.so))

CUPTI_C    := $(wildcard exec/cupti/*.c)
CUPTI_CORE := core/arena.c core/error.c core/rng.c exec/clock.c
CUPTI_OBJ  := $(CUPTI_C:%.c=$(BUILD)/%.o) $(CUPTI_CORE:%.c=$(BUILD)/pic/%.o)

all: $(or $(CUPTI_PLUGIN),cupti-skipped)

# Without the CUDA plugin nobody misses it.
cupti-skipped:
	@$(if $(CUDA_PLUGIN),echo "musher: no CUPTI plugin: not found: $(strip $(CUPTI_LACKS)); traces tell operators and not their kernels",:)

$(BUILD)/exec/cupti/%.o: exec/cupti/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -isystem $(CUDA_INC) -isystem $(CUPTI_INC) -c $< -o $@

$(BUILD)/libmusher_cupti.so: $(CUPTI_OBJ)
	@echo "  LD $@"; $(CC) -shared $(LDFLAGS) -pthread -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(CUPTI_LIB) $(CUPTI_OBJ) -o $@ \
	  -L$(CUPTI_LIB) -lcupti -lpthread -lm

ifneq ($(CUPTI_PLUGIN),)
CUPTI_HDR := $(wildcard exec/cupti/*.h)
headers: $(CUPTI_HDR:%=$(BUILD)/%.alone)
$(CUPTI_HDR:%=$(BUILD)/%.alone): ALL_CFLAGS += -isystem $(CUDA_INC) -isystem $(CUPTI_INC)
endif

.PHONY: cupti-skipped

-include $(CUPTI_OBJ:.o=.d)
