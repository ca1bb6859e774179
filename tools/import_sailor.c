#include "tools/import.h"

enum status import_sailor(struct arena *a, const struct import_request *q, struct error *err)
{
    (void)a;
    return error_set(err, ERR_INPUT, "%s: not a Sailor folder", q->path);
}
