/*
 * EagerLoad: prefetches all files of the namespace, ordered by name, at the first miss or when the service starts.
 *
 * The list never changes, so it has a generation and is copied only once.
 */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "ppc.h"

static size_t root;     /* bytes of the namespace's path with the '/' after it */
static size_t capacity; /* of `files` */
static struct prefetch_io *files;
static struct prefetch_ios all = {.generation = 1};
static int started;

static int add(const char *path, const struct stat *stat, int type, struct FTW *at)
{
    (void)at;
    if (type != FTW_F || !S_ISREG(stat->st_mode) || stat->st_size == 0)
        return 0;
    if (all.count == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        files = realloc(files, capacity * sizeof *files);
        if (files == NULL)
            return -1;
    }
    char *name = strdup(path + root);
    if (name == NULL)
        return -1;
    files[all.count++] = ppc_prefetch_io(name, 0, (uint64_t)stat->st_size);
    return 0;
}

static int by_name(const void *left, const void *right)
{
    const struct prefetch_io *a = left, *b = right;
    return strcmp(a->path, b->path);
}

static int init(void *private)
{
    const struct ppc_context *context = private;
    root = strlen(context->root) + 1;
    if (nftw(context->root, add, 64, FTW_PHYS) != 0) {
        context->fail("the namespace cannot be listed");
        return 1;
    }
    if (all.count != 0)
        qsort(files, all.count, sizeof *files, by_name);
    all.ios = files;
    return 0;
}

static struct prefetch_ios *start(void)
{
    started = 1;
    return &all;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    (void)mio;
    return started ? NULL : start();
}

static int finish(void)
{
    for (uint64_t at = 0; at < all.count; at++)
        free((char *)files[at].path);
    free(files);
    return 0;
}

static const struct ppc_operation policy = {
    .ppc_init = init,
    .ppc_exit = finish,
    .ppc_prefetch = prefetch,
    .ppc_start = start,
};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
