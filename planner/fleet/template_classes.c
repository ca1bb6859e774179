#include "planner/fleet/template_classes.h"

#include "core/base/arena.h"

static void add_class(struct template_classes *out, const struct tp_options *o,
                      int32_t pool, int32_t type, int32_t tp)
{
    const struct device_class *k = &o->graph->classes[pool];
    const struct device *d = o->graph->cluster->devices;
    int32_t run = 0, longest = 0, all = 0;
    /* A node's GPUs may belong to several classes, so they are counted per class. */
    for (int32_t i = 0; i < k->n; i++) {
        run = i && d[k->devices[i]].node == d[k->devices[i - 1]].node ? run + 1 : 1;
        if (run > longest) longest = run;
        all += run % tp == 0;
    }
    if (type < 0 || !all || out->n == TEMPLATE_CLASSES_MAX) return;
    out->classes[out->n++] =
        (struct template_class){pool, type, k->zone, tp, longest / tp, all};
}

void template_classes_make(struct arena *a, const struct tp_options *o, const int32_t *numbers,
                           int32_t n, struct template_classes *out)
{
    *out = (struct template_classes){
        .classes = ARENA_ARRAY(a, struct template_class, TEMPLATE_CLASSES_MAX)};
    for (int32_t pool = 0; pool < o->graph->n_classes; pool++)
        for (int32_t i = 0; i < n; i++)
            if (numbers[i] <= o->graph->classes[pool].per_node)
                add_class(out, o, pool,
                          tp_options_type(o, o->graph->classes[pool].type, numbers[i]), numbers[i]);
}

enum status template_classes_size(struct arena *a, const struct template_classes *k,
                                  const struct tp_options *o, int64_t microbatch,
                                  const struct lower_options *lower, struct space *space,
                                  struct template_maker **maker, struct error *err)
{
    bool *usable = ARENA_ARRAY(a, bool, (size_t)o->priced.n_types);
    struct template_class *classes = ARENA_ARRAY(a, struct template_class, (size_t)k->n);
    int32_t n = 0;
    TRY(tp_options_space(a, o, microbatch, lower, space, usable, err));
    for (int32_t i = 0; i < k->n; i++)
        if (usable[k->classes[i].type]) classes[n++] = k->classes[i];
    *maker = template_maker_new(a, space, o->graph, classes, n);
    return OK;
}
