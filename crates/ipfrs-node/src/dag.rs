//! Whole DAGs: export, import, statistics, single nodes, and the walk over everything below roots.

mod export;
mod import;
mod node;
mod reachable;

pub use export::{DagExport, DagPath, DagSize, DagStats};
pub use import::{DagImport, ImportedDags};
pub use node::PutNode;
pub(crate) use reachable::{Leaves, Marks, Reachable};
