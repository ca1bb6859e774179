/* tests/plugins/other_operators.c - a plugin that was built when there was one kind of operator fewer. */
#include "exec/plugin.h"

plugin_entry musher_plugin;

const struct plugin *musher_plugin(void)
{
    static struct plugin table = {PLUGIN_NUMBERS};
    table.kinds = OP_KIND_COUNT - 1;
    return &table;
}
