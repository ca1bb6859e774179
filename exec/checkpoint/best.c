/* exec/checkpoint/best.c - which generation of a folder has the lowest validation loss. */
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/folder.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/document/document.h"
#include "core/document/json.h"

#include <unistd.h>

static enum status read_best(struct arena *a, const char *path, struct checkpoint_best *out, struct error *err)
{
    struct node *root;
    const struct node *n;
    TRY(document_read(a, path, &root, err));
    TRY(node_is(root, NODE_MAP, err));
    TRY(node_need(root, "step", &n, err));
    TRY(node_int(n, 1, CHECKPOINT_COUNT_MAX, &out->step, err));
    TRY(node_need(root, "validation_loss", &n, err));
    return node_double(n, -1e300, 1e300, &out->loss, err);
}

struct checkpoint_best checkpoint_best_read(struct arena *a, const char *dir, int64_t last_step)
{
    const char *path = arena_printf(a, "%s/best.json", dir);
    struct checkpoint_best best = {0};
    struct error why;
    if (access(path, F_OK)) return best;
    if (read_best(a, path, &best, &why) != OK) {
        log_warn("%s; the next evaluation begins a new best checkpoint", why.text);
        return (struct checkpoint_best){0};
    }
    bool there = !access(arena_printf(a, "%s/%s", dir, checkpoint_folder_name(a, best.step)), F_OK);
    return there && best.step <= last_step ? best : (struct checkpoint_best){0};
}

enum status checkpoint_best_write(struct arena *a, const char *dir, const struct checkpoint_best *b, struct error *err)
{
    struct file f;
    struct json j;
    TRY(file_open(&f, arena_printf(a, "%s/best.json", dir), err));
    json_begin(&j, f.stream, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_int(&j, "step", b->step);
    json_put_double(&j, "validation_loss", b->loss);
    json_close(&j);
    json_end(&j);
    return file_commit(&f, err);
}
