#!/bin/bash
# tests/cli/lint.sh - every rule of tests/lint.sh rejects a file that breaks it and accepts one that follows it.
set -u
bad=0
lint=$PWD/tests/lint.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{core/{base,graph,document},traces,profiles,sim/engine,planner/{exact,coarse},exec/worker,tools,tests}
cd "$scratch" || exit 1

# breaks FILE TEXT RULE: a file with that text is reported at its line, with that rule.
breaks() {
    printf '/* head */\n%s\n' "$2" >"$1"
    if "$lint" "$1" >said; then
        echo "not ok '$2' in $1 passes"
        bad=1
    elif grep -q "^$1:2: .*$3" said; then
        echo "ok $1 must not: $3"
    else
        echo "not ok $1: $(cat said)"
        bad=1
    fi
    rm -f "$1"
}
keeps() { # FILE TEXT
    printf '%s\n' "$2" >"$1"
    if "$lint" "$1" >said; then echo "ok $1 may: $2"; else
        echo "not ok $1: $(cat said)"
        bad=1
    fi
    rm -f "$1"
}

breaks core/base/a.c '#include "traces/trace.h"' 'core may not include traces'
breaks sim/engine/a.c '#include "planner/plan.h"' 'sim may not include planner'
breaks exec/worker/a.c '#include "profiles/store.h"' 'exec may not include profiles'
breaks exec/worker/a.c '#include "sim/engine/sim.h"' 'exec may not include sim'
breaks planner/exact/a.c '#include "exec/worker/worker.h"' 'planner may not include exec'
breaks core/base/a.c '#include "core/graph/op.h"' 'core/base may not include core/graph'
breaks planner/exact/a.c '#include "planner/search.h"' 'planner/exact may not include planner/search, which stands above it'
breaks sim/cost.c '#include "sim/engine/sim.h"' 'sim/cost may not include sim/engine'
keeps planner/coarse/a.c '#include "planner/bound/any.h"'
keeps tools/cmd_x.c '#include "tools/options.h"'
breaks core/base/a.h 'int b(void);' 'b: the name begins with that of its module'
breaks sim/engine/internal.h 'int lane_x(void);' 'lane_x: the name begins with'
breaks sim/engine/a.c '#include <sqlite3.h>' 'sqlite3.h stays behind its wall'
breaks profiles/fit.c '#include <sqlite3.h>' 'sqlite3.h stays'
breaks profiles/fit.h '#include <gsl/gsl_multifit.h>' 'gsl/ stays'
breaks sim/engine/a.c '#include <igraph/igraph.h>' 'igraph stays'
breaks planner/exact/a.h '#include <igraph/igraph.h>' 'igraph stays'
breaks planner/exact/a.c '#include <glpk.h>' 'glpk.h stays'
keeps planner/lp.c '#include <glpk.h>'
breaks profiles/a.c '#include <glpk.h>' 'glpk.h stays'
breaks sim/engine/a.c '#include <mpi.h>' 'mpi.h stays'
breaks tools/cmd_a.c '#include <cuda_runtime.h>' 'cuda stays'
breaks tools/cmd_a.c '#include <nccl.h>' 'nccl stays'
breaks sim/engine/a.c '#include <cblas.h>' 'cblas stays'
breaks core/document/json.c '#include <jansson.h>' 'jansson.h stays'
breaks core/graph/graph.c '#include <yaml.h>' 'yaml.h stays'
breaks sim/engine/a.c '#include <check.h>' 'check.h stays'
breaks sim/engine/a.c 'p = malloc(4);' 'memory comes from'
breaks exec/worker/a.c '    free(p);' 'memory comes from'
breaks sim/engine/a.c 'strcpy(a, b);' 'banned'
breaks tools/cmd_a.c 'n = atoi(s);' 'banned'
breaks sim/engine/a.c 'printf("x");' 'only tools/ prints'
breaks exec/worker/a.c 'exit(1);' 'only tools/ prints'
breaks sim/engine/a.c 'fputs(s, stderr);' 'talk goes through'
breaks sim/engine/a.c 'abort();' 'the end of the program'
breaks sim/engine/a.c 'typedef struct node node;' 'no typedef'
breaks sim/engine/a.c 'int x; ' 'space at the end'
breaks sim/engine/a.c "/* TO""DO later */" 'unfinished'
breaks exec/worker/a.c 'p = getenv("MUSHER_ELSEWHERE");' 'in the table of core/base/settings'
keeps core/base/a.c '#include "core/base/error.h"'
keeps exec/worker/a.c '#include "traces/trace.h"'
keeps profiles/store.c '#include <sqlite3.h>'
keeps traces/import_nsight.c '#include <sqlite3.h>'
keeps planner/exact/a.c '#include "profiles/store.h"'
keeps exec/worker/a.c '_exit(7);'
keeps sim/engine/a.c '/* never malloc(4) */ log_info("printf(%d)", 1);'
keeps sim/engine/a.c 'typedef enum status (*visit)(void);'
printf '#ifndef SIM_B_H\n#define SIM_B_H\n#endif\n' >sim/engine/a.h
if "$lint" sim/engine/a.h | grep -q '^sim/engine/a.h:1: the guard is SIM_ENGINE_A_H'; then echo "ok a header has a guard of its own"; else
    echo "not ok a header has a guard of its own"
    bad=1
fi
yes 'int x;' | head -n 501 >sim/engine/a.c
if "$lint" sim/engine/a.c | grep -q '^sim/engine/a.c:501: more than 500 lines'; then echo "ok a file is at most 500 lines long"; else
    echo "not ok a file is at most 500 lines long"
    bad=1
fi
printf '#ifndef SIM_ENGINE_A_H\n#define SIM_ENGINE_A_H\nstruct twin {\n    int x;\n};\n#endif\n' >sim/engine/a.h
printf '#ifndef SIM_ENGINE_B_H\n#define SIM_ENGINE_B_H\nstruct twin {\n    int y;\n};\n#endif\n' >sim/engine/b.h
if "$lint" sim/engine/a.h sim/engine/b.h | grep -q '^sim/engine/b.h:3: struct twin is defined in another header too'; then echo "ok a tag stands in one header"; else
    echo "not ok a tag stands in one header"
    bad=1
fi
"$lint" sim/engine/a.h && echo "ok one header alone has any tag" || { echo "not ok one header alone has any tag"; bad=1; }
printf '/* head */\n' >planner/lone.c
if "$lint" planner/lone.c | grep -q '^planner/lone.c:1: planner/lone is not in tests/layers.txt'; then echo "ok a module that no layer has is reported"; else
    echo "not ok a module that no layer has is reported"
    bad=1
fi
# Numbers of planner/ are those of docs/tuning.md.
# numbers TEXT ROW RULE: a source with that text beside a document with that row is refused with that rule; without a rule it passes.
numbers() {
    printf '/* head */\n%s\n' "$1" >planner/exact/a.c
    printf '## Tuning constants\n\n| file | value |\n|---|---|\n| `planner/exact/a.c` | %s |\n' "$2" >docs/tuning.md
    "$lint" planner/exact/a.c >said
    if [[ $3 ]] && grep -q "$3" said || [[ ! $3 && ! -s said ]]; then echo "ok '$1' beside '$2': ${3:-passes}"; else
        echo "not ok '$1' beside '$2': $(cat said)"
        bad=1
    fi
}
mkdir docs
numbers 'enum { MOST = 8, LEAST = 2 };' '`MOST = 8`' '^planner/exact/a.c:2: LEAST = 2 is not in docs/tuning.md'
numbers 'enum { MOST = 9 };' '`MOST = 8`' '^planner/exact/a.c:2: MOST is 9, in docs/tuning.md 8'
numbers 'enum { MOST = 8 };' '`MOST = 8`, `GONE = 3`' '^docs/tuning.md:5: GONE is not a number of planner/exact/a.c'
numbers '#define NEAR 1.1' '' '^planner/exact/a.c:2: NEAR = 1.1 is not in'
numbers 'static const double FAR = 3;' '' '^planner/exact/a.c:2: FAR = 3 is not in'
numbers $'#define WORK \\\n    INT64_C(40)\nenum {\n    BITS = /* of a hash */\n        1 << 16, /* = 4 */\n    KINDS = sizeof kinds\n};' '`WORK = 40`, `BITS = 1 << 16`' ''
numbers 'static const double far = 2 * near; enum phase { F = 1 };' '' ''
numbers 'enum { MOST = 8 };' '`MOST = 8`' ''
rm planner/exact/a.c
printf '/* head */\n' >planner/exact/b.c
if "$lint" planner/exact/b.c | grep -q '^docs/tuning.md:5: .* is not a number of planner/exact/a.c'; then echo "ok a number of a file that is gone is refused"; else
    echo "not ok a number of a file that is gone is refused"
    bad=1
fi
{ echo '## Tuning constants' && for i in {1..300}; do echo "| \`planner/exact/a.c\` | \`N$i = 1\` |"; done; } >docs/tuning.md
for i in {1..300}; do echo "enum { N$i = 1 };"; done >planner/exact/a.c
if "$lint" planner/exact/a.c | grep -q '^docs/tuning.md:[0-9]*: more than [0-9]* tuning constants'; then echo "ok the number of tuning constants is limited"; else
    echo "not ok the number of tuning constants is limited"
    bad=1
fi
exit $bad
