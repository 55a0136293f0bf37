/* A policy that fails in ppc_prefetch or ppc_start, in the way that its configuration names. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppc.h"

static const struct ppc_context *context;
static struct prefetch_io *entries;
static struct prefetch_ios list;

static int is(const char *way)
{
    return strcmp(context->config, way) == 0;
}

static struct prefetch_ios *entry(const char *path, uint64_t offset, uint64_t size)
{
    static struct prefetch_io one;
    one.path = path;
    one.offset = offset;
    one.size = size;
    one.xpu = is("accelerator") ? 3 : 0;
    list.ios = &one;
    list.count = 1;
    return &list;
}

static void *allocate(void *none)
{
    for (;;) {
        void *memory = malloc(1 << 20);
        if (memory)
            memset(memory, 1, 1 << 20);
    }
    return none;
}

static int init(void *private)
{
    context = private;
    if (is("init-7"))
        return 7;
    while (is("init-never"))
        ;
    return 0;
}

static int finish(void)
{
    return is("exit-42") ? 42 : 0;
}

static struct prefetch_ios *start(void)
{
    if (!is("cycle"))
        return 0;
    list.next = &list;
    return &list;
}

static struct prefetch_ios *prefetch(struct miss_io *mio)
{
    if (is("null"))
        *(volatile int *)0 = 1;
    if (is("pointer"))
        return (void *)0x1234;
    if (is("kill"))
        kill(getpid(), SIGKILL);
    if (is("exit"))
        exit(0);
    if (is("sleep"))
        sleep(1000);
    while (is("spin"))
        ;
    if (is("allocate"))
        allocate(0);
    if (is("thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, allocate, 0);
    }
    if (is("many")) {
        list.count = 5000000;
        entries = calloc(list.count, sizeof *entries);
        for (uint64_t at = 0; at < list.count; at++)
            entries[at] = ppc_prefetch_io(mio->path, 0, 1);
        list.ios = entries;
        return &list;
    }
    if (is("2^60")) {
        list.count = 1ull << 60;
        list.ios = (void *)16;
        return &list;
    }
    if (is("end"))
        return entry(mio->path, 0, mio->file_size * 2);
    if (is("passwd"))
        return entry("../../etc/passwd", 0, 1);
    if (is("missing"))
        return entry("missing.safetensors", 0, 1);
    if (is("fail"))
        context->fail("gives up");
    if (is("fork")) {
        int pid = fork();
        if (pid == 0)
            _exit(0);
        context->fail(pid == -1 && errno == EPERM ? "no process was created" : "a process was created");
    }
    return entry(mio->path, 0, 4096);
}

static const struct ppc_operation policy = {
    .ppc_init = init,
    .ppc_exit = finish,
    .ppc_start = start,
    .ppc_prefetch = prefetch,
};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
