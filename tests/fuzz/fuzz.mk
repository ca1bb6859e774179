# The libFuzzer program (tests/fuzz/fuzz.c), with clang, address and undefined-behaviour sanitizers, in build-fuzz.
# It links the readers only: every module of core, traces, profiles and sim, and those of the other folders that read files.
FUZZ_MODULES := tools/common tools/csv tools/screen tools/import/% tools/print/classes tools/print/outcome tools/schedule/cases \
  tools/sweep/axis tools/sweep/table tools/team/add tools/team/edit exec/arrivals exec/checkpoint/%
FUZZ_OBJ := $(filter $(addprefix $(BUILD)/,core/% traces/% profiles/% sim/% $(FUZZ_MODULES:%=%.o)),$(OBJ)) \
  $(BUILD)/tests/validate/published_csv.o $(BUILD)/tests/validate/published_rows.o $(BUILD)/tests/fuzz/formats.o

$(BUILD)/tests/fuzz/fuzz: $(FUZZ_OBJ) $(BUILD)/tests/fuzz/fuzz.o
	@echo "  LD $@"; $(CC) $(SANFLAGS) -fsanitize=fuzzer $(LDFLAGS) -pthread $^ -o $@ $(LIBS)

FUZZ_SECONDS ?= 60
fuzz:
	@$(MAKE) --no-print-directory $(JOBS) FUZZ=1 SAN=1 CC=clang BUILD=build-fuzz CFLAGS="-O1 -g" NVCC= build-fuzz/tests/fuzz/fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/fuzz.sh $(FORMAT)

.PHONY: fuzz
-include $(BUILD)/tests/fuzz/formats.d $(BUILD)/tests/fuzz/fuzz.d
