//! The structures of `abi.rs` have the layout of those in `include/ppc.h`.

mod cc;

use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use anamnesis_ppc::abi::{
    Abi, EvictIo, EvictIos, MissIo, Operation, PpcContext, PrefetchIo, PrefetchIos,
};

/// C statements that print sizes and offsets, and the expected output.
#[derive(Default)]
struct Layout {
    print: String,
    expected: String,
}

macro_rules! add_struct {
    ($into:ident, $name:literal, $rust:ty, { $($c:ident: $field:ident),* }) => {
        writeln!($into.print, "printf(\"{0} %zu\\n\", sizeof(struct {0}));", $name).unwrap();
        writeln!($into.expected, "{} {}", $name, size_of::<$rust>()).unwrap();
        $(
            let field = concat!($name, ".", stringify!($c));
            writeln!($into.print, "printf(\"{field} %zu\\n\", offsetof(struct {}, {}));", $name, stringify!($c)).unwrap();
            writeln!($into.expected, "{field} {}", offset_of!($rust, $field)).unwrap();
        )*
    };
}

#[test]
fn structures_match_the_header() {
    let mut all = Layout::default();
    add_struct!(all, "miss_io", MissIo, {
        path: path, offset: offset, size: size, file_size: file_size, pid: pid, tid: tid, kind: kind, time_ns: time_ns
    });
    add_struct!(all, "ppc_context", PpcContext, {
        config: config, size: size, root: root, memory: memory, log: log, fail: fail
    });
    add_struct!(all, "prefetch_io", PrefetchIo, { path: path, offset: offset, size: size, xpu: xpu, flags: flags });
    add_struct!(all, "evict_io", EvictIo, { path: path, offset: offset, size: size });
    add_struct!(all, "prefetch_ios", PrefetchIos, {
        count: count, ios: ios, first: first, limit: limit, generation: generation, queue: queue, next: next
    });
    add_struct!(all, "evict_ios", EvictIos, { count: count, ios: ios, first: first, limit: limit, generation: generation });
    add_struct!(all, "ppc_operation", Operation, {
        ppc_init: init, ppc_exit: exit, ppc_prefetch: prefetch, ppc_evict: evict, ppc_start: start, ppc_touch: touch,
        ppc_release: release, ppc_wants: wants
    });
    add_struct!(all, "ppc_abi", Abi, {
        size: size, version: version, operation: operation, context: context, miss: miss, prefetch_list: prefetch_list,
        prefetch_entry: prefetch_entry, evict_list: evict_list, evict_entry: evict_entry
    });
    let source = format!(
        "#include <stdio.h>\n#include \"ppc.h\"\nint main(void) {{\n{}return 0;\n}}\n",
        all.print
    );
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = cc::gcc(
        dir.path(),
        "layout",
        &source,
        &["-Wall", "-Wextra", "-Werror", "-std=c99"],
    ) else {
        return;
    };
    let printed = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), all.expected);
}

#[test]
fn the_header_compiles_as_cplusplus_and_may_be_included_twice() {
    let dir = tempfile::tempdir().unwrap();
    let source =
        "#include \"ppc.h\"\n#include \"ppc.h\"\nint main() { return ppc_abi.version != 1; }\n";
    for arguments in [
        &["-x", "c++", "-Wall", "-Wextra", "-Werror"][..],
        &["-std=c11", "-Wall", "-Wextra", "-Werror"],
    ] {
        let Some(program) = cc::gcc(dir.path(), "twice", source, arguments) else {
            return;
        };
        assert!(Command::new(program).status().unwrap().success());
    }
}

#[test]
fn structures_never_shrink() {
    let (now, first) = (format!("{:?}", Abi::CURRENT), format!("{:?}", Abi::FIRST));
    let sizes = |abi: &str| -> Vec<u32> {
        abi.split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    assert_eq!(sizes(&first).len(), 10);
    assert!(
        sizes(&now)
            .iter()
            .zip(sizes(&first))
            .all(|(&now, first)| now >= first),
        "{now} {first}"
    );
}
