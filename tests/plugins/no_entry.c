/* tests/plugins/no_entry.c - a library that is no plugin. */
int nothing_of_musher(void);

int nothing_of_musher(void) { return 0; }
