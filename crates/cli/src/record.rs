//! `anamnesis record`: what a program reads of a model, as an I/O template.

mod family;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis::template::{Limits, Template};
use anamnesis::{Checkpoint, complete};
use anamnesis_maio::Maio;
use anamnesis_ppc::cache::{Evictor, Mappers};
use anamnesis_ppc::runtime::Options;
use anamnesis_ppc::source::{self, Want};
use anamnesis_ppc::{self as ppc, Entry, EventSource, Namespace, Runtime};

use crate::args::Record;
use crate::exit::{Code, Failure, Stop};
use crate::interrupt;
use crate::output::Stdout;
use crate::output::text::{Bytes, Exact, clean};
use crate::ppc::child::{Started, beside, watch};
use crate::ppc::failure;
use crate::template::{free, keep};
use crate::warnings;
use family::Family;

/// A recording's name in its directory.
const NAME: &str = "recording";

pub(crate) fn run(args: &Record, out: &mut Stdout) -> Result<Code, Stop> {
    warnings::show();
    free(&args.out, args.overwrite)?;
    let dir = model(args)?;
    let kept = Recording::new()?;
    // events come in bursts, and none of them may be dropped
    let limits = ppc::Limits {
        waiting: 1 << 22,
        ..ppc::Limits::default()
    };
    let options = Options {
        threshold: None,
        limits,
        ..Options::default()
    };
    let runtime = Arc::new(Runtime::new(options).map_err(failure)?);
    let parameters: String = args
        .parameters
        .iter()
        .map(|given| format!(",param.{given}"))
        .collect();
    // gaps are the catalog's to fill, unless it shall not
    let gap = if args.raw { "2M" } else { "0" };
    let config = format!(
        "templates={},service={NAME},generate=yes,prefetch=no,evict=no,idle=1000000s,gap={gap},workers={}{parameters}",
        kept.0.display(),
        args.workers
    );
    let registered = runtime
        .reg_policy(&dir, "record", Box::new(Maio::new()), &config)
        .map_err(failure)?;
    let namespace = &registered.origin().namespace;
    if !args.command.is_empty() && !args.warm {
        cool(namespace);
    }
    let mut source = listen(args, &dir, namespace)?;
    // before the command reads its first byte
    runtime.watch(&mut *source).map_err(failure)?;
    interrupt::is_noted();
    let child = Started::new(&args.command)?;
    let head = child.as_ref().map(Started::pid).or(args.pid);
    let source: Box<dyn EventSource> = match head {
        Some(head) => Box::new(Family::new(source, head)),
        None => source,
    };
    let code = beside(&runtime, source, |over| {
        let code = watch_all(child, args.pid, over);
        // what was told last is still on the way
        std::thread::sleep(std::time::Duration::from_millis(300));
        code
    });
    let status = runtime.status();
    let lost = status.events.lost
        + status
            .policies
            .iter()
            .map(|policy| policy.dropped)
            .sum::<u64>();
    runtime.rm_policy(&dir).map_err(failure)?;
    let code = code.map_err(failure)?;
    let template = kept.template(&dir)?;
    let template = if args.raw {
        template
    } else {
        completed(&dir, template)
    };
    if lost > 0 {
        eprintln!(
            "anamnesis: {} events were lost: the template may lack what they told",
            Exact(lost)
        );
    }
    keep(&template, &args.out, args.overwrite)?.tell(args.json, out)?;
    Ok(code)
}

/// The model's directory: given, or the first of the command's arguments that is one, or is a file in it.
fn model(args: &Record) -> Result<PathBuf, Failure> {
    if let Some(dir) = &args.dir {
        return Ok(dir.clone());
    }
    let named = args.command.iter().skip(1).map(Path::new).find_map(|path| {
        let checkpoint = Checkpoint::open(path).ok()?;
        drop(checkpoint);
        if path.is_dir() {
            Some(path.to_owned())
        } else {
            path.parent().map(Path::to_owned)
        }
    });
    let found = named.map(|dir| {
        if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        }
    });
    found.ok_or_else(|| {
        Failure::new(
            "usage",
            "no model among the command's arguments",
            "say where it is with --dir",
        )
    })
}

/// Takes the model out of memory, which tells most of what is read when it comes in.
fn cool(namespace: &Arc<Namespace>) {
    let all = namespace
        .entries()
        .iter()
        .map(Entry::whole)
        .collect::<Vec<_>>()
        .into();
    // what a process has mapped it uses
    let evicted = Evictor::new(namespace).mappers(Mappers::None).evict(&all);
    if evicted.left > 0 {
        let left = Bytes(evicted.left);
        eprintln!(
            "anamnesis: {left} of the model stay in memory, which others use: what is read of that may be missed"
        );
    }
}

fn listen(
    args: &Record,
    dir: &Path,
    namespace: &Namespace,
) -> Result<Box<dyn EventSource>, Failure> {
    if let Some(name) = &args.source {
        return source::by_name(name, namespace).map_err(failure);
    }
    let choice = source::best(Want::Recording, namespace).map_err(failure)?;
    eprintln!(
        "anamnesis: recording {} by {choice}",
        clean(&dir.display().to_string())
    );
    Ok(choice.source)
}

/// Until the command ends, or the process that was named, or an interrupt.
fn watch_all(child: Option<Started>, pid: Option<u32>, over: &AtomicBool) -> Code {
    let Some(pid) = pid else {
        return watch(child, over);
    };
    while Path::new("/proc").join(pid.to_string()).exists()
        && !interrupt::asked()
        && !over.load(Ordering::Relaxed)
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Code::Done
}

/// What the catalog says must have been read too; as it is where there is no checkpoint.
fn completed(dir: &Path, template: Template) -> Template {
    let completed = Checkpoint::open(dir).and_then(|checkpoint| complete(&checkpoint, &template));
    completed.unwrap_or_else(|error| {
        eprintln!("anamnesis: the template holds what was seen, and is not completed: {error}");
        template
    })
}

/// A directory for the recording while it is made.
struct Recording(PathBuf);

impl Recording {
    fn new() -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(format!("anamnesis-record-{}", std::process::id()));
        let made = fs::create_dir(&dir);
        made.map_err(|e| {
            Failure::new("io", e.to_string(), "set TMPDIR to where you may write").in_file(&dir)
        })?;
        Ok(Self(dir))
    }

    fn template(&self, dir: &Path) -> Result<Template, Failure> {
        let path = self.0.join(format!("{NAME}.iot"));
        if !path.exists() {
            let what = "nothing of the model was read";
            return Err(Failure::new(
                "empty",
                what,
                "is this the directory that the program reads?",
            )
            .in_file(dir));
        }
        Ok(Template::load(&path, &Limits::none())?)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
