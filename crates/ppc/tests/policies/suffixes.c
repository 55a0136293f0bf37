/* Returns the array from the miss to its end: by generation and `first`, or by a pointer into the array. */
#include "ppc.h"

#define COUNT 20000

static struct prefetch_io array[COUNT];
static struct prefetch_ios answer;

static int init(void *private)
{
    (void)private;
    for (uint64_t at = 0; at < COUNT; at++)
        array[at] = ppc_prefetch_io(at % 2 ? "a" : "sub/b", at % 4096, 1 + at / 4096);
    return 0;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    uint64_t at = mio->offset / 4096;
    answer.generation = GENERATION;
    answer.ios = GENERATION ? array : array + at;
    answer.count = GENERATION ? COUNT : COUNT - at;
    answer.first = GENERATION ? at : 0;
    return &answer;
}

static const struct ppc_operation policy = {.ppc_init = init, .ppc_prefetch = prefetch};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
