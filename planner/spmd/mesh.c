/* planner/spmd/mesh.c - the order of the meshes of a stage, and one search for each, cut off by the best cost so far.
 *
 * O(divisors of the number of devices) searches of planner/spmd/search.
 */
#include "planner/spmd/mesh.h"

#include "core/base/arena.h"

/* Devices per node if all nodes have equally many and they are adjacent; else 0. */
static int32_t row_of_nodes(int32_t n, const int32_t *node)
{
    int32_t run = 1, row = 0;
    for (int32_t i = 1; node && i <= n; i++, run++) {
        if (i < n && node[i] == node[i - 1]) continue;
        if (row && run != row) return 0;
        row = run, run = 0;
    }
    return row < n ? row : 0;
}

static void add_shape(int32_t n, int32_t columns, struct spmd_shape *out, int32_t *n_out)
{
    if (columns < 1 || n % columns || *n_out == SPMD_MESHES_MAX) return;
    if (*n_out && (columns < 2 || columns >= n)) return;
    for (int32_t k = 0; k < *n_out; k++)
        if (out[k].columns == columns) return;
    out[(*n_out)++] = (struct spmd_shape){n / columns, columns};
}

int32_t spmd_meshes(int32_t n, const int32_t *node, struct spmd_shape *out)
{
    int32_t n_out = 0, row = row_of_nodes(n, node);
    add_shape(n, n, out, &n_out);
    if (row > 0) {
        add_shape(n, row, out, &n_out);
        if (row % 2 == 0) add_shape(n, row / 2, out, &n_out);
        add_shape(n, 2 * row, out, &n_out);
    }
    for (int32_t columns = 2; columns < n; columns++) add_shape(n, columns, out, &n_out);
    return n_out;
}

enum status spmd_best_mesh(struct arena *a, const struct spmd_question *q,
                           struct spmd_mesh_best *out, struct error *err)
{
    struct spmd_shape shape[SPMD_MESHES_MAX];
    int32_t n = spmd_meshes(q->s->n_devices, q->node, shape);
    *out = (struct spmd_mesh_best){.answer.ns = INT64_MAX, .shape = shape[0]};
    for (int32_t k = 0; k < n; k++) {
        struct spmd_question queried = *q;
        struct sharding *s = arena_copy(a, q->s, sizeof *s);
        struct spmd_answer x;
        s->n_axes = 1 + (shape[k].rows > 1);
        s->mesh[0] = shape[k].rows > 1 ? shape[k].rows : shape[k].columns;
        s->mesh[1] = shape[k].rows > 1 ? shape[k].columns : 1;
        queried.s = s;
        if (out->answer.ns < INT64_MAX) queried.limits.enough_ns = out->answer.ns;
        TRY(spmd_best(a, &queried, &x, err));
        out->work_ns += x.work_ns;
        if (x.ns >= out->answer.ns) continue;
        out->answer = x, out->shape = shape[k];
        out->sharding = spmd_sharding(a, &queried, &x);
    }
    return OK;
}
