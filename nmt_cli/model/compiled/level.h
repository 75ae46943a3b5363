/* The sources are compiled once for each level of CPU, LEVEL, with exported functions named after it. */

#define JOINED(level, name) level##_##name
#define NAME_OF(level, name) JOINED(level, name)
#define EXPORTED(name) NAME_OF(LEVEL, name)
