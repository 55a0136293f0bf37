//! The parts of a model's name, such as `Qwen2-0.5B-Instruct`: base name, size, what it was tuned for, version.
//!
//! Source: gguf-py `metadata.py` (`get_model_id_components`, `id_to_title`).

use crate::base::error::{Error, Result};
use crate::base::quote::quote;

/// Bytes of the longest name: the hub's have 96, a directory's 255. The parts of one have a few times as many together.
const LONGEST: usize = 4096;

/// The parts of a name that were recognised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameParts {
    /// The name without its organization.
    pub(super) name: String,
    pub(super) organization: Option<String>,
    pub(super) basename: Option<String>,
    pub(super) finetune: Option<String>,
    pub(super) version: Option<String>,
    pub(super) size_label: Option<String>,
}

/// The roles of a word of a name. It may have several.
#[derive(Clone, Copy, Default)]
struct WordRoles {
    basename: bool,
    size_label: bool,
    finetune: bool,
    version: bool,
    /// A type of weights, such as `Q4_K`, which no key has.
    weight_type: bool,
}

impl WordRoles {
    fn count(self) -> usize {
        let all = [
            self.basename,
            self.size_label,
            self.finetune,
            self.version,
            self.weight_type,
        ];
        all.into_iter().filter(|is_set| *is_set).count()
    }
}

impl NameParts {
    /// The parts of `NAME` or `ORGANIZATION/NAME`. `parameters` is the number of parameters of the model, or 0: a label that is far
    /// from it is no size.
    ///
    /// # Errors
    /// If the name is longer than names are, or has a character whose case or class this library and Python may see differently.
    pub(super) fn of(id: &str, parameters: u64) -> Result<Self> {
        check_characters(id)?;
        if id.contains(' ') {
            // a sentence, not a name of the hub
            return Ok(Self {
                name: id.to_owned(),
                ..Self::default()
            });
        }
        let (organization, name) = match id.split_once('/') {
            // a path, such as `./model`
            Some((organization, name)) if organization.starts_with('.') => (None, name),
            Some((organization, name)) => (Some(organization), name),
            None => (None, id),
        };
        let words = name.split('-').filter(|word| !word.is_empty());
        let mut words: Vec<(String, WordRoles)> = words
            .enumerate()
            .map(|(position, word)| recognised(word, position == 0, parameters))
            .collect();
        drop_worded_sizes(&mut words);
        find_basename(&mut words);
        let joined = |is_part: fn(WordRoles) -> bool| {
            let parts = words.iter().filter(|(_, roles)| is_part(*roles));
            let parts: Vec<&str> = parts.map(|(word, _)| &**word).collect();
            (!parts.is_empty()).then(|| parts.join("-"))
        };
        let mut parts = Self {
            name: name.to_owned(),
            organization: organization.map(str::to_owned),
            basename: joined(|roles| roles.basename),
            finetune: joined(|roles| roles.finetune),
            version: joined(|roles| roles.version && !roles.basename),
            size_label: size_label(&words),
        };
        if parts.size_label.is_none() && parts.finetune.is_none() && parts.version.is_none() {
            // nothing tells where the base name ends
            parts.basename = None;
        }
        Ok(parts)
    }
}

/// A word as it is written into keys, and its roles.
fn recognised(word: &str, is_first: bool, parameters: u64) -> (String, WordRoles) {
    let mut roles = WordRoles::default();
    if is_version(word) {
        roles.version = true;
    } else if is_weight_type(word) {
        roles.weight_type = true;
        return (word.to_uppercase(), roles);
    } else if !is_first && is_size(word) {
        let label = normal_size(word);
        return match is_far_from(&label, parameters) {
            // the length of a context, which is written in lower case
            true => {
                roles.finetune = true;
                let (number, suffix) = label.split_at(label.len() - 1);
                (number.to_owned() + &suffix.to_lowercase(), roles)
            }
            false => {
                roles.size_label = true;
                (label, roles)
            }
        };
    } else if !is_first && is_one_of(word, &["chat", "instruct", "vision", "lora"]) {
        roles.finetune = true;
    }
    (word.to_owned(), roles)
}

/// Drops sizes that are words where another one is a number.
fn drop_worded_sizes(words: &mut [(String, WordRoles)]) {
    let mut sizes = words.iter().filter(|(_, roles)| roles.size_label);
    if sizes.any(|(word, _)| word.contains(|c: char| c.is_ascii_digit())) {
        for (word, roles) in words {
            roles.size_label &= !word.chars().all(|c| c.is_ascii_alphabetic());
        }
    }
}

/// Finds the words of the base name, which is in front; the other words without a role are what the model was tuned for.
fn find_basename(words: &mut [(String, WordRoles)]) {
    let mut is_front = true;
    for (word, roles) in &mut *words {
        let is_plain = roles.count() == 0;
        let is_name = is_plain && word.chars().next().is_some_and(is_letter);
        if is_front && (is_name || roles.version) {
            roles.basename = true;
        } else {
            is_front = false;
            roles.finetune |= is_plain;
        }
    }
    // a version at the end is no part of it
    for (_, roles) in words.iter_mut().rev() {
        if !(roles.basename && roles.count() > 1) {
            break;
        }
        roles.basename = false;
    }
}

/// The sizes, each once.
fn size_label(words: &[(String, WordRoles)]) -> Option<String> {
    let mut labels: Vec<&str> = Vec::new();
    for (word, _) in words.iter().filter(|(_, roles)| roles.size_label) {
        // few: a name has a bound
        if !labels.contains(&&**word) {
            labels.push(word);
        }
    }
    (!labels.is_empty()).then(|| labels.join("-"))
}

/// `2.1`, `v0.3` or `iter4`.
fn is_version(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let number = ["v", "iter"].iter().find_map(|p| word.strip_prefix(p));
    number.unwrap_or(&word).split('.').all(is_number)
}

/// `q4_k_m`, `iq2_xs`, `bf16` or `fp32`.
fn is_weight_type(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let float = word.strip_prefix('b').unwrap_or(&word);
    if let Some(float) = float.strip_prefix('f') {
        return matches!(float.strip_prefix('p').unwrap_or(float), "16" | "32");
    }
    let mut rest = word.strip_prefix('i').unwrap_or(&word).chars();
    if rest.next() != Some('q') || !rest.next().is_some_and(|c| c.is_ascii_digit()) {
        return false;
    }
    while let Some(c) = rest.next() {
        if c != '_'
            || !rest
                .next()
                .is_some_and(|c| c == '_' || is_letter_or_digit(c))
        {
            return false;
        }
    }
    true
}

/// `7B`, `0.5b`, `1_5B`, `8x7B`, `A3B`, `7b1`, or a word such as `small`.
fn is_size(word: &str) -> bool {
    if is_one_of(word, &["small", "mini", "medium", "large", "xl", "xxl"]) {
        return true;
    }
    let word = word.to_ascii_lowercase();
    let number = match word.split_once('x') {
        Some((count, number)) if is_number(count) => number,
        _ => word.strip_prefix('a').unwrap_or(&word),
    };
    let fraction = number.strip_suffix(|c: char| c.is_ascii_digit());
    let number = fraction.unwrap_or(number);
    let Some(number) = number.strip_suffix(['k', 'm', 'b', 't']) else {
        return false;
    };
    match number.split_once(['.', '_']) {
        Some((whole, fraction)) => is_number(whole) && is_number(fraction),
        None => is_number(number),
    }
}

/// A size with `.` and a suffix in upper case.
fn normal_size(word: &str) -> String {
    let mut label = word.replace('_', ".");
    // `7b1` is 7.1B
    if label.ends_with(|c: char| c.is_ascii_digit()) {
        let fraction = label.split_off(label.len() - 1);
        let suffix = label.split_off(label.len() - 1);
        label = format!("{label}.{fraction}{suffix}");
    }
    let suffix = label.split_off(label.len() - 1);
    match label.ends_with(|c: char| c.is_ascii_digit()) {
        true => label + &suffix.to_ascii_uppercase(),
        false => label + &suffix,
    }
}

/// Whether a size is less than an eighth of the parameters or more than fifteen eighths. A count of experts is not compared.
fn is_far_from(label: &str, parameters: u64) -> bool {
    let (number, suffix) = label.split_at(label.len() - 1);
    let (Some(thousands), Ok(number)) = ("KMBT".find(suffix), number.parse::<f64>()) else {
        return false;
    };
    let size = number * [1e3, 1e6, 1e9, 1e12][thousands];
    let most = (u128::from(parameters) * 7 / 8) as f64;
    parameters != 0 && (size - parameters as f64).abs() > most
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A letter for Python, which does not take letters in circles and squares for such.
fn is_letter(c: char) -> bool {
    let is_sign = matches!(c, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f189}');
    c.is_alphabetic() && !is_sign
}

fn is_letter_or_digit(c: char) -> bool {
    is_letter(c) || c.is_ascii_digit()
}

/// A name for people: words with spaces, each with a capital unless it is a version or has capitals.
///
/// # Errors
/// If it is longer than names are, or has a character whose case or class this library and Python may see differently.
pub(super) fn title(name: &str) -> Result<String> {
    check_characters(name)?;
    let words = name.split(|c| c == '-' || is_python_space(c));
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let has_capitals = word.chars().any(char::is_uppercase);
        let is_lower = !has_capitals && word.chars().any(char::is_lowercase);
        match is_lower && !is_exact(word) {
            true => capitalised(word),
            false => word.to_owned(),
        }
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}

/// A word that keeps its letters: it begins with a digit, or is a version.
fn is_exact(word: &str) -> bool {
    let version = word.strip_prefix('v');
    word.starts_with(|c: char| c.is_ascii_digit())
        || version.is_some_and(|number| number.split('.').all(is_number))
}

/// A word in lower case, with a capital behind each sign that is no letter.
fn capitalised(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut is_inside = false;
    for c in word.chars() {
        match is_inside {
            true => out.push(c),
            false => out.extend(c.to_uppercase()),
        }
        is_inside = c.is_lowercase();
    }
    out
}

/// White space for `str.split` and `str.strip`.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Refuses a text that is no name, and characters for which Python's methods and regular expressions have rules of their own: digits of
/// other scripts, letters whose capital at the beginning of a word is not their capital, and letters that equal ASCII's without case.
fn check_characters(name: &str) -> Result<()> {
    if name.len() > LONGEST {
        let what = format!(
            "a model's name has {} bytes, more than {LONGEST}",
            name.len()
        );
        return Err(Error::malformed(what));
    }
    let is_foreign = |c: char| {
        let has_title = matches!(c, '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}' | '\u{10d0}'..='\u{10ff}')
            || c.is_lowercase() && c.to_uppercase().count() > 1
            || !c.is_uppercase() && c.to_lowercase().next() != Some(c);
        let equals_ascii = matches!(c, '\u{130}' | '\u{131}' | '\u{17f}' | '\u{212a}');
        has_title || equals_ascii || c.is_numeric()
    };
    let is_foreign = |c: &char| !c.is_ascii() && is_foreign(*c);
    match name.chars().find(is_foreign) {
        Some(c) => Err(Error::unsupported(format!(
            "the model's name {} has the character {}, whose class depends on Python's tables: write it in other letters",
            quote(name),
            c.escape_unicode()
        ))),
        None => Ok(()),
    }
}
