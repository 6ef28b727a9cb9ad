//! Tensors in files of safetensors or NumPy's `.npy`: their headers, the byte ranges of slices, and the headers of
//! the formats in which tensors are sent. The crate performs no I/O. Header bytes are untrusted input. Only [`Stats`]
//! reads the elements of tensors.

mod arrow;
mod catalogue;
mod dtype;
mod framing;
mod info;
mod moments;
mod npy;
mod plan;
mod safetensors;
mod shown;
mod slice;
mod stats;

pub use catalogue::{Catalogue, PREFIX_BYTES};
pub use dtype::Dtype;
pub use framing::{Framing, TensorFormat, column_major};
pub use info::{FileFormat, Header, MAX_RANK, Order, TensorInfo, bytes_of as tensor_bytes};
pub use plan::{Plan, Run};
pub use safetensors::{MAX_HEADER_BYTES, head as safetensors_head};
pub use slice::{MAX_LISTED, Selection, Slice};
pub use stats::{Stats, Summary};
