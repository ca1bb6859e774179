/* core/base/former.h - keys and options of earlier versions, and what replaces each: the hint of an error about an unknown one.
 *
 * Only words that no file or verb accepts any more where they stood: a reader asks after it has found the word unknown.
 */
#ifndef CORE_BASE_FORMER_H
#define CORE_BASE_FORMER_H

/* A sentence without a final stop; NULL: the word was never one. name without its dashes. */
const char *former_option(const char *name);
/* of: the key of the map (or list of maps) that holds the key, "" for the root. */
const char *former_key(const char *of, const char *key);

#endif
