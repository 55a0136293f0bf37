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

/// Whether a file holds weights by its name, in capitals or not.
///
/// ```
/// use anamnesis_template::is_weight_file;
///
/// assert!(is_weight_file("model-00001-of-00002.safetensors") && is_weight_file("old.GGUF"));
/// assert!(!is_weight_file("config.json") && !is_weight_file("safetensors"));
/// ```
pub fn is_weight_file(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| {
        let is = |known: &str| known.eq_ignore_ascii_case(ending);
        WEIGHT_ENDINGS.iter().any(|known| is(known))
    })
}
