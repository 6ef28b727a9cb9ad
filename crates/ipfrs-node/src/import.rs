//! Imports of files and directory trees.

mod add;
mod directory_tree;
mod keeping;
mod local_path;
mod options;
mod sinks;
mod sorted_table;

pub use add::AddSession;
pub use local_path::AddPathOptions;
pub use options::{AddOptions, Added};
