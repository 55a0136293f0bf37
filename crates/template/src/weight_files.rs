//! Which files hold the weights of a model, by their names: the one list of their endings.

/// Endings of files with tensors, in formats that `anamnesis` reads, safer and faster ones first: the first one with files
/// decides what a directory is opened as.
///
/// ```
/// assert_eq!(anamnesis_template::WEIGHT_ENDINGS[0], "safetensors");
/// ```
pub const WEIGHT_ENDINGS: [&str; 9] = [
    "safetensors",
    "gguf",
    "distcp",
    "bin",
    "pth",
    "pt",
    "ckpt",
    "npz",
    "npy",
];

/// The ending of a file that holds weights by its name, in capitals or not, as [`WEIGHT_ENDINGS`] has it.
///
/// ```
/// use anamnesis_template::weight_ending;
///
/// assert_eq!(weight_ending("old.GGUF"), Some("gguf"));
/// assert_eq!(weight_ending("config.json"), None);
/// ```
pub fn weight_ending(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    let mut known = WEIGHT_ENDINGS.into_iter();
    known.find(|known| known.eq_ignore_ascii_case(ending))
}

/// Whether a file holds weights by its name, in capitals or not.
///
/// ```
/// use anamnesis_template::is_weight_file;
///
/// assert!(is_weight_file("model-00001-of-00002.safetensors") && is_weight_file("old.GGUF"));
/// assert!(!is_weight_file("config.json") && !is_weight_file("safetensors"));
/// ```
pub fn is_weight_file(name: &str) -> bool {
    weight_ending(name).is_some()
}
