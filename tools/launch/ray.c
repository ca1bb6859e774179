/* tools/launch/ray.c - a Python file that starts the ranks in a Ray cluster.
 *
 * A placement group has a bundle for each node of the plan, on different nodes of the cluster (STRICT_SPREAD). An actor in each bundle
 * starts commands there; it has the bundle's GPUs, which Ray numbers from 0 for it. mpirun of Open MPI starts the ranks, and reaches a node
 * by its actor: its agent, in place of ssh, passes the command to this process through a Unix socket. */
#include "tools/launch/shell.h"

#include <inttypes.h>
#include <string.h>

/* Share of a custom resource that a bundle takes only to be on a node that has it, as Ray's documentation does for accelerator types. */
#define MARK "0.001"

static void print_bundle(FILE *out, const struct launch_node *x)
{
    int32_t gpus = 0;
    fprintf(out, "    {\"CPU\": %" PRId32, x->n_ranks);
    for (int32_t i = 0; i < x->n_parts; i++) gpus += x->part[i].gpu ? x->part[i].n : 0;
    if (gpus) fprintf(out, ", \"GPU\": %" PRId32, gpus);
    for (int32_t i = 0; i < x->n_parts; i++) {
        if (!x->part[i].label) continue;
        fputs(", ", out);
        shell_text(out, x->part[i].label, strlen(x->part[i].label));
        fputs(": " MARK, out);
    }
    fprintf(out, "}, # %s\n", x->name);
}

static const char imports[] = "import os, shutil, signal, socket, subprocess, sys, tempfile, threading\n"
                              "import ray\n"
                              "from ray.util.placement_group import placement_group, remove_placement_group\n"
                              "from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy\n\n";

static const char body[] =
    "\n"
    "@ray.remote\n"
    "class Node:\n"
    "    def start(self, command):\n"
    "        return subprocess.call([\"sh\", \"-c\", command])\n"
    "\n"
    "AGENT = '''import socket, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "s.connect(sys.argv[1])\n"
    "s.sendall(\"\\\\0\".join([sys.argv[2], \" \".join(sys.argv[3:])]).encode())\n"
    "s.shutdown(socket.SHUT_WR)\n"
    "sys.exit(int(s.recv(16) or 1))\n"
    "'''\n"
    "\n"
    "def answer(connection, actors):\n"
    "    with connection, connection.makefile(\"rb\") as request:\n"
    "        node, command = request.read().decode().split(\"\\0\")\n"
    "        try:\n"
    "            code = ray.get(actors[int(node[4:])].start.remote(command))\n"
    "        except ray.exceptions.RayError:\n"
    "            code = 1 # the node is lost\n"
    "        connection.sendall(str(code).encode())\n"
    "\n"
    "def listen(server, actors):\n"
    "    while True:\n"
    "        try:\n"
    "            connection = server.accept()[0]\n"
    "        except OSError: # closed\n"
    "            return\n"
    "        threading.Thread(target=answer, args=(connection, actors), daemon=True).start()\n"
    "\n"
    "stopped, mpirun = False, None\n"
    "\n"
    "def stop(number, frame): # ranks with checkpoints end after a step\n"
    "    global stopped\n"
    "    stopped = True\n"
    "    if mpirun:\n"
    "        mpirun.send_signal(signal.SIGUSR1)\n"
    "\n"
    "def attempt(group):\n"
    "    global mpirun\n"
    "    here = tempfile.mkdtemp()\n"
    "    actors = []\n"
    "    for i, resources in enumerate(NODES):\n"
    "        where = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=i)\n"
    "        actors.append(Node.options(num_cpus=resources[\"CPU\"], num_gpus=resources.get(\"GPU\", 0), scheduling_strategy=where).remote())\n"
    "    server = socket.socket(socket.AF_UNIX)\n"
    "    server.bind(here + \"/socket\")\n"
    "    server.listen(len(NODES))\n"
    "    threading.Thread(target=listen, args=(server, actors), daemon=True).start()\n"
    "    with open(here + \"/agent\", \"w\") as f:\n"
    "        f.write(AGENT)\n"
    "    with open(here + \"/hosts\", \"w\") as f: # a line a rank\n"
    "        f.write(\"\".join(f\"node{i}\\n\" for i in RANKS))\n"
    "    agent = f\"{sys.executable} {here}/agent {here}/socket\"\n"
    "    variables = [word for name in [\"PATH\", *ENV] for word in (\"-x\", name)]\n"
    "    mpirun = subprocess.Popen([\"mpirun\", \"--mca\", \"plm\", \"rsh\", \"--mca\", \"plm_rsh_agent\", agent, \"--mca\", \"plm_rsh_no_tree_spawn\", \"1\",\n"
    "        \"--leave-session-attached\", \"--hostfile\", here + \"/hosts\", \"--map-by\", \"seq\", \"--oversubscribe\", \"--bind-to\", \"none\",\n"
    "        \"-np\", str(len(RANKS)), *variables, *RUN])\n"
    "    if stopped:\n"
    "        mpirun.send_signal(signal.SIGUSR1)\n"
    "    code = mpirun.wait()\n"
    "    server.close()\n"
    "    for actor in actors:\n"
    "        ray.kill(actor)\n"
    "    shutil.rmtree(here)\n"
    "    return code\n"
    "\n"
    "os.environ.update(ENV)\n"
    "ray.init(address=os.environ.get(\"RAY_ADDRESS\", \"auto\"))\n"
    "signal.signal(signal.SIGTERM, stop) # ray.init sets its own\n"
    "signal.signal(signal.SIGINT, stop)\n"
    "group = placement_group(NODES, strategy=\"STRICT_SPREAD\")\n"
    "for start in range(RESTARTS + 1):\n"
    "    ray.get(group.ready())\n"
    "    code = attempt(group)\n"
    "    if code in (0, 2, 3, 8, 130) or stopped: # done; wrong options, input or device; ended by a signal\n"
    "        break\n"
    "remove_placement_group(group)\n"
    "sys.exit(code)\n";

enum status launch_ray(FILE *out, const struct launch *l, struct error *err)
{
    const struct launch_request *q = l->q;
    (void)err;
    fprintf(out,
            "#!/usr/bin/env python3\n# Plan %s: %" PRId32 " ranks on %" PRId32
            " nodes. Written by `musher launch ray`; to start it on a node of the cluster: python3 FILE\n"
            "# Every node has the program, Open MPI, the plan and the data under the same names.\n",
            l->plan_name, l->n_ranks, l->n_nodes);
    fputs(imports, out);
    fputs("NODES = [ # resources and ranks of each node of the plan\n", out);
    for (int32_t i = 0; i < l->n_nodes; i++) print_bundle(out, &l->nodes[i]);
    fputs("]\nRANKS = [", out);
    for (int32_t i = 0; i < l->n_ranks; i++) fprintf(out, "%s%" PRId32, i ? ", " : "", l->rank_node[i]);
    fputs("] # node of each\nRUN = [", out);
    const char *const fixed[] = {q->program, "run", l->plan_path, "--any-host", q->save ? "--save" : NULL, q->save, q->save ? "--continue" : NULL};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (!fixed[i]) continue;
        if (i) fputs(", ", out);
        shell_text(out, fixed[i], strlen(fixed[i]));
    }
    for (size_t i = 0; i < q->run.count; i++) {
        fputs(", ", out);
        shell_text(out, q->run.items[i], strlen(q->run.items[i]));
    }
    fputs("]\nENV = {\"OPENBLAS_NUM_THREADS\": os.environ.get(\"OPENBLAS_NUM_THREADS\", \"1\"), \"OMP_NUM_THREADS\": os.environ.get(\"OMP_NUM_THREADS\", \"1\")",
          out);
    for (size_t i = 0; i < q->env.count; i++) {
        const char *text = q->env.items[i];
        size_t n = strcspn(text, "=");
        fprintf(out, ", \"%.*s\": ", (int)n, text);
        shell_text(out, text + n + 1, strlen(text + n + 1));
    }
    fprintf(out, "}\nRESTARTS = %" PRId64 "\n", q->save ? q->restarts : 0);
    fputs(body, out);
    return OK;
}
