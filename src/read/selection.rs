//! Which tensors a run covers, and in which order: the `filter` and `order` of every builder.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::read::catalog::TensorInfo;

type NameFilter<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;
type TensorOrder<'c> = Arc<dyn Fn(&TensorInfo, &TensorInfo) -> Ordering + Send + Sync + 'c>;

/// All tensors in file order, unless a filter or an order is set.
#[derive(Clone, Default)]
pub(crate) struct Selection<'c> {
    filter: Option<NameFilter<'c>>,
    order: Option<TensorOrder<'c>>,
}

impl<'c> Selection<'c> {
    pub(crate) fn set_filter(&mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) {
        self.filter = Some(Arc::new(keep));
    }

    pub(crate) fn set_order(
        &mut self,
        order: impl Fn(&TensorInfo, &TensorInfo) -> Ordering + Send + Sync + 'c,
    ) {
        self.order = Some(Arc::new(order));
    }

    /// Whether the filter accepts this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|keep| keep(name))
    }

    /// Sorts values by the order of their tensors. Stable; does nothing if no order is set.
    pub(crate) fn sort<T>(&self, values: &mut [T], info: impl Fn(&T) -> &TensorInfo) {
        if let Some(order) = &self.order {
            values.sort_by(|a, b| order(info(a), info(b)));
        }
    }
}
