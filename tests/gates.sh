#!/bin/bash
# tests/gates.sh - runs the reliability gates (tests/gates/rNN_*.sh), each of which prints its figures; exit code 1 if one fails.
# usage: BUILD=build [MUSHER_LONG=0] tests/gates.sh [GATE...]     after `make tests`; GATE: r02; MUSHER_LONG=0: a sample of each
set -u
export BUILD=${BUILD:-build} MUSHER_LONG=${MUSHER_LONG:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export MUSHER=$PWD/$BUILD/musher OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bad=0
for gate in tests/gates/r*.sh; do
    name=${gate##*/}
    (($# == 0)) || [[ " $* " == *" ${name%%_*} "* ]] || continue
    bash "$gate" || bad=1
done
exit $bad
