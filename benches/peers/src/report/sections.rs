//! The sections of the report, and their cases.

use super::{options::Options, python};
use crate::case::Case;
use crate::{generate, inspect, kernels, load, pool, python_package, remember, remote};

/// Creates a case just before it runs, or returns the reason why it cannot.
pub type MakeCase = Box<dyn FnOnce(&Options) -> Result<Case, String>>;

/// A case that is measured, or taken from an earlier run that was interrupted.
pub struct Job {
    pub name: String,
    pub make: MakeCase,
}

pub struct Section {
    pub name: &'static str,
    /// Its share of `--minutes`.
    pub minutes: f64,
    pub jobs: fn(&Options) -> Vec<Job>,
}

pub static SECTIONS: &[Section] = &[
    Section {
        name: "inspect",
        minutes: 6.0,
        jobs: inspect_jobs,
    },
    Section {
        name: "load",
        minutes: 14.0,
        jobs: load_jobs,
    },
    Section {
        name: "cold",
        minutes: 6.0,
        jobs: cold_jobs,
    },
    Section {
        name: "start",
        minutes: 14.0,
        jobs: load::new_process_jobs,
    },
    Section {
        name: "dequantise",
        minutes: 15.0,
        jobs: dequantise_jobs,
    },
    Section {
        name: "large",
        minutes: 2.0,
        jobs: large_jobs,
    },
    Section {
        name: "convert",
        minutes: 1.5,
        jobs: convert_jobs,
    },
    Section {
        name: "pool",
        minutes: 3.5,
        jobs: pool_jobs,
    },
    Section {
        name: "kernels",
        minutes: 2.0,
        jobs: kernel_jobs,
    },
    Section {
        name: "python",
        minutes: 12.0,
        jobs: python_package::jobs,
    },
    Section {
        name: "remote",
        minutes: 10.0,
        jobs: remote::jobs,
    },
];

const FILES: [&str; 4] = ["model.safetensors", "model.pth", "model.npz", "model.gguf"];

impl Job {
    pub fn new(name: &str, make: impl FnOnce(&Options) -> Result<Case, String> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            make: Box::new(make),
        }
    }
}

fn inspect_jobs(_: &Options) -> Vec<Job> {
    let job = |name: &'static str| {
        Job::new(name, move |options| {
            Ok(inspect::case(
                &generate::file(options, name)?,
                python::interpreter(options),
            ))
        })
    };
    FILES.map(job).into()
}

fn load_jobs(_: &Options) -> Vec<Job> {
    let warm = |name: &'static str| {
        Job::new(name, move |options| {
            Ok(load::case(
                &generate::file(options, name)?,
                load::PageCache::Warm,
                python::interpreter(options),
            ))
        })
    };
    let cold = Job::new("model.safetensors, cold", |options| {
        Ok(load::case(
            &generate::file(options, "model.safetensors")?,
            load::PageCache::Cold,
            python::interpreter(options),
        ))
    });
    FILES.map(warm).into_iter().chain([cold]).collect()
}

fn cold_jobs(_: &Options) -> Vec<Job> {
    vec![Job::new("large.safetensors, cold", |options| {
        Ok(load::large(
            &generate::file(options, "large.safetensors")?,
            python::interpreter(options),
        ))
    })]
}

fn decoding(name: &'static str) -> Job {
    Job::new(name, move |options: &Options| {
        Ok(kernels::case(name, python::interpreter(options)))
    })
}

fn large_jobs(_: &Options) -> Vec<Job> {
    kernels::large().into_iter().map(decoding).collect()
}

fn dequantise_jobs(_: &Options) -> Vec<Job> {
    let whole = Job::new("model.gguf", |options| {
        Ok(load::dequantise_case(
            &generate::file(options, "model.gguf")?,
            python::interpreter(options),
        ))
    });
    [whole]
        .into_iter()
        .chain(kernels::names().into_iter().map(decoding))
        .collect()
}

fn convert_jobs(_: &Options) -> Vec<Job> {
    let job = |threads: usize| {
        Job::new(&format!("{threads} threads"), move |options| {
            let file = generate::file(options, "model.gguf")?;
            let dir = options.files().to_string_lossy().into_owned();
            let ours = crate::results::repository().join("target/release/anamnesis");
            let ours = ours.to_str().expect("a path in UTF-8").to_owned();
            Ok(remember::case(&remember::Options {
                file,
                threads,
                dir,
                ours,
            }))
        })
    };
    vec![job(2), job(1)]
}

fn pool_jobs(_: &Options) -> Vec<Job> {
    pool::cases()
        .into_iter()
        .map(|case| Job::new(&case.name.clone(), move |_| Ok(case)))
        .collect()
}

fn kernel_jobs(_: &Options) -> Vec<Job> {
    let job = |name: &'static str| {
        Job::new(name, move |_| {
            kernels::builds::case(name).ok_or_else(|| "no build runs on this machine".to_owned())
        })
    };
    kernels::builds::names().into_iter().map(job).collect()
}
