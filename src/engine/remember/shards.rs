//! One conversion by many workers: each makes one file of the output directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::base::quote::quote;
use crate::engine::sink::container::HeaderValue;
use crate::engine::sink::{
    FileOrigin, OutputDirectory, OutputFile, SafetensorsSink, Sharding, check_replaceable,
    file_form, file_metadata, found_file,
};
use crate::plan::{Plan, PlanId, TensorSpec};

use crate::read::source::files::url;

use super::{Remember, metadata, output};

/// The result of [`Remember::make_part`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MadePart {
    /// The files that were made now.
    pub made: Vec<PathBuf>,
    /// The number of files that other parts have not made yet.
    pub missing: usize,
    /// All files of tensors, if none is missing: the directory is complete then.
    pub files: Option<Vec<PathBuf>>,
}

const FILES: &str = "the list of output files";

impl<'c> Remember<'c> {
    /// Makes only the outputs of these names, as they are written: after [`names`](Self::names) and [`rename`](Self::rename).
    /// A [`filter`](Self::filter) applies as well. Names that no output has are ignored.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
    /// let plan = remember(&checkpoint).only(["blk.0.attn_q.weight", "no such name"]).plan()?;
    /// assert_eq!(plan.jobs.len(), 1);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn only<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.only = Some(Arc::new(names.into_iter().map(Into::into).collect()));
        self
    }

    /// Whether the output of this name, before [`rename`](Self::rename), is made.
    pub(super) fn makes(&self, name: &str) -> bool {
        let listed = self.only.as_ref().is_none_or(|only| match &self.rename {
            Some(rename) => only.contains(&*rename(name)),
            None => only.contains(name),
        });
        listed && self.options.selection.contains(name)
    }

    /// The files that [`to_dir`](Self::to_dir) writes into a new directory, before they are made, so that several processes or
    /// machines make them: [`OutputDirectory::prepare`], then [`make_file`](Self::make_file) for each file in any order, then
    /// [`OutputDirectory::complete`]. The directory then has the bytes that `to_dir` writes.
    ///
    /// ```
    /// use anamnesis::sink::OutputFile;
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// # let target = std::env::temp_dir().join(format!("anamnesis-files-{}", std::process::id()));
    /// let source = "fixtures/model/scribe-Q8_0.gguf";
    /// let checkpoint = Checkpoint::open(source)?;
    /// let driver = remember(&checkpoint);
    /// let plan = driver.plan()?;
    /// let mut directory = driver.output_directory(&plan, &target, 1 << 20)?;
    /// for number in directory.prepare()? {
    ///     let message = serde_json::to_string(&directory.files()[number])?;
    ///     // in another process
    ///     let file: OutputFile = serde_json::from_str(&message)?;
    ///     let made = remember(&Checkpoint::open(source)?).make_file(&target, &file)?;
    ///     assert!(made);
    /// }
    /// let files = directory.complete()?;
    /// assert_eq!(files.len(), directory.files().len());
    /// assert!(directory.prepare()?.is_empty(), "a second run has nothing to do");
    /// # std::fs::remove_dir_all(&target)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Plan::check`] and [`safetensors`](Self::safetensors), and one for outputs that no safetensors file
    /// can have.
    pub fn output_directory(
        &self,
        plan: &Plan,
        path: impl AsRef<Path>,
        shard_bytes: u64,
    ) -> Result<OutputDirectory> {
        plan.check()?;
        let budget = self.checkpoint.budget();
        let outputs = plan.jobs.iter().map(|job| &job.output);
        for output in outputs.clone() {
            // a list of names, one of outputs, and the header
            let text = 3 * text_cost(output.name.len()) + 24 * output.shape.len() as u64;
            budget.memory(size_of::<TensorSpec>() as u64 + text + 128, FILES)?;
        }
        let catalog = self.checkpoint.catalog();
        let sink = self.safetensors(path, Sharding::Shards(shard_bytes))?;
        sink.into_directory(outputs.cloned().collect(), plan.id(catalog), |range| {
            PlanId::of(&plan.jobs[range], catalog)
        })
    }

    /// Makes one of `count` parts of an [`output_directory`](Self::output_directory): every `count`-th file from the `index`-th on,
    /// from 0. Each process of a job makes one; the last one that ends completes the directory, and a part that is made again has
    /// nothing to do.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// # let target = std::env::temp_dir().join(format!("anamnesis-parts-{}", std::process::id()));
    /// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
    /// let remember = remember(&checkpoint);
    /// let plan = remember.plan()?;
    /// let first = remember.make_part(&plan, &target, 100_000, 0, 2)?;
    /// assert!(first.files.is_none() && first.missing > 0);
    /// let second = remember.make_part(&plan, &target, 100_000, 1, 2)?;
    /// assert!(second.files.is_some() && second.missing == 0);
    /// # std::fs::remove_dir_all(&target)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`output_directory`](Self::output_directory), [`OutputDirectory::prepare`], [`make_file`](Self::make_file)
    /// and [`OutputDirectory::complete`]; `InvalidArgument` for an index that is not below the count.
    pub fn make_part(
        &self,
        plan: &Plan,
        path: impl AsRef<Path>,
        shard_bytes: u64,
        index: usize,
        count: usize,
    ) -> Result<MadePart> {
        if index >= count {
            let what = format!("part {index} of {count}: parts are counted from 0");
            return Err(Error::invalid_argument(what));
        }
        let mut directory = self.output_directory(plan, path, shard_bytes)?;
        // files that are complete are not made again, whichever part has made them
        let to_make = directory.prepare()?.into_iter();
        let mut made = Vec::new();
        for number in to_make.filter(|number| number % count == index) {
            let file = &directory.files()[number];
            if self.make_file(directory.path(), file)? {
                made.push(directory.path().join(&file.name));
            }
        }
        let missing = directory.missing()?;
        let files = match missing {
            // two parts that end at once both do it
            0 => Some(directory.complete()?),
            _ => None,
        };
        Ok(MadePart {
            made,
            missing,
            files,
        })
    }

    /// Makes one file of an [`output_directory`](Self::output_directory), from the same source and with the same options. The file
    /// appears under its name when it is complete and outlives a loss of power. Returns false if it is there already, which
    /// its header and its length show.
    ///
    /// A file of the same name of another plan is replaced; one that no plan of this library has made is replaced if
    /// [`overwrite`](Self::overwrite) is set. Plans the outputs of the file, not all of them.
    ///
    /// # Errors
    /// The errors of [`to_file`](Self::to_file); [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the
    /// file was planned with another source or other options.
    pub fn make_file(&self, directory: impl AsRef<Path>, file: &OutputFile) -> Result<bool> {
        let directory = directory.as_ref();
        if url(directory).is_some() {
            let what =
                "workers make files in a local directory; a run of one process writes to a URL";
            return Err(Error::unsupported(what).in_file(directory));
        }
        let path = directory.join(&file.name);
        // the description may have passed through a network
        if Path::new(&file.name).file_name() != Some(file.name.as_ref()) {
            let what = format!("{} is not the name of a file", quote(&file.name));
            return Err(Error::invalid_argument(what));
        }
        // for its directory alone, in which the size of shards does not matter
        output::check_not_source(&self.checkpoint, directory, &Sharding::Shards(0))?;
        let one = self.clone().only(file.outputs.iter().cloned());
        let plan = one.plan()?;
        plan.check()?;
        if plan.id(self.checkpoint.catalog()) != file.outputs_id {
            let what = "the file was planned from another source, with other options, or by another version";
            return Err(Error::invalid_argument(what).in_file(&path));
        }
        let all = metadata::safetensors_metadata(
            &self.checkpoint,
            self.names,
            Some(self.output_dtype()?),
        )?;
        let all = all.into_iter();
        let all = all
            .map(|(key, text)| (key, HeaderValue::Text(text)))
            .collect();
        let metadata = file_metadata(&all, file.is_first, Some(file.plan_id));
        let outputs = plan.jobs.iter().map(|job| job.output.clone());
        let (header, nbytes) = file_form(&outputs.collect::<Vec<_>>(), &metadata)?;
        match found_file(&path, &header, nbytes, file.plan_id)? {
            FileOrigin::Complete => return Ok(false),
            FileOrigin::Unknown => check_replaceable(&path, self.overwrite)?,
            FileOrigin::Missing | FileOrigin::SamePlan | FileOrigin::OtherPlan => {}
        }
        let sink = SafetensorsSink::new(&path, Sharding::SingleFile);
        // decided above: what must not be replaced has been refused
        one.run(&plan, &mut sink.overwrite(true).header_values(metadata))?;
        Ok(true)
    }
}
