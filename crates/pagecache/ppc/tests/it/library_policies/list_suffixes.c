/* A policy that returns the entries of an array from the missed page to the end: with GENERATION the whole array and the
 * index `first`, otherwise a pointer into the array. */
#include "ppc.h"

#define COUNT 20000

static struct prefetch_io entries[COUNT];
static struct prefetch_ios list;

static int init(void *private)
{
    (void)private;
    for (uint64_t i = 0; i < COUNT; i++)
        entries[i] = ppc_prefetch_io(i % 2 ? "a" : "sub/b", i % 4096, 1 + i / 4096);
    return 0;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    uint64_t page = mio->offset / 4096;
    list.generation = GENERATION;
    list.ios = GENERATION ? entries : entries + page;
    list.count = GENERATION ? COUNT : COUNT - page;
    list.first = GENERATION ? page : 0;
    return &list;
}

static const struct ppc_operation policy = {.ppc_init = init, .ppc_prefetch = prefetch};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
