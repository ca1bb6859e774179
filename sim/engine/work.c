#include "sim/engine/work.h"

#include "core/base/units.h"

enum {
    SETUP_NS = 10000,
    COLLECTIVE_NS = 900,
    INSTR_NS = 50,
    EVENT_NS = 85,     /* of few devices … */
    DOUBLED_NS = 115,  /* … and more for each time that their number beside LANES doubles */
    LANES = 32
};

int64_t work_setup_ns(const struct program *p)
{
    return SETUP_NS + (int64_t)COLLECTIVE_NS * p->n_collectives + INSTR_NS * program_instrs(p);
}

int64_t work_event_ns(int32_t lanes)
{
    return (int64_t)(EVENT_NS + DOUBLED_NS * units_doublings(1 + (double)lanes / LANES));
}
