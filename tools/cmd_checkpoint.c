/* tools/cmd_checkpoint.c - what a checkpoint or a folder of weights has, whether it is whole, and its weights in another dtype or number of files. */
#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/config.h"
#include "exec/checkpoint/convert.h"
#include "exec/checkpoint/files.h"
#include "exec/checkpoint/weights.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct request {
    const char *action, *folder, *out, *shard;
    int dtype; /* index into dtypes */
};
static const char *const actions[] = {"show", "verify", "convert", NULL};
static const char *const dtypes[] = {"stored", "fp32", "fp64", "bf16", "fp16", NULL};

/* A generation, or weights without a manifest. */
struct opened {
    bool has_manifest, verified; /* verified: every byte was read */
    int64_t newest;              /* step of the newest generation of the folder, by its name; 0: it is not a folder of generations */
    struct checkpoint c;
    struct weights w; /* the parameters of both */
};

/* The newest generation of a folder of checkpoints, whose data are read. */
static enum status open_folder(struct arena *a, const char *folder, bool verify, struct opened *x, struct error *err)
{
    bool is_generation = !access(arena_printf(a, "%s/manifest.json", folder), F_OK), is_weights = !access(arena_printf(a, "%s/model.safetensors", folder), F_OK) ||
                         !access(arena_printf(a, "%s/model.safetensors.index.json", folder), F_OK);
    if (!is_generation && !is_weights) x->newest = checkpoint_newest(a, folder);
    x->has_manifest = is_generation || x->newest > 0;
    x->verified = x->has_manifest && (verify || !is_generation);
    if (!x->has_manifest) return weights_open(a, folder, &x->w, err);
    TRY(is_generation ? checkpoint_open(a, folder, verify, &x->c, err) : checkpoint_find(a, folder, &x->c, err));
    return weights_open(a, x->c.folder, &x->w, err);
}

/* ---- show ------------------------------------------------------------------------------------- */

struct sums {
    int64_t parameters, bytes, others, other_bytes; /* others: tensors that are no parameters */
};

static struct sums sums_of(const struct opened *x)
{
    struct sums s = {0};
    for (int32_t i = 0; i < x->w.n; i++) s.parameters += shape_elements(&x->w.tensors[i].at->shape), s.bytes += x->w.tensors[i].at->bytes;
    for (int32_t i = 0; x->has_manifest && i < x->c.n_tensors; i++)
        if (strpbrk(x->c.tensors[i].name, "#@")) s.others++, s.other_bytes += x->c.tensors[i].bytes;
    return s;
}

static void show_json(const struct opened *x)
{
    struct json j;
    struct sums s = sums_of(x);
    common_json_begin(&j);
    json_put_text(&j, "folder", x->w.folder);
    if (x->has_manifest) {
        json_put_int(&j, "step", x->c.step);
        json_put_int(&j, "sequences", x->c.sequences);
        json_put_int(&j, "global_batch", x->c.global_batch);
        json_put_int(&j, "seed", (int64_t)x->c.seed);
        json_put_text(&j, "optimizer", optimizer_name(x->c.optimizer));
        json_put_text(&j, "precision", dtype_name(x->c.dtype));
        json_put_int(&j, "other_tensors", s.others);
        json_put_int(&j, "other_bytes", s.other_bytes);
    }
    json_put_int(&j, "parameters", s.parameters);
    json_put_int(&j, "bytes", s.bytes);
    json_put_int(&j, "files", x->w.n_files);
    json_put_list(&j, "tensors");
    for (int32_t i = 0; i < x->w.n; i++) {
        const struct safetensors_tensor *t = x->w.tensors[i].at;
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", t->name);
        json_put_text(&j, "dtype", t->stored);
        json_put_list_line(&j, "shape");
        for (int32_t k = 0; k < t->shape.rank; k++) json_put_int(&j, NULL, t->shape.dim[k]);
        json_close(&j);
        json_put_text(&j, "file", strrchr(x->w.files[x->w.tensors[i].file].path, '/') + 1);
        json_put_int(&j, "bytes", t->bytes);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

static void show_text(struct arena *a, const struct opened *x)
{
    char bytes[32], other[32];
    struct sums s = sums_of(x);
    int widest = 4;
    printf("%s\n", x->w.folder);
    if (x->has_manifest)
        printf("  training    step %" PRId64 ", %" PRId64 " sequences (global batch %" PRId64 "), seed %" PRIu64 ", %s, %s\n", x->c.step, x->c.sequences,
               x->c.global_batch, x->c.seed, optimizer_name(x->c.optimizer), dtype_name(x->c.dtype));
    printf("  parameters  %" PRId64 " in %" PRId32 " tensors, %s in %" PRId32 " file%s\n", s.parameters, x->w.n, units_print_bytes(bytes, (double)s.bytes),
           x->w.n_files, x->w.n_files > 1 ? "s" : "");
    if (x->has_manifest) printf("  other       %" PRId64 " tensors (optimizer state and the like), %s\n", s.others, units_print_bytes(other, (double)s.other_bytes));
    for (int32_t i = 0; i < x->w.n; i++)
        if ((int)strlen(x->w.tensors[i].at->name) > widest) widest = (int)strlen(x->w.tensors[i].at->name);
    printf("%-*s  %-6s %-20s %12s  file\n", widest, "tensor", "dtype", "shape", "bytes");
    for (int32_t i = 0; i < x->w.n; i++) {
        const struct safetensors_tensor *t = x->w.tensors[i].at;
        const char *shape = "";
        for (int32_t k = 0; k < t->shape.rank; k++) shape = arena_printf(a, "%s%s%" PRId64, shape, k ? " x " : "", t->shape.dim[k]);
        printf("%-*s  %-6s %-20s %12" PRId64 "  %s\n", widest, t->name, t->stored, shape, t->bytes, strrchr(x->w.files[x->w.tensors[i].file].path, '/') + 1);
    }
}

/* ---- verify ----------------------------------------------------------------------------------- */

static void print_verified(const struct opened *x, bool as_json)
{
    int32_t n = x->has_manifest ? x->c.n_tensors : x->w.n;
    if (as_json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "folder", x->w.folder);
        json_put_bool(&j, "crc32", x->has_manifest);
        json_put_int(&j, "tensors", n);
        common_json_end(&j);
        return;
    }
    printf("%s: %" PRId32 " tensors, headers and sizes are right", x->w.folder, n);
    puts(x->has_manifest ? ", and the CRC of each" : "; the format has no CRCs, and there is no manifest with them");
}

/* Opening it has read everything but config.json. */
static enum status verify(struct arena *a, const char *folder, const struct opened *x, bool as_json, struct error *err)
{
    struct node *config;
    TRY(checkpoint_config_read(a, x->w.folder, &config, err));
    print_verified(x, as_json);
    if (x->newest > x->c.step)
        return error_set(err, ERR_INPUT, "the newest checkpoint of '%s', of step %" PRId64 ", is damaged; the newest that is whole is of step %" PRId64, folder,
                         x->newest, x->c.step);
    return OK;
}

/* ---- convert ---------------------------------------------------------------------------------- */

static enum status convert(struct arena *a, const struct request *q, const struct opened *x, bool as_json, struct error *err)
{
    enum dtype t = DTYPE_COUNT;
    double shard = (double)CHECKPOINT_SHARD_BYTES;
    struct weights made;
    char bytes[32];
    if (q->shard && (!units_parse_bytes(q->shard, &shard) || !(shard >= 1 && shard <= 1e15)))
        return error_set(err, ERR_USAGE, "--max-shard %s: expected a size such as 5 GB", q->shard);
    if (q->dtype && !dtype_parse(dtypes[q->dtype], &t)) BUG("no dtype %s", dtypes[q->dtype]);
    if (!x->verified) TRY(checkpoint_verify_parameters(a, x->w.folder, err));
    TRY(weights_convert(a, &x->w, t, (int64_t)shard, q->out, err));
    TRY(weights_open(a, q->out, &made, err));
    int64_t all = 0;
    for (int32_t i = 0; i < made.n; i++) all += made.tensors[i].at->bytes;
    if (as_json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "folder", q->out);
        json_put_int(&j, "tensors", made.n);
        json_put_int(&j, "files", made.n_files);
        json_put_int(&j, "bytes", all);
        common_json_end(&j);
    } else {
        printf("%s: %" PRId32 " tensors, %s in %" PRId32 " file%s\n", q->out, made.n, units_print_bytes(bytes, (double)all), made.n_files, made.n_files > 1 ? "s" : "");
    }
    return OK;
}

static enum status checkpoint(struct arena *a, void *request, const struct common *common, struct error *err)
{
    const struct request *q = request;
    struct opened x = {0};
    bool converts = !strcmp(q->action, "convert");
    char hint[NEAREST_HINT];
    int known = 0;
    while (actions[known] && strcmp(q->action, actions[known]) != 0) known++;
    if (!actions[known])
        return error_set(err, ERR_USAGE, "unknown action '%.60s'; known: show verify convert%s", q->action, nearest_name_hint(q->action, actions, hint));
    if (converts && !q->out) return error_set(err, ERR_USAGE, "checkpoint convert: the folder to write is missing: -o DIR");
    if (converts && !strcmp(q->out, "-")) return error_set(err, ERR_USAGE, "checkpoint convert -o -: it writes a folder, not a file; expected -o DIR");
    TRY(open_folder(a, q->folder, !strcmp(q->action, "verify"), &x, err));
    if (converts) return convert(a, q, &x, common->json, err);
    if (!strcmp(q->action, "verify")) return verify(a, q->folder, &x, common->json, err);
    if (common->json)
        show_json(&x);
    else
        show_text(a, &x);
    return OK;
}

static const struct option options[] = {
    {.name = "ACTION",
     ARGUMENT_AT(action),
     .choices = actions,
     .help = "show what is in it, verify its headers, sizes and CRCs, or convert its weights into a new folder"},
    {.name = "DIR", ARGUMENT_AT(folder), .help = "checkpoint (of a folder of them the newest that is whole), or weights as transformers writes them, e.g. ckpt"},
    {.name = "out", .letter = 'o', .only = "convert", TEXT_AT(out), .unit = "DIR", .help = "new folder of weights to write, e.g. weights"},
    {.name = "dtype", .only = "convert", CHOICE_AT(dtype), .choices = dtypes, .help = "dtype of the weights to write; stored: that of each tensor"},
    {.name = "max-shard", .only = "convert", TEXT_AT(shard), .unit = "SIZE", .help = "largest file of weights to write, e.g. 2 GB", .preset = "5 GB"},
    {0}};

const struct verb cmd_checkpoint = {
    .name = "checkpoint",
    .summary = "show, verify or convert a checkpoint or a folder of weights",
    .about = "A checkpoint of `run` is a folder of safetensors files under Hugging Face's names, with config.json, which transformers loads as it is. "
             "convert writes the parameters alone, for transformers or for a job's `init`.",
    .options = options,
    .examples = {"musher checkpoint show ckpt", "musher checkpoint verify ckpt/step-00000100", "musher checkpoint convert ckpt -o weights --dtype bf16 --max-shard 2GB"},
    REQUEST(.dtype = 0),
    .run = checkpoint,
};
