//! The object that a PyTorch file holds, as data: a graph of plain values, containers and tensors.
//!
//! Nodes refer to each other by number. A value that several containers hold is one node, and a container may hold itself: a
//! consumer visits each node once, and follows references without recursion that a file controls.

/// The number of a node: an index into [`ObjectTree::nodes`].
pub type ObjectId = u32;

/// The object of a PyTorch file, and the buffers that its tensors are views of.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ObjectTree {
    /// Each value once. The first one is the saved object.
    pub nodes: Vec<ObjectNode>,
    /// Number of storages. Tensors refer to them by number, and tensors over one storage are tied.
    pub storages: u32,
    /// By a storage's number, the device that it was saved from, as PyTorch names it (`cuda:0`); empty where the file names none.
    pub locations: Vec<Box<str>>,
}

/// The class of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DictClass {
    /// `dict`.
    Plain,
    /// `collections.OrderedDict`.
    Ordered,
    /// `collections.Counter`.
    Counter,
    /// `collections.defaultdict`. Its factory is not kept.
    Default,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ObjectNode {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A longer integer: decimal, or hexadecimal with `0x` after the sign.
    BigInt(Box<str>),
    /// A float.
    Float(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Text(Box<str>),
    /// A byte string; whether it is a `bytearray`.
    Bytes(Box<[u8]>, bool),
    /// A tuple.
    Tuple(Box<[ObjectId]>),
    /// A list.
    List(Box<[ObjectId]>),
    /// A set; whether it is a `frozenset`. Duplicates are kept.
    Set(Box<[ObjectId]>, bool),
    /// A dictionary.
    Dict {
        /// Its class.
        class: DictClass,
        /// Keys and values in the order of the file. The last value of a key that occurs twice counts.
        entries: Box<[(ObjectId, ObjectId)]>,
        /// Attributes of the instance, a dictionary: `_metadata` of a state dict.
        attributes: Option<ObjectId>,
    },
    /// `torch.Size`.
    Size(Box<[u64]>),
    /// `torch.dtype`, by its name without `torch.`.
    Dtype(&'static str),
    /// `torch.device`: its type and its index, if any.
    Device(Box<str>),
    /// `torch.layout`, by its name.
    TorchLayout(Box<str>),
    /// A view of a storage.
    Tensor(Box<ObjectTensor>),
    /// A parameter of a module.
    Parameter {
        /// The tensor.
        data: ObjectId,
        /// Whether gradients are computed for it.
        requires_grad: bool,
        /// Attributes of the instance.
        attributes: Option<ObjectId>,
    },
    /// A sparse tensor.
    SparseTensor {
        /// `sparse_coo`, `sparse_csr`, …
        layout: Box<str>,
        /// Indices and values, in the order of PyTorch's arguments.
        parts: Box<[ObjectId]>,
        /// The sizes.
        shape: Box<[u64]>,
        /// Whether a COO tensor is coalesced; `None` where the file does not say.
        coalesced: Option<bool>,
    },
    /// A tensor without data.
    MetaTensor {
        /// As of [`Dtype`](Self::Dtype).
        dtype: &'static str,
        /// The sizes.
        shape: Box<[u64]>,
        /// In elements.
        strides: Box<[u64]>,
        /// Whether gradients are computed for it.
        requires_grad: bool,
    },
    /// A storage without a tensor: its number, and its dtype if it has one.
    Storage(u32, Option<&'static str>),
    /// An object of a class without meaning here: of TorchScript, or of an unknown class.
    Opaque {
        /// The qualified name.
        class: Box<str>,
        /// Arguments of its construction.
        arguments: Box<[ObjectId]>,
        /// Its state.
        state: Option<ObjectId>,
        /// Its items: a list, set or dictionary.
        items: Option<ObjectId>,
    },
    /// A dtype of numpy, by its descriptor, as numpy writes it to NPY files: a type string, or a literal of Python for a structure.
    NumpyDtype(Box<str>),
    /// A scalar of numpy.
    NumpyScalar {
        /// As of [`NumpyDtype`](Self::NumpyDtype).
        dtype: Box<str>,
        /// As many bytes as the dtype has.
        bytes: Box<[u8]>,
    },
    /// An array of numpy.
    NumpyArray(Box<NumpyElements>),
    /// An array of numpy whose elements are objects.
    NumpyObjects {
        /// The sizes; as many objects as they have elements.
        shape: Box<[u64]>,
        /// Whether the array is in Fortran order. The objects are in C order in any case.
        fortran: bool,
        /// The elements.
        items: Box<[ObjectId]>,
    },
    /// A class or function that is named as a value.
    Named(Box<str>),
    /// A value that cannot be given, and why.
    Refused(Box<str>),
}

/// An array of numpy: bytes of the pickle.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NumpyElements {
    /// As of [`ObjectNode::NumpyDtype`].
    pub dtype: Box<str>,
    /// The sizes of the stored elements in C order.
    pub shape: Box<[u64]>,
    /// The axes of the array, a permutation of these; `None` if it is the array.
    pub axes: Option<Box<[u64]>>,
    /// As many bytes as dtype and shape need, in the byte order of the dtype.
    pub bytes: Box<[u8]>,
    /// Whether the array gets the byte order of the machine, as numpy gives it to arrays that it rebuilds from a state.
    pub native: bool,
}

/// A tensor as a view of a storage.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ObjectTensor {
    /// The number of the storage.
    pub storage: u32,
    /// PyTorch's name of the dtype, without `torch.`.
    pub dtype: &'static str,
    /// The offset of the first element, in items of the dtype.
    pub offset: u64,
    /// Sizes as PyTorch counts them.
    pub shape: Box<[u64]>,
    /// In elements.
    pub strides: Box<[u64]>,
    /// Whether gradients are computed for it.
    pub requires_grad: bool,
    /// Signs to flip on reading.
    pub view_flags: crate::read::catalog::ViewFlags,
    /// Scale and zero point of a quantised tensor.
    pub quantizer: Option<ObjectQuantizer>,
    /// Attributes of the instance: a dictionary, or a tuple of two.
    pub attributes: Option<ObjectId>,
    /// The tensor of the catalog: an index into [`Catalog::tensors`](crate::Catalog::tensors), the first where it has several names.
    /// `None` if it has none, as a key of a dictionary.
    pub entry: Option<u32>,
}

/// Parameters of a quantised tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ObjectQuantizer {
    /// One scale for all elements.
    PerTensor {
        /// Scale.
        scale: f64,
        /// Code that represents zero.
        zero_point: i64,
    },
    /// One scale per index of a dimension.
    PerChannel {
        /// A tensor.
        scales: ObjectId,
        /// A tensor.
        zero_points: ObjectId,
        /// The dimension.
        axis: u64,
    },
}
