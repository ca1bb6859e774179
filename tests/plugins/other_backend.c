/* tests/plugins/other_backend.c - a plugin whose backend's table is an older one. */
#include "exec/plugin.h"

plugin_entry musher_plugin;

const struct plugin *musher_plugin(void)
{
    static struct plugin table = {PLUGIN_NUMBERS};
    table.backend_abi = 1;
    return &table;
}
