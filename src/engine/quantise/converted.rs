//! A Hugging Face checkpoint as llama.cpp's converter would write it: the tensors and keys that are quantised, or the file itself.
//!
//! Source: `convert_hf_to_gguf.py` and `conversion/base.py` of llama.cpp.

use crate::base::error::{Error, Result};
use crate::base::kernel::{BlockFormat, Dtype};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::engine::remember::remember;
use crate::models::architectures::source_model;
use crate::models::config::ModelConfig;
use crate::models::config::keys::MODEL_TYPE;
use crate::models::conversion::{ArchitectureKeys, GgufOutputs, SourceModel, to_gguf};
use crate::models::model_card::{ParameterCounts, general_keys};
use crate::models::model_folder::ModelFolder;
use crate::models::tokenizer;
use crate::plan::Job;
use crate::read::catalog::Catalog;
use crate::read::checkpoint::read_of_checkpoint;
use crate::read::format::gguf::{FileType, GgufValue};

use super::Quantise;

/// The version of the blocks of today, which readers ask for.
pub(super) const QUANTIZATION_VERSION: (&str, u32) = ("general.quantization_version", 2);

/// The types of the converter's file.
pub(super) struct ConvertedForm {
    /// The dtype of matrices.
    pub(super) dtype: Dtype,
    /// The blocks of matrices whose rows are whole ones.
    pub(super) blocks: Option<&'static BlockFormat>,
    /// The file type of the converter's file.
    pub(super) file_type: &'static FileType,
    /// Whether the output is this file, and nothing is quantised after it.
    pub(super) is_whole: bool,
}

/// The tensors and keys of a checkpoint.
pub(super) struct ConvertedModel {
    pub(super) outputs: GgufOutputs,
    pub(super) form: ConvertedForm,
    /// The keys of the architecture.
    pub(super) keys: Vec<(String, GgufValue)>,
    /// The value of `general.architecture`.
    pub(super) architecture: &'static str,
    pub(super) notes: Vec<String>,
    /// Statements of the files about stored weights that no scheme explains.
    pub(super) unexplained: Vec<String>,
    config: ModelConfig,
}

impl ConvertedModel {
    /// The model; `None` if the checkpoint is a GGUF.
    pub(super) fn of(what: &Quantise<'_>, budget: &Budget) -> Result<Option<Self>> {
        let checkpoint = &*what.weights.checkpoint;
        let catalog = checkpoint.catalog();
        match catalog.format() {
            "gguf" => return Ok(None),
            "safetensors" | "pth" | "dcp" => {}
            other => {
                let text = format!("a GGUF is made of a model, and a {other} is none");
                return Err(Error::unsupported(text));
            }
        }
        let config = ModelConfig::load(checkpoint, budget)?;
        let folder = ModelFolder::of(checkpoint, budget);
        let model = source_model(&config, folder.as_ref())?;
        let weights = remember(checkpoint)
            .dtype(Dtype::F32)
            .untie(model.keeps_tied_head());
        let plan = weights.plan_within(budget)?;
        let mut jobs: Vec<&Job> = plan.jobs.iter().collect();
        jobs.sort_by_key(|job| place(catalog, job));
        let form = form(what, &jobs);
        if !form.is_whole {
            model.check_readable()?;
        }
        let check = || what.weights.options.control.check();
        let mut outputs = to_gguf(&model, &jobs, &check, budget)?;
        let refused = plan.refused.into_iter();
        outputs
            .refused
            .extend(refused.map(|weight| (weight.name, weight.error)));
        let mut notes = plan.notes;
        notes.extend(plan.output_notes.iter().map(ToString::to_string));
        for name in &outputs.shared {
            notes.push(format!(
                "{} is left out, as it is the input embedding again",
                quote(name)
            ));
        }
        notes.extend(several(
            &outputs.left_out,
            "no GGUF of the architecture has them",
        ));
        let why = "llama.cpp has encoders in a file of their own";
        notes.extend(several(&outputs.of_other_modalities, why));
        Ok(Some(Self {
            outputs,
            keys: ArchitectureKeys::of(&model, form.file_type.number)?,
            architecture: model.name(),
            form,
            notes,
            unexplained: plan.unexplained,
            config,
        }))
    }

    /// The keys that the converter writes.
    ///
    /// # Errors
    /// Files of the folder that are not understood, and a tokenizer whose steps have no name.
    pub(super) fn all_keys(
        &self,
        what: &Quantise<'_>,
        budget: &Budget,
    ) -> Result<Vec<(String, GgufValue)>> {
        let checkpoint = &*what.weights.checkpoint;
        let folder = ModelFolder::of(checkpoint, budget);
        let folder = folder.ok_or_else(|| {
            Error::unsupported("a model without a folder has no tokenizer, which a GGUF needs")
        })?;
        let model = source_model(&self.config, Some(&folder))?;
        let read = || self.converted_keys(&model, what.pre_tokenizer.as_deref(), &folder);
        read_of_checkpoint(checkpoint, folder.path(), |_| true, read)
    }

    /// The keys that the converter writes, in its order.
    fn converted_keys(
        &self,
        model: &SourceModel<'_>,
        pre_tokenizer: Option<&str>,
        folder: &ModelFolder<'_>,
    ) -> Result<Vec<(String, GgufValue)>> {
        let named = |key: &str, value| (key.to_owned(), value);
        let mut keys = vec![
            named(MODEL_TYPE.key(true), GgufValue::text(self.architecture)),
            named("general.type", GgufValue::text("model")),
        ];
        let sizes = self.outputs.outputs.iter();
        let counts = ParameterCounts::of(sizes.map(|output| (&*output.name, &*output.shape)))?;
        keys.extend(general_keys(folder, &counts)?);
        keys.extend(self.keys.iter().cloned());
        let (version, two) = QUANTIZATION_VERSION;
        keys.push(named(version, GgufValue::u32(two)));
        keys.extend(model.token_types()?);
        keys.extend(tokenizer::gguf_keys(
            folder,
            model.tokenizer(pre_tokenizer),
        )?);
        Ok(keys)
    }
}

/// The note about tensors that are left out, if there are any.
fn several(names: &[Box<str>], why: &str) -> Option<String> {
    let (first, rest) = names.split_first()?;
    Some(match rest.len() {
        0 => format!("left out, as {why}: {}", quote(first)),
        more => format!(
            "left out, as {why}: {} and {more} more tensors",
            quote(first)
        ),
    })
}

/// The place of a tensor in the order of the converter: by files, and then by names, or as a PyTorch file has them.
fn place<'j>(catalog: &'j Catalog, job: &'j Job) -> (Option<&'j std::path::Path>, &'j str) {
    let first = job.parts.first();
    let file = first.map(|part| catalog.tensors()[part.tensor].bytes.file);
    let path = file.and_then(|file| catalog.files().get(file as usize)?.path.as_deref());
    match catalog.format() {
        "pth" => (path, ""),
        _ => (path, &job.output.name),
    }
}

/// The form of the converter's file.
fn form(what: &Quantise<'_>, jobs: &[&Job]) -> ConvertedForm {
    // as stored: configurations of fine-tuned models may state another dtype
    let stated = || {
        let mut matrices = jobs.iter().filter(|job| job.output.shape.len() > 1);
        let found = matrices.find(|job| matches!(job.output.dtype, Dtype::BF16 | Dtype::F16));
        found.map_or(Dtype::F16, |job| job.output.dtype)
    };
    let of_converter = match what.file_type {
        None => Some(None),
        Some(file_type) => match file_type.name {
            "F32" => Some(Some(Dtype::F32)),
            "F16" => Some(Some(Dtype::F16)),
            "BF16" => Some(Some(Dtype::BF16)),
            "Q8_0" => Some(Some(Dtype::F32)),
            _ => None,
        },
    };
    let is_whole = of_converter.is_some() && !what.asks_quantiser();
    let blocks = what
        .file_type
        .filter(|file_type| is_whole && file_type.name == "Q8_0")
        .and_then(|file_type| BlockFormat::from_name(file_type.tensor_type));
    let dtype = match of_converter.flatten().filter(|_| is_whole) {
        Some(dtype) => dtype,
        None => what.via.unwrap_or_else(stated),
    };
    let name = match (blocks, dtype) {
        (Some(format), _) => format.name,
        (None, Dtype::F32) => "F32",
        (None, Dtype::F16) => "F16",
        (None, _) => "BF16",
    };
    ConvertedForm {
        dtype,
        blocks,
        file_type: FileType::from_name(name).expect("a file type"),
        is_whole,
    }
}
