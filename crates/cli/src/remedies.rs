//! Remedies of the library's errors and notes, in the flags of this command.

use anamnesis::{Note, Remedy};

/// A note, with its remedy in this command's flags.
pub(crate) fn note_text(note: &Note) -> String {
    with_remedy(note.text(), note.remedy())
}

/// Why a weight is refused, with its remedy in this command's flags. For verbs that make weights.
pub(crate) fn refusal_text(error: &anamnesis::Error) -> String {
    with_remedy(&error.to_string(), error.remedy())
}

fn with_remedy(text: &str, remedy: Option<Remedy>) -> String {
    match remedy {
        Some(remedy) => format!("{text}; {}", remedy_text(remedy)),
        None => text.to_owned(),
    }
}

/// Words a remedy with this command's flags where it has one, and as the library does otherwise.
pub(crate) fn remedy_text(remedy: Remedy) -> String {
    match remedy {
        Remedy::AllowOverwrite => {
            "choose another path, or replace the file with --overwrite".into()
        }
        Remedy::EnlargePoolBudget => {
            "load fewer tensors with --filter, or borrow mapped bytes with --borrow-mapped".into()
        }
        Remedy::RunAgain => "run this again, when the other run has ended".into(),
        Remedy::OpenFewerFiles => {
            "raise the limit of open files (`ulimit -n`), or write larger shards with --shard-size"
                .into()
        }
        Remedy::RaiseLimit { .. } => {
            "if the file is trusted, disable the limits with --no-limits".into()
        }
        Remedy::KeepOpaque => {
            "to read the tensors around such objects without calling anything, use --opaque; load \
             this file elsewhere only if you trust its author"
                .into()
        }
        Remedy::AssumePlain => {
            "convert it with the library that wrote it; to ignore what is not known, use --assume plain"
                .into()
        }
        Remedy::Requantise => {
            "quantise the model that it was made from, or use --allow-requantize".into()
        }
        Remedy::GiveImportance => {
            "give an importance matrix of this model with --imatrix, or choose a larger --type".into()
        }
        Remedy::NamePreTokenizer => {
            "state the name with --tokenizer-pre, as in `tokenizer.ggml.pre` of another GGUF of this model".into()
        }
        Remedy::AnotherType => "choose another type for it with --tensor-type".into(),
        Remedy::LeaveOut => "leave the tensor out with --exclude or --filter".into(),
        Remedy::LeaveOutOrAssumePlain => {
            "leave all of its parts out with --exclude, or copy them as tensors of their own with --assume plain".into()
        }
        Remedy::LeaveOutOrRename => {
            "leave the tensor out with --exclude or --filter, or rename it with --rename".into()
        }
        Remedy::LeaveOutOrDequantise => {
            "dequantise it with --dtype bf16, write a GGUF, or leave the tensor out with --exclude or --filter".into()
        }
        Remedy::RenameApart => {
            "to swap two names, take a third: --rename A=C --rename B=A --rename C=B".into()
        }
        Remedy::DequantiseShare => {
            "dequantise it with --dtype bf16, or leave the weight out with --exclude or --filter".into()
        }
        Remedy::ConvertAligned => {
            "write another file with `anamnesis convert PATH -o OUT --alignment N`".into()
        }
        Remedy::CastOrWriteVoid => {
            "cast it with --dtype f32 --cast, or write items without a type with --void".into()
        }
        Remedy::LeaveOutOrReadItems => {
            "leave the tensor out with --exclude or --filter, or read its \
                                        items as a dtype of their width with --void-as"
                .into()
        }
        Remedy::ReadItems { dtype } => format!("if you know the dtype, give {dtype} to --void-as"),
        Remedy::RenameOrOpenAlone => "rename it, or open it alone with --single".into(),
        Remedy::RecoverEdit => "complete it with `anamnesis edit PATH --recover`".into(),
        Remedy::ConvertInstead => "write another file with `anamnesis convert PATH -o OUT`".into(),
        Remedy::EditCopy => {
            "give this name a file of its own with --copy, or write another file with `anamnesis convert PATH -o OUT`".into()
        }
        Remedy::NameAsTransformers => "--names hf makes those of transformers".into(),
        Remedy::AllowRequests => "requests are sent without --offline".into(),
        // remedies without a flag: the library words them for people, without its API
        other => other.to_string(),
    }
}
