#include "tools/print/layers.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/lower/layer_classes.h"
#include "planner/topology/op_graph.h"

#include <stdio.h>
#include <string.h>

struct row { /* a layer that represents all equal ones */
    int32_t layer, times, operators, crosses, crosses_back;
    double forward_flops;
    int64_t parameters, bytes, bytes_back, least_bytes;
};

static int64_t parameters_of(struct arena *a, const struct graph *g, int32_t layer)
{
    bool *seen = ARENA_ARRAY(a, bool, (size_t)g->n_tensors);
    int64_t sum = 0;
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; g->ops[i].layer == layer && k < g->ops[i].n_inputs; k++) {
            const struct tensor *t = &g->tensors[g->ops[i].input[k]];
            if (t->role != TENSOR_PARAMETER || seen[g->ops[i].input[k]]) continue;
            seen[g->ops[i].input[k]] = true;
            sum += shape_elements(&t->shape);
        }
    return sum;
}

static enum status row_of(struct arena *a, const struct graph *g, const struct layer_classes *c,
                          const struct layer_crossing *x, int32_t class, struct row *out,
                          struct error *err)
{
    int32_t layer = c->first_of[class];
    *out = (struct row){.layer = layer, .parameters = parameters_of(a, g, layer)};
    for (int32_t l = 0; l < c->n_layers; l++) out->times += c->class_of[l] == class;
    for (int32_t i = 0; i < g->n_forward; i++) {
        struct op_shapes shapes;
        if (g->ops[i].layer != layer) continue;
        graph_op_shapes(g, &g->ops[i], &shapes);
        out->operators++;
        out->forward_flops += op_flops(g->ops[i].kind, &g->ops[i].attrs, &shapes);
    }
    if (layer + 1 == g->n_layers) return OK;
    out->crosses = g->cut[layer].n;
    out->crosses_back = graph_gradient_cuts(a, g)[layer].n;
    out->bytes = x[layer].activation_bytes, out->bytes_back = x[layer].gradient_bytes;
    return op_graph_least_after(a, g, layer, &out->least_bytes, err);
}

static void print_row(const struct graph *g, const struct row *r)
{
    char bytes[32], back[32], least[32], behind[100] = "";
    if (r->crosses)
        snprintf(behind, sizeof behind, "forward %d: %s, backward %d: %s, minimum %s",
                 (int)r->crosses, units_print_bytes(bytes, (double)r->bytes), (int)r->crosses_back,
                 units_print_bytes(back, (double)r->bytes_back),
                 units_print_bytes(least, (double)r->least_bytes));
    printf("  %-28s %5d %9d %12.4g %12lld  %s\n", g->layer_name[r->layer], (int)r->times,
           (int)r->operators, r->forward_flops / 1e9, (long long)r->parameters, behind);
}

static void put_row(struct json *out, const struct graph *g, const struct layer_classes *c,
                    const struct row *r)
{
    char key[24];
    snprintf(key, sizeof key, "%016llx", (unsigned long long)c->key[c->class_of[r->layer]]);
    json_put_object_line(out, NULL);
    json_put_text(out, "name", g->layer_name[r->layer]);
    json_put_text(out, "key", key);
    json_put_int(out, "first", r->layer);
    json_put_int(out, "times", r->times);
    json_put_int(out, "operators", r->operators);
    json_put_double(out, "forward_flops", r->forward_flops);
    json_put_int(out, "parameters", r->parameters);
    json_put_int(out, "activations_out", r->crosses);
    json_put_int(out, "activation_bytes", r->bytes);
    json_put_int(out, "gradients_back", r->crosses_back);
    json_put_int(out, "gradient_bytes", r->bytes_back);
    json_put_int(out, "least_bytes", r->least_bytes);
    json_close(out);
}

static void put_repeats(struct json *out, const struct layer_classes *c)
{
    json_put_int(out, "unique_layers", c->n_classes);
    json_put_list(out, "repeats");
    for (int32_t i = 0; i < c->n_repeats; i++) {
        json_put_object_line(out, NULL);
        json_put_int(out, "first", c->repeats[i].first);
        json_put_int(out, "layers", c->repeats[i].period);
        json_put_int(out, "times", c->repeats[i].copies);
        json_close(out);
    }
    json_close(out);
}

enum status print_layers(struct arena *a, const struct graph *g, bool table, struct json *out,
                         struct error *err)
{
    const struct layer_classes *c = layer_classes_new(a, g);
    const struct layer_crossing *x = layer_classes_crossings(a, g);
    struct row *rows = ARENA_ARRAY(a, struct row, (size_t)c->n_classes);
    for (int32_t k = 0; table && k < c->n_classes; k++) TRY(row_of(a, g, c, x, k, &rows[k], err));
    if (out) {
        put_repeats(out, c);
        if (!table) return OK;
        json_put_list(out, "layer_table");
        for (int32_t k = 0; k < c->n_classes; k++) put_row(out, g, c, &rows[k]);
        json_close(out);
        return OK;
    }
    printf("  layers            %s\n", layer_classes_text(a, c));
    if (!table) return OK;
    printf("  %-28s %5s %9s %12s %12s  %s\n", "distinct layer", "times", "operators", "GFLOP fwd",
           "parameters", "tensors at the cut behind");
    for (int32_t k = 0; k < c->n_classes; k++) print_row(g, &rows[k]);
    return OK;
}
