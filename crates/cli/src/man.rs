//! `anamnesis man`: manual pages, and the reference in Markdown, generated from the clap definitions in [`crate::args`].

mod reference;

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, ManArgs};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::output::Stdout;
use crate::written_file::{WrittenFile, check_local_name};

pub(crate) fn run(args: &ManArgs, out: &mut Stdout) -> Result<Completion, RunError> {
    let mut command = Cli::command().disable_help_subcommand(true);
    // names the pages of verbs, as in `anamnesis-inspect`
    command.build();
    if args.markdown {
        out.write_all(reference::page(&command).as_bytes())?;
        return Ok(Completion::Done);
    }
    // before the directory is made
    args.out.iter().try_for_each(|out| check_local_name(out))?;
    let mut texts = Vec::new();
    for page in pages(&command) {
        let mut text = Vec::new();
        clap_mangen::Man::new(page.clone()).render(&mut text)?;
        texts.push((page.get_display_name().unwrap_or(page.get_name()), text));
    }
    match &args.out {
        None => texts.iter().try_for_each(|(_, text)| out.write_all(text))?,
        Some(directory) => write_all(directory, &texts, args.overwrite)?,
    }
    Ok(Completion::Done)
}

/// Writes all pages into a directory, or none: they get their names when the last one is written.
fn write_all(directory: &Path, texts: &[(&str, Vec<u8>)], overwrite: bool) -> Result<(), Failure> {
    let is_new = !directory.exists();
    std::fs::create_dir_all(directory).map_err(|e| Failure::io(e, directory))?;
    let written = write_into(directory, texts, overwrite);
    if is_new && written.is_err() {
        // the failure of the pages is the one to report
        let _ = std::fs::remove_dir(directory);
    }
    written
}

fn write_into(directory: &Path, texts: &[(&str, Vec<u8>)], overwrite: bool) -> Result<(), Failure> {
    let mut pages = Vec::new();
    for (name, text) in texts {
        let path = directory.join(format!("{name}.1"));
        let page =
            WrittenFile::checked(&path, overwrite, &[], |_| false)?.write_unpublished(text)?;
        pages.push((path, page));
    }
    for (path, page) in pages {
        page.publish().map_err(|e| Failure::io(e, &path))?;
    }
    Ok(())
}

/// The command, its verbs and the verbs of these, without hidden ones.
fn pages(command: &clap::Command) -> Vec<&clap::Command> {
    let verbs = command
        .get_subcommands()
        .flat_map(|verb| std::iter::once(verb).chain(verb.get_subcommands()));
    std::iter::once(command)
        .chain(verbs)
        .filter(|verb| !verb.is_hide_set())
        .collect()
}
