//! The items of one directory that a walk visits: its models, and the folders in it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use crate::base::error::{ErrorKind, Result};
use crate::base::limits::Budget;
use crate::read::source::ollama;

use super::grouping::models_of;
use super::searched_directory::{DirectoryModel, SearchedDirectory};
use super::{ModelSearch, SearchItem};

impl ModelSearch {
    /// The names of files in a directory that indexes of the directories above it name.
    fn of_indexes_above(&self, directory: &Path) -> BTreeSet<OsString> {
        let above = self.frames.iter().map(|frame| &frame.directory.below);
        let named = above.flat_map(|below| {
            let from = below.range(directory.to_owned()..);
            from.take_while(|path| path.starts_with(directory))
        });
        let own = named.filter(|path| path.parent() == Some(directory));
        own.filter_map(|path| path.file_name().map(OsString::from))
            .collect()
    }

    /// The models of a directory.
    fn models(&self, directory: &mut SearchedDirectory, budget: &Budget) -> Vec<DirectoryModel> {
        let of_others = self.of_indexes_above(&directory.path);
        let found = models_of(directory, &of_others, &self.options, budget);
        directory.below = found.below;
        found.models
    }

    /// The items of a directory.
    pub(super) fn all_of(
        &self,
        directory: &mut SearchedDirectory,
        budget: &Budget,
    ) -> Vec<SearchItem> {
        let models = self.models(directory, budget);
        let is_store = directory.is_ollama_store();
        let mut items: Vec<(bool, u32, SearchItem)> = Vec::new();
        for model in models {
            // a directory is in front of its entries
            items.push((!model.is_directory, model.name, SearchItem::Model(model)));
        }
        for &folder in &directory.names.folders {
            let name = directory.names.all[folder as usize].to_string_lossy();
            let item = match &*name {
                // hidden directories are other programs' own, also the metadata of clients in a model's directory
                name if name.starts_with('.') => continue,
                // data sets and applications of the hub
                name if name.starts_with("datasets--") || name.starts_with("spaces--") => continue,
                ollama::MANIFESTS if is_store => SearchItem::Manifests(folder),
                ollama::BLOBS if is_store => continue,
                _ => SearchItem::Folder(folder),
            };
            items.push((true, folder, item));
        }
        // names are sorted, so that their positions are in their order
        items.sort_by_key(|(is_entry, name, _)| (*is_entry, *name));
        items.into_iter().map(|(_, _, item)| item).collect()
    }

    /// The only model of a directory, or the items of one that is no checkpoint. A repository that has the same model in another
    /// format, or other models beside it, shows these by their files; its folders have parts and exports of it.
    pub(super) fn one_of(
        &self,
        directory: &mut SearchedDirectory,
        budget: &Budget,
    ) -> Result<Vec<SearchItem>> {
        match directory.chosen(&self.options, budget) {
            Ok(main) => {
                let mut others = match directory.shown.is_some() {
                    true => self.models(directory, budget),
                    false => Vec::new(),
                };
                others
                    .retain(|model| !model.is_directory && !directory.has_same_files(model, &main));
                others.sort_by_key(|model| model.name);
                let all = std::iter::once(main).chain(others);
                Ok(all.map(SearchItem::Model).collect())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnknownFormat { .. } | ErrorKind::Unsupported(_)
                ) =>
            {
                Ok(self.all_of(directory, budget))
            }
            Err(error) => Ok(vec![SearchItem::Fault(error)]),
        }
    }
}
