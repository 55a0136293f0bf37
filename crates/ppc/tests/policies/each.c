/* A policy with the callbacks whose bits are in MASK. It fails if a callback receives unexpected arguments. */
#include <string.h>

#include "ppc.h"

static const struct ppc_context *context;
static int returned, released, touched;

static int init(void *private)
{
    context = private;
    return strcmp(context->config, "some config") != 0 || context->size < sizeof *context || context->root[0] != '/' ||
           context->memory != 1 << 30;
}

static int finish(void)
{
    if (context && (MASK & 64) && released != returned)
        context->fail("a list was not released");
    if (context && (MASK & 32) && !(MASK & 128) && touched != 1)
        context->fail("a touch was not reported");
    return 0;
}

static struct prefetch_io in;
static struct prefetch_ios prefetches = {.count = 1, .ios = &in, .queue = 3};
static struct prefetch_io first = {.path = "a", .offset = 0, .size = 1};
static struct prefetch_ios ninth = {.count = 1, .ios = &first, .queue = 9};
static struct prefetch_ios firsts = {.count = 1, .ios = &first, .queue = 1, .next = &ninth};
static struct evict_io out;
static struct evict_ios evicts = {.ios = &out};

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    returned++;
    if (context && (mio->kind != PPC_MISS || mio->file_size != (1 << 20) + 100 || mio->pid != 1))
        context->fail("a miss has unexpected fields");
    in = ppc_prefetch_io_to(mio->path, mio->offset, mio->size, 0);
    return &prefetches;
}

static struct evict_ios *evict(struct miss_io *mio)
{
    returned++;
    evicts.count = mio != NULL;
    if (mio) {
        out.path = mio->path;
        out.size = mio->offset;
    }
    return &evicts;
}

static struct prefetch_ios *start(void)
{
    returned++;
    return &firsts;
}

static struct prefetch_ios *touch(struct miss_io *mio)
{
    touched += !strcmp(mio->path, "sub/b") && mio->file_size == 5000;
    return NULL;
}

static void release(void *ios)
{
    released += ios == &prefetches || ios == &evicts || ios == &firsts;
}

static uint32_t wants(void)
{
    return PPC_WANTS_PREFETCH | PPC_WANTS_EVICT;
}

static struct ppc_operation policy;

struct ppc_operation *register_policy(void)
{
    if (MASK & 1)
        policy.ppc_init = init;
    if (MASK & 2)
        policy.ppc_exit = finish;
    if (MASK & 4)
        policy.ppc_prefetch = prefetch;
    if (MASK & 8)
        policy.ppc_evict = evict;
    if (MASK & 16)
        policy.ppc_start = start;
    if (MASK & 32)
        policy.ppc_touch = touch;
    if (MASK & 64)
        policy.ppc_release = release;
    if (MASK & 128)
        policy.ppc_wants = wants;
    return &policy;
}
