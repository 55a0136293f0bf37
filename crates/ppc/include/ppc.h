/*
 * ppc.h: policies of the programmable page cache, in C.
 *
 * A policy is a shared library that says which bytes of files shall be brought into the page cache, and which shall be
 * let go. It is built with
 *
 *     cc -shared -fPIC -O2 -I<directory of ppc.h> policy.c -o libpolicy.so
 *
 * and needs one function, register_policy(), which returns its callbacks:
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
 * THE RULES
 *
 * 1. Calls come one at a time, all on one thread. ppc_init is the first, ppc_exit the last.
 * 2. Each call has a deadline: 5 s for ppc_init and ppc_start, 1 s for ppc_exit, 100 ms for the others (the daemon may
 *    be told otherwise).
 * 3. A list names files by their path relative to the root of the namespace, without a leading '/' and without "..", as
 *    miss_io does. An entry begins before the end of its file, is not empty, and ends at the latest with the file's last
 *    page.
 * 4. A policy that breaks a rule (crashes, ends its process, is late, returns nonsense) loses its registration, and the
 *    kernel decides again. Nothing else happens: it runs in a process of its own, with an address space, a limit of
 *    memory (1 GiB), and no descriptors of the daemon. It may make threads but no processes. Its standard output and
 *    standard error become lines of the daemon's log.
 * 5. What is returned is a recommendation. The cache brings and lets go what the machine allows.
 *
 * WHO OWNS WHAT
 *
 * What a callback is given (miss_io, its path) is valid during the call. What it returns stays the policy's, and must
 * stay valid and unchanged until the next call of any of its callbacks; it is copied at once. A policy that allocates its
 * lists can free them in ppc_release, which gets back each list as soon as it was copied. A list that a policy keeps
 * should have a generation (below), so that it is copied once and not at every call.
 *
 * NAMES
 *
 * Libraries are loaded with deep binding: a function of yours that has the name of one of the C library's (`exit`) is
 * yours. Still make your callbacks static. A callback that is not in the policy's own library is refused.
 *
 * VERSIONS
 *
 * Including this header defines the symbol ppc_abi in your library, which carries the sizes of the structures that it
 * was compiled with. Structures only ever grow, at their end, and zero in a new field means what was before; so a policy
 * runs with later daemons, and with earlier ones, which do not know its newest fields.
 */
#ifndef PPC_H
#define PPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PPC_EXPORT __attribute__((visibility("default")))

/* Changes only if policies have to be compiled again. */
#define PPC_ABI_VERSION 1

/* ---- What a policy is told ------------------------------------------------------------------------------------- */

/* miss_io.kind */
#define PPC_MISS 0  /* the bytes were not in the page cache: somebody waits for the device */
#define PPC_TOUCH 1 /* the bytes were asked for, whether they were there or not */
#define PPC_OPEN 2  /* a process opened or mapped the file */

/* Bytes of a file that a process asked for. Neighbouring events of one thread are merged. */
struct miss_io {
    const char *path;   /* relative to the namespace's root */
    uint64_t offset;    /* first byte; a multiple of the page size */
    uint64_t size;      /* how many; 0 if that is not known */
    uint64_t file_size; /* length of the file */
    uint32_t pid;       /* process */
    uint32_t tid;       /* thread */
    uint32_t kind;      /* PPC_MISS, ... */
    uint32_t reserved;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
};

/* ppc_context.log's levels, those of syslog */
#define PPC_LOG_ERROR 3
#define PPC_LOG_WARNING 4
#define PPC_LOG_INFO 6
#define PPC_LOG_DEBUG 7

/*
 * What the `private` of ppc_init points to: valid until ppc_exit returned. Its first member is the configuration, so
 * that *(const char **)private is it.
 */
struct ppc_context {
    const char *config; /* the string that was given with the registration; never NULL */
    uint64_t size;      /* sizeof(struct ppc_context) of the daemon: fields beyond it are not there */
    const char *root;   /* absolute path of the namespace */
    uint64_t memory;    /* bytes that the page cache may take */

    /* Writes a line to the daemon's log. Callable from any thread. */
    void (*log)(int level, const char *text);

    /* Gives up: the registration ends, with this reason, when the running callback returns. */
    void (*fail)(const char *reason);
};

/* ---- What a policy answers ------------------------------------------------------------------------------------- */

/* prefetch_io.flags */
#define PPC_IO_XPU 1u /* xpu is given; without it the bytes may lie anywhere, and xpu must be 0 */

/* Bytes to bring. */
struct prefetch_io {
    const char *path; /* relative to the namespace's root */
    uint64_t offset;
    uint64_t size;
    uint32_t xpu;   /* the accelerator that they are for, with PPC_IO_XPU */
    uint32_t flags; /* PPC_IO_... */
};

/* Bytes to let go. */
struct evict_io {
    const char *path; /* relative to the namespace's root */
    uint64_t offset;
    uint64_t size;
};

/*
 * A list. NULL instead of a list leaves what is going on as it is; an empty list (count 0) ends it.
 *
 * The answer is ios[first] to the end, or `limit` entries from there if limit is not 0.
 *
 * generation: 0 if the array may differ at each call. Otherwise the policy promises that as long as it returns the same
 * number (for this lane), `ios` and `count` are the same and what they point to did not change; then the array is copied
 * once, and a call costs nothing however long it is. The way to say "from here to the end of a template".
 */
struct prefetch_ios {
    uint64_t count;
    struct prefetch_io *ios;
    uint64_t first;
    uint64_t limit;
    uint64_t generation;
    uint32_t lane; /* which worker it is for: a new list interrupts that of the same lane; lanes take turns */
    uint32_t reserved;
    struct prefetch_ios *next; /* ppc_start only: the list of another lane, or NULL */
};

/* As prefetch_ios, without lanes. */
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

/* The callbacks. Each may be absent (NULL). */
struct ppc_operation {
    /* It was registered. `private` is a const struct ppc_context *. Anything but 0 undoes the registration. */
    int (*ppc_init)(void *private_);

    /* Its registration ends. The result is logged if it is not 0. */
    int (*ppc_exit)(void);

    /* A process waits for bytes: what to bring next. Absent: the kernel reads ahead as ever. */
    struct prefetch_ios *(*ppc_prefetch)(struct miss_io *mio);

    /* Memory is short; at a miss, or (NULL) from time to time: what to let go. Absent: the kernel evicts as ever. */
    struct evict_ios *(*ppc_evict)(struct miss_io *mio);

    /* The four above are the paper's (Figure 4); those below are ours. */

    /* The service is about to start: what to bring before the first miss, one list per lane. */
    struct prefetch_ios *(*ppc_start)(void);

    /* A process asked for bytes, which may have been there. Costs readers up to 3 %: leave it out if you can. */
    struct prefetch_ios *(*ppc_touch)(struct miss_io *mio);

    /* The list that was returned last (ppc_start: the first of them) was copied and may be freed. */
    void (*ppc_release)(void *ios);

    /* Which callbacks are wanted, PPC_WANTS_... or'ed; asked once after ppc_init. Absent: all that are there. */
    uint32_t (*ppc_wants)(void);
};

/* The one function that a policy exports. */
PPC_EXPORT struct ppc_operation *register_policy(void);

/* ---- Small things ---------------------------------------------------------------------------------------------- */

/* Bytes to bring, wherever they lie. */
static inline struct prefetch_io ppc_prefetch_io(const char *path, uint64_t offset, uint64_t size)
{
    struct prefetch_io io = {path, offset, size, 0, 0};
    return io;
}

/* Bytes to bring near an accelerator. */
static inline struct prefetch_io ppc_prefetch_io_to(const char *path, uint64_t offset, uint64_t size, uint32_t xpu)
{
    struct prefetch_io io = {path, offset, size, xpu, PPC_IO_XPU};
    return io;
}

/* Cuts an entry to the file. 0 if nothing is left of it, and it must not be returned. */
static inline int ppc_clip(struct prefetch_io *io, uint64_t file_size)
{
    if (io->offset >= file_size)
        return 0;
    if (io->size > file_size - io->offset)
        io->size = file_size - io->offset;
    return io->size != 0;
}

/* ---- Versions: sizes of the structures, as this library was compiled --------------------------------------------- */

struct ppc_abi {
    uint32_t size;    /* of this structure */
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

/* Weak: a library of several files has it once. */
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
