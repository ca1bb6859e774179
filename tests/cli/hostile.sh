#!/bin/bash
# tests/cli/hostile.sh - the short forms of the gates on hostile input, the command line and poisoned feedback (tests/gates).
set -u
. tests/cli/common.inc
for gate in r08_fuzz r09_hostile r19_cli r23_calibration; do
    GATE_SHORT=1 bash tests/gates/$gate.sh >"$scratch/out" 2>&1 && ok "$(tail -n 1 "$scratch/out")" || not_ok "$gate" "$(tail -n 5 "$scratch/out")"
done
exit $bad
