/* core/cluster/keys.h - tables of the keys of a cluster file, for its reader and docs/reference. */
#ifndef CORE_CLUSTER_KEYS_H
#define CORE_CLUSTER_KEYS_H

#include "core/document/keys.h"

extern const struct document_key cluster_keys[];        /* the file */
extern const struct document_key cluster_type_keys[];   /* an entry of device_types */
extern const struct document_key cluster_peak_keys[];   /* `peak` of a device type */
extern const struct document_key cluster_node_keys[];   /* an entry of nodes */
extern const struct document_key cluster_device_keys[]; /* an entry of devices */
extern const struct document_key cluster_link_keys[];   /* an entry of links */
extern const struct document_key cluster_switch_keys[]; /* an entry of switches */

#endif
