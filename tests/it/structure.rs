//! The imports of the workspace have no cycles, among the top-level modules of each crate and among the children of any module;
//! and the storeys of the root crate, and the modules of each storey, import only those below them in `docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::rust_code::{CodeFile, crates};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Known cycles: the crate, the parent module (empty for the top level), and the members. A row is removed together with its
/// cycle; no row may be added.
static KNOWN_CYCLES: &[(&str, &str, &[&str])] = &[
    // below the second level, where earlier versions of this test did not look
];

#[test]
fn imports_have_no_cycles() {
    let (mut found, mut modules) = (Vec::new(), 0);
    for krate in crates() {
        let files = krate.files();
        let exports = exports(&files);
        // every module that has children, and the crate itself
        let parents: BTreeSet<&[String]> = files
            .iter()
            .flat_map(|file| (0..file.module.len()).map(|depth| &file.module[..depth]))
            .collect();
        for parent in parents {
            let graph = graph(&files, &exports, parent);
            modules += graph.len();
            let parent = parent.join("::");
            for cycle in cycles(&graph) {
                let allowed = KNOWN_CYCLES.iter().any(|(name, of, members)| {
                    *name == krate.name
                        && *of == parent
                        && cycle.iter().all(|module| members.contains(&&**module))
                });
                if !allowed {
                    found.push(format!("{} {parent}: {cycle:?}", krate.name));
                }
            }
        }
    }
    assert!(modules > 100, "only {modules} modules were found");
    assert!(
        found.is_empty(),
        "modules that import each other:\n{}",
        found.join("\n")
    );
}

/// The storeys of `docs/architecture.md`, lowest first: the name of each, and its modules in order.
fn storeys() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md"),
    )
    .unwrap();
    let (_, list) = page.split_once("<!-- storeys -->").unwrap();
    let (list, _) = list.split_once("<!-- /storeys -->").unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| [`"));
    let mut storeys: Vec<(String, Vec<String>)> = rows
        .map(|row| {
            let mut cells = row
                .split('|')
                .skip(1)
                .map(|cell| cell.split('`').skip(1).step_by(2));
            let name = cells
                .next()
                .and_then(|mut names| names.next())
                .unwrap()
                .to_owned();
            let modules = cells.next().unwrap().map(str::to_owned).collect();
            (name, modules)
        })
        .collect();
    storeys.reverse();
    assert!(
        storeys.len() > 4,
        "docs/architecture.md has no table of storeys: {list}"
    );
    storeys
}

#[test]
fn storeys_import_lower_ones_only_and_so_do_their_modules() {
    let library = crates().swap_remove(0);
    let files = library.files();
    let exports = exports(&files);
    let storeys = storeys();
    let names: Vec<String> = storeys.iter().map(|(name, _)| name.clone()).collect();
    let mut wrong = imports_of_higher_ones(&graph(&files, &exports, &[]), &names);
    for (storey, modules) in storeys
        .into_iter()
        .filter(|(_, modules)| !modules.is_empty())
    {
        let inside = graph(&files, &exports, std::slice::from_ref(&storey));
        wrong.extend(imports_of_higher_ones(&inside, &modules));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The imports that contradict an order of modules, in which each imports only those before it.
fn imports_of_higher_ones(graph: &Graph, order: &[String]) -> Vec<String> {
    let place = |module: &str| order.iter().position(|name| name == module);
    let mut wrong = Vec::new();
    for (module, imports) in graph {
        let Some(own) = place(module) else {
            wrong.push(format!("{module} has no place in docs/architecture.md"));
            continue;
        };
        for import in imports
            .iter()
            .filter(|import| place(import).is_none_or(|at| at > own))
        {
            wrong.push(format!("{module} imports {import}, which is above it"));
        }
    }
    for name in order.iter().filter(|name| !graph.contains_key(*name)) {
        wrong.push(format!(
            "docs/architecture.md lists {name}, which does not exist"
        ));
    }
    wrong
}

#[test]
fn the_cycle_search_finds_imports_and_cycles() {
    let graph: Graph = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
        .map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])))
        .into();
    assert_eq!(cycles(&graph), [["a", "b", "c"].map(str::to_owned).into()]);
    let paths = paths(
        "use crate::{a::{self, B}, c as d}; fn f() { crate::e::g(); super::h() }",
        &["m".into(), "n".into()],
    );
    let found: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a::self", "a::B", "c", "e::g", "m::h"]);
}

/// The names that the root of the crate exports, with the path of each.
fn exports(files: &[CodeFile]) -> BTreeMap<String, Vec<String>> {
    let mut exports = BTreeMap::new();
    for root in files.iter().filter(|file| file.module.is_empty()) {
        for line in root.code.split("pub use ").skip(1) {
            let mut trees = Vec::new();
            tree(
                &mut line.trim_start_matches("crate::"),
                &mut Vec::new(),
                &mut trees,
            );
            for path in trees {
                exports.insert(path.last().unwrap().clone(), path);
            }
        }
    }
    exports
}

/// The imports between the children of `parent`, which is a path of modules.
fn graph(files: &[CodeFile], exports: &BTreeMap<String, Vec<String>>, parent: &[String]) -> Graph {
    // the child that a path leads to; `None` outside of the parent
    let node = |path: &[String]| path.strip_prefix(parent)?.first().cloned();
    let mut graph: Graph = files
        .iter()
        .filter_map(|file| Some((node(&file.module)?, BTreeSet::new())))
        .collect();
    for file in files {
        let Some(from) = node(&file.module) else {
            continue;
        };
        for path in paths(&file.code, &file.module) {
            let path = match path.first().and_then(|first| exports.get(first)) {
                Some(exported) if !is_top_level_module(files, &path[0]) => exported,
                _ => &path,
            };
            if let Some(to) = node(path).filter(|to| *to != from && graph.contains_key(to)) {
                graph.get_mut(&from).unwrap().insert(to);
            }
        }
    }
    graph
}

fn is_top_level_module(files: &[CodeFile], name: &str) -> bool {
    files
        .iter()
        .any(|file| file.module.first().is_some_and(|first| first == name))
}

/// Every path of the code that begins with `crate` or `super`, from the crate's root.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for keyword in ["crate::", "super::"] {
        for (at, _) in code.match_indices(keyword) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &code[at + keyword.len()..];
            let mut prefix = Vec::new();
            if keyword == "super::" {
                let mut up = 1;
                while let Some(more) = rest.strip_prefix("super::") {
                    (rest, up) = (more, up + 1);
                }
                prefix = module[..module.len().saturating_sub(up)].to_vec();
            }
            tree(&mut rest, &mut prefix, &mut found);
        }
    }
    found
}

/// Expands a use tree (`a::{b, c::d}`) into its paths.
fn tree(rest: &mut &str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    *rest = rest.trim_start();
    if let Some(mut list) = rest.strip_prefix('{') {
        loop {
            list = list.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if list.is_empty() || list.starts_with('}') {
                *rest = list.get(1..).unwrap_or_default();
                return;
            }
            tree(&mut list, prefix, found);
            // the name of `as x` is not part of the path
            let end = list.find([',', '}']).unwrap_or(list.len());
            list = &list[end..];
        }
    }
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    prefix.push(rest[..end].to_owned());
    *rest = &rest[end..];
    match rest.strip_prefix("::") {
        Some(mut more)
            if more.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '{') =>
        {
            tree(&mut more, prefix, found);
            *rest = more;
        }
        _ => found.push(prefix.clone()),
    }
    prefix.pop();
}

/// The sets of modules that reach each other.
fn cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            for next in graph.get(node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, _> = graph.keys().map(|node| (node, reached(node))).collect();
    let mut cycles: Vec<BTreeSet<String>> = Vec::new();
    for (node, nodes) in &reached {
        let cycle: BTreeSet<String> = nodes
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*node)))
            .cloned()
            .collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}
