//! A checkpoint that tests change: tensors, metadata and the files beside it, written in the container of its file's name.

use std::path::{Path, PathBuf};

use anamnesis::plan::Plan;
use anamnesis::{Checkpoint, Encoding, Value as Stored, remember};
use serde_json::{Map, Value, json};

use crate::support::scratch_dir::ScratchDir;
use crate::support::state_dict::state_dict;
use crate::support::writers::{GgufValue, StoredTensor, gguf_with};

/// A checkpoint of one file, and the JSON files beside it.
#[derive(Clone, Default)]
pub(super) struct StoredCheckpoint {
    pub(super) tensors: Vec<StoredTensor>,
    pub(super) metadata: Map<String, Value>,
    /// Additional fields of entries of a header of safetensors: tensor, field, value.
    pub(super) fields: Vec<(String, String, Value)>,
    pub(super) beside: Vec<(String, Vec<u8>)>,
}

impl StoredCheckpoint {
    /// Reads a safetensors file, and the JSON files beside it.
    pub(super) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let (header, data) = bytes[8..].split_at(usize::try_from(len).unwrap());
        let mut header: Map<String, Value> = serde_json::from_slice(header).unwrap();
        let mut stored = Self {
            beside: files_beside(path),
            ..Self::default()
        };
        if let Some(Value::Object(metadata)) = header.remove("__metadata__") {
            stored.metadata = metadata;
        }
        let offset = |entry: &Value, i: usize| {
            usize::try_from(entry["data_offsets"][i].as_u64().unwrap()).unwrap()
        };
        let mut entries: Vec<(String, Value)> = header.into_iter().collect();
        entries.sort_by_key(|(_, entry)| offset(entry, 0));
        for (name, entry) in entries {
            let shape: Vec<u64> = serde_json::from_value(entry["shape"].clone()).unwrap();
            let bytes = data[offset(&entry, 0)..offset(&entry, 1)].to_vec();
            let dtype = entry["dtype"].as_str().unwrap();
            let known = ["dtype", "shape", "data_offsets"];
            let further = entry.as_object().unwrap().iter();
            for (field, value) in further.filter(|(field, _)| !known.contains(&&***field)) {
                stored
                    .fields
                    .push((name.clone(), field.clone(), value.clone()));
            }
            let tensor = StoredTensor::new(&name, dtype, &shape, bytes);
            stored.tensors.push(tensor);
        }
        stored
    }

    /// Opens a file in any container. Arrays of a GGUF, which have the tokens of a vocabulary, are left out.
    pub(super) fn opened(path: &Path) -> Self {
        let checkpoint = Checkpoint::open(path).unwrap();
        let catalog = checkpoint.catalog();
        let mut stored = Self {
            beside: files_beside(path),
            ..Self::default()
        };
        for tensor in checkpoint.tensors() {
            let info = tensor.info();
            let dtype = match &info.encoding {
                Encoding::Block(block) => block.ggml_type.to_string(),
                plain => plain.name().to_owned(),
            };
            let bytes = tensor.bytes().unwrap().into_owned();
            let tensor = StoredTensor::new(&info.name, &dtype, &info.shape, bytes);
            stored.tensors.push(tensor);
        }
        for (key, value) in catalog.metadata().iter() {
            if let Some(value) = json_of(value) {
                stored.metadata.insert(key.to_owned(), value);
            }
        }
        stored
    }

    pub(super) fn add_tensor(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
        let tensor = StoredTensor::new(name, dtype, &shape, bytes.to_vec());
        self.tensors.push(tensor);
    }

    pub(super) fn remove_tensor(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name);
    }

    /// Changes the map that describes quantisation; `false` if there is none.
    pub(super) fn change_settings(&mut self, change: &dyn Fn(&mut Map<String, Value>)) -> bool {
        for (name, text) in &mut self.beside {
            let mut whole: Value = serde_json::from_slice(text).unwrap();
            let places: &[&str] = match name.as_str() {
                "config.json" => &["quantization_config", "quantization"],
                "hf_quant_config.json" => &["quantization"],
                _ => continue,
            };
            for place in places {
                if let Some(Value::Object(map)) = whole.get_mut(*place)
                    && !map.is_empty()
                {
                    change(map);
                    *text = serde_json::to_vec(&whole).unwrap();
                    return true;
                }
            }
        }
        false
    }

    /// Changes the JSON object of a file beside it, which is made if there is none.
    pub(super) fn change_file(&mut self, file: &str, change: &dyn Fn(&mut Map<String, Value>)) {
        let found = self.beside.iter().position(|(name, _)| name == file);
        let at = found.unwrap_or_else(|| {
            self.beside.push((file.to_owned(), b"{}".to_vec()));
            self.beside.len() - 1
        });
        let text = &mut self.beside[at].1;
        let mut whole: Map<String, Value> = serde_json::from_slice(text).unwrap();
        change(&mut whole);
        *text = serde_json::to_vec(&whole).unwrap();
    }

    /// Writes it to an empty directory and plans it.
    pub(super) fn plan(&self, name: &str) -> Plan {
        let directory = ScratchDir::new("account");
        let path = self.write(&directory, name);
        remember(&Checkpoint::open(path).unwrap()).plan().unwrap()
    }

    pub(super) fn write(&self, directory: &ScratchDir, name: &str) -> PathBuf {
        for (name, text) in &self.beside {
            std::fs::write(directory.path(name), text).unwrap();
        }
        let path = directory.path(name);
        let bytes = match name.rsplit_once('.').unwrap().1 {
            "safetensors" => self.safetensors(),
            "pth" => state_dict(&self.tensors, &self.metadata),
            "gguf" => self.gguf(),
            other => panic!("files of {other}"),
        };
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn safetensors(&self) -> Vec<u8> {
        let mut header = Map::new();
        if !self.metadata.is_empty() {
            header.insert("__metadata__".to_owned(), json!(self.metadata));
        }
        let mut start = 0;
        for tensor in &self.tensors {
            let end = start + tensor.bytes.len();
            let entry =
                json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]});
            header.insert(tensor.name.clone(), entry);
            start = end;
        }
        for (tensor, field, value) in &self.fields {
            // the tensor may have been removed
            if let Some(entry) = header.get_mut(tensor) {
                entry[field] = value.clone();
            }
        }
        let header = serde_json::to_vec(&header).unwrap();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        self.tensors
            .iter()
            .for_each(|tensor| file.extend(&tensor.bytes));
        file
    }

    fn gguf(&self) -> Vec<u8> {
        let value = |value: &Value| match value {
            Value::String(text) => GgufValue::Text(text.clone()),
            Value::Number(n) if n.is_u64() => {
                GgufValue::Number(u32::try_from(n.as_u64().unwrap()).unwrap())
            }
            #[allow(clippy::cast_possible_truncation)] // GGUF's own numbers have 32 bits
            Value::Number(n) => GgufValue::Float(n.as_f64().unwrap() as f32),
            other => panic!("{other} in a GGUF"),
        };
        let metadata = self.metadata.iter();
        let metadata: Vec<_> = metadata.map(|(key, v)| (key.clone(), value(v))).collect();
        let mut tensors = self.tensors.clone();
        for tensor in &mut tensors {
            // the others have the number of their type
            let plain = ["F32", "F16", "I8", "I16", "I32", "I64", "BF16"];
            let types = ["0", "1", "24", "25", "26", "27", "30"];
            if let Some(row) = plain.iter().position(|name| *name == tensor.dtype) {
                tensor.dtype = types[row].to_owned();
            }
        }
        gguf_with(false, &metadata, &tensors)
    }
}

fn files_beside(path: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let json = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
    json.map(|file| (name(&file), std::fs::read(&file).unwrap()))
        .collect()
}

fn json_of(value: &Stored) -> Option<Value> {
    Some(match value {
        Stored::Null => Value::Null,
        Stored::Bool(on) => json!(on),
        Stored::U64(n) => json!(n),
        Stored::I64(n) => json!(n),
        Stored::F32(x) => json!(x),
        Stored::F64(x) => json!(x),
        Stored::Text(text) => json!(text),
        Stored::List(items) => items.iter().map(json_of).collect::<Option<Value>>()?,
        _ => return None,
    })
}
