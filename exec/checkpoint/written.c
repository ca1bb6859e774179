#include "exec/checkpoint/written.h"

#include "core/base/arena.h"
#include "core/base/file.h"

#include <inttypes.h>
#include <unistd.h>

struct head {
    int32_t n, finite;
};

static const char *path_of(struct arena *a, const char *folder, int32_t rank)
{
    return arena_printf(a, "%s/rank-%04" PRId32 ".rows", folder, rank);
}

enum status checkpoint_note_written(struct arena *a, const char *folder, int32_t rank, bool finite, const struct checkpoint_tensor *rows,
                                    int32_t n, struct error *err)
{
    struct file f;
    const struct head h = {n, finite};
    TRY(file_open(&f, path_of(a, folder, rank), err));
    if (fwrite(&h, sizeof h, 1, f.stream) == 1 && n) (void)!fwrite(rows, sizeof *rows, (size_t)n, f.stream);
    return file_commit(&f, err); /* reports the reason of a short write */
}

bool checkpoint_has_written(struct arena *a, const char *folder, int32_t rank) { return !access(path_of(a, folder, rank), F_OK); }

enum status checkpoint_take_written(struct arena *a, const char *folder, int32_t rank, bool *finite, struct checkpoint_tensor **rows,
                                    int32_t *n, struct error *err)
{
    const char *path = path_of(a, folder, rank);
    struct head h = {0};
    int64_t bytes;
    int fd;
    TRY(file_open_regular(path, &fd, &bytes, err));
    enum status status = file_read_at(fd, path, 0, &h, sizeof h, err);
    int64_t size = (int64_t)h.n * (int64_t)sizeof **rows;
    if (status == OK && (h.n < 0 || bytes != (int64_t)sizeof h + size))
        status = error_set(err, ERR_INPUT, "'%s': %" PRId64 " bytes are not the rows of a rank", path, bytes);
    if (status == OK) {
        *rows = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)h.n + 1);
        status = file_read_at(fd, path, sizeof h, *rows, size, err);
    }
    close(fd);
    *n = h.n, *finite = h.finite;
    if (status == OK) unlink(path);
    return status;
}
