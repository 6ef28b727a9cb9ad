//! Tensors in files: listing them, and reading any slice of them.

mod catalogue;
mod catalogue_cache;
mod config;
mod content;
mod file;
mod gather;
mod metrics;
mod put;
mod read;
mod read_rows;
mod rows;
mod swap;

pub(crate) use catalogue_cache::Catalogues;
pub use config::TensorConfig;
pub use content::{TensorContent, TensorRequest};
pub use file::{TensorFile, TensorPart};
pub(crate) use metrics::TensorMetrics;
pub use metrics::TensorOperation;
pub use put::NewTensor;
