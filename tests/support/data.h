/* tests/support/data.h - one file of training data, for the options of a run. */
#ifndef TESTS_SUPPORT_DATA_H
#define TESTS_SUPPORT_DATA_H

#include "core/model/data_source.h"

/* Lives as long as the block that it stands in. */
#define DATA_FILE(name) ((struct data_source){.n_files = 1, .files = &(const struct data_file_source){.path = (name)}})

#endif
