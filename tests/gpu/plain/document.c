/* tests/gpu/plain/document.c - no documents are read where there is no parser: programs are files of our own. */
#include "core/document/document.h"

enum status document_read(struct arena *a, const char *path, struct node **out, struct error *err)
{
    (void)a, (void)out;
    return error_set(err, ERR_INPUT, "%s: this program was built without a document parser", path);
}

enum status document_parse(struct arena *a, const char *name, const char *text, size_t n,
                           struct node **out, struct error *err)
{
    (void)a, (void)text, (void)n, (void)out;
    return error_set(err, ERR_INPUT, "%s: this program was built without a document parser", name);
}
