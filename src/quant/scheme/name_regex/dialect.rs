//! The syntax of Python's regular expressions, as far as the engine gives it the same meaning.
//!
//! Names and patterns are compared as ASCII. The engine has signs that Python reads as letters (`\\<`, classes in classes, `\\pL`), and
//! Python has some that the engine lacks (look-around, references to groups) or reads in another way (`a*+` is possessive).

use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassSetBinaryOp, ClassSetItem, Flag, Flags, FlagsItemKind,
    GroupKind, Literal, LiteralKind, Visitor, parse::ParserBuilder,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Dot, Hir, Look, Repetition};

use super::PatternKind;

/// Depth of groups in groups.
const MAX_DEPTH: u32 = 32;

/// The tree of a pattern that matches a whole name, or the reason why it is not understood.
pub(super) fn read(text: &str, kind: PatternKind) -> Result<Hir, String> {
    if !text.bytes().all(is_plain) {
        return Err("it has letters outside of ASCII".to_owned());
    }
    let glob;
    let text = match kind {
        PatternKind::Glob => {
            glob = of_glob(text);
            &glob
        }
        _ => text,
    };
    let tree = ParserBuilder::new()
        .nest_limit(MAX_DEPTH)
        .empty_min_range(true)
        .build()
        .parse(text)
        .map_err(|error| error.kind().to_string())?;
    ast::visit(&tree, Dialect)?;
    let mut translator = TranslatorBuilder::new();
    let translator = translator.unicode(false).utf8(false);
    let tree = translator.build().translate(text, &tree);
    let tree = tree.map_err(|error| error.kind().to_string())?;
    let any = || {
        Hir::repetition(Repetition {
            min: 0,
            max: None,
            greedy: true,
            sub: Box::new(Hir::dot(Dot::AnyByte)),
        })
    };
    let end = || Hir::look(Look::End);
    Ok(Hir::concat(match kind {
        PatternKind::Begins => vec![tree, any(), end()],
        PatternKind::Anywhere => vec![any(), tree, any(), end()],
        PatternKind::Glob => vec![tree, end()],
    }))
}

/// Whether a byte means the same in both engines: one is a letter, and `$` matches in front of a last line feed in Python.
pub(super) fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// The regular expression of a pattern of `fnmatch`.
fn of_glob(pattern: &str) -> String {
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '*' => made.push_str(".*"),
            '?' => made.push('.'),
            '[' => {
                // a bracket in the first place is a member, and so is one behind `!`
                let begin = rest.strip_prefix('!').unwrap_or(rest);
                let begin = rest.len() - begin.strip_prefix(']').unwrap_or(begin).len();
                let Some(end) = rest[begin..].find(']') else {
                    made.push_str("\\[");
                    continue;
                };
                let (members, after) = rest.split_at(begin + end);
                let (sign, members) = match members.strip_prefix('!') {
                    Some(others) => ("[^", others),
                    None => ("[", members),
                };
                made.push_str(sign);
                for member in members.chars() {
                    if !(member.is_ascii_alphanumeric() || member == '-') {
                        made.push('\\');
                    }
                    made.push(member);
                }
                made.push(']');
                rest = &after[1..];
            }
            sign => regex_syntax::escape_into(sign.encode_utf8(&mut [0; 4]), &mut made),
        }
    }
    made
}

/// Refuses what Python and the engine read in different ways.
struct Dialect;

impl Visitor for Dialect {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), String> {
        match tree {
            Ast::Literal(sign) => literal(sign),
            Ast::ClassUnicode(_) => refuse("a class of Unicode"),
            Ast::Repetition(outer) if matches!(*outer.ast, Ast::Repetition(_)) => {
                refuse("a repetition of a repetition")
            }
            Ast::Assertion(at) => match at.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => Ok(()),
                _ => refuse("a boundary"),
            },
            Ast::Flags(set) if set.span.start.offset == 0 => flags(&set.flags),
            Ast::Flags(_) => refuse("flags behind its beginning"),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(set) => flags(set),
                GroupKind::CaptureName { starts_with_p, .. } if !starts_with_p => {
                    refuse("the name of a group")
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(sign) => literal(sign),
            ClassSetItem::Range(range) => literal(&range.start).and(literal(&range.end)),
            ClassSetItem::Perl(_) | ClassSetItem::Union(_) => Ok(()),
            _ => refuse("a class in a class"),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), String> {
        refuse("an operation on classes")
    }
}

fn literal(sign: &Literal) -> Result<(), String> {
    match sign.kind {
        LiteralKind::HexBrace(_) => refuse("the number of a letter in braces"),
        _ if !sign.c.is_ascii() => refuse("a letter outside of ASCII"),
        _ => Ok(()),
    }
}

fn flags(set: &Flags) -> Result<(), String> {
    let known = [
        Flag::CaseInsensitive,
        Flag::MultiLine,
        Flag::DotMatchesNewLine,
    ];
    let is_known = |kind: &FlagsItemKind| match kind {
        FlagsItemKind::Flag(flag) => known.contains(flag),
        FlagsItemKind::Negation => true,
    };
    match set.items.iter().all(|item| is_known(&item.kind)) {
        true => Ok(()),
        false => refuse("a flag"),
    }
}

/// The reason for a message.
fn refuse(what: &str) -> Result<(), String> {
    Err(format!("{what} is not understood"))
}
