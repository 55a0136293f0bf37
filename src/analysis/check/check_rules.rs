//! The rules, one row each. The functions that apply them are in the file of their family.

use super::level::FindingLevel::{self, Error, Note, Warning};
use super::rule_subject::RuleSubject::{
    self, Checksums, Digests, Directories, Files, Indexes, Indices, Pickles, Scales, Tensors,
    Values,
};

/// A rule: its id, its usual level, and what can be done about a finding.
///
/// ```
/// let rule = anamnesis::check::rules().iter().find(|rule| rule.id == "lfs-pointer").unwrap();
/// assert!(rule.remedy.unwrap().contains("git lfs pull"));
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckRule {
    /// Stable name, of which findings have a copy.
    pub id: &'static str,
    /// The level of most of its findings; the finding has its own.
    pub level: FindingLevel,
    /// Its subject.
    pub about: &'static str,
    /// The remedy.
    pub remedy: Option<&'static str>,
    /// Whether its findings mean that a file cannot be read.
    pub unreadable: bool,
    /// The things that it looks at.
    pub(super) subject: RuleSubject,
}

/// All rules, in the order in which findings are listed.
pub fn rules() -> &'static [CheckRule] {
    RULES
}

// a macro, so that a rule is one line, and the table and the constants cannot disagree
macro_rules! rules {
    ($($constant:ident $id:literal $level:ident $about:literal $remedy:expr, $unreadable:literal, $subject:ident;)*) => {
        static RULES: &[CheckRule] = &[$($constant),*];
        $(
            pub(super) const $constant: CheckRule = CheckRule {
                id: $id,
                level: $level,
                about: $about,
                remedy: $remedy,
                unreadable: $unreadable,
                subject: $subject,
            };
        )*
    };
}

const AGAIN: Option<&str> = Some("download or copy the file again");
const CONVERT: Option<&str> = Some("convert or quantise the model again, from sound weights");
const INDEX: Option<&str> = Some("download the index and the files again, all of one revision");

rules! {
    LFS_POINTER "lfs-pointer" Error "a Git LFS pointer instead of the file"
        Some("run `git lfs pull`, or download the file itself"), true, Files;
    ZERO_HEADER "zero-header" Error "the first bytes of the file are zero" AGAIN, true, Files;
    TRUNCATED "truncated" Error "the file ends before what its header announces" AGAIN, true, Files;
    MALFORMED "malformed" Error "the file breaks a rule of its format" AGAIN, true, Files;
    UNREADABLE "unreadable" Error "the file is of no supported format, or cannot be opened" None, true, Files;
    PICKLE_GLOBAL "pickle-global" Error "a pickle names a function or class that is not plain data"
        Some("load the file elsewhere only if you trust its author; --opaque reads the tensors around such objects"), false, Pickles;
    CRC "crc" Error "a member of an archive does not match its checksum" AGAIN, false, Checksums;
    HASH "hash" Error "a file or tensor does not have the digest that it should have" AGAIN, false, Digests;
    HASH_MISSING_FILE "hash-missing-file" Error "a file or tensor of the list of digests is not there"
        Some("download the file, or take its line out of the list"), false, Digests;
    HASH_LIST "hash-list" Warning "a list of digests next to the files, or a line of it, could not be used"
        Some("correct the list, or make it again with `sha256sum` or `--write`"), false, Digests;
    HASH_UNLISTED "hash-unlisted" Warning "the repository does not have a file of the model"
        Some("name the repository and the revision that the files are of"), false, Digests;
    INDEX_MISSING_FILE "index-missing-file" Error "a file that the index names is not there"
        Some("download the missing file"), false, Indexes;
    INDEX_MISSING_TENSOR "index-missing-tensor" Error "the index lists a tensor that its file does not contain" INDEX, false, Indexes;
    INDEX_WRONG_SHARD "index-wrong-shard" Error "a tensor is in another file than the index says" INDEX, false, Indexes;
    INDEX_SPLIT "index-split" Error "the files of a split contradict each other" INDEX, false, Indexes;
    DUPLICATE_NAME "duplicate-name" Error "two files have a tensor of one name" INDEX, false, Indexes;
    INDEX_UNLISTED "index-unlisted" Warning "a file has a tensor that the index does not list" INDEX, false, Indexes;
    UNFINISHED "unfinished" Warning "a file next to the model is an unfinished download or copy of a model's file"
        Some("finish the download, or remove the file"), false, Directories;
    PART_ALONE "part-alone" Note "a file holds a part of a model, and is checked without the others"
        Some("check the directory of the model, or its index"), false, Files;
    INDEX_TOTAL_SIZE "index-total-size" Note "total_size of the index is not the sum of the tensors" None, false, Indexes;
    UNDECODABLE "undecodable" Note "a tensor cannot be read or decoded; its values were not looked at" None, false, Tensors;
    UNEXPLAINED "unexplained" Error "something about stored weights that is not known, so that they could be wrong"
        Some("convert it with the library that wrote it; --assume plain ignores what is not known"), false, Tensors;
    MISSING_SIBLING "missing-sibling" Warning "a layer lacks a tensor that the layers like it have" AGAIN, false, Tensors;
    NAN "nan" Error "values that are not numbers" CONVERT, false, Values;
    INF "inf" Error "infinite values" CONVERT, false, Values;
    SCALE_NAN "scale-nan" Error "a scale is not a number" CONVERT, false, Scales;
    SCALE_INF "scale-inf" Error "a scale is infinite" CONVERT, false, Scales;
    SCALE_ZERO "scale-zero" Note "a scale is zero: its weights vanish" CONVERT, false, Scales;
    SCALE_NEGATIVE "scale-negative" Warning "a scale is negative" CONVERT, false, Scales;
    OUT_OF_RANGE "out-of-range" Error "an index or code is outside of its range" CONVERT, false, Indices;
    ZERO "zero" Warning "all values are zero" None, false, Values;
    CONSTANT "constant" Warning "all values are equal" None, false, Values;
    ZERO_ROWS "zero-rows" Warning "a run of rows is zero, as a hole in a download leaves it" AGAIN, false, Values;
    OUTLIER "outlier" Warning "a magnitude far beyond all others and close to the end of the dtype's range" None, false, Values;
    DUPLICATE "duplicate" Warning "two tensors have the same values" None, false, Values;
    DENORMAL "denormal" Note "values below the normal range of the dtype" None, false, Values;
    ODD_DTYPE "odd-dtype" Note "a tensor has another dtype than the same tensor of other layers" None, false, Tensors;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_in_the_documents() {
        let page = std::fs::read_to_string("docs/check.md").unwrap();
        for (i, rule) in RULES.iter().enumerate() {
            assert!(
                RULES[..i].iter().all(|other| other.id != rule.id),
                "{}",
                rule.id
            );
            let row = format!("| `{}` | {} |", rule.id, rule.level.name());
            assert!(page.contains(&row), "docs/check.md lacks a row {row}");
        }
    }
}
