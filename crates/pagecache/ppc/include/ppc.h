/*
 * ppc.h - C interface for policies of the programmable page cache
 *
 * DESCRIPTION
 *
 * A policy is a shared library that decides which bytes of files are prefetched into the page cache and which are
 * evicted. It is compiled with
 *
 *     cc -shared -fPIC -O2 -I<directory of ppc.h> policy.c -o libpolicy.so
 *
 * and exports one function, register_policy(), which returns its callbacks:
 *
 *     #include "ppc.h"
 *
 *     static struct prefetch_io io;
 *     static struct prefetch_ios ios = { .count = 1, .ios = &io };
 *
 *     static struct prefetch_ios *next(struct miss_io *mio)
 *     {
 *         io = ppc_prefetch_io(mio->path, mio->offset + mio->size, 64 << 20);
 *         return ppc_clip(&io, mio->file_size) ? &ios : NULL;
 *     }
 *
 *     static const struct ppc_operation policy = { .ppc_prefetch = next };
 *
 *     struct ppc_operation *register_policy(void)
 *     {
 *         return (struct ppc_operation *)&policy;
 *     }
 *
 * RULES
 *
 * 1. Callbacks are called one at a time, all on one thread. ppc_init is called first and ppc_exit last.
 * 2. Each call has a deadline, by default 5 s for ppc_init and ppc_start, 1 s for ppc_exit, and 100 ms for the
 *    others. It is one of processor time, which begins when the same time has passed on the clock. A call that waits
 *    may take 5 s longer.
 * 3. A list names files by their paths relative to the root of the namespace, as miss_io does: without a leading '/'
 *    and without "..". An entry begins before the end of its file, is not empty, and ends at the latest with the
 *    file's last page.
 * 4. A policy that crashes, ends its process, exceeds a deadline or returns an invalid list is deregistered, and the
 *    kernel's own policy applies again. Nothing else is affected, because a policy runs in a process of its own, with
 *    1 GiB of memory by default and none of the daemon's descriptors. It may create threads but no processes. Its
 *    standard output and standard error are written to the daemon's log line by line, with level 6
 *    (`anamnesis ppc run --log info` prints them).
 * 5. A list is a recommendation. The cache prefetches and evicts within the limits of the machine.
 *
 * OWNERSHIP
 *
 * The argument of a callback (miss_io and its path) is valid during the call. A returned list stays property of the
 * policy. It is copied when the callback returns, and must stay valid and unchanged until the next call of any
 * callback. A policy that allocates its lists can free them in ppc_release, which is called with each list after it
 * was copied. A list that a policy keeps should have a generation (see struct prefetch_ios), so that it is copied
 * once instead of at every call.
 *
 * SYMBOLS
 *
 * Libraries are loaded with RTLD_DEEPBIND, so a function of the policy that has the name of a function of the C
 * library (exit) takes precedence within the policy. Callbacks should still be static. A callback whose address is
 * not in the policy's own library is refused. A daemon built for a libc without RTLD_DEEPBIND (musl) loads no
 * libraries.
 *
 * COMPATIBILITY
 *
 * Including this header defines the symbol ppc_abi in the library. It contains the sizes of the structures with which
 * the library was compiled. Structures only grow, at their end, and zero in a new field selects the previous
 * behaviour. So a policy runs with later daemons, and with earlier ones, which ignore its newest fields.
 */
#ifndef PPC_H
#define PPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PPC_EXPORT __attribute__((visibility("default")))

/* Changes only if policies must be recompiled. */
#define PPC_ABI_VERSION 1

/* ---- Arguments of callbacks ------------------------------------------------------------------------------------- */

/* miss_io.kind */
#define PPC_MISS 0  /* the bytes were not in the page cache: a thread waits for the device */
#define PPC_TOUCH 1 /* the bytes were accessed, whether they were in the page cache or not */
#define PPC_OPEN 2  /* a process opened or mapped the file */

/* An access of a process to bytes of a file. Adjacent accesses of one thread are merged. */
struct miss_io {
    const char *path;   /* relative to the namespace's root */
    uint64_t offset;    /* first byte; a multiple of the page size */
    uint64_t size;      /* number of bytes; 0 if unknown */
    uint64_t file_size; /* length of the file */
    uint32_t pid;       /* process id */
    uint32_t tid;       /* thread id */
    uint32_t kind;      /* PPC_MISS, ... */
    uint32_t reserved;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
};

/* Levels of ppc_context.log, the same as the levels of syslog(3) */
#define PPC_LOG_ERROR 3
#define PPC_LOG_WARNING 4
#define PPC_LOG_INFO 6
#define PPC_LOG_DEBUG 7

/*
 * The argument of ppc_init, valid until ppc_exit returns. Its first member is the configuration, which is therefore
 * also *(const char **)private.
 */
struct ppc_context {
    const char *config; /* the configuration string of the registration; never NULL */
    uint64_t size;      /* sizeof(struct ppc_context) of the daemon; fields beyond it do not exist */
    const char *root;   /* absolute path of the namespace */
    uint64_t memory;    /* bytes that the page cache may use */

    /* Writes a line to the daemon's log. May be called on any thread. */
    void (*log)(int level, const char *text);

    /* Reports a failure: the policy is deregistered with this reason when the current callback returns. */
    void (*fail)(const char *reason);
};

/* ---- Results of callbacks --------------------------------------------------------------------------------------- */

/* prefetch_io.flags */
#define PPC_IO_XPU 1u /* xpu is valid; without this flag xpu must be 0 */

/* A range to prefetch. */
struct prefetch_io {
    const char *path; /* relative to the namespace's root */
    uint64_t offset;
    uint64_t size;
    uint32_t xpu;   /* with PPC_IO_XPU: the accelerator near which the bytes are placed */
    uint32_t flags; /* PPC_IO_... */
};

/* A range to evict. */
struct evict_io {
    const char *path; /* relative to the namespace's root */
    uint64_t offset;
    uint64_t size;
};

/*
 * A list of ranges to prefetch. It replaces the previous list of its queue. A callback that returns NULL keeps the
 * previous list; an empty list (count 0) cancels it.
 *
 * The list consists of the entries ios[first] to ios[count - 1], or of at most `limit` entries from ios[first] if
 * limit is not 0.
 *
 * generation: 0 if the array may differ at each call. With another number the policy promises that `count` and the
 * array at `ios` are the same whenever it returns that number for this queue. The array is then copied once, and the
 * cost of a call does not depend on its length. With `first`, a policy can so return the rest of a long template at
 * every miss.
 */
struct prefetch_ios {
    uint64_t count;
    struct prefetch_io *ios;
    uint64_t first;
    uint64_t limit;
    uint64_t generation;
    uint32_t queue; /* prefetch queue, for example one per worker; queues are served in turn */
    uint32_t reserved;
    struct prefetch_ios *next; /* ppc_start only: list of another queue, or NULL */
};

/* A list of ranges to evict. The fields are the same as in prefetch_ios; there are no queues. */
struct evict_ios {
    uint64_t count;
    struct evict_io *ios;
    uint64_t first;
    uint64_t limit;
    uint64_t generation;
};

/* ppc_operation.ppc_wants */
#define PPC_WANTS_PREFETCH 1u
#define PPC_WANTS_EVICT 2u
#define PPC_WANTS_TOUCH 4u

/* The callbacks. Each is optional (NULL). */
struct ppc_operation {
    /* Called at registration. `private` is a const struct ppc_context *. A result other than 0 cancels the
     * registration. */
    int (*ppc_init)(void *private_);

    /* Called when the registration ends. The result is logged if it is not 0. */
    int (*ppc_exit)(void);

    /* Called at a miss; returns what to prefetch. NULL callback: only the kernel's read-ahead applies. */
    struct prefetch_ios *(*ppc_prefetch)(struct miss_io *mio);

    /* Called under memory pressure, at a miss or periodically with NULL; returns what to evict. NULL callback: the
     * kernel reclaims pages. */
    struct evict_ios *(*ppc_evict)(struct miss_io *mio);

    /* The four callbacks above come from the paper (Figure 4); the following are extensions. */

    /* Called before the service starts; returns what to prefetch before the first miss, one list per queue. */
    struct prefetch_ios *(*ppc_start)(void);

    /* Called at every access, including hits; returns what to prefetch. Slows readers by up to 3 %, so it should be
     * omitted if misses suffice. */
    struct prefetch_ios *(*ppc_touch)(struct miss_io *mio);

    /* Called with the last returned list (of ppc_start: the first one) after it was copied; the policy may free it. */
    void (*ppc_release)(void *ios);

    /* Returns which callbacks are to be called, an OR of PPC_WANTS_...; called once after ppc_init. NULL callback:
     * all that are defined. */
    uint32_t (*ppc_wants)(void);
};

/* Exported by every policy. */
PPC_EXPORT struct ppc_operation *register_policy(void);

/* ---- Constructors ----------------------------------------------------------------------------------------------- */

/* A range to prefetch on any memory node. */
static inline struct prefetch_io ppc_prefetch_io(const char *path, uint64_t offset, uint64_t size)
{
    struct prefetch_io io = {path, offset, size, 0, 0};
    return io;
}

/* A range to prefetch near an accelerator. */
static inline struct prefetch_io ppc_prefetch_io_to(const char *path, uint64_t offset, uint64_t size, uint32_t xpu)
{
    struct prefetch_io io = {path, offset, size, xpu, PPC_IO_XPU};
    return io;
}

/* Clips an entry to the length of its file. Returns 0 if nothing is left; such an entry must not be returned. */
static inline int ppc_clip(struct prefetch_io *io, uint64_t file_size)
{
    if (io->offset >= file_size)
        return 0;
    if (io->size > file_size - io->offset)
        io->size = file_size - io->offset;
    return io->size != 0;
}

/* ---- Compatibility: sizes of the structures with which the library was compiled ---------------------------------- */

struct ppc_abi {
    uint32_t size;    /* size of this structure */
    uint32_t version; /* PPC_ABI_VERSION */
    uint32_t operation;
    uint32_t context;
    uint32_t miss;
    uint32_t prefetch_list;
    uint32_t prefetch_entry;
    uint32_t evict_list;
    uint32_t evict_entry;
    uint32_t reserved;
};

/* Weak, so that a library of several source files has one definition. */
extern __attribute__((weak, visibility("default"))) const struct ppc_abi ppc_abi;

const struct ppc_abi ppc_abi = {
    sizeof(struct ppc_abi),
    PPC_ABI_VERSION,
    sizeof(struct ppc_operation),
    sizeof(struct ppc_context),
    sizeof(struct miss_io),
    sizeof(struct prefetch_ios),
    sizeof(struct prefetch_io),
    sizeof(struct evict_ios),
    sizeof(struct evict_io),
    0,
};

#ifdef __cplusplus
}
#endif

#endif
