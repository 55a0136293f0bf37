//! The options of a [`MaioConfig`](crate::MaioConfig) as data, for help and documentation.

/// An option of a [`MaioConfig`](crate::MaioConfig): an item `key=value` of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaioOption {
    /// The key. `param.KEY` stands for all keys that begin with `param.`.
    pub key: &'static str,
    /// The values: alternatives separated by `|`, with placeholders in capitals.
    pub values: &'static str,
    /// The effect of the option, as a phrase.
    pub meaning: &'static str,
    /// The default, as a phrase; empty if there is none.
    pub default: &'static str,
}

const fn option(
    key: &'static str,
    values: &'static str,
    meaning: &'static str,
    default: &'static str,
) -> MaioOption {
    MaioOption {
        key,
        values,
        meaning,
        default,
    }
}

/// All options.
pub(crate) const OPTIONS: &[MaioOption] = &[
    option("template", "T.iot", "follow this template", ""),
    option(
        "templates",
        "DIR",
        "follow the template of each service in this directory, ID.iot",
        "",
    ),
    option(
        "service",
        "ID",
        "id of the service; all models below the directory are then one service",
        "computed from each model and its parameters",
    ),
    option(
        "param.KEY",
        "VALUE",
        "run-time parameter of the service, part of its id",
        "",
    ),
    option(
        "model",
        "DIR",
        "directory of the model or models, relative to the directory of the policy",
        "the directory of the policy",
    ),
    option(
        "generate",
        "yes|no",
        "record the template if there is none",
        "yes with `templates`",
    ),
    option(
        "gap",
        "SIZE",
        "in a recording, fill gaps up to this size",
        "2M",
    ),
    option(
        "idle",
        "TIME",
        "end a recording when nothing was read for this long after a load; it also ends with the processes that have read most of the model",
        "60s",
    ),
    option(
        "workers",
        "auto|bytes|order|env|env:NAME|accelerator",
        "which process is which worker",
        "auto",
    ),
    option("ranks", "0-3", "workers that run on this machine", "all"),
    option(
        "devices",
        "0-3",
        "accelerators of the service, of worker 0, 1, …",
        "all of the machine",
    ),
    option(
        "start",
        "yes|no",
        "prefetch when the service starts, before the first miss",
        "yes",
    ),
    option("prefetch", "yes|no", "prefetch", "yes"),
    option(
        "window",
        "auto|all|SIZE",
        "how far ahead of a worker to prefetch",
        "as memory permits",
    ),
    option(
        "affinity",
        "yes|no",
        "place bytes on the memory node of the worker's accelerator",
        "yes",
    ),
    option("evict", "yes|no", "evict behind the reader", "yes"),
    option(
        "distance",
        "SIZE",
        "bytes to keep behind a worker",
        "1G, less under memory pressure",
    ),
    option(
        "memory",
        "SIZE",
        "memory for the page cache",
        "what the runtime states",
    ),
    option(
        "touch",
        "auto|yes|no",
        "subscribe to every access, not to misses only",
        "yes if the model exceeds memory",
    ),
];

/// Whether there is an option with this key.
pub(crate) fn is_known(key: &str) -> bool {
    OPTIONS
        .iter()
        .any(|option| match option.key.strip_suffix("KEY") {
            // `param.` alone names no parameter
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => key == option.key,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MaioConfig;

    /// Together with the parser, which refuses a key that is not in the table, this makes the table complete.
    #[test]
    fn every_option_is_parsed_with_each_of_its_values() {
        for option in OPTIONS {
            for value in option.values.split('|') {
                let value = match value {
                    "SIZE" => "512M",
                    "TIME" => "1.5s",
                    value => value,
                };
                let item = format!("{}={value}", option.key);
                let parsed = item.parse::<MaioConfig>();
                assert!(parsed.is_ok(), "{item}: {parsed:?}");
            }
        }
        for key in ["param.", "param", "KEY", "", "tp"] {
            assert!(!is_known(key), "{key}");
        }
    }
}
