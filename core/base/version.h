/* core/base/version.h - the version in the head of every plan, trace and report. */
#ifndef CORE_BASE_VERSION_H
#define CORE_BASE_VERSION_H

#define MUSHER_VERSION "0.1.0"

#endif
