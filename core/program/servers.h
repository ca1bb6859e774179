/* core/program/servers.h - records of parameter servers in a program file; private to core/program/. */
#ifndef CORE_PROGRAM_SERVERS_H
#define CORE_PROGRAM_SERVERS_H

#include "core/program/program.h"

struct lines;
struct reader;

/* The head's record, and the line of each stage; nothing without servers. */
MUST_CHECK enum status program_read_server(struct reader *r, struct parameter_server *x);
MUST_CHECK enum status program_read_server_stage(struct reader *r, const struct program *p, struct program_stage *s);
void program_write_server(struct lines *out, const struct parameter_server *x);
void program_write_server_stage(struct lines *out, const struct program *p, const struct program_stage *s);

#endif
