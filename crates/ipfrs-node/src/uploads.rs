//! Uploads of single files: as one stream, or in resumable requests.

mod append;
mod config;
mod expiry;
mod ledger;
mod options;
mod resumable;
mod single;
mod space;
mod spool;
mod state;
mod unclaimed;

pub use config::UploadConfig;
pub use options::{UploadOptions, Uploaded};
pub use resumable::NewUpload;
pub use state::UploadStatus;
pub(crate) use state::Uploads;
