/* A policy that defines the callbacks whose bits are set in MASK. It fails if one receives unexpected arguments, or is
 * not called as expected. */
#include <string.h>

#include "ppc.h"

static const struct ppc_context *context;
static int lists_returned, lists_released, touches;

static int init(void *private)
{
    context = private;
    return strcmp(context->config, "some config") != 0 || context->size < sizeof *context || context->root[0] != '/' ||
           context->memory != 1 << 30;
}

static int finish(void)
{
    if (context && (MASK & 64) && lists_released != lists_returned)
        context->fail("a list was not released");
    if (context && (MASK & 32) && !(MASK & 128) && touches != 1)
        context->fail("ppc_touch was not called once");
    return 0;
}

static struct prefetch_io prefetch_entry;
static struct prefetch_ios prefetch_list = {.count = 1, .ios = &prefetch_entry, .queue = 3};
static struct prefetch_io start_entry = {.path = "a", .offset = 0, .size = 1};
static struct prefetch_ios second_start_list = {.count = 1, .ios = &start_entry, .queue = 9};
static struct prefetch_ios start_lists = {.count = 1, .ios = &start_entry, .queue = 1, .next = &second_start_list};
static struct evict_io evict_entry;
static struct evict_ios evict_list = {.ios = &evict_entry};

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    lists_returned++;
    if (context && (mio->kind != PPC_MISS || mio->file_size != (1 << 20) + 100 || mio->pid != 1))
        context->fail("a miss has unexpected fields");
    prefetch_entry = ppc_prefetch_io_to(mio->path, mio->offset, mio->size, 0);
    return &prefetch_list;
}

static struct evict_ios *evict(struct miss_io *mio)
{
    lists_returned++;
    evict_list.count = mio != NULL;
    if (mio) {
        evict_entry.path = mio->path;
        evict_entry.size = mio->offset;
    }
    return &evict_list;
}

static struct prefetch_ios *start(void)
{
    lists_returned++;
    return &start_lists;
}

static struct prefetch_ios *touch(struct miss_io *mio)
{
    touches += !strcmp(mio->path, "sub/b") && mio->file_size == 5000;
    return NULL;
}

static void release(void *ios)
{
    lists_released += ios == &prefetch_list || ios == &evict_list || ios == &start_lists;
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
