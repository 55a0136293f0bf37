//! `anamnesis man`: manual pages, and the reference in Markdown, generated from the clap definitions in [`crate::args`].

mod reference;

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, ManArgs};
use crate::exit::{Completion, Failure, RunError};
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
    for page in pages(&command) {
        let mut text = Vec::new();
        clap_mangen::Man::new(page.clone()).render(&mut text)?;
        match &args.out {
            None => out.write_all(&text)?,
            Some(directory) => {
                let path = directory.join(format!(
                    "{}.1",
                    page.get_display_name().unwrap_or(page.get_name())
                ));
                std::fs::create_dir_all(directory).map_err(|e| Failure::io(e, directory))?;
                WrittenFile::checked(&path, args.overwrite, &[], |_| false)?.write(&text)?;
            }
        }
    }
    Ok(Completion::Done)
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
