#!/bin/bash
# tests/cli/outputs.sh - a verb refuses an output file that is also an input, by name, by a link, or named inside another file.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6
small_job > job.yaml
small_team > team.yaml
seq 1 4000 > text.txt
echo '{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 256}' > model.json
small_job | sed 's/^model:.*/model: model.json/; $a data: text.txt' > files.yaml
says "a plan" 0 "found" "$MUSHER" plan job.yaml team.yaml -o plan.yaml --evaluations 50
says "a trace" 0 "per iteration" "$MUSHER" simulate plan.yaml --trace sim.trace
says "a database" 0 "profile 1" "$MUSHER" profile job.yaml team.yaml --db team.db --repeats 3
ln -s job.yaml soft.yaml
ln team.yaml hard.yaml
cp plan.yaml plan.yaml.2
says "a checkpoint" 0 "step 1" "$MUSHER" run plan.yaml --data text.txt --steps 1 --save ck
cp "$root/tests/data/schedules/schedule_cases.csv" cases.csv
mkdir inside
cp team.yaml spare.yaml
manifest=$(echo ck/step-*/manifest.json)
ln -s "$manifest" link.json
sha256sum ./*.* ck/*/* > before

# spares NAME TEXT COMMAND...: refused with exit code 2 and TEXT, and no file changes.
spares() {
    says "$1" 2 "$2" "${@:3}"
    rm -f out err
    sha256sum --quiet -c before > /dev/null 2>&1 && [[ $(ls) == "$listed" ]] && ok "$1: nothing touched" ||
        not_ok "$1: nothing touched" "$(sha256sum --quiet -c before 2>&1 | head -c 300) $(ls)"
}
rm -f out err
listed=$(ls)
spares "a plan over its job" "--out job.yaml would overwrite an input" "$MUSHER" plan job.yaml team.yaml -o job.yaml
spares "by another path of the same file" "'job.yaml' is that file" "$MUSHER" plan job.yaml team.yaml -o ./inside/../job.yaml
spares "through a symbolic link" "overwrite an input" "$MUSHER" plan job.yaml team.yaml -o soft.yaml
spares "through another name" "overwrite an input" "$MUSHER" plan job.yaml team.yaml -o hard.yaml
spares "a plan over its database" "overwrite an input" "$MUSHER" plan job.yaml team.yaml --db team.db -o team.db
spares "a plan over the model of its job" "model.json' is that file" "$MUSHER" plan files.yaml team.yaml -o inside/../model.json
spares "a plan over the text of its job" "text.txt' is that file" "$MUSHER" plan files.yaml team.yaml -o "$PWD/text.txt"
spares "the second plan over an input" "plan.yaml.2 would overwrite an input" "$MUSHER" plan --from plan.yaml.2 -o plan.yaml --top 3
spares "a new plan over the old one" "overwrite an input" "$MUSHER" plan --from plan.yaml --without b.0 -o plan.yaml
spares "a plan over the file of a new node" "overwrite an input" "$MUSHER" plan --from plan.yaml --with c=spare.yaml:a -o spare.yaml
spares "a program over its plan" "overwrite an input" "$MUSHER" lower plan.yaml -o plan.yaml
spares "a trace over its plan" "--trace plan.yaml would overwrite" "$MUSHER" simulate plan.yaml --trace plan.yaml
spares "a run's trace over its plan" "--trace plan.yaml would overwrite" "$MUSHER" run plan.yaml --data text.txt --trace plan.yaml
spares "a run's trace over its text" "overwrite an input" "$MUSHER" run plan.yaml --data text.txt --trace text.txt
spares "a run's trace over its --resume checkpoint" "--trace $manifest would be written into the checkpoints of --resume ck" "$MUSHER" run plan.yaml --data text.txt --steps 1 --resume ck --trace "$manifest"
spares "or beside it" "would be written into" "$MUSHER" run plan.yaml --data text.txt --steps 1 --resume ./ck --trace ck/new.trace
spares "or there through a link" "would be written into" "$MUSHER" run plan.yaml --data text.txt --steps 1 --resume ck --trace link.json
spares "an image over its trace" "overwrite an input" "$MUSHER" plot sim.trace -o sim.trace
spares "an export over its plan" "overwrite an input" "$MUSHER" export plan.yaml --format sailor -o plan.yaml
spares "a topology over its source" "overwrite an input" "$MUSHER" import topo text.txt -o text.txt
spares "orders over their cases" "overwrite an input" "$MUSHER" schedule --cases cases.csv -o cases.csv
spares "an order over its file" "--csv text.txt would overwrite" "$MUSHER" schedule text.txt --csv text.txt
spares "two outputs in one file" "would both write 'new'" "$MUSHER" schedule 1f1b --devices 2 --microbatches 4 --csv new --trace new

# No environment variable names an output file.
export MUSHER_LOCAL_RANK=0 MUSHER_LOCAL_SIZE=2 MUSHER_LOCAL_FILE=$PWD/job.yaml
says "a variable that names a file" 0 "per iteration" "$MUSHER" run plan.yaml --data text.txt --steps 1
unset MUSHER_LOCAL_RANK MUSHER_LOCAL_SIZE MUSHER_LOCAL_FILE
cmp -s job.yaml <(small_job) && ok "and the file is as before" || not_ok "and the file is as before" "$(ls -l job.yaml)"

says "a character device is not an input file" 0 "" "$MUSHER" simulate plan.yaml --trace /dev/null
says "an older plan is replaced" 0 "found" "$MUSHER" plan job.yaml team.yaml -o plan.yaml --evaluations 50
exit $bad
