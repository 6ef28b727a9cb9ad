//! Tensors within files: what a file of safetensors or NumPy's `.npy` holds, where the bytes of a slice lie, and the headers of the
//! formats that they are sent in. Values only: headers come in as bytes that nobody trusts, bytes of tensors are never
//! touched but by [`Stats`].

mod arrow;
mod catalogue;
mod dtype;
mod framing;
mod moments;
mod npy;
mod plan;
mod safetensors;
mod slice;
mod stats;

pub use catalogue::{
    Catalogue, FileFormat, Header, MAX_RANK, Order, PREFIX_BYTES, TensorInfo, bytes_of as tensor_bytes,
};
pub use dtype::Dtype;
pub use framing::{Framing, TensorFormat, column_major};
pub use plan::{Plan, Run};
pub use safetensors::{MAX_HEADER_BYTES, head as safetensors_head};
pub use slice::{Selection, Slice};
pub use stats::{Stats, Summary};
