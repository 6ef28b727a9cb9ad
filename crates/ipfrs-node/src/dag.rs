//! Whole DAGs: export, import, statistics, links, single nodes, and the walk over everything below roots.

mod block_links;
mod dag_cbor;
mod dag_json;
mod export;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod import;
mod link_walk;
mod node;
mod patch;
mod plain;
mod reachable;

pub use block_links::block_links;
pub use export::{DagExport, DagPath, DagSize, DagStats};
pub use import::{DagImport, DagImportOptions, ImportedDags};
pub use link_walk::{DagLink, LinkWalkOptions};
pub use node::PutNode;
pub use patch::{DifferenceKind, LinkChange, LinkDifference, PatchOptions};
pub(crate) use reachable::{Leaves, Marks, Reachable};

/// Total size up to which blocks are decoded on the calling thread, in bytes. Decoding more would block a runtime
/// worker.
const INLINE_DECODE_BYTES: usize = 32 * 1024;
