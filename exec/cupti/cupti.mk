# exec/cupti/cupti.mk - the CUPTI plugin: build/libmusher_cupti.so, what kernels ran in an operator; included by exec/cuda/cuda.mk.
#
# Built by plain `make` where the CUDA plugin is and a CUPTI that it compiles with lies beside the toolkit, in its folders or in
# extras/CUPTI; else one line says what is missing or wrong, since nothing else is lost. Who asks for it by its name gets an error
# instead. `make CUPTI_INC=` builds without it.

CUPTI_INC := $(call cuda_find,cupti.h,$(CUDA_INC_DIRS) $(CUDA_ROOT)/extras/CUPTI/include)
CUPTI_LIB := $(call cuda_find,libcupti.so,$(CUDA_LIB_DIRS) $(CUDA_ROOT)/extras/CUPTI/lib64)
CUPTI_LACKS := $(strip $(if $(CUPTI_INC),,cupti.h) $(if $(CUPTI_LIB),,libcupti.so))

CUPTI_C    := $(wildcard exec/cupti/*.c)
# Releases differ in what their records hold, so the plugin's own sources are what is tried.
CUPTI_TRY   = $(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -shared -fPIC -isystem $(CUDA_INC) -isystem $(CUPTI_INC) $(CUPTI_C) \
  -o $(BUILD)/cupti.tried.so -L$(CUPTI_LIB) -lcupti
CUPTI_WRONG := $(if $(CUDA_PLUGIN),$(if $(CUPTI_LACKS),,$(if $(CUDA_ASKED),$(shell exec/cuda/works.sh $(BUILD)/cupti.tried \
  '$(CUPTI_INC)/cupti.h $(CUPTI_LIB)/libcupti.so $(CUPTI_C) $(wildcard exec/cupti/*.h) $(firstword $(CC))' '$(CUPTI_TRY)'))))
CUPTI_WHY   := $(if $(CUPTI_LACKS),not found: $(CUPTI_LACKS),CUPTI is here and does not work: $(CUPTI_WRONG))
CUPTI_PLUGIN := $(if $(CUDA_PLUGIN),$(if $(CUPTI_LACKS)$(CUPTI_WRONG),,$(BUILD)/libmusher_cupti.so))

CUPTI_CORE := core/base/arena.c core/base/error.c core/base/rng.c exec/clock.c
CUPTI_OBJ  := $(CUPTI_C:%.c=$(BUILD)/%.o) $(CUPTI_CORE:%.c=$(BUILD)/pic/%.o)

all: $(or $(CUPTI_PLUGIN),cupti-skipped)

# Without the CUDA plugin nobody misses it.
cupti-skipped:
	@$(if $(CUDA_PLUGIN),echo "musher: no CUPTI plugin: $(CUPTI_WHY); traces tell operators and not their kernels",:)

$(BUILD)/exec/cupti/%.o: exec/cupti/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -isystem $(CUDA_INC) -isystem $(CUPTI_INC) -c $< -o $@

cupti-missing:
	@echo "musher: no CUPTI plugin can be built: not found: $(CUPTI_LACKS)" >&2; exit 3

$(BUILD)/libmusher_cupti.so: $(if $(CUPTI_LACKS),cupti-missing,$(CUPTI_OBJ))
	@echo "  LD $@"; $(CC) -shared $(LDFLAGS) -pthread -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,$(CUPTI_LIB) $(CUPTI_OBJ) -o $@ \
	  -L$(CUPTI_LIB) -lcupti -lpthread -lm

# What the suites open is never older than they are.
tests: $(CUPTI_PLUGIN)

.PHONY: cupti-skipped cupti-missing

-include $(CUPTI_OBJ:.o=.d)
