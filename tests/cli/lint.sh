#!/bin/bash
# tests/cli/lint.sh - every rule of tests/lint.sh has a file here that breaks it, and one that keeps it.
set -u
bad=0
lint=$PWD/tests/lint.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch"/{core,traces,profiles,sim,planner,exec,tools,tests}
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

breaks core/a.c '#include "traces/trace.h"' 'core may not include traces'
breaks sim/a.c '#include "planner/plan.h"' 'sim may not include planner'
breaks exec/a.c '#include "profiles/store.h"' 'exec may not include profiles'
breaks exec/a.c '#include "sim/engine/sim.h"' 'exec may not include sim'
breaks planner/a.c '#include "exec/worker/worker.h"' 'planner may not include exec'
breaks sim/a.c '#include <sqlite3.h>' 'sqlite3.h stays behind its wall'
breaks profiles/fit.c '#include <sqlite3.h>' 'sqlite3.h stays'
breaks profiles/fit.h '#include <gsl/gsl_multifit.h>' 'gsl/ stays'
breaks sim/a.c '#include <igraph/igraph.h>' 'igraph stays'
breaks planner/a.h '#include <igraph/igraph.h>' 'igraph stays'
breaks planner/a.h '#include <glpk.h>' 'glpk.h stays'
keeps planner/a.c '#include <glpk.h>'
breaks profiles/a.c '#include <glpk.h>' 'glpk.h stays'
breaks sim/a.c '#include <mpi.h>' 'mpi.h stays'
breaks tools/a.c '#include <cuda_runtime.h>' 'cuda stays'
breaks tools/a.c '#include <nccl.h>' 'nccl stays'
breaks sim/a.c '#include <cblas.h>' 'cblas stays'
breaks core/document/json.c '#include <jansson.h>' 'jansson.h stays'
breaks core/graph/graph.c '#include <yaml.h>' 'yaml.h stays'
breaks sim/a.c '#include <check.h>' 'check.h stays'
breaks sim/a.c 'p = malloc(4);' 'memory comes from'
breaks exec/a.c '    free(p);' 'memory comes from'
breaks sim/a.c 'strcpy(a, b);' 'banned'
breaks tools/a.c 'n = atoi(s);' 'banned'
breaks sim/a.c 'printf("x");' 'only tools/ prints'
breaks exec/a.c 'exit(1);' 'only tools/ prints'
breaks sim/a.c 'fputs(s, stderr);' 'talk goes through'
breaks sim/a.c 'abort();' 'the end of the program'
breaks sim/a.c 'typedef struct node node;' 'no typedef'
breaks sim/a.c 'int x; ' 'space at the end'
breaks sim/a.c "/* TO""DO later */" 'unfinished'
breaks exec/a.c 'p = getenv("MUSHER_ELSEWHERE");' 'in the table of core/base/settings'
keeps core/a.c '#include "core/base/error.h"'
keeps exec/a.c '#include "traces/trace.h"'
keeps profiles/store.c '#include <sqlite3.h>'
keeps traces/import_nsight.c '#include <sqlite3.h>'
keeps planner/a.c '#include "profiles/store.h"'
keeps exec/a.c '_exit(7);'
keeps sim/a.c '/* never malloc(4) */ log_info("printf(%d)", 1);'
keeps sim/a.c 'typedef enum status (*visit)(void);'
printf '#ifndef SIM_B_H\n#define SIM_B_H\n#endif\n' >sim/a.h
if "$lint" sim/a.h | grep -q '^sim/a.h:1: the guard is SIM_A_H'; then echo "ok a header has a guard of its own"; else
    echo "not ok a header has a guard of its own"
    bad=1
fi
yes 'int x;' | head -n 501 >sim/a.c
if "$lint" sim/a.c | grep -q '^sim/a.c:501: more than 500 lines'; then echo "ok a file is at most 500 lines long"; else
    echo "not ok a file is at most 500 lines long"
    bad=1
fi
exit $bad
