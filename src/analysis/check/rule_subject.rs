//! The subjects of rules: what a rule looks at, how much of it a run has looked at, and why that may be nothing. A rule
//! that has looked at nothing has found nothing wrong.

/// The things that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSubject {
    /// Files and their headers.
    Files,
    /// Pickles.
    Pickles,
    /// Members of archives, which have checksums.
    Checksums,
    /// Files and tensors whose digest is known.
    Digests,
    /// An index, or several files of one model.
    Indexes,
    /// A directory.
    Directories,
    /// Tensors, as headers describe them.
    Tensors,
    /// Token ids of a configuration, and group indices.
    Indices,
    /// Values.
    Values,
    /// Scales, in blocks or tensors of their own.
    Scales,
}

impl RuleSubject {
    /// Its number in a table.
    const COUNT: usize = Self::Scales as usize + 1;

    /// Why a run has looked at none.
    fn lack(self, headers: bool) -> &'static str {
        match self {
            Self::Checksums | Self::Digests | Self::Values | Self::Scales if headers => {
                "headers alone were read"
            }
            Self::Files => "no file was opened",
            Self::Pickles => "there is no pickle",
            Self::Checksums => "there is no archive, whose members have checksums",
            Self::Digests => "there is no digest to compare with",
            Self::Indexes => "no model has an index or several files",
            Self::Directories => "no directory is checked",
            Self::Tensors => "there is no tensor",
            Self::Indices => "there are no token ids and no group indices",
            Self::Values => "no values were read",
            Self::Scales => "there are no scales",
        }
    }
}

/// How much of each subject a run has looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookedAtSubjects([u64; RuleSubject::COUNT]);

impl LookedAtSubjects {
    pub(super) fn add(&mut self, subject: RuleSubject, count: u64) {
        let own = &mut self.0[subject as usize];
        *own = own.saturating_add(count);
    }

    /// How many of `read` tensors were looked at by rules with these subjects: each tensor is read for all of them, whatever it has.
    pub(super) fn tensors(&self, subjects: impl Iterator<Item = RuleSubject>, read: u64) -> u64 {
        use RuleSubject::{Checksums, Digests, Indices, Scales, Tensors, Values};
        let of_subject = |subject| match subject {
            Tensors | Values => read,
            Checksums | Digests | Indices | Scales => self.0[subject as usize],
            RuleSubject::Files
            | RuleSubject::Pickles
            | RuleSubject::Indexes
            | RuleSubject::Directories => 0,
        };
        let all = subjects.map(of_subject).fold(0, u64::saturating_add);
        all.min(read)
    }

    /// Why rules with these subjects have looked at nothing; `None` if one of them has.
    pub(super) fn why_idle(
        &self,
        subjects: impl Iterator<Item = RuleSubject>,
        headers: bool,
    ) -> Option<String> {
        let mut lacks = Vec::new();
        for subject in subjects {
            if self.0[subject as usize] > 0 {
                return None;
            }
            let lack = subject.lack(headers);
            if !lacks.contains(&lack) {
                lacks.push(lack);
            }
        }
        Some(match lacks.is_empty() {
            true => "no rule is left".to_owned(),
            false => lacks.join(", "),
        })
    }
}
