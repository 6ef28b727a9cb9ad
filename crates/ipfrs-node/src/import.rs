//! Imports of files and directory trees.

mod add;
mod directory_tree;
mod options;
mod sorted_table;

pub use add::AddSession;
pub use options::{AddOptions, Added};
