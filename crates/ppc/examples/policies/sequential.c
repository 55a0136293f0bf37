/*
 * The example of the paper (3.2, Figure 4): what lies behind a miss is brought, what lies before it is let go. The miss
 * is shifted right by its own length for the one, and left for the other.
 *
 * The configuration is how many bytes, 8 MiB if it is empty.
 */
#include <stdlib.h>

#include "ppc.h"

static uint64_t distance = 8 << 20;

static struct prefetch_io right;
static struct prefetch_ios ios_for_prefetch = {.count = 1, .ios = &right};

static struct evict_io left;
static struct evict_ios ios_for_evict = {.count = 1, .ios = &left};

static int init(void *private)
{
    const struct ppc_context *context = private;
    if (*context->config != '\0') {
        char *end;
        distance = strtoull(context->config, &end, 10);
        if (*end != '\0' || distance == 0) {
            context->fail("the configuration is a number of bytes");
            return 1;
        }
    }
    context->log(PPC_LOG_INFO, "sequential: begins");
    return 0;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    right = ppc_prefetch_io(mio->path, mio->offset + mio->size, distance);
    return ppc_clip(&right, mio->file_size) ? &ios_for_prefetch : NULL;
}

static struct evict_ios *evict(struct miss_io *mio)
{
    if (mio == NULL || mio->offset == 0)
        return NULL; /* not at a miss, or nothing before it */
    left.path = mio->path;
    left.size = mio->offset < distance ? mio->offset : distance;
    left.offset = mio->offset - left.size;
    return &ios_for_evict;
}

static const struct ppc_operation policy = {
    .ppc_init = init,
    .ppc_prefetch = prefetch,
    .ppc_evict = evict,
};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
