//! Section `remote`: files of a web server, of a bucket and of a hub, all on the loopback interface, through our Python package and
//! through the libraries that Python programs use. Requests, how many of them follow one another, and bytes are the server's counts.

mod generate;
mod server;

use std::sync::OnceLock;

use crate::case::{Case, Measurement, Variant};
use crate::child_process::ProcessUsage;
use crate::report::{Job, options::Options, python};

const SCRIPT: &str = include_str!("remote/remote.py");
/// Milliseconds before each answer: a round trip to another continent's bucket, or to a near one with its own delay.
const LATENCY: &str = "30";
const LIMIT: &str = "limit: the same bytes over 16 connections";

/// Listings: the name of the file or directory, and the variants. `remote.py` has their code.
const LISTINGS: &[(&str, &[&str])] = &[
    (
        "model.safetensors",
        &["ours, web", "ours, bucket", "fsspec", "s3fs", "obstore"],
    ),
    (
        "model.gguf",
        &["ours, web", "ours, bucket", "fsspec", "s3fs"],
    ),
    (
        "model.npz",
        &["ours, web", "ours, bucket", "fsspec", "s3fs"],
    ),
    (
        "model.pth",
        &["ours, web", "ours, bucket", "fsspec", "s3fs"],
    ),
    (
        "shards-64",
        &[
            "ours, hub",
            "ours, bucket",
            "hf-mem",
            "huggingface_hub",
            "obstore",
            "s3fs",
        ],
    ),
    (
        "shards-200",
        &[
            "ours, hub",
            "ours, bucket",
            "hf-mem",
            "huggingface_hub",
            "obstore",
        ],
    ),
];

/// Loads of 1 GB in six shards from a bucket: the title, milliseconds before each answer, bytes per second of a connection.
const LOADS: &[(&str, &str, &str)] = &[
    ("load 1 GB from a bucket", "0", "0"),
    (
        "load 1 GB from a bucket, 50 MB/s a connection",
        "20",
        "50e6",
    ),
];
const LOADERS: &[&str] = &[
    "ours, new pool",
    "ours, repeated",
    "obstore",
    "s3fs",
    "run:ai model streamer",
    LIMIT,
];

pub fn jobs(_: &Options) -> Vec<Job> {
    let listings = LISTINGS.iter().map(|&(file, variants)| {
        Job::new(&format!("list {file}"), move |options| {
            generate::files(options)?;
            case(
                options,
                &format!("list {file}"),
                file,
                variants,
                (LATENCY, "0"),
            )
        })
    });
    let loads = LOADS.iter().map(|&(title, latency, rate)| {
        Job::new(title, move |options| {
            generate::files(options)?;
            let mut case = case(options, title, generate::LOADED, LOADERS, (latency, rate))?;
            case.limit = Some(LIMIT);
            Ok(case)
        })
    });
    listings.chain(loads).collect()
}

fn case(
    options: &Options,
    title: &str,
    file: &str,
    variants: &[&str],
    (latency, rate): (&str, &str),
) -> Result<Case, String> {
    static SERVER: OnceLock<Result<String, String>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let address = server::start(&options.files()).map_err(|e| format!("no server: {e}"))?;
        Ok(format!("http://{address}"))
    });
    let (server, python) = (server.clone()?, python::interpreter(options)?);
    let variant = |name: &&str| {
        let command = [&*python, "-c", SCRIPT, name, file, &server, latency, rate];
        Variant::new(name, &command, parse_counts)
    };
    Ok(Case {
        name: title.to_owned(),
        variants: variants.iter().map(variant).collect(),
        same: Some("sum"),
        ..Case::default()
    })
}

/// `NANOSECONDS SUM REQUESTS DEPTH CONNECTIONS BYTES`; the sum is `-` where a variant has none.
fn parse_counts(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    let words: Vec<&str> = text.split_whitespace().collect();
    let [took, sum, counts @ ..] = words.as_slice() else {
        return None;
    };
    let names = ["requests", "depth", "connections", "bytes"];
    let counts: Vec<f64> = counts.iter().filter_map(|word| word.parse().ok()).collect();
    if counts.len() != names.len() {
        return None;
    }
    let sum = sum.parse().ok().map(|sum| ("sum", sum));
    let more = sum
        .into_iter()
        .chain(names.into_iter().zip(counts))
        .collect();
    Some(vec![Measurement::new(took.parse().ok()?, more)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_time_and_the_sum() {
        let usage = |text: &str| ProcessUsage {
            stdout: text.as_bytes().to_vec(),
            ..ProcessUsage::default()
        };
        let parsed = parse_counts(&usage("900 149 1 1 1 131072\n")).unwrap();
        assert_eq!(parsed[0].ns, 900.0);
        assert_eq!(parsed[0].more[0], ("sum", 149.0));
        assert_eq!(parsed[0].more[4], ("bytes", 131072.0));
        let without = parse_counts(&usage("900 - 3 2 1 10")).unwrap();
        assert_eq!(without[0].more[0], ("requests", 3.0));
        assert!(parse_counts(&usage("Traceback")).is_none());
        assert!(parse_counts(&usage("900 149 1")).is_none());
    }
}
