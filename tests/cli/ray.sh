#!/bin/bash
# tests/cli/ray.sh - the Python file of `musher launch ray` in a Ray cluster of this machine: four nodes, two of each type. PYTHON: a Python with ray.
set -u
. tests/cli/common.inc
python=${PYTHON:-python3}
"$python" -c 'import ray' 2> /dev/null || { echo "left out: Ray, because $python has no module ray"; exit 0; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAY_DEDUP_LOGS=0
export RAY_agent_register_timeout_ms=300000 # under load an agent takes longer than Ray's preset
cat > "$scratch/cluster.py" <<'END'
import os, sys, time
from ray.cluster_utils import Cluster
cluster = Cluster()
for kind in ["fast", "slow", "fast"]:
    cluster.add_node(num_cpus=2, resources={kind: 1}, object_store_memory=80 << 20, include_dashboard=False)
with open(sys.argv[1], "w") as f:
    f.write(cluster.address + "\n")
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.2)
cluster.shutdown()
END
"$python" "$scratch/cluster.py" "$scratch/address" > "$scratch/cluster.log" 2>&1 &
cluster=$!
trap 'touch "$scratch/address.end"; wait $cluster 2> /dev/null; rm -rf "$scratch"' EXIT
until [[ -s $scratch/address ]]; do
    kill -0 $cluster 2> /dev/null || { echo "left out: Ray, because its nodes do not start: $(tail -n 1 "$scratch/cluster.log")"; exit 0; }
    sleep 0.5
done
RAY_ADDRESS=$(< "$scratch/address")
export RAY_ADDRESS

"$MUSHER" run examples/three-hosts.yaml --any-host --steps 1500 --data LICENSE --save "$scratch/whole" > "$scratch/out" 2> "$scratch/err"
check "an undisturbed run" $?
"$MUSHER" launch ray examples/three-hosts.yaml -o "$scratch/job.py" --save "$scratch/ray" --program "$MUSHER" --label fast=fast --label slow=slow \
    -- --steps 1500 --data LICENSE --save-every 100 2> "$scratch/err"
check "a Python file is written" $?
"$python" "$scratch/job.py" > "$scratch/log" 2>&1 &
pid=$!
until compgen -G "$scratch/ray/step-*" > /dev/null || ! kill -0 $pid 2> /dev/null; do sleep 0.2; done
kill -TERM $pid
wait $pid
code=$?
[[ $code == 130 ]] && grep -q "interrupted after step" "$scratch/log" && ok "SIGTERM ends the ranks with a checkpoint" ||
    not_ok "SIGTERM ends the ranks with a checkpoint" "$code: $(tail -n 5 "$scratch/log")"
# A rank that is killed: the file starts all ranks again from the newest checkpoint.
sed 's/^RUN = \["[^"]*"/RUN = ["'"${scratch//\//\\/}"'\/once"/' "$scratch/job.py" > "$scratch/again.py"
cat > "$scratch/once" <<END
#!/bin/bash
if [[ \$OMPI_COMM_WORLD_RANK == 3 ]] && mkdir "$scratch/killed" 2> /dev/null; then
    (sleep 1; kill -9 \$\$) > /dev/null 2>&1 &
fi
exec "$MUSHER" "\$@"
END
chmod +x "$scratch/once"
"$python" "$scratch/again.py" > "$scratch/log" 2>&1
code=$?
[[ $code == 0 && -d $scratch/killed ]] && ok "a killed rank is started again, with all others" || not_ok "a killed rank is started again, with all others" "$code: $(tail -n 5 "$scratch/log")"
diff -r "$scratch/whole/step-00001500" "$scratch/ray/step-00001500" > "$scratch/err"
check "the parameters of an undisturbed run" $?
exit $bad
