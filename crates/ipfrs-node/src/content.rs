//! Content at paths: resolution to objects, and reading files, directories and archives.

mod archive;
mod listing;
pub(crate) mod node_memory;
mod object;
mod object_info;
mod object_kind;
mod path;
mod path_car;
mod read;
mod resolve;
mod resolved_path;

pub use archive::Archive;
pub use listing::{Listed, ListedKind, ListedPage};
pub use object::Object;
pub use object_info::ObjectInfo;
pub use object_kind::{FileContent, ObjectKind};
pub use path::ContentPath;
pub(crate) use path::{segments, with_segments};
pub use path_car::{CarScope, EntityBytes, PathCar};
pub use resolved_path::ResolvedPath;
