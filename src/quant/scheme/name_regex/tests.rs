use super::PatternKind::{Anywhere, Begins, Glob};
use super::*;
use crate::base::limits::Limits;

const NAME: &str = "model.layers.10.mlp.down_proj";

/// Whether a pattern matches a name; `None` if it is not understood.
fn matches(pattern: &str, name: &str, kind: PatternKind) -> Option<bool> {
    let budget = Budget::new(Limits::default());
    let patterns = NamePatterns::new(std::iter::once((pattern, kind, ())), &budget).unwrap();
    match patterns.first(name, &budget).unwrap() {
        FirstMatch::Known(()) => Some(true),
        FirstMatch::Nothing => Some(false),
        FirstMatch::Unknown => None,
    }
}

#[test]
fn patterns_of_configurations() {
    for pattern in [
        ".*down_proj",
        r".*\.down_proj$",
        "^model.*mlp.*",
        r"model\.layers\.10\.mlp",
        "model.layers.10.mlp.down_proj",
        ".*",
        ".*(down|up)_proj",
        r".*\d+.*",
        r"model\.layers\.(?:[0-9]|1[0-9])\.mlp",
        r".*\.\d{2}\.",
        "(?i)MODEL",
        r"\w+\.layers\b",
        "",
    ] {
        assert_eq!(matches(pattern, NAME, Begins), Some(true), "{pattern}");
    }
    for pattern in [
        "down_proj",
        r".*mlp\.down$",
        ".*up_proj.*",
        r".*mlp\.down_proj.x",
        ".*mlp$",
        "model.layers.[0-9].mlp",
        ".*(gate|up)_proj",
        r"model\.layers\.\d\.",
        r"model.layers.1\b",
    ] {
        assert_eq!(matches(pattern, NAME, Begins), Some(false), "{pattern}");
    }
    assert_eq!(matches("mlp", NAME, Anywhere), Some(true));
    assert_eq!(matches("^mlp", NAME, Anywhere), Some(false));
    assert_eq!(matches("(up|down)_proj$", NAME, Anywhere), Some(true));
}

/// Python has another meaning for each, or none.
#[test]
fn other_patterns_are_not_understood() {
    for pattern in [
        "(?!.*mlp).*",
        ".*(?<=down)_proj",
        r"(.)\1",
        "a*+a",
        "[[a]b]",
        "[a&&b]",
        r"\<model",
        r"\pL",
        r"\x{61}",
        "(?x) a",
        "a(?i)b",
        "(?<n>a)",
        "é",
        "(",
        "a{1000}{1000}",
        "((a{100}){100}){100}",
    ] {
        assert_eq!(matches(pattern, NAME, Begins), None, "{pattern}");
    }
}

#[test]
fn globs_match_whole_names() {
    for pattern in [
        "*down_proj",
        "model.layers.*.mlp.*",
        "model.layers.?0.*",
        "*.1[0-3].*",
        "*[!x]",
        NAME,
    ] {
        assert_eq!(matches(pattern, NAME, Glob), Some(true), "{pattern}");
    }
    for pattern in [
        "down_proj",
        "*.down",
        "model.layers.?.*",
        "*.1[!0-3].*",
        "*[",
        "model",
    ] {
        assert_eq!(matches(pattern, NAME, Glob), Some(false), "{pattern}");
    }
    assert_eq!(matches("a[b", "a[b", Glob), Some(true));
    assert_eq!(matches("[]]x[^]", "]x^", Glob), Some(true));
}

/// Each of a list alone, and all of it at once, for names in any order.
#[test]
fn a_list_matches_as_its_first_pattern() {
    let budget = Budget::new(Limits::default());
    let list = ["b", "a.*b", ".*a$", "[ab]+", "(a|b)b", ".*"];
    let mut names = vec![String::new()];
    for at in 0..if cfg!(miri) { 6 } else { 60 } {
        names.extend(["a", "b", "ab", "ba."].map(|next| format!("{}{next}", names[at])));
    }
    names.reverse();
    names.extend(names.clone().into_iter().skip(3).step_by(7));
    for from in 0..list.len() {
        let rows = list[from..]
            .iter()
            .enumerate()
            .map(|(row, text)| (*text, Begins, row));
        let all = NamePatterns::new(rows, &budget).unwrap();
        for name in &names {
            let expected = list[from..]
                .iter()
                .position(|text| matches(text, name, Begins) == Some(true));
            assert_eq!(
                all.first_known(name, &budget).unwrap(),
                expected,
                "{from} {name}"
            );
        }
    }
}

/// The states are dropped and made again many times, and a hostile list ends with the limit.
#[test]
fn states_are_bounded() {
    let budget = Budget::new(Limits {
        steps: 1 << 20,
        ..Limits::default()
    });
    let texts: Vec<String> = (1..40).map(|n| format!("(a|b)*a(a|b){{{n}}}")).collect();
    let rows = texts
        .iter()
        .enumerate()
        .map(|(row, text)| (text.as_str(), Begins, row));
    let all = NamePatterns::new(rows, &budget).unwrap();
    let mut random = 1u64;
    let mut name = String::new();
    let end = (0..100_000).find_map(|_| {
        name.clear();
        for _ in 0..200 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            name.push(if random >> 40 & 1 == 0 { 'a' } else { 'b' });
        }
        let expected = name.find('a').is_some_and(|_| name[..199].contains('a'));
        match all.first_known(&name, &budget) {
            Ok(found) => {
                assert_eq!(found.is_some(), expected);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert!(end.unwrap().to_string().contains("steps"));
    let last = all.automaton.unwrap().last.into_inner();
    assert!(last.clears > 1 && last.cache.memory_usage() < 2 * STATES);
}
