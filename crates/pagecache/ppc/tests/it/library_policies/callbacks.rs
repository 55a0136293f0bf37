//! Policies in C: the arguments and results of each callback, and the libraries that are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::{FileAccess, Interests, PolicyOutput};

use super::registered_policy::{LEN_OF_A, PolicyDirectory, miss, triples};

/// The source of a C example of this crate.
macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../examples/policies/", $name, ".c"))
    };
}

/// Figure 4 of the paper, as printed.
const FIGURE_4: &str = r#"
#include "ppc.h"
int init(void* private) {
    // Initialize the policy by "private"
    return 0;
}
int exit(void) {
    // Clean the environment and exit
    return 0;
}
struct prefetch_ios* prefetch(struct miss_io *mio) {
    // Utilize "mio" to design prefetch policy
    return ios_for_prefetch;
}
struct evict_ios* evict(struct miss_io *mio) {
    // Utilize "mio" to design eviction policy
    return ios_for_evict;
}
const struct ppc_operation policy = {
    .ppc_init = init,
    .ppc_exit = exit,
    .ppc_prefetch = prefetch,
    .ppc_evict = evict,
};
struct ppc_operation *register_policy() {
    return (struct ppc_operation *)&policy;
}
"#;

/// A range as [`triples`] returns it.
fn triple(path: &str, start: u64, len: u64) -> (String, u64, u64) {
    (path.into(), start, len)
}

#[test]
fn the_policy_of_the_papers_figure_4_compiles_and_runs() {
    let lists = r#"
        #include "ppc.h"
        static struct prefetch_io in[] = {{ .path = "a", .offset = 0, .size = 100 }};
        static struct evict_io out[] = {{ .path = "sub/b", .offset = 0, .size = 8192 }};
        static struct prefetch_ios prefetches = { .count = 1, .ios = in };
        static struct evict_ios evicts = { .count = 1, .ios = out };
        static struct prefetch_ios *ios_for_prefetch = &prefetches;
        static struct evict_ios *ios_for_evict = &evicts;
    "#;
    let directory = PolicyDirectory::new();
    let Some(path) = directory.compile("figure4", &format!("{lists}{FIGURE_4}")) else {
        return;
    };
    let policy = directory.register(&path, "").unwrap();
    assert_eq!(
        policy.supervisor.interests(),
        Interests {
            prefetch: true,
            evict: true,
            ..Interests::default()
        }
    );
    assert_eq!(
        triples(&policy.prefetch(miss("a", 0)).ranges),
        [triple("a", 0, 100)]
    );
    assert_eq!(triples(&policy.evict(None)), [triple("sub/b", 0, 8192)]);
    policy.supervisor.shut_down().unwrap();
}

#[test]
fn a_callback_that_is_a_function_of_libc_is_refused() {
    // the policy defines no `exit`, so the dynamic linker binds the name to the C library's
    let source = r#"
        #include <stdlib.h>
        #include "ppc.h"
        const struct ppc_operation policy = { .ppc_exit = (int (*)(void))exit };
        struct ppc_operation *register_policy() { return (struct ppc_operation *)&policy; }
    "#;
    let directory = PolicyDirectory::new();
    let Some(path) = directory.compile("foreign", source) else {
        return;
    };
    let message = directory.register(&path, "").err().unwrap().to_string();
    assert!(
        message.contains("ppc_exit is not in the policy but is `exit` of "),
        "{message}"
    );
    assert!(
        message.contains("libc") && message.contains("make it static"),
        "{message}"
    );
}

#[test]
fn invalid_libraries_are_refused() {
    let directory = PolicyDirectory::new();
    let header = "#include \"ppc.h\"\n";
    let cases = [
        ("nothing", "int x;".to_owned(), "ppc_abi"),
        ("unregistered", header.to_owned(), "register_policy"),
        (
            "unknown",
            format!("{header}struct ppc_operation *register_policy() {{ extern int nowhere(); nowhere(); return 0; }}"),
            "undefined symbol: nowhere",
        ),
        ("null", format!("{header}struct ppc_operation *register_policy() {{ return 0; }}"), "returned NULL"),
        (
            "later",
            "#define PPC_H\nint ppc_abi[10] = {40, 2};\nvoid *register_policy() { return 0; }".to_owned(),
            "version 2",
        ),
        (
            "too_small",
            "int ppc_abi[10] = {40, 1, 8, 8, 8, 8, 8, 8, 8};\nvoid *register_policy() { return 0; }".to_owned(),
            "sizes that no version",
        ),
        (
            "failing_init",
            format!(
                "{header}int i(void *p) {{ return 7; }}\nstruct ppc_operation o = {{ i }};\n\
                 struct ppc_operation *register_policy() {{ return &o; }}"
            ),
            "ppc_init returned 7",
        ),
    ];
    for (name, source, reason) in cases {
        let Some(path) = directory.compile(name, &source) else {
            return;
        };
        let message = directory.register(&path, "").err().unwrap().to_string();
        assert!(message.contains(reason), "{name}: {message}");
    }
    for (path, reason) in [
        ("/nowhere/policy.so", "No such file"),
        ("/etc/hostname", "cannot be loaded"),
    ] {
        let message = directory
            .register(path.as_ref(), "")
            .err()
            .unwrap()
            .to_string();
        assert!(message.contains(reason), "{path}: {message}");
    }
}

#[test]
fn callbacks_are_called_if_defined_and_wanted() {
    let directory = PolicyDirectory::new();
    for mask in 0..256u32 {
        // none, single callbacks, adjacent pairs, and all; more combinations would take too long
        if mask.count_ones() > 1 && mask != 255 && mask >> mask.trailing_zeros() != 3 {
            continue;
        }
        let source = format!(
            "#define MASK {mask}\n{}",
            include_str!("optional_callbacks.c")
        );
        let Some(path) = directory.compile(&format!("callbacks{mask}"), &source) else {
            return;
        };
        let policy = directory.register(&path, "some config").unwrap();
        let is_defined = |bit: u32| mask >> bit & 1 != 0;
        let interests = Interests {
            prefetch: is_defined(2),
            evict: is_defined(3),
            touch: is_defined(5) && !is_defined(7),
            ..Interests::default()
        };
        assert_eq!(policy.supervisor.interests(), interests, "{mask}");
        policy.supervisor.queue_start();
        if is_defined(4) {
            for queue in [1, 9] {
                let prefetch = policy.next_prefetch();
                assert_eq!((prefetch.queue, prefetch.ranges.len()), (queue, 1));
            }
        }
        policy.supervisor.queue_touch(FileAccess {
            len: 1,
            ..miss("sub/b", 0)
        });
        if interests.prefetch {
            let prefetch = policy.prefetch(miss("a", 8192));
            assert_eq!(triples(&prefetch.ranges), [triple("a", 8192, 4096)]);
            assert_eq!((prefetch.queue, prefetch.ranges[0].device), (3, Some(0)));
        }
        if interests.evict {
            assert_eq!(
                triples(&policy.evict(Some(miss("a", 4096)))),
                [triple("a", 0, 4096)]
            );
            assert!(policy.evict(None).is_empty());
        }
        policy.supervisor.shut_down().unwrap();
        assert!(policy.outputs.try_recv().is_err(), "{mask}");
    }
}

#[test]
fn the_example_policies_return_the_lists_that_they_document() {
    let directory = PolicyDirectory::new();
    let Some(sequential) = directory.compile("sequential", example!("sequential")) else {
        return;
    };
    let eager = directory.compile("eager", example!("eager")).unwrap();
    let empty = directory.compile("empty", example!("empty")).unwrap();

    let policy = directory.register(&sequential, "65536").unwrap();
    assert_eq!(
        triples(&policy.prefetch(miss("a", 0)).ranges),
        [triple("a", 4096, 65536)]
    );
    assert_eq!(
        triples(&policy.prefetch(miss("a", (1 << 20) - 8192)).ranges),
        [triple("a", (1 << 20) - 4096, 4196)]
    );
    assert_eq!(
        triples(&policy.evict(Some(miss("a", 4096)))),
        [triple("a", 0, 4096)]
    );
    assert_eq!(
        triples(&policy.evict(Some(miss("a", 1 << 19)))),
        [triple("a", (1 << 19) - 65536, 65536)]
    );
    let message = directory
        .register(&sequential, "many")
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("the configuration must be a number of bytes"),
        "{message}"
    );

    let all = [triple("a", 0, LEN_OF_A), triple("sub/b", 0, 5000)];
    let policy = directory.register(&eager, "").unwrap();
    assert_eq!(triples(&policy.prefetch(miss("sub/b", 0)).ranges), all);
    policy.supervisor.shut_down().unwrap();
    let policy = directory.register(&eager, "").unwrap();
    policy.supervisor.queue_start();
    assert!(
        matches!(policy.next_output(), PolicyOutput::Prefetch(prefetch) if triples(&prefetch.ranges) == all)
    );

    let policy = directory.register(&empty, "").unwrap();
    (0..100).for_each(|at| policy.supervisor.queue_prefetch(miss("a", at * 8192)));
    policy.supervisor.queue_evict(None);
    policy.supervisor.shut_down().unwrap();
    assert!(policy.outputs.try_recv().is_err());
}

#[test]
fn a_suffix_of_the_last_list_shares_its_entries() {
    let directory = PolicyDirectory::new();
    for (name, generation) in [("with_generation", 5), ("without_generation", 0)] {
        let source = format!(
            "#define GENERATION {generation}\n{}",
            include_str!("list_suffixes.c")
        );
        let Some(path) = directory.compile(name, &source) else {
            return;
        };
        let policy = directory.register(&path, "").unwrap();
        let first = policy.prefetch(miss("a", 0)).ranges;
        assert_eq!(first.len(), 20_000);
        let mut slowest = Duration::ZERO;
        for skipped in (1..200).rev() {
            let before = Instant::now();
            let suffix = policy.prefetch(miss("a", skipped * 4096)).ranges;
            slowest = slowest.max(before.elapsed());
            assert_eq!(suffix.len() as u64, 20_000 - skipped, "{name}");
            assert_eq!(suffix[0], first[usize::try_from(skipped).unwrap()]);
            // the entries are sent once: with a generation and, because this is a suffix, also without one
            assert!(
                Arc::ptr_eq(first.backing(), suffix.backing()),
                "{name}: {skipped}"
            );
        }
        eprintln!(
            "{name}: the slowest of 200 calls with a list of 20 000 entries took {slowest:?}"
        );
        policy.supervisor.shut_down().unwrap();
    }
}

#[test]
fn a_policy_compiled_with_larger_structures_runs() {
    // as a later version of the header would: each structure has one more field
    let header = include_str!("../../../include/ppc.h");
    let mut later_header = header.to_owned();
    for name in [
        "miss_io",
        "prefetch_io",
        "evict_io",
        "prefetch_ios",
        "evict_ios",
        "ppc_operation",
        "ppc_abi",
    ] {
        let begin = later_header.find(&format!("struct {name} {{")).unwrap();
        let end = begin + later_header[begin..].find("\n};").unwrap();
        later_header.insert_str(end, "\n    void *added;");
    }
    assert_eq!(later_header.matches("void *added").count(), 7);
    let source = r#"
        #include "ppc.h"
        static struct prefetch_io in[] = {{ "a", 0, 1, 7, PPC_IO_XPU, "new" }, { "sub/b", 0, 2, 0, 0, "new" }};
        static struct evict_io out[] = {{ "a", 0, 3, "new" }, { "sub/b", 0, 4, "new" }};
        static struct prefetch_ios prefetches = { .count = 2, .ios = in, .added = "new" };
        static struct evict_ios evicts = { .count = 2, .ios = out, .added = "new" };
        static struct prefetch_ios *prefetch(struct miss_io *mio) { return mio->added ? 0 : &prefetches; }
        static struct evict_ios *evict(struct miss_io *mio) { return mio->added ? 0 : &evicts; }
        static const struct ppc_operation policy = {
            .ppc_prefetch = prefetch, .ppc_evict = evict, .added = (void *)16,
        };
        struct ppc_operation *register_policy() { return (struct ppc_operation *)&policy; }
    "#;
    let directory = PolicyDirectory::new();
    // the compiler searches the directory of the source before the directory of the original header
    std::fs::write(directory.output_dir.path().join("ppc.h"), later_header).unwrap();
    let Some(path) = directory.compile("later", source) else {
        return;
    };
    let policy = directory.register(&path, "").unwrap();
    assert_eq!(
        triples(&policy.prefetch(miss("a", 0)).ranges),
        [triple("a", 0, 1), triple("sub/b", 0, 2)]
    );
    assert_eq!(
        triples(&policy.evict(Some(miss("a", 0)))),
        [triple("a", 0, 3), triple("sub/b", 0, 4)]
    );
    policy.supervisor.shut_down().unwrap();
}
