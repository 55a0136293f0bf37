//! Containers on the path of the walk over what a pickle built, and the names of their children.

use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

use super::plain_values::{write_key, write_quoted_key};

/// A container on the current path.
pub(super) struct OpenContainer<'h> {
    pub(super) id: ValueId,
    pub(super) kind: ContainerKind,
    pub(super) children: &'h [ValueId],
    pub(super) next: usize,
    /// The name of the current child.
    pub(super) current: ChildName,
    /// Whether the container is the saved value itself, or a part of it without a name of its own.
    pub(super) is_root: bool,
    /// Length of the container's own name.
    pub(super) name_len: usize,
}

#[derive(Clone, Copy)]
pub(super) enum ContainerKind {
    /// A list, tuple or set.
    Items,
    /// A dict, whose children alternate keys and values.
    Keyed,
    /// An opaque object: its state and items, if any, then its arguments, which are the children.
    Opaque {
        state: Option<ValueId>,
        items: Option<ValueId>,
    },
}

/// The name of a child of a container.
#[derive(Clone, Copy)]
pub(super) enum ChildName {
    /// A key, and its position.
    Key(ValueId, usize),
    Position(usize),
    /// An argument of an opaque object.
    Argument(usize),
    /// The state of an opaque object, or its items, where they are not a dict.
    Part(&'static str),
    /// The keys of the child belong to the container.
    None,
}

impl OpenContainer<'_> {
    /// The next child; `current` is then its name.
    pub(super) fn next_child(&mut self, heap: &ValueHeap<'_>) -> Option<ValueId> {
        if let ContainerKind::Opaque { state, items } = &mut self.kind {
            let state = state.take().map(|id| ("state", id));
            if let Some((name, id)) = state.or_else(|| items.take().map(|id| ("items", id))) {
                self.current = match heap.get(id) {
                    PickleValue::Dict { .. } => ChildName::None,
                    _ => ChildName::Part(name),
                };
                return Some(id);
            }
        }
        let at = self.next;
        let (name, child, step) = match self.kind {
            ContainerKind::Keyed => {
                // a key without a value ends the dict
                let pair = self.children.get(at..at + 2)?;
                (ChildName::Key(pair[0], at / 2), pair[1], 2)
            }
            ContainerKind::Items => (ChildName::Position(at), *self.children.get(at)?, 1),
            ContainerKind::Opaque { .. } => (ChildName::Argument(at), *self.children.get(at)?, 1),
        };
        self.current = name;
        self.next += step;
        Some(child)
    }
}

impl ChildName {
    /// Appends the name of the child; with `quoted`, in a form that no other key has.
    pub(super) fn write(self, heap: &ValueHeap<'_>, quoted: bool, path: &mut String) {
        use std::fmt::Write;
        let written = match self {
            Self::Key(key, position) if quoted => {
                write_quoted_key(heap, key, position, path);
                Ok(())
            }
            Self::Key(key, position) => {
                write_key(heap, key, position, path);
                Ok(())
            }
            Self::Position(position) => write!(path, "{position}"),
            Self::Argument(position) => write!(path, "args.{position}"),
            Self::Part(name) => write!(path, "{name}"),
            Self::None => Ok(()),
        };
        written.expect("writing to a string");
    }
}
