//! The tests of the command: one binary that runs `anamnesis` as a process and compares status, output and files.

#[cfg(unix)]
mod abandoned_parts;
#[cfg(target_os = "linux")]
mod beside_edits;
#[cfg(target_os = "linux")]
mod beside_writers;
#[cfg(target_os = "linux")]
mod capabilities;
mod check;
mod companions;
#[cfg(target_os = "linux")]
mod concurrent_runs;
#[cfg(target_os = "linux")]
mod containers;
mod convert;
mod convert_arguments;
mod diff;
mod documents;
#[cfg(unix)]
mod edit;
mod exit_status;
#[cfg(target_os = "linux")]
mod failing_pages;
#[cfg(target_os = "linux")]
mod few_descriptors;
#[cfg(target_os = "linux")]
mod first_minute;
mod fit;
#[cfg(target_os = "linux")]
mod foreign_links;
mod giants;
#[cfg(target_os = "linux")]
mod guesses;
mod honest_check;
mod honest_verdicts;
#[cfg(target_os = "linux")]
mod hub_cache;
mod inspect_json;
mod inspect_output;
#[cfg(target_os = "linux")]
mod interrupted_verbs;
mod kept_weights;
mod killed;
mod library;
mod listed_models;
mod load;
mod ls;
#[cfg(target_os = "linux")]
mod mapped_files;
mod messages;
mod name_filters;
mod numbered_sets;
mod numbers;
mod output_size;
#[cfg(target_os = "linux")]
mod page_cache;
mod parts_of_conversions;
mod parts_of_sets;
mod pieces_and_names;
#[cfg(target_os = "linux")]
mod platform;
#[cfg(target_os = "linux")]
mod policy_library;
#[cfg(target_os = "linux")]
mod policy_log;
#[cfg(target_os = "linux")]
mod ppc;
#[cfg(target_os = "linux")]
mod ppc_change;
#[cfg(target_os = "linux")]
mod ppc_status;
mod process;
mod quantise;
mod readable_outputs;
mod refused_parts;
mod remember;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "remote")]
mod remote_header_cache;
#[cfg(feature = "remote")]
mod remote_models;
#[cfg(feature = "remote")]
mod remote_modelscope;
#[cfg(feature = "remote")]
mod remote_offline;
#[cfg(feature = "remote")]
mod remote_registry;
#[cfg(all(feature = "remote", target_os = "linux"))]
mod remote_tls;
#[cfg(unix)]
mod replaced_models;
mod report;
#[cfg(target_os = "linux")]
mod robustness;
#[cfg(target_os = "linux")]
mod runtime_process;
mod schema;
#[cfg(all(feature = "remote", unix))]
mod secrets;
#[cfg(target_os = "linux")]
mod service_unit;
#[cfg(target_os = "linux")]
mod services;
mod shares;
#[cfg(target_os = "linux")]
mod shim_recording;
mod signs;
mod silent_readings;
mod template;
#[cfg(target_os = "linux")]
mod trusted_places;
#[cfg(unix)]
mod unread_configurations;
mod unread_parts;
#[cfg(target_os = "linux")]
mod verb_rules;
#[cfg(target_os = "linux")]
mod warm;
#[cfg(feature = "remote")]
#[path = "../../../remote/tests/it/server.rs"]
mod web_server;
mod wording;
#[cfg(target_os = "linux")]
mod written_files;
