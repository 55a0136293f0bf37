//! Arguments and results of each callback.

use crate::stage::{LEN, Stage, miss, plain};
use anamnesis_ppc::{Interests, PolicyOutput};

/// The source of a C example of this crate.
macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../examples/policies/", $name, ".c"))
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

fn of(path: &str, start: u64, len: u64) -> (String, u64, u64) {
    (path.into(), start, len)
}

#[test]
fn figure_4_of_the_paper_compiles_and_runs() {
    let lists = r#"
        #include "ppc.h"
        static struct prefetch_io in[] = {{ .path = "a", .offset = 0, .size = 100 }};
        static struct evict_io out[] = {{ .path = "sub/b", .offset = 0, .size = 8192 }};
        static struct prefetch_ios prefetches = { .count = 1, .ios = in };
        static struct evict_ios evicts = { .count = 1, .ios = out };
        static struct prefetch_ios *ios_for_prefetch = &prefetches;
        static struct evict_ios *ios_for_evict = &evicts;
    "#;
    let stage = Stage::new();
    let Some(path) = stage.compile("figure4", &format!("{lists}{FIGURE_4}")) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    assert_eq!(
        actor.supervisor.interests(),
        Interests {
            prefetch: true,
            evict: true,
            ..Interests::default()
        }
    );
    assert_eq!(
        plain(&actor.prefetch(miss("a", 0)).ranges),
        [of("a", 0, 100)]
    );
    assert_eq!(plain(&actor.evict(None)), [of("sub/b", 0, 8192)]);
    actor.supervisor.shut_down().unwrap();
}

#[test]
fn a_callback_of_another_library_is_refused() {
    // a policy without an `exit` of its own, so that the name is bound to that of the C library
    let source = r#"
        #include <stdlib.h>
        #include "ppc.h"
        const struct ppc_operation policy = { .ppc_exit = (int (*)(void))exit };
        struct ppc_operation *register_policy() { return (struct ppc_operation *)&policy; }
    "#;
    let stage = Stage::new();
    let Some(path) = stage.compile("foreign", source) else {
        return;
    };
    let error = stage.register(&path, "").err().unwrap().to_string();
    assert!(
        error.contains("ppc_exit is not in the policy but is `exit` of "),
        "{error}"
    );
    assert!(
        error.contains("libc") && error.contains("make it static"),
        "{error}"
    );
}

#[test]
fn invalid_libraries_are_refused() {
    let stage = Stage::new();
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
            "smaller",
            "int ppc_abi[10] = {40, 1, 8, 8, 8, 8, 8, 8, 8};\nvoid *register_policy() { return 0; }".to_owned(),
            "sizes that no version",
        ),
        (
            "unwilling",
            format!(
                "{header}int i(void *p) {{ return 7; }}\nstruct ppc_operation o = {{ i }};\n\
                 struct ppc_operation *register_policy() {{ return &o; }}"
            ),
            "ppc_init returned 7",
        ),
    ];
    for (name, source, why) in cases {
        let Some(path) = stage.compile(name, &source) else {
            return;
        };
        let error = stage.register(&path, "").err().unwrap().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    for (path, why) in [
        ("/nowhere/policy.so", "No such file"),
        ("/etc/hostname", "cannot be loaded"),
    ] {
        let error = stage.register(path.as_ref(), "").err().unwrap().to_string();
        assert!(error.contains(why), "{path}: {error}");
    }
}

#[test]
fn every_callback_may_be_absent() {
    let stage = Stage::new();
    for mask in 0..256u32 {
        // single callbacks, all, and adjacent pairs; more combinations would take too long
        if mask.count_ones() > 1 && mask != 255 && mask >> mask.trailing_zeros() != 3 {
            continue;
        }
        let source = format!("#define MASK {mask}\n{}", include_str!("each.c"));
        let Some(path) = stage.compile(&format!("each{mask}"), &source) else {
            return;
        };
        let actor = stage.register(&path, "some config").unwrap();
        let has = |bit: u32| mask >> bit & 1 != 0;
        let wants = Interests {
            prefetch: has(2),
            evict: has(3),
            touch: has(5) && !has(7),
            recording: false,
        };
        assert_eq!(actor.supervisor.interests(), wants, "{mask}");
        actor.supervisor.queue_start();
        if has(4) {
            for queue in [1, 9] {
                match actor.next() {
                    PolicyOutput::Prefetch(prefetch) => {
                        assert_eq!((prefetch.queue, prefetch.ranges.len()), (queue, 1))
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        actor.supervisor.queue_touch(anamnesis_ppc::FileAccess {
            len: 1,
            ..miss("sub/b", 0)
        });
        if wants.prefetch {
            let prefetch = actor.prefetch(miss("a", 8192));
            assert_eq!(plain(&prefetch.ranges), [of("a", 8192, 4096)]);
            assert_eq!((prefetch.queue, prefetch.ranges[0].device), (3, Some(0)));
        }
        if wants.evict {
            assert_eq!(
                plain(&actor.evict(Some(miss("a", 4096)))),
                [of("a", 0, 4096)]
            );
            assert!(actor.evict(None).is_empty());
        }
        actor.supervisor.shut_down().unwrap();
        assert!(actor.answers.try_recv().is_err(), "{mask}");
    }
}

#[test]
fn the_examples_in_c_return_the_expected_lists() {
    let stage = Stage::new();
    let Some(sequential) = stage.compile("sequential", example!("sequential")) else {
        return;
    };
    let eager = stage.compile("eager", example!("eager")).unwrap();
    let empty = stage.compile("empty", example!("empty")).unwrap();

    let actor = stage.register(&sequential, "65536").unwrap();
    assert_eq!(
        plain(&actor.prefetch(miss("a", 0)).ranges),
        [of("a", 4096, 65536)]
    );
    assert_eq!(
        plain(&actor.prefetch(miss("a", (1 << 20) - 8192)).ranges),
        [of("a", (1 << 20) - 4096, 4196)]
    );
    assert_eq!(
        plain(&actor.evict(Some(miss("a", 4096)))),
        [of("a", 0, 4096)]
    );
    assert_eq!(
        plain(&actor.evict(Some(miss("a", 1 << 19)))),
        [of("a", (1 << 19) - 65536, 65536)]
    );
    let error = stage
        .register(&sequential, "many")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("the configuration must be a number of bytes"),
        "{error}"
    );

    let all = [of("a", 0, LEN), of("sub/b", 0, 5000)];
    let actor = stage.register(&eager, "").unwrap();
    assert_eq!(plain(&actor.prefetch(miss("sub/b", 0)).ranges), all);
    actor.supervisor.shut_down().unwrap();
    let actor = stage.register(&eager, "").unwrap();
    actor.supervisor.queue_start();
    assert!(
        matches!(actor.next(), PolicyOutput::Prefetch(prefetch) if plain(&prefetch.ranges) == all)
    );

    let actor = stage.register(&empty, "").unwrap();
    (0..100).for_each(|at| actor.supervisor.queue_prefetch(miss("a", at * 8192)));
    actor.supervisor.queue_evict(None);
    actor.supervisor.shut_down().unwrap();
    assert!(actor.answers.try_recv().is_err());
}

#[test]
fn a_suffix_of_a_sent_list_is_not_sent_again() {
    let stage = Stage::new();
    for (name, generation) in [("with_generation", 5), ("without_generation", 0)] {
        let source = format!(
            "#define GENERATION {generation}\n{}",
            include_str!("suffixes.c")
        );
        let Some(path) = stage.compile(name, &source) else {
            return;
        };
        let actor = stage.register(&path, "").unwrap();
        let first = actor.prefetch(miss("a", 0)).ranges;
        assert_eq!(first.len(), 20_000);
        let mut slowest = std::time::Duration::ZERO;
        for at in (1..200).rev() {
            let before = std::time::Instant::now();
            let tail = actor.prefetch(miss("a", at * 4096)).ranges;
            slowest = slowest.max(before.elapsed());
            assert_eq!(tail.len() as u64, 20_000 - at, "{name}");
            assert_eq!(tail[0], first[usize::try_from(at).unwrap()]);
            // both ranges refer to one list, with a generation and, because it is a suffix, also without one
            assert!(
                std::sync::Arc::ptr_eq(first.backing(), tail.backing()),
                "{name}: {at}"
            );
        }
        eprintln!("{name}: the slowest of 200 answers of 20 000 entries took {slowest:?}");
        actor.supervisor.shut_down().unwrap();
    }
}

#[test]
fn a_policy_compiled_with_a_later_header_runs() {
    // each structure has one more field
    let header = include_str!("../../include/ppc.h");
    let mut later = header.to_owned();
    for name in [
        "miss_io",
        "prefetch_io",
        "evict_io",
        "prefetch_ios",
        "evict_ios",
        "ppc_operation",
        "ppc_abi",
    ] {
        let begin = later.find(&format!("struct {name} {{")).unwrap();
        let end = begin + later[begin..].find("\n};").unwrap();
        later.insert_str(end, "\n    void *grown;");
    }
    assert_eq!(later.matches("void *grown").count(), 7);
    let source = r#"
        #include "ppc.h"
        static struct prefetch_io in[] = {{ "a", 0, 1, 7, PPC_IO_XPU, "new" }, { "sub/b", 0, 2, 0, 0, "new" }};
        static struct evict_io out[] = {{ "a", 0, 3, "new" }, { "sub/b", 0, 4, "new" }};
        static struct prefetch_ios prefetches = { .count = 2, .ios = in, .grown = "new" };
        static struct evict_ios evicts = { .count = 2, .ios = out, .grown = "new" };
        static struct prefetch_ios *prefetch(struct miss_io *mio) { return mio->grown ? 0 : &prefetches; }
        static struct evict_ios *evict(struct miss_io *mio) { return mio->grown ? 0 : &evicts; }
        static const struct ppc_operation policy = {
            .ppc_prefetch = prefetch, .ppc_evict = evict, .grown = (void *)16,
        };
        struct ppc_operation *register_policy() { return (struct ppc_operation *)&policy; }
    "#;
    let stage = Stage::new();
    std::fs::write(stage.out.path().join("ppc.h"), later).unwrap(); // the directory of the source is searched first
    let Some(path) = stage.compile("later", source) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    assert_eq!(
        plain(&actor.prefetch(miss("a", 0)).ranges),
        [of("a", 0, 1), of("sub/b", 0, 2)]
    );
    assert_eq!(
        plain(&actor.evict(Some(miss("a", 0)))),
        [of("a", 0, 3), of("sub/b", 0, 4)]
    );
    actor.supervisor.shut_down().unwrap();
}
