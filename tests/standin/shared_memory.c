/* tests/standin/shared_memory.c - a block's shared memory, full of NaNs when the block begins.
 *
 * A __shared__ variable is compiled as one of an OS thread (`static __thread`), which runs one block at a time. Nobody tells
 * where such variables are, but the symbols of the file that the kernel is in do: each is a thread-local object whose name
 * begins with its function's ("_ZZ", the function, "E", the variable). So a file's symbols are read once, a kernel's own
 * variables are poisoned at each block, and those of functions that it may call at each launch. A file without symbols has
 * its variables left as they are.
 */
#include "tests/standin/shared_memory.h"

#include "tests/standin/internal.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 128, POISON = 0xff };

struct variable {
    size_t offset, bytes; /* into the file's thread-local block */
    char *name;
};

struct file_symbols {
    ElfW(Addr) base;
    size_t tls_module;
    struct variable *variables;
    size_t n;
    struct file_symbols *next;
};

struct shared_variables { /* of one kernel */
    const void *kernel;
    const struct file_symbols *file; /* NULL: unknown */
    size_t *own;                     /* indices of its variables */
    size_t n_own, bytes;
    struct shared_variables *next;
};

static struct file_symbols *files; /* under the books */
static struct shared_variables *kernels;

/* --- the file that a function is in --- */

struct search {
    ElfW(Addr) function;
    ElfW(Addr) base;
    size_t tls_module;
    const char *path;
    bool found;
};

static int holds_function(struct dl_phdr_info *f, size_t bytes, void *p)
{
    struct search *s = p;
    (void)bytes;
    for (int i = 0; i < f->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &f->dlpi_phdr[i];
        ElfW(Addr) from = f->dlpi_addr + h->p_vaddr;
        if (h->p_type != PT_LOAD || s->function < from || s->function >= from + h->p_memsz)
            continue;
        s->base = f->dlpi_addr;
        s->tls_module = f->dlpi_tls_modid;
        s->path = *f->dlpi_name ? f->dlpi_name : "/proc/self/exe";
        return s->found = true;
    }
    return 0;
}

struct image { /* a file in memory, and its table of symbols */
    const unsigned char *at;
    size_t bytes;
    const ElfW(Sym) * symbols;
    size_t n;
    const char *names;
    size_t names_bytes;
};

static bool find_symbols(struct image *m)
{
    const ElfW(Ehdr) *head = (const void *)m->at;
    if (m->bytes < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) ||
        head->e_shoff + (size_t)head->e_shnum * sizeof(ElfW(Shdr)) > m->bytes)
        return false;
    const ElfW(Shdr) *sections = (const void *)(m->at + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        const ElfW(Shdr) *s = &sections[i];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= head->e_shnum) continue;
        const ElfW(Shdr) *names = &sections[s->sh_link];
        if (s->sh_offset + s->sh_size > m->bytes || names->sh_offset + names->sh_size > m->bytes)
            return false;
        m->symbols = (const void *)(m->at + s->sh_offset);
        m->n = s->sh_size / sizeof *m->symbols;
        m->names = (const char *)m->at + names->sh_offset;
        m->names_bytes = names->sh_size;
        return true;
    }
    return false;
}

static bool map_file(const char *path, struct image *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    *out = (struct image){0};
    bool good = fstat(fd, &st) == 0 && st.st_size > 0;
    if (good) {
        out->bytes = (size_t)st.st_size;
        out->at = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        good = out->at != MAP_FAILED;
    }
    close(fd);
    if (good && find_symbols(out)) return true;
    if (good) munmap((void *)(uintptr_t)out->at, out->bytes);
    return false;
}

static const char *name_of(const struct image *m, const ElfW(Sym) * s)
{
    return s->st_name < m->names_bytes ? m->names + s->st_name : "";
}

static struct file_symbols *read_file(const struct search *s, const struct image *m)
{
    struct file_symbols *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->base = s->base;
    f->tls_module = s->tls_module;
    for (size_t i = 0; i < m->n; i++) {
        const ElfW(Sym) *y = &m->symbols[i];
        const char *name = name_of(m, y);
        if (ELF64_ST_TYPE(y->st_info) != STT_TLS || strncmp(name, "_ZZ", 3) || !y->st_size)
            continue;
        f->variables = realloc(f->variables, (f->n + 1) * sizeof *f->variables);
        if (!f->variables) abort();
        f->variables[f->n++] =
            (struct variable){(size_t)y->st_value, (size_t)y->st_size, strdup(name)};
    }
    f->next = files;
    return files = f;
}

/* "_Z", the function -> "_ZZ", the function, "E" is what its variables begin with. */
static bool is_own(const char *variable, const char *function)
{
    size_t n = strlen(function);
    return n > 2 && !strncmp(variable + 3, function + 2, n - 2) && variable[3 + n - 2] == 'E';
}

static const char *function_name(const struct image *m, ElfW(Addr) offset)
{
    for (size_t i = 0; i < m->n; i++)
        if (ELF64_ST_TYPE(m->symbols[i].st_info) == STT_FUNC && m->symbols[i].st_value == offset)
            return name_of(m, &m->symbols[i]);
    return "";
}

static void find_own(struct shared_variables *k, const struct file_symbols *f, const char *function)
{
    k->file = f;
    k->own = calloc(f->n + 1, sizeof *k->own);
    if (!k->own) abort();
    for (size_t i = 0; i < f->n; i++) {
        if (!is_own(f->variables[i].name, function)) continue;
        k->own[k->n_own++] = i;
        k->bytes += f->variables[i].bytes;
    }
}

static void look_up(struct shared_variables *k)
{
    struct search s = {.function = (ElfW(Addr))(uintptr_t)k->kernel};
    struct image m;
    dl_iterate_phdr(holds_function, &s);
    if (!s.found || !s.tls_module || !map_file(s.path, &m)) return;
    struct file_symbols *f = files;
    while (f && f->base != s.base) f = f->next;
    if (!f) f = read_file(&s, &m);
    find_own(k, f, function_name(&m, s.function - s.base));
    munmap((void *)(uintptr_t)m.at, m.bytes);
}

const struct shared_variables *shared_variables_of(const void *kernel)
{
    books_open();
    struct shared_variables *k = kernels;
    while (k && k->kernel != kernel) k = k->next;
    if (!k) {
        k = calloc(1, sizeof *k);
        if (!k) abort();
        k->kernel = kernel;
        look_up(k);
        k->next = kernels;
        kernels = k;
    }
    books_close();
    return k;
}

size_t shared_variables_bytes(const struct shared_variables *v) { return v->bytes; }

/* --- poison --- */

/* How compilers find a thread-local variable of a file that is opened late (ELF's general model). */
struct tls_place {
    unsigned long module, offset;
};
void *__tls_get_addr(struct tls_place *at);

static void poison(const struct file_symbols *f, size_t i)
{
    struct tls_place at = {f->tls_module, f->variables[i].offset};
    memset(__tls_get_addr(&at), POISON, f->variables[i].bytes);
}

void shared_variables_poison_all(const struct shared_variables *v)
{
    for (size_t i = 0; v->file && i < v->file->n; i++) poison(v->file, i);
}

void shared_variables_poison(const struct shared_variables *v)
{
    for (size_t i = 0; i < v->n_own; i++) poison(v->file, v->own[i]);
}

void *shared_dynamic_new(size_t bytes)
{
    void *p = NULL;
    if (bytes && posix_memalign(&p, ALIGNMENT, bytes)) abort();
    return p;
}

void shared_dynamic_poison(void *p, size_t bytes)
{
    if (bytes) memset(p, POISON, bytes);
}

void shared_dynamic_free(void *p) { free(p); }
