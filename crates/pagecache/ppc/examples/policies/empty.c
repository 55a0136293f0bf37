/* A policy that returns no lists, so that the kernel's own policy applies. For measuring the cost of the calls. */
#include "ppc.h"

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    (void)mio;
    return NULL;
}

static struct evict_ios *evict(struct miss_io *mio)
{
    (void)mio;
    return NULL;
}

static const struct ppc_operation policy = {
    .ppc_prefetch = prefetch,
    .ppc_evict = evict,
};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
