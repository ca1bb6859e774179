#include "core/model/data_source.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/document/canonical.h"
#include "core/model/keys.h"
#include "core/model/relative_path.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { FILES_MAX = 4096, BLOCK = 4096 }; /* exec/data/sample_order.h: samples of a block, of which each file has at least one */
#define ROUNDING 1e-9 /* of a sum of weights */

const char *const data_form_names[] = {"auto",
#define X(name, text) #text,
                                    DATA_FORMS(X)
#undef X
                                        NULL};

const char *data_form_name(enum data_form form) { return data_form_names[form]; }

bool data_form_is_of_images(enum data_form form) { return form == DATA_CIFAR10 || form == DATA_CIFAR100 || form == DATA_MNIST; }

struct data_source data_source_of(struct arena *a, const char *path, enum data_form form)
{
    struct data_file_source *file = ARENA_ARRAY(a, struct data_file_source, 1);
    file->path = path;
    return (struct data_source){.form = form, .n_files = path != NULL, .files = file};
}

/* Whether the text is a number; fraction 0: one that is not between 0 and 1. */
static bool is_fraction(const char *text, double *fraction)
{
    if (!units_parse_number(text, fraction)) return false;
    if (!(*fraction > 0 && *fraction < 1)) *fraction = 0;
    return true;
}

bool data_source_validate(struct arena *a, struct data_source *d, const char *text)
{
    d->fraction = 0, d->n_validation = 0;
    if (is_fraction(text, &d->fraction)) return d->fraction > 0;
    d->validation = data_source_of(a, text, d->form).files;
    d->n_validation = 1;
    return true;
}

struct data_source data_source_validation(const struct data_source *d)
{
    struct data_source v = {.form = d->form, .n_files = d->n_validation, .files = d->validation};
    if (d->fraction > 0) v = *d, v.held_out = true;
    return v;
}

/* Any bytes: a folder's name is not the job's choice. */
static enum status read_path(struct arena *a, const struct node *n, const char *folder, struct data_file_source *out, struct error *err)
{
    TRY(node_is(n, NODE_SCALAR, err));
    if (!*n->text) return node_error(n, err, "must not be empty");
    out->path = relative_path_absolute(a, folder, n->text);
    return OK;
}

static enum status read_file(struct arena *a, const struct node *n, const char *folder, struct data_file_source *out, struct error *err)
{
    const struct node *path;
    if (n->kind == NODE_SCALAR) return read_path(a, n, folder, out, err);
    TRY(node_is(n, NODE_MAP, err));
    TRY(document_keys(n, job_data_file_keys, err));
    TRY(node_need(n, "path", &path, err));
    TRY(read_path(a, path, folder, out, err));
    const struct node *weight = node_get(n, "weight");
    if (!weight) return OK;
    TRY(node_double(weight, 0, 1e9, &out->weight, err));
    return out->weight >= 1e-9 ? OK : node_error(weight, err, "must be from 1e-9 to 1e9, found '%s'", weight->text);
}

static enum status read_files(struct arena *a, const struct node *list, const char *folder, int32_t *n, const struct data_file_source **out, struct error *err)
{
    TRY(node_is(list, NODE_LIST, err));
    if (list->count < 1 || list->count > FILES_MAX) return node_error(list, err, "must be 1 to %d files, found %zu", FILES_MAX, list->count);
    struct data_file_source *files = ARENA_ARRAY(a, struct data_file_source, list->count);
    int32_t weighted = 0;
    double sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        TRY(read_file(a, list->members[i], folder, &files[i], err));
        weighted += files[i].weight > 0, sum += files[i].weight;
    }
    for (size_t i = 0; weighted && i < list->count; i++)
        if (!(files[i].weight > 0)) return node_error(list->members[i], err, "has no weight, and another file has one: state all weights or none");
    for (size_t i = 0; weighted && i < list->count; i++) {
        double share = BLOCK * (files[i].weight / sum);
        if (share < 1 - ROUNDING)
            return node_error(node_get(list->members[i], "weight"), err, "is %.3g of all weights, which is less than one of %d samples, the block that weights divide: state at least %.4g",
                              files[i].weight / sum, BLOCK, (sum - files[i].weight) / (BLOCK - 1));
    }
    *n = (int32_t)list->count;
    *out = files;
    return OK;
}

static enum status read_validation(struct arena *a, const struct node *n, const char *folder, struct data_source *out, struct error *err)
{
    if (!n) return OK;
    if (n->kind == NODE_SCALAR && is_fraction(n->text, &out->fraction))
        return out->fraction > 0 ? OK : node_error(n, err, "must be a fraction between 0 and 1, or a file (a file of that name: ./%s), found %s", n->text, n->text);
    if (n->kind != NODE_SCALAR) {
        TRY(read_files(a, n, folder, &out->n_validation, &out->validation, err));
        for (int32_t i = 0; i < out->n_validation; i++)
            if (out->validation[i].weight > 0) return node_error(n->members[i], err, "has a weight; every validation sample counts once");
        return OK;
    }
    struct data_file_source *file = ARENA_ARRAY(a, struct data_file_source, 1);
    TRY(read_path(a, n, folder, file, err));
    out->validation = file, out->n_validation = 1;
    return OK;
}

enum status data_source_read(struct arena *a, const struct node *root, const char *folder, struct data_source *out, struct error *err)
{
    const struct node *n = node_get(root, "data"), *files, *form;
    int choice = DATA_AUTO;
    *out = (struct data_source){0};
    if (!n || n->kind == NODE_NULL) return OK;
    if (n->kind == NODE_SCALAR) {
        struct data_file_source *file = ARENA_ARRAY(a, struct data_file_source, 1);
        TRY(read_path(a, n, folder, file, err));
        *out = (struct data_source){.n_files = 1, .files = file};
        return OK;
    }
    TRY(node_is(n, NODE_MAP, err));
    TRY(document_keys(n, job_data_keys, err));
    form = node_get(n, "form");
    if (form) TRY(node_choice(form, data_form_names, &choice, err));
    out->form = (enum data_form)choice;
    TRY(node_need(n, "files", &files, err));
    TRY(read_files(a, files, folder, &out->n_files, &out->files, err));
    return read_validation(a, node_get(n, "validation"), folder, out, err);
}

static void write_files(FILE *out, const char *key, int32_t n, const struct data_file_source *files)
{
    fprintf(out, "%s: [", key);
    for (int32_t i = 0; i < n; i++) {
        const struct data_file_source *f = &files[i];
        fputs(i ? ", " : "", out);
        if (f->weight > 0) fputs("{path: ", out);
        canonical_text(out, f->path);
        if (f->weight > 0) fputs(", weight: ", out), canonical_double(out, f->weight), fputc('}', out);
    }
    fputc(']', out);
}

void data_source_write(FILE *out, const struct data_source *d, int indent)
{
    if (!d->n_files) return;
    canonical_indent(out, indent);
    fputs("data: ", out);
    if (d->n_files == 1 && d->form == DATA_AUTO && !d->n_validation && !(d->fraction > 0)) {
        canonical_text(out, d->files[0].path);
        fputc('\n', out);
        return;
    }
    fputc('{', out);
    if (d->form != DATA_AUTO) fprintf(out, "form: %s, ", data_form_names[d->form]);
    write_files(out, "files", d->n_files, d->files);
    if (d->n_validation) fputs(", ", out), write_files(out, "validation", d->n_validation, d->validation);
    if (d->fraction > 0) fputs(", validation: ", out), canonical_double(out, d->fraction);
    fputs("}\n", out);
}
