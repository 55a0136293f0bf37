//! The structures of `src/abi.rs` have the layout that a C compiler gives the structures of `include/ppc.h`.

use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use anamnesis_ppc::abi::{
    Abi, EvictIo, EvictIos, MissIo, Operation, PpcContext, PrefetchIo, PrefetchIos,
};

use crate::support::gcc;

/// C statements that print the sizes of structures and the offsets of their fields, and the expected output.
#[derive(Default)]
struct Layout {
    statements: String,
    expected: String,
}

macro_rules! add_struct {
    ($into:ident, $name:literal, $rust:ty, { $($c:ident: $field:ident),* }) => {
        writeln!($into.statements, "printf(\"{0} %zu\\n\", sizeof(struct {0}));", $name).unwrap();
        writeln!($into.expected, "{} {}", $name, size_of::<$rust>()).unwrap();
        $(
            let field = concat!($name, ".", stringify!($c));
            writeln!($into.statements, "printf(\"{field} %zu\\n\", offsetof(struct {}, {}));", $name, stringify!($c)).unwrap();
            writeln!($into.expected, "{field} {}", offset_of!($rust, $field)).unwrap();
        )*
    };
}

#[test]
fn sizes_and_offsets_equal_those_of_the_header() {
    let mut layout = Layout::default();
    add_struct!(layout, "miss_io", MissIo, {
        path: path, offset: offset, size: size, file_size: file_size, pid: pid, tid: tid, kind: kind, time_ns: time_ns
    });
    add_struct!(layout, "ppc_context", PpcContext, {
        config: config, size: size, root: root, memory: memory, log: log, fail: fail
    });
    add_struct!(layout, "prefetch_io", PrefetchIo, { path: path, offset: offset, size: size, xpu: xpu, flags: flags });
    add_struct!(layout, "evict_io", EvictIo, { path: path, offset: offset, size: size });
    add_struct!(layout, "prefetch_ios", PrefetchIos, {
        count: count, ios: ios, first: first, limit: limit, generation: generation, queue: queue, next: next
    });
    add_struct!(layout, "evict_ios", EvictIos, { count: count, ios: ios, first: first, limit: limit, generation: generation });
    add_struct!(layout, "ppc_operation", Operation, {
        ppc_init: init, ppc_exit: exit, ppc_prefetch: prefetch, ppc_evict: evict, ppc_start: start, ppc_touch: touch,
        ppc_release: release, ppc_wants: wants
    });
    add_struct!(layout, "ppc_abi", Abi, {
        size: size, version: version, operation: operation, context: context, miss: miss, prefetch_list: prefetch_list,
        prefetch_entry: prefetch_entry, evict_list: evict_list, evict_entry: evict_entry
    });
    let source = format!(
        "#include <stdio.h>\n#include \"ppc.h\"\nint main(void) {{\n{}return 0;\n}}\n",
        layout.statements
    );
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = gcc::compile(
        dir.path(),
        "layout",
        &source,
        &["-Wall", "-Wextra", "-Werror", "-std=c99"],
    ) else {
        return;
    };
    let printed = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), layout.expected);
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
        let Some(program) = gcc::compile(dir.path(), "twice", source, arguments) else {
            return;
        };
        assert!(Command::new(program).status().unwrap().success());
    }
}

#[test]
fn no_structure_is_smaller_than_in_the_first_version() {
    let (current, first) = (format!("{:?}", Abi::CURRENT), format!("{:?}", Abi::FIRST));
    // the numbers in the debug output: the version and a size for each structure
    let sizes = |abi: &str| -> Vec<u32> {
        abi.split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    assert_eq!(sizes(&first).len(), 10);
    assert!(
        sizes(&current)
            .iter()
            .zip(sizes(&first))
            .all(|(&current, first)| current >= first),
        "{current} {first}"
    );
}
