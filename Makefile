# make              build/musher; with nvcc, cuBLAS and NCCL also build/libmusher_cuda.so (make NVCC= builds without),
#                   with CUPTI also build/libmusher_cupti.so
# make check        installation of missing packages, then tests and lint (make check-long: with the long tests)
# make demo         tour of the program: profile, plan, simulate, run, compare, calibrate (a few minutes)
# make rank         predicted against measured ranking of ten plans on each of eight emulated cases (40 minutes)
# make hap          HAP's clusters and models under every parallelisation: table and plot in build/hap (ten minutes)
# make docs         docs/reference and the manual page, from the tables of options, file keys, operators and devices
# make validate     predictions beside published measurements and plans
# make gpu-files    files for a machine with a CUDA GPU, in build/gpu: copy the folder to that machine (docs/gpu.md)
# make gpu-check    on the GPU machine: tests of kernels, training, ranks, collectives and peer failure; compute-sanitizer if time permits
# make gpu-run      on the GPU machine: operator times, three plans on emulated unequal devices, two with host memory
# make gpu-bench    on the GPU machine: kernels beside their lower bounds, GPT-2 beside PyTorch
# make gpu-sanitize on the GPU machine: kernels under compute-sanitizer
# make gpu-predict  predictions beside the results of gpu-run, copied to build/gpu-out
# make bench        speed of simulator, planner and executor; with libsimgrid-dev beside SimGrid (a minute)
# make gates        reliability gates: power loss, failing I/O and memory …, one line each (hours; MUSHER_LONG=0: a sample, minutes)
# make fuzz         libFuzzer with sanitizers on every file format (FUZZ_SECONDS=60 each; FORMAT=plan: one of them); needs clang
# make lint         include layers, library walls, banned functions, self-contained headers
# make layers       the folders of each top-level folder and their includes, lowest layer first
# make format       clang-format over the tree
# make install      PREFIX=/usr/local DESTDIR=                      (make uninstall removes it)
# make clean        removal of every build folder
# make help         this text
# make SAN=1 ...    in build-san, with address and undefined-behaviour sanitizers
# make TSAN=1 ...   in build-tsan, with the thread sanitizer
# make CC=clang     any C11 compiler; BUILD=folder selects the output folder

BUILD  ?= build$(if $(SAN),-san)$(if $(TSAN),-tsan)
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
# WERROR= for an untested compiler, so that new warnings do not stop the build.
WERROR ?= -Werror
ifeq ($(origin CC),default)
CC := gcc
endif

# GSL's own .pc file names -lgslcblas, whose sgemm would replace that of OpenBLAS and is thirteen
# times slower; so GSL is linked by name, and OpenBLAS after it.
PKGS    := sqlite3 openblas yaml-0.1 jansson zlib igraph
MPI     := $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
CFL     := $(shell pkg-config --cflags $(PKGS) $(MPI) 2>/dev/null) $(if $(MPI),,$(shell mpicc --showme:compile 2>/dev/null))
MPILIBS := $(if $(MPI),$(shell pkg-config --libs ompi-c),$(shell mpicc --showme:link 2>/dev/null))
LIBS    := -lsqlite3 -lyaml -ljansson -lz -lgsl -lglpk \
  $(shell pkg-config --libs openblas igraph 2>/dev/null) $(MPILIBS) -ldl -lpthread -lm
MISSING := $(shell for p in $(PKGS) gsl check; do pkg-config --exists $$p 2>/dev/null || echo $$p; done) \
  $(if $(MPI)$(MPILIBS),,mpi)

SANFLAGS := $(if $(SAN),-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer) \
  $(if $(TSAN),-fsanitize=thread) $(if $(FUZZ),-fsanitize=fuzzer-no-link)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings $(WERROR) \
  $(if $(findstring clang,$(shell $(CC) --version 2>/dev/null)),,-Wno-format-truncation)
# No -ffast-math: it deletes isnan() and reorders sums, and results must not depend on flags.
# Texts are cut to fit their buffers on purpose, hence no format-truncation warning.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(patsubst -I%,-isystem %,$(CFL)) $(WARN) -ffp-contract=off \
  -pthread -MMD -MP $(CFLAGS) $(SANFLAGS)

FOLDERS  := core traces profiles sim planner exec tools
# A folder of exec with a makefile of its own (exec/cuda/cuda.mk) is a plugin: opened at run time, never linked.
PLUGINS := $(addsuffix %,$(sort $(dir $(wildcard exec/*/*.mk))))
SRC     := $(filter-out $(PLUGINS),$(wildcard $(FOLDERS:%=%/*.c) $(FOLDERS:%=%/*/*.c)))
HDR     := $(filter-out $(PLUGINS),$(wildcard $(FOLDERS:%=%/*.h) $(FOLDERS:%=%/*/*.h))) $(wildcard tests/support/*.h tests/validate/*.h)
# Paper reproduction: a separate program, whose objects the suites of tests/validate link too.
VALIDATE := $(filter-out tests/validate/test_% tests/validate/main.c,$(wildcard tests/validate/*.c))
TEST    := $(wildcard tests/run.c tests/fuzz/formats.c tests/support/*.c $(FOLDERS:%=tests/%/test_*.c) tests/validate/test_*.c)
SUITE   := $(sort $(patsubst test_%,%,$(filter test_%,$(basename $(notdir $(TEST))))))
PROGRAM := $(wildcard tests/programs/*.c)
BENCH   := $(wildcard tests/bench/*.c)
PRELOAD := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/preload/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o)
# All objects but main, for tests and benchmarks.
PARTS   := $(filter-out $(BUILD)/tools/main.o,$(OBJ))
TOBJ    := $(TEST:%.c=$(BUILD)/%.o)
VOBJ    := $(VALIDATE:%.c=$(BUILD)/%.o)
GOBJ    := $(patsubst %.c,$(BUILD)/%.o,$(wildcard docs/generate/*.c))
POBJ    := $(PROGRAM:%.c=$(BUILD)/%.o)
BOBJ    := $(BENCH:%.c=$(BUILD)/%.o)
PROGRAMS := $(PROGRAM:%.c=$(BUILD)/%)
LINK     = @echo "  LD $@"; $(CC) $(SANFLAGS) $(LDFLAGS) -pthread

all: $(BUILD)/musher

$(BUILD)/musher: $(OBJ)
	$(LINK) $(OBJ) -o $@ $(LIBS)

$(BUILD)/%.o: %.c | libraries
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) $(ALL_CFLAGS) -c $< -o $@

# The inner loops of the host executor; they select their instruction set at run time (target_clones).
$(BUILD)/exec/host/kernels_host%.o: CFLAGS := $(CFLAGS) -O3

libraries:
	@test -z "$(strip $(MISSING))" || { echo "musher: missing libraries: $(strip $(MISSING)); run tools/setup.sh" >&2; exit 1; }

# Check's macros are GNU variadics; suites are declared by the list below, not by a header.
$(TOBJ) $(POBJ) $(BOBJ): WARN += -Wno-pedantic -Wno-missing-prototypes
# Tests are a third of the build time, and their own code is not hot: -O1 takes twice as long to compile as -O0. References of kernels are.
$(filter $(BUILD)/tests/support/%,$(TOBJ)): CFLAGS := $(CFLAGS:-O2=-O1)
$(filter-out $(BUILD)/tests/support/%,$(TOBJ)) $(POBJ): CFLAGS := $(CFLAGS:-O2=-O0)
$(BUILD)/tests/run.o: ALL_CFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/run.o: $(BUILD)/tests/suites.inc

$(BUILD)/tests/suites.inc: always
	@mkdir -p $(@D)
	@for s in $(SUITE); do echo "X($$s)"; done >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/tests/run: $(PARTS) $(VOBJ) $(TOBJ)
	$(LINK) $(PARTS) $(VOBJ) $(TOBJ) $(STANDIN_LINK) -o $@ $(LIBS) $$(pkg-config --libs check)

# Programs that tests start: tests/programs/NAME.c. They link the deferred device (tests/support/deferred.h) and the model of a disk.
LATE := $(BUILD)/tests/support/deferred.o $(BUILD)/tests/support/deferred_streams.o $(BUILD)/tests/support/disk_model.o
$(PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(PARTS) $(LATE)
	$(LINK) $< $(PARTS) $(LATE) $(STANDIN_LINK) -o $@ $(LIBS)

# Libraries that tests preload in front of libc. Without sanitizers, because mpirun loads them too.
$(PRELOAD): $(BUILD)/%.so: %.c | libraries
	@mkdir -p $(@D)
	@echo "  LD $@"; $(CC) $(filter-out -MMD -MP $(SANFLAGS),$(ALL_CFLAGS)) -fPIC -shared $< -o $@

$(BUILD)/tests/validate/validate: $(PARTS) $(VOBJ) $(BUILD)/tests/validate/main.o
	$(LINK) $^ -o $@ $(LIBS)

$(BUILD)/docs/generate/generate: $(PARTS) $(GOBJ)
	$(LINK) $^ -o $@ $(LIBS)

$(BUILD)/musher-bench: $(PARTS) $(BOBJ)
	$(LINK) $(PARTS) $(BOBJ) -o $@ $(LIBS)

# On all processors, unless -j is given.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# Two steps, because packages that setup installs change the variables above.
check:
	@tools/setup.sh
	@$(MAKE) --no-print-directory $(JOBS) checked

check-long: export MUSHER_LONG := 1
check-long: check

tests: $(BUILD)/musher $(BUILD)/tests/run $(BUILD)/tests/validate/validate $(BUILD)/docs/generate/generate $(PROGRAMS) $(PRELOAD)

checked: tests headers
	@BUILD=$(BUILD) CC="$(CC)" SLOWDOWN=$(if $(TSAN),20,$(if $(SAN),6,1)) tests/check.sh

demo:
	@tools/setup.sh
	@$(MAKE) --no-print-directory $(JOBS) demo-ready
	@MUSHER=$(BUILD)/musher tools/demo.sh

# Its CUDA plugin has kernels for the GPUs of this machine, or for one architecture without a GPU (tests/gpu/gpu.mk).
demo-ready: all

rank: all
	@MUSHER=$(BUILD)/musher tools/rank.sh

docs: $(BUILD)/docs/generate/generate
	@mkdir -p docs/reference
	$< docs/reference

validate: $(BUILD)/tests/validate/validate
	$<
	$< --nccl
	$< --schedules tests/data/schedules/schedule_cases.csv
	$< --harp tests/data/harp

hap: all
	@MUSHER=$(BUILD)/musher tools/hap.sh

# SimGrid is timed by a separate C++ program, because musher does not link it.
SIMGRID := $(shell pkg-config --exists simgrid 2>/dev/null && command -v $(CXX) >/dev/null && echo $(BUILD)/simgrid-bench)

bench: $(if $(BENCH),$(BUILD)/musher-bench) $(SIMGRID)
	@$(if $(BENCH),SIMGRID_BENCH=$(SIMGRID) $(BUILD)/musher-bench,echo "no benches in tests/bench" >&2; exit 1)

$(BUILD)/simgrid-bench: tests/bench/simgrid/workloads.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX) -O2 -Wall -Wextra $$(pkg-config --cflags simgrid) $< -o $@ $$(pkg-config --libs simgrid)


gates: tests
	@BUILD=$(BUILD) tests/gates.sh

lint: headers
	@tests/lint.sh

layers:
	@tests/layers.sh

# A header that a source of the program includes first is compiled alone there.
HDR_FIRST := $(sort $(shell awk '/^.include/ { gsub(/"/, "", $$2); print $$2; nextfile }' $(SRC) $(wildcard exec/cuda/*.c exec/cupti/*.c) /dev/null))
headers: $(patsubst %,$(BUILD)/%.alone,$(filter-out $(HDR_FIRST),$(HDR)))

$(BUILD)/%.h.alone: %.h | libraries
	@mkdir -p $(@D)
	@$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -Wno-pedantic -Wno-unused -fsyntax-only -x c $< && touch $@

format:
	clang-format -i $(SRC) $(HDR) $(TEST) $(wildcard tests/validate/*.[ch] docs/generate/*.[ch]) $(PROGRAM) $(BENCH) $(wildcard exec/cuda/*.[ch] exec/cuda/*.cu exec/cuda/*.cuh exec/cupti/*.[ch])

# DESTDIR prefixes every path; docs are beside README as in the tree.
SHARE := $(DESTDIR)$(PREFIX)/share
install: all
	install -D -m 755 $(BUILD)/musher $(DESTDIR)$(PREFIX)/bin/musher
	$(if $(CUDA_PLUGIN),install -D -m 755 $(CUDA_PLUGIN) $(DESTDIR)$(PREFIX)/lib/musher/libmusher_cuda.so)
	$(if $(CUPTI_PLUGIN),install -D -m 755 $(CUPTI_PLUGIN) $(DESTDIR)$(PREFIX)/lib/musher/libmusher_cupti.so)
	install -D -m 644 docs/reference/musher.1 $(SHARE)/man/man1/musher.1
	install -D -m 644 tools/completion/musher.bash $(SHARE)/bash-completion/completions/musher
	install -D -m 644 tools/completion/_musher $(SHARE)/zsh/site-functions/_musher
	for f in LICENSE README.md ARCHITECTURE.md $(wildcard docs/*.md docs/*.png docs/guide/*.md docs/decisions/*.md docs/reference/*.md) $(shell find examples -type f); do \
	  install -D -m 644 $$f $(SHARE)/doc/musher/$$f || exit 1; done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/musher $(DESTDIR)$(PREFIX)/lib/musher/libmusher_cuda.so $(DESTDIR)$(PREFIX)/lib/musher/libmusher_cupti.so
	rm -f $(SHARE)/man/man1/musher.1 $(SHARE)/bash-completion/completions/musher $(SHARE)/zsh/site-functions/_musher
	-rmdir $(DESTDIR)$(PREFIX)/lib/musher 2>/dev/null || true
	rm -rf $(SHARE)/doc/musher

clean:
	rm -rf build build-san build-tsan build-clang build-bare

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

always:

include exec/cuda/cuda.mk $(filter-out exec/cuda/% exec/cupti/%,$(wildcard exec/*/*.mk))
include tests/gpu/gpu.mk
include tests/fuzz/fuzz.mk
-include $(OBJ:.o=.d) $(TOBJ:.o=.d) $(VOBJ:.o=.d) $(POBJ:.o=.d) $(BOBJ:.o=.d) $(BUILD)/tests/validate/main.d $(GOBJ:.o=.d)

.PHONY: all libraries check check-long checked tests demo demo-ready rank hap validate docs bench gates lint layers headers format install uninstall clean help always
.SECONDARY:
.DELETE_ON_ERROR:
