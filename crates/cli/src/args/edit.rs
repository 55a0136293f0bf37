//! The arguments of `edit`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

use super::values::{MetadataArgument, key_file, key_replacement, metadata_value, replacement};

const EXAMPLES: &str = "\
Examples:
  anamnesis edit model.gguf --set general.name='My model' --set-file tokenizer.chat_template=chat.jinja
  anamnesis edit lora.safetensors --set license=mit --unset ss_tag_frequency --rename-key author=creator
  anamnesis edit model/ --rename language_model.model=model      tensors, index and configuration
  anamnesis edit model.gguf --recover                            complete an edit that was interrupted

Exit status: 0 success, 1 failure (the files are as before, or the message says how to complete the edit), 2 invalid arguments, 130 \
interrupted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("edits").required(true).multiple(true))]
pub(crate) struct EditArgs {
    /// A safetensors or GGUF file, a directory of safetensors, its index, or any file of a split GGUF.
    ///
    /// A link, a file of the hub's cache, one with several names (hard links) without --copy, one without write permission,
    /// and one that another process has locked are refused, and so are URLs.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Set a metadata value; may be repeated. After --rename-key and --unset.
    ///
    /// TYPE is for new keys of a GGUF: u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, str, or `[TYPE]` with a JSON array. A
    /// key that exists keeps its type. In a directory every file has the key; in a split GGUF the first one.
    #[arg(long, value_name = "KEY[:TYPE]=VALUE", value_parser = metadata_value, group = "edits", help_heading = "Metadata")]
    pub(crate) set: Vec<MetadataArgument>,
    /// Set a metadata value to the text of a file; may be repeated.
    #[arg(long, value_name = "KEY=FILE", value_parser = key_file, group = "edits", value_hint = ValueHint::FilePath, help_heading = "Metadata")]
    pub(crate) set_file: Vec<(String, PathBuf)>,
    /// Remove a metadata key, which must be there; may be repeated.
    #[arg(long, value_name = "KEY", group = "edits", help_heading = "Metadata")]
    pub(crate) unset: Vec<String>,
    /// Give a metadata key another name, which must be free; may be repeated. Before --unset.
    #[arg(long, value_name = "KEY=NEW", value_parser = key_replacement, group = "edits", help_heading = "Metadata")]
    pub(crate) rename_key: Vec<(String, String)>,
    /// Rename tensors; may be repeated, in this order.
    ///
    /// FROM is a whole name, a prefix that ends at a dot, or a pattern of the whole name, of which the n-th `*` of TO is what the
    /// n-th `*` has matched; an `=` in a name is written `\=`. The index and the names of modules in configurations are renamed too. A FROM that is for no
    /// tensor is an error.
    #[arg(long, value_name = "FROM=TO", value_parser = replacement, group = "edits", help_heading = "Tensors")]
    pub(crate) rename: Vec<(String, String)>,
    /// Copy each file and replace it, also where it could be changed in place.
    ///
    /// Programs that have the file open keep the old one, and so does another name of it (hard link).
    #[arg(long, help_heading = "Files")]
    pub(crate) copy: bool,
    /// Remove the room for later edits from the headers; copies the files.
    #[arg(long, group = "edits", help_heading = "Files")]
    pub(crate) compact: bool,
    /// Complete edits of PATH that were interrupted, and change nothing else.
    #[arg(long, group = "edits", conflicts_with_all = ["set", "set_file", "unset", "rename_key", "rename", "copy", "compact"], help_heading = "Files")]
    pub(crate) recover: bool,
    /// Print one JSON document.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) json: bool,
    /// Disable the limits on memory and work; only for trusted files.
    #[arg(long, help_heading = "Opening")]
    pub(crate) no_limits: bool,
}
