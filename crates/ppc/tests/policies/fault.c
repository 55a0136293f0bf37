/* Common part of the faulty policies. Each policy defines fault(). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ppc.h"

struct prefetch_ios *fault(struct miss_io *mio);

static const struct ppc_context *context;
static struct prefetch_io one;
static struct prefetch_ios ios;

static struct prefetch_ios *list(struct prefetch_io *at, uint64_t count)
{
    ios.ios = at;
    ios.count = count;
    return &ios;
}

static struct prefetch_ios *io(const char *path, uint64_t offset, uint64_t size)
{
    one.path = path;
    one.offset = offset;
    one.size = size;
    return list(&one, 1);
}

static struct prefetch_ios *recurse(struct miss_io *mio, int depth)
{
    volatile char frame[1024];
    memset((char *)frame, depth, sizeof frame);
    struct prefetch_ios *deeper = recurse(mio, depth + 1);
    return frame[depth % 1024] ? deeper : 0;
}

static void exit_group_of_threads(void)
{
    syscall(SYS_exit_group, 9);
}

/* Writes a malformed message to the daemon. */
static void send_malformed(void)
{
    struct stat stat;
    for (int fd = 3; fd < 64; fd++)
        if (!fstat(fd, &stat) && S_ISSOCK(stat.st_mode))
            write(fd, "\xff\xff\xff\xff and more", 13);
}

static int init(void *private)
{
    context = private;
    if (*context->config) {
        char name[4096];
        snprintf(name, sizeof name, "%s.new", context->config);
        FILE *file = fopen(name, "w");
        if (!file || fprintf(file, "%d\n", getpid()) < 0 || fclose(file) || rename(name, context->config))
            return 1;
    }
    return 0;
}

static const struct ppc_operation policy = {.ppc_init = init, .ppc_prefetch = fault};

struct ppc_operation *register_policy(void)
{
    return (struct ppc_operation *)&policy;
}
