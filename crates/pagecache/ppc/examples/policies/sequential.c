/*
 * The example of the paper (section 3.2, Figure 4): prefetches the bytes after a miss, and evicts the bytes before it.
 *
 * The configuration is the number of bytes in each direction; 8 MiB if it is empty.
 */
#include <stdlib.h>

#include "ppc.h"

static uint64_t distance = 8 << 20;

static struct prefetch_io after;
static struct prefetch_ios ios_for_prefetch = {.count = 1, .ios = &after};

static struct evict_io before;
static struct evict_ios ios_for_evict = {.count = 1, .ios = &before};

static int init(void *private)
{
    const struct ppc_context *context = private;
    if (*context->config != '\0') {
        char *end;
        distance = strtoull(context->config, &end, 10);
        if (*end != '\0' || distance == 0) {
            context->fail("the configuration must be a number of bytes");
            return 1;
        }
    }
    context->log(PPC_LOG_INFO, "sequential: started");
    return 0;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    after = ppc_prefetch_io(mio->path, mio->offset + mio->size, distance);
    return ppc_clip(&after, mio->file_size) ? &ios_for_prefetch : NULL;
}

static struct evict_ios *evict(struct miss_io *mio)
{
    if (mio == NULL || mio->offset == 0)
        return NULL; /* a periodic call, or a miss at the start of the file */
    before.path = mio->path;
    before.size = mio->offset < distance ? mio->offset : distance;
    before.offset = mio->offset - before.size;
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
