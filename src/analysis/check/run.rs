//! One check of what was opened: files, then tensors, then the report.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::quote::path_text;
use crate::engine::remember::remember;
use crate::plan::Plan;
use crate::read::checkpoint::{Checkpoint, LEFT_EDIT, LEFT_HIDDEN, LEFT_PART, UNFINISHED};
use crate::read::digest::Sha256Digest;
use crate::read::source::files::Files;

use super::archives::DamageIndex;
use super::check_rules::{self, rules};
use super::checked_weight::ScannedWeight;
use super::files::{self, FileCheck};
use super::level::FindingLevel;
use super::opened::OpenedModels;
use super::opening::{self, root_of};
use super::report::{
    CheckCoverage, CheckReport, CheckedModelFiles, CheckedTensor, Finding, FindingCounts,
    StoredTensor,
};
use super::rule_subject::{LookedAtSubjects, RuleSubject};
use super::values::{self, ValueCheck};
use super::{Check, archives, layers, token_ids};

/// The findings of a run, as they are made.
struct Findings<'r> {
    check: &'r Check<'r>,
    list: Vec<Finding>,
}

impl Findings<'_> {
    /// Adds a finding, unless its rule is left out.
    fn add(&mut self, finding: Finding, budget: &Budget) -> Result<()> {
        if !self.check.reports(finding.rule) {
            return Ok(());
        }
        // a file decides how many findings there are
        budget.memory(finding.memory(), "the findings")?;
        budget.push(&mut self.list, finding, "the findings")
    }
}

/// One check of what was opened.
pub(super) struct CheckRun<'r> {
    pub(super) check: &'r Check<'r>,
    /// The checkpoints that were opened: several are independent checkpoints of one directory.
    pub(super) checkpoints: Vec<&'r Checkpoint>,
    /// Where the files are.
    pub(super) path: Option<&'r Path>,
    /// The path as it was given.
    pub(super) shown: Option<&'r Path>,
    pub(super) files: &'r Files,
    /// The findings of opening a path; `None` of a checkpoint that was open.
    pub(super) opened: Option<&'r OpenedModels>,
}

/// The tensors of a checkpoint, as far as they were looked at.
struct CheckedValues {
    tensors: Vec<CheckedTensor>,
    /// The number of stored tensors whose bytes were looked at.
    count: u64,
}

impl CheckRun<'_> {
    /// Applies the rules.
    pub(super) fn report(&self, budget: &Budget) -> Result<CheckReport> {
        let check = self.check;
        let root = self
            .path
            .map(|path| root_of(path, self.files))
            .unwrap_or_default();
        let mut findings = Findings {
            check,
            list: Vec::new(),
        };
        for error in self.opened.iter().flat_map(|opened| &opened.failures) {
            let found = opening::unreadable(error, self.path, &root, self.files);
            let found = found.ok_or_else(|| error.duplicate())?;
            findings.add(found, budget)?;
        }
        let faults = self.opened.map_or(&[][..], |opened| &opened.faults);
        let mut add = |finding: Finding| findings.add(finding, budget);
        opening::of_faults(faults, &root, self.files, &mut add)?;
        let files = FileCheck {
            check,
            checkpoints: &self.checkpoints,
            opened: self.opened,
            path: self.path,
            root: &root,
            files: self.files,
        };
        let outcome = files.run(budget, &mut add)?;
        for file in &outcome.unread {
            let (text, remedy) = match file.why {
                UNFINISHED => ("by its name, it is an unfinished download or copy", None),
                LEFT_PART => (
                    "a run of this program was killed while it wrote this file, which belongs to no model",
                    Some("remove the file"),
                ),
                LEFT_EDIT => (
                    "an interrupted edit may need this file",
                    Some(opening::RECOVER),
                ),
                LEFT_HIDDEN => (
                    "a run that replaced this checkpoint was killed, and this file may be the only one of its kind",
                    Some(
                        "write into the directory again, which completes that run; do not remove the file",
                    ),
                ),
                _ => continue,
            };
            let mut found = Finding::new(&check_rules::UNFINISHED, text).of_file(&*file.path);
            found.remedy = remedy.or(found.remedy);
            add(found)?;
        }
        let mut tensors = Vec::new();
        let mut checked = CheckCoverage {
            files: outcome.checked,
            of_files: outcome.checked + outcome.unread.len() as u64,
            ..CheckCoverage::default()
        };
        let mut looked_at = LookedAtSubjects::default();
        let mut models = Vec::new();
        for (number, checkpoint) in self.checkpoints.iter().enumerate() {
            let catalog = checkpoint.catalog();
            // entries that are listed and cannot be read are tensors that were not looked at
            checked.of_tensors += (catalog.tensors().len() + catalog.refused().len()) as u64;
            budget.push(
                &mut models,
                self.model(checkpoint, budget)?,
                "the list of models",
            )?;
            // independent checkpoints may have the same names
            let file = files::shown(checkpoint, 0, self.path, self.files);
            let file = file.filter(|_| self.checkpoints.len() > 1);
            let mut add = |mut finding: Finding| {
                finding.file = finding.file.or_else(|| file.clone());
                add(finding)
            };
            let digests = outcome.tensors.get(number).map_or(&[][..], Vec::as_slice);
            let values = self.tensors(checkpoint, digests, budget, &mut looked_at, &mut add)?;
            checked.tensors += values.count;
            tensors.extend(values.tensors);
            if matches!(checkpoint.catalog().format(), "pth" | "dcp") {
                looked_at.add(RuleSubject::Pickles, 1);
            }
            let has_index = checkpoint.described_by().is_some();
            if has_index || checkpoint.catalog().files().len() > 1 {
                looked_at.add(RuleSubject::Indexes, 1);
            }
        }
        let is_directory = self.path.is_some_and(|path| self.files.is_directory(path));
        looked_at.add(RuleSubject::Directories, is_directory.into());
        looked_at.add(RuleSubject::Files, outcome.checked);
        looked_at.add(RuleSubject::Values, checked.tensors);
        let compared =
            |file: &&super::CheckedFile| file.sha256.is_some() && file.expected.is_some();
        let compared = outcome.files.iter().filter(compared).count() as u64;
        let used = outcome.evidence.iter().map(|evidence| evidence.compared);
        looked_at.add(
            RuleSubject::Digests,
            used.fold(compared, u64::saturating_add),
        );
        let mut list = findings.list;
        for finding in &list {
            let rule = rules().iter().find(|rule| rule.id == finding.rule);
            // a finding is of something that was looked at
            if let Some(rule) = rule {
                looked_at.add(rule.subject, 1);
            }
        }
        let applied = rules().iter().filter(|rule| check.reports(rule.id));
        let idle = looked_at.why_idle(applied.map(|rule| rule.subject), check.headers);
        if idle.is_some() {
            // all reading was for other rules
            (checked.tensors, checked.files) = (0, 0);
        }
        if !check.only.is_empty() {
            let applied = rules().iter().filter(|rule| check.reports(rule.id));
            let subjects = applied.map(|rule| rule.subject);
            checked.tensors = looked_at.tensors(subjects, checked.tensors);
        }
        let order = |finding: &Finding| rules().iter().position(|rule| rule.id == finding.rule);
        // stable: findings of one rule keep the order of the files
        list.sort_by_key(|finding| (std::cmp::Reverse(finding.level), order(finding)));
        let mut counts = FindingCounts::default();
        // a tensor with several findings is unsound once
        let mut named: HashSet<&str> = HashSet::new();
        for finding in &list {
            match finding.level {
                FindingLevel::Error => counts.error += 1,
                FindingLevel::Warning => counts.warning += 1,
                FindingLevel::Note => counts.note += 1,
            }
            // notes are about unusual tensors, which are sound
            if finding.level > FindingLevel::Note {
                named.extend(finding.tensor.as_deref());
            }
        }
        let unsound = self.unsound(named, &list);
        let is_unreadable = |finding: &Finding| {
            let rule = rules().iter().find(|rule| rule.id == finding.rule);
            rule.is_some_and(|rule| rule.unreadable)
        };
        let is_readable = !list.iter().any(is_unreadable)
            && !self.opened.is_some_and(OpenedModels::has_unreadable);
        // some rules alone say nothing about the others
        let judges_all = !check.headers && check.only.is_empty();
        Ok(CheckReport {
            path: self.shown.map(path_text),
            nbytes: outcome
                .files
                .iter()
                .map(|file| file.nbytes)
                .fold(0, u64::saturating_add),
            files: outcome.files,
            findings: list,
            tensors,
            counts,
            // the caller's, which measures the opening too
            seconds: 0.0,
            sound: match judges_all {
                true => checked.tensors.saturating_sub(unsound),
                false => 0,
            },
            checked,
            models,
            unread: outcome.unread,
            evidence: outcome.evidence,
            headers: check.headers,
            only: check.only.clone(),
            allowed: check.allowed.clone(),
            readable: is_readable,
            idle,
        })
    }

    /// The number of tensors that are not sound: those with these names, and all in a file that has another digest than it should
    /// have, of which no byte can be trusted.
    fn unsound(&self, mut named: HashSet<&str>, findings: &[Finding]) -> u64 {
        let wrong = findings
            .iter()
            .filter(|found| found.rule == check_rules::HASH.id);
        let wrong: HashSet<&str> = wrong
            .filter(|found| found.tensor.is_none())
            .filter_map(|found| found.file.as_deref())
            .collect();
        let count = named.len() as u64;
        if wrong.is_empty() {
            return count;
        }
        let mut further = 0;
        for checkpoint in &self.checkpoints {
            let catalog = checkpoint.catalog();
            let is_wrong = |number: usize| {
                let file = files::shown(checkpoint, number, self.path, self.files);
                file.is_some_and(|file| wrong.contains(&*file))
            };
            let is_wrong: Vec<bool> = (0..catalog.files().len()).map(is_wrong).collect();
            for tensor in catalog.tensors() {
                let file = usize::try_from(tensor.bytes.file).ok();
                let is_in_wrong = file.and_then(|file| is_wrong.get(file)) == Some(&true);
                // checkpoints of one directory may have tensors of one name
                further += u64::from(is_in_wrong && !named.remove(&*tensor.name));
            }
        }
        // those that were removed are in the wrong files, and are counted once
        count + further
    }

    /// The row of a report about a model among others.
    fn model(&self, checkpoint: &Checkpoint, budget: &Budget) -> Result<CheckedModelFiles> {
        /// Names in the list: a checkpoint of thousands of shards is known by the first.
        const NAMED: usize = 16;
        let catalog = checkpoint.catalog();
        let numbers = 0..catalog.files().len().min(NAMED);
        let names = numbers.filter_map(|n| files::shown(checkpoint, n, self.path, self.files));
        let names: Vec<String> = names.collect();
        let nbytes = names.iter().map(|name| name.len() as u64 + 40).sum();
        budget.memory(nbytes, "the list of models")?;
        Ok(CheckedModelFiles {
            files: names,
            format: catalog.format(),
            tensors: catalog.tensors().len() as u64,
        })
    }

    /// The rules about tensors.
    fn tensors(
        &self,
        checkpoint: &Checkpoint,
        digests: &[Option<Sha256Digest>],
        budget: &Budget,
        looked_at: &mut LookedAtSubjects,
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<CheckedValues> {
        let check = self.check;
        let wanted = |name: &str| check.options.selection.contains(name);
        opening::of_parts(checkpoint, add)?;
        layers::compare(checkpoint.catalog(), &wanted, budget, add)?;
        // F32 holds every value of the other dtypes; `untie` shows both names of tied weights
        let mut plan = remember(checkpoint)
            .dtype(Dtype::F32)
            .untie(true)
            .filter(wanted)
            .plan_within(budget)?;
        let (members, all_members) = match check.headers {
            true => (Vec::new(), 0),
            false => archives::damaged_members(
                checkpoint,
                budget,
                check.options.threads,
                &check.options.control,
            )?,
        };
        looked_at.add(RuleSubject::Checksums, all_members);
        let damaged = DamageIndex::new(checkpoint, &members, budget)?;
        let tensors = checkpoint.catalog().tensors();
        for member in &members {
            let file = files::shown(checkpoint, member.file, self.path, self.files);
            let mut found = member.finding(file);
            let inside = damaged.tensor_in(member);
            found.tensor = inside.map(|tensor| tensors[tensor].name.to_string());
            add(found)?;
        }
        let is_damaged = |tensor: usize| {
            let member = tensors[tensor].member;
            member.is_some_and(|member| damaged.contains(member))
        };
        for text in std::mem::take(&mut plan.unexplained) {
            let mut found =
                Finding::new(&check_rules::UNEXPLAINED, text).level(FindingLevel::Warning);
            // the caller has chosen to ignore it
            if checkpoint.assumes_plain() {
                found.remedy = None;
            }
            add(found)?;
        }
        let refused = std::mem::take(&mut plan.refused);
        for weight in refused {
            let found = checkpoint.catalog().position(&weight.name);
            // its member has a finding
            if found.is_some_and(is_damaged) || damaged.has_array(&weight.name) {
                continue;
            }
            // planning it fails, so that a check does not pass
            let found = values::refused(&weight.name, &weight.error);
            let level = found.level.max(FindingLevel::Warning);
            add(found.level(level))?;
        }
        let outputs = plan.jobs.iter().map(|job| &job.output);
        let ids = token_ids::compare(checkpoint, outputs, budget, add)?;
        looked_at.add(RuleSubject::Indices, ids);
        let stored = checkpoint.catalog().tensors().iter();
        let selected = stored.filter(|tensor| wanted(&tensor.name)).count();
        looked_at.add(RuleSubject::Tensors, selected as u64);
        let mut seen = SeenTensors::new(checkpoint, budget)?;
        if check.headers {
            return Ok(CheckedValues {
                tensors: Vec::new(),
                count: 0,
            });
        }
        // a damaged member was read, and has a finding
        (0..tensors.len())
            .filter(|tensor| wanted(&tensors[*tensor].name) && is_damaged(*tensor))
            .for_each(|tensor| seen.add(tensor));
        // their bytes are known to be wrong: values would give further findings about the same damage
        plan.jobs
            .retain(|job| !job.parts.iter().any(|part| is_damaged(part.tensor)));
        let plan = Plan {
            jobs: plan.jobs,
            ..Plan::default()
        };
        let values = ValueCheck {
            checkpoint,
            budget,
            threads: check.options.threads,
            control: &check.options.control,
            statistics: check.statistics,
        };
        let looked = values.run(
            plan,
            &wanted,
            &mut |tensor| seen.add(tensor),
            looked_at,
            add,
        )?;
        let tensors = match check.statistics || !digests.is_empty() {
            true => checked_tensors(checkpoint, looked, digests, budget)?,
            false => Vec::new(),
        };
        Ok(CheckedValues {
            tensors,
            count: seen.count,
        })
    }
}

/// The stored tensors whose bytes were looked at.
struct SeenTensors {
    seen: Vec<bool>,
    count: u64,
}

impl SeenTensors {
    fn new(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        let mut seen = Vec::new();
        let count = checkpoint.catalog().tensors().len();
        budget.reserve(&mut seen, count, "the list of tensors")?;
        seen.resize(count, false);
        Ok(Self { seen, count: 0 })
    }

    /// Several weights may be made of one tensor.
    fn add(&mut self, tensor: usize) {
        self.count += u64::from(!std::mem::replace(&mut self.seen[tensor], true));
    }
}

/// The tensors of a report.
fn checked_tensors(
    checkpoint: &Checkpoint,
    looked: Vec<ScannedWeight>,
    digests: &[Option<Sha256Digest>],
    budget: &Budget,
) -> Result<Vec<CheckedTensor>> {
    let catalog = checkpoint.catalog();
    let stored = |tensor: usize| {
        let info = &catalog.tensors()[tensor];
        StoredTensor {
            dtype: info.encoding.name().to_string(),
            shape: info.shape.to_vec(),
            nbytes: info.nbytes(),
            sha256: digests.get(tensor).copied().flatten(),
        }
    };
    let cost = |name: &str| (size_of::<CheckedTensor>() + name.len() + 160) as u64;
    let mut tensors = Vec::new();
    if digests.is_empty() {
        for weight in looked {
            let name = weight.job.output.name;
            budget.memory(cost(&name), "the list of tensors")?;
            tensors.push(CheckedTensor {
                stored: stored(weight.job.parts[0].tensor),
                name: name.into(),
                values: weight.values.statistics,
            });
        }
        return Ok(tensors);
    }
    // every stored tensor has a digest; values are of the weight with its name, or with its codes
    let mut values = HashMap::new();
    for weight in looked {
        let row = weight.job.parts[0].tensor;
        values.insert(row, weight.values.statistics);
    }
    for (row, info) in catalog.tensors().iter().enumerate() {
        budget.memory(cost(&info.name), "the list of tensors")?;
        tensors.push(CheckedTensor {
            name: info.name.to_string(),
            stored: stored(row),
            values: values.remove(&row).flatten(),
        });
    }
    Ok(tensors)
}
