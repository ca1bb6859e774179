#include "core/document/keys.h"

enum status document_keys(const struct node *map, const struct document_key *keys,
                          struct error *err)
{
    const char *names[DOCUMENT_KEYS_MAX + 1] = {0};
    for (int i = 0; keys[i].name; i++) {
        if (i == DOCUMENT_KEYS_MAX) BUG("more than %d keys", DOCUMENT_KEYS_MAX);
        names[i] = keys[i].name;
    }
    return node_keys(map, names, err);
}
