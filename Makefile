# make              build/musher; and build/libmusher_cuda.so where nvcc, cuBLAS and NCCL are found (make NVCC= does without),
#                   build/libmusher_cupti.so where CUPTI is besides
# make check        install what is missing, then tests and lint    (make check-long: the heavy counts too)
# make demo         a tour of the program in a few minutes
# make rank         ten plans on each of eight emulated cases, predicted and really run: are they ranked as they turn out? (40 minutes)
# make hap          HAP's clusters and models by every way of dividing them: a table and a plot in build/hap (about ten minutes)
# make docs        docs/reference and the manual page, from the tables of options, file keys, operators and devices
# make validate    predictions beside measurements and plans that papers published
# make gpu-files    what a machine with a CUDA GPU is to run, in build/gpu: bring it along there (docs/gpu.md)
# make gpu-check    there: kernels, training, ranks, collectives, a dead peer; compute-sanitizer where there is time
# make gpu-run      there: what operators take, and three plans on emulated unequal devices
# make gpu-bench    there: kernels beside their floors, GPT-2 beside PyTorch; make gpu-sanitize: kernels under compute-sanitizer
# make gpu-predict  back here: predictions beside what gpu-run brought to build/gpu-out
# make bench        speed of the simulator, the planner and the executor; beside SimGrid where libsimgrid-dev is (a minute)
# make lint         layers, walls, bans, headers that stand alone
# make layers       the folders of each room and what they include, lowest first
# make format       clang-format over the tree
# make install      PREFIX=/usr/local DESTDIR=                      (make uninstall takes it away again)
# make clean        remove every build folder
# make help         this text
# make SAN=1 ...    in build-san, with address and undefined-behaviour sanitizers
# make TSAN=1 ...   in build-tsan, with the thread sanitizer
# make CC=clang     any C11 compiler; BUILD=folder puts the results elsewhere

BUILD  ?= build$(if $(SAN),-san)$(if $(TSAN),-tsan)
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
# WERROR= where the compiler is not one of ours, and new warnings should not stop it.
WERROR ?= -Werror
ifeq ($(origin CC),default)
CC := gcc
endif

# GSL's own .pc file names -lgslcblas, which would take sgemm away from OpenBLAS and make it thirteen
# times slower; so GSL is named by hand, and OpenBLAS comes after it.
PKGS    := sqlite3 openblas yaml-0.1 jansson zlib igraph
MPI     := $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
CFL     := $(shell pkg-config --cflags $(PKGS) $(MPI) 2>/dev/null) $(if $(MPI),,$(shell mpicc --showme:compile 2>/dev/null))
MPILIBS := $(if $(MPI),$(shell pkg-config --libs ompi-c),$(shell mpicc --showme:link 2>/dev/null))
LIBS    := -lsqlite3 -lyaml -ljansson -lz -lgsl -lglpk \
  $(shell pkg-config --libs openblas igraph 2>/dev/null) $(MPILIBS) -ldl -lpthread -lm
MISSING := $(shell for p in $(PKGS) gsl check; do pkg-config --exists $$p 2>/dev/null || echo $$p; done) \
  $(if $(MPI)$(MPILIBS),,mpi)

SANFLAGS := $(if $(SAN),-fsanitize=address -fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer) \
  $(if $(TSAN),-fsanitize=thread)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings $(WERROR) \
  $(if $(findstring clang,$(shell $(CC) --version 2>/dev/null)),,-Wno-format-truncation)
# No -ffast-math, ever: it deletes isnan() and reorders sums, and results must not depend on flags.
# A text that is cut to fit its buffer is meant, hence no format-truncation warning.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(patsubst -I%,-isystem %,$(CFL)) $(WARN) -ffp-contract=off \
  -pthread -MMD -MP $(CFLAGS) $(SANFLAGS)

FOLDERS  := core traces profiles sim planner exec tools
# A folder of exec with rules of its own (exec/cuda/cuda.mk) is a plugin: opened at run time and never linked in.
PLUGINS := $(addsuffix %,$(sort $(dir $(wildcard exec/*/*.mk))))
SRC     := $(filter-out $(PLUGINS),$(wildcard $(FOLDERS:%=%/*.c) $(FOLDERS:%=%/*/*.c)))
HDR     := $(filter-out $(PLUGINS),$(wildcard $(FOLDERS:%=%/*.h) $(FOLDERS:%=%/*/*.h))) $(wildcard tests/support/*.h tests/validate/*.h)
# Paper reproduction: its own program, whose parts the suites of tests/validate link too.
VALIDATE := $(filter-out tests/validate/test_% tests/validate/main.c,$(wildcard tests/validate/*.c))
TEST    := $(wildcard tests/run.c tests/support/*.c $(FOLDERS:%=tests/%/test_*.c) tests/validate/test_*.c)
SUITE   := $(sort $(patsubst test_%,%,$(filter test_%,$(basename $(notdir $(TEST))))))
PROGRAM := $(wildcard tests/programs/*.c)
BENCH   := $(wildcard tests/bench/*.c)
PRELOAD := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/preload/*.c))
OBJ     := $(SRC:%.c=$(BUILD)/%.o)
# Everything but main: what tests and benches are linked with.
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

# The inner loops of the host executor; they choose their instructions themselves (target_clones).
$(BUILD)/exec/host/kernels_host%.o: CFLAGS := $(CFLAGS) -O3

libraries:
	@test -z "$(strip $(MISSING))" || { echo "musher: missing libraries: $(strip $(MISSING)); run tools/setup.sh" >&2; exit 1; }

# Check's macros are GNU variadics; suites are found through the list below, not through a header.
$(TOBJ) $(POBJ) $(BOBJ): WARN += -Wno-pedantic -Wno-missing-prototypes
# A third of a build is tests, and none of their time is spent in their own lines.
$(TOBJ) $(POBJ): CFLAGS := $(CFLAGS:-O2=-O1)
$(BUILD)/tests/run.o: ALL_CFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/run.o: $(BUILD)/tests/suites.inc

$(BUILD)/tests/suites.inc: always
	@mkdir -p $(@D)
	@for s in $(SUITE); do echo "X($$s)"; done >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/tests/run: $(PARTS) $(VOBJ) $(TOBJ)
	$(LINK) $(PARTS) $(VOBJ) $(TOBJ) $(STANDIN_LINK) -o $@ $(LIBS) $$(pkg-config --libs check)

# Whole programs that tests start: tests/programs/NAME.c. They know devices that are late (tests/support/deferred.h).
LATE := $(BUILD)/tests/support/deferred.o $(BUILD)/tests/support/deferred_streams.o
$(PROGRAMS): $(BUILD)/%: $(BUILD)/%.o $(PARTS) $(LATE)
	$(LINK) $< $(PARTS) $(LATE) $(STANDIN_LINK) -o $@ $(LIBS)

# What tests put in front of libc. Without sanitizers, because mpirun loads it as well.
$(PRELOAD): $(BUILD)/%.so: %.c | libraries
	@mkdir -p $(@D)
	@echo "  LD $@"; $(CC) $(filter-out -MMD -MP $(SANFLAGS),$(ALL_CFLAGS)) -fPIC -shared $< -o $@

$(BUILD)/tests/validate/validate: $(PARTS) $(VOBJ) $(BUILD)/tests/validate/main.o
	$(LINK) $^ -o $@ $(LIBS)

$(BUILD)/docs/generate/generate: $(PARTS) $(GOBJ)
	$(LINK) $^ -o $@ $(LIBS)

$(BUILD)/musher-bench: $(PARTS) $(BOBJ)
	$(LINK) $(PARTS) $(BOBJ) -o $@ $(LIBS)

# On all processors, unless make was told otherwise.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# Two steps, because what setup installs changes what the variables above find.
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

# The CUDA plugin among it has kernels for the GPUs of this machine, or for one architecture where there is none (tests/gpu/gpu.mk).
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

# SimGrid is timed as a program of its own, in C++; nothing of ours is linked with it.
SIMGRID := $(shell pkg-config --exists simgrid 2>/dev/null && command -v $(CXX) >/dev/null && echo $(BUILD)/simgrid-bench)

bench: $(if $(BENCH),$(BUILD)/musher-bench) $(SIMGRID)
	@$(if $(BENCH),SIMGRID_BENCH=$(SIMGRID) $(BUILD)/musher-bench,echo "no benches in tests/bench" >&2; exit 1)

$(BUILD)/simgrid-bench: tests/bench/simgrid/workloads.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX) -O2 -Wall -Wextra $$(pkg-config --cflags simgrid) $< -o $@ $$(pkg-config --libs simgrid)


lint: headers
	@tests/lint.sh

layers:
	@tests/layers.sh

headers: $(HDR:%=$(BUILD)/%.alone)

$(BUILD)/%.h.alone: %.h | libraries
	@mkdir -p $(@D)
	@$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -Wno-pedantic -Wno-unused -fsyntax-only -x c $< && touch $@

format:
	clang-format -i $(SRC) $(HDR) $(TEST) $(wildcard tests/validate/*.[ch] docs/generate/*.[ch]) $(PROGRAM) $(BENCH) $(wildcard exec/cuda/*.[ch] exec/cuda/*.cu exec/cuda/*.cuh exec/cupti/*.[ch])

# DESTDIR is put in front of every path; docs lie beside README as in the tree.
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
-include $(OBJ:.o=.d) $(TOBJ:.o=.d) $(VOBJ:.o=.d) $(POBJ:.o=.d) $(BOBJ:.o=.d) $(BUILD)/tests/validate/main.d $(GOBJ:.o=.d)

.PHONY: all libraries check check-long checked tests demo demo-ready rank hap validate docs bench lint layers headers format install uninstall clean help always
.SECONDARY:
.DELETE_ON_ERROR:
