# tests/standin/nccl.mk - NCCL's twin as a shared object of its own, opened by the plugin through MUSHER_NCCL.

STANDIN_NCCL      := $(BUILD)/standin/libnccl.so.2
STANDIN_NCCL_OBJ  := $(patsubst %.c,$(BUILD)/standin/%.o,$(wildcard tests/standin/nccl*.c))
$(STANDIN_NCCL_OBJ): ALL_CFLAGS += -fvisibility=hidden

$(STANDIN_NCCL): $(STANDIN_NCCL_OBJ) $(STANDIN_SO)
	@echo "  LD $@"; $(CC) -shared $(SANFLAGS) $(LDFLAGS) -pthread $(STANDIN_NCCL_OBJ) -o $@ \
	  -L$(BUILD)/standin -lstandin -Wl,-rpath,'$$ORIGIN'

tests: $(STANDIN_NCCL)
$(BUILD)/tests/run $(PROGRAMS): $(STANDIN_NCCL)

-include $(STANDIN_NCCL_OBJ:.o=.d)
