# tests/standin/standin.mk - the CUDA plugin's sources on CPU threads: no toolkit, no GPU; included by exec/cuda/cuda.mk.
#
# The headers of tests/standin have the toolkit's names and stand before all others, so that C by $(CC) and .cu by $(CXX)
# are compiled as they are (nvcc, too, includes cuda_runtime.h before all else). The twins of the libraries are one shared
# object, because plugin, tests and NCCL's twin must meet in one runtime. The plugin's objects are linked twice: into the
# program of the suites, which call operators directly, and into a plugin that is opened as the real one is.

ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),$(CC:clang%=clang++%),g++)
endif
# Kernels compare threadIdx with int and ask for unrolling; a launcher may have its struct's name.
STANDIN_CXXFLAGS = -std=gnu++17 -D_GNU_SOURCE -I. -isystem tests/standin -include cuda_runtime.h -Wall -Wextra -Werror \
  -Wno-unknown-pragmas -Wno-sign-compare $(if $(findstring clang,$(CXX)),-Wno-pass-failed) -fno-exceptions -fno-rtti \
  -ffp-contract=off -pthread -fPIC -fvisibility=hidden -MD -MP $(CFLAGS) $(SANFLAGS)

# Twins: the runtime and cuBLAS here, NCCL's by its own rule.
STANDIN_TWIN := $(filter-out tests/standin/nccl%,$(wildcard tests/standin/*.c))
STANDIN_TOBJ := $(STANDIN_TWIN:%.c=$(BUILD)/standin/%.o)
STANDIN_SO   := $(BUILD)/standin/libstandin.so
# The plugin's own sources, and kernels that only tests have.
STANDIN_OBJ  := $(patsubst %,$(BUILD)/standin/%.o,$(wildcard exec/cuda/*.c exec/cuda/*.cu))
STANDIN_KOBJ := $(patsubst %,$(BUILD)/standin/%.o,$(wildcard tests/standin/*.cu))
STANDIN_PLUGIN := $(BUILD)/libmusher_cuda_standin.so
# The CUPTI plugin in the same way; nothing is linked with it.
STANDIN_CUPTI_OBJ := $(patsubst %,$(BUILD)/standin/%.o,$(wildcard exec/cupti/*.c))
STANDIN_CUPTI     := $(BUILD)/libmusher_cupti_standin.so
# What programs that call the plugin's parts are linked with.
STANDIN_LINK  = $(STANDIN_OBJ) $(STANDIN_KOBJ) -L$(BUILD)/standin -lstandin -Wl,-rpath,'$$ORIGIN/../standin:$$ORIGIN/../../standin'

tests: $(if $(STANDIN_OBJ),$(STANDIN_PLUGIN) $(STANDIN_CUPTI))

$(STANDIN_SO): $(STANDIN_TOBJ)
	@echo "  LD $@"; $(CC) -shared $(SANFLAGS) $(LDFLAGS) -pthread $^ -o $@ -lm

$(BUILD)/standin/%.c.o: %.c | libraries
	@mkdir -p $(@D)
	@echo "  CC $< (stand-in)"; $(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -isystem tests/standin -c $< -o $@

$(BUILD)/standin/tests/standin/%.o: tests/standin/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -Wno-missing-prototypes -fPIC -isystem tests/standin -c $< -o $@

# Plain loops that a compiler may still make fast.
$(BUILD)/standin/tests/standin/product.o: CFLAGS := $(CFLAGS) -O3

$(BUILD)/standin/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  CXX $< (stand-in)"; $(CXX) $(STANDIN_CXXFLAGS) -x c++ -c $< -o $@

$(STANDIN_PLUGIN): $(STANDIN_OBJ) $(CUDA_CORE:%.c=$(BUILD)/pic/%.o) $(STANDIN_SO) exec/cuda/cuda.mk
	@echo "  LD $@"; $(CC) -shared $(SANFLAGS) $(LDFLAGS) -pthread -Wl,--exclude-libs,ALL $(filter %.o,$^) -o $@ \
	  -L$(BUILD)/standin -lstandin -Wl,-rpath,'$$ORIGIN/standin' -ldl -lm

$(STANDIN_CUPTI): $(STANDIN_CUPTI_OBJ) $(CUPTI_CORE:%.c=$(BUILD)/pic/%.o) $(STANDIN_SO)
	@echo "  LD $@"; $(CC) -shared $(SANFLAGS) $(LDFLAGS) -pthread -Wl,--exclude-libs,ALL $(filter %.o,$^) -o $@ \
	  -L$(BUILD)/standin -lstandin -Wl,-rpath,'$$ORIGIN/standin' -lm

$(TOBJ) $(POBJ): ALL_CFLAGS += -isystem tests/standin
$(BUILD)/tests/run $(PROGRAMS): $(STANDIN_OBJ) $(STANDIN_KOBJ) $(STANDIN_SO) | $(STANDIN_CUPTI)

-include $(STANDIN_TOBJ:.o=.d) $(STANDIN_OBJ:.o=.d) $(STANDIN_KOBJ:.o=.d) $(STANDIN_CUPTI_OBJ:.o=.d)
-include tests/standin/nccl.mk
