//! Bounds that are not configurable.

/// Number of entries on a page if the query names none.
pub(crate) const PAGE_ENTRIES: i32 = 100;

/// Maximum cost that a field counts with what is below it: more than any `graphql.max_complexity`, and so little that
/// the sum over all fields of a document cannot overflow.
pub(crate) const MAX_COST: usize = 1_000_000_000;

/// Maximum number of directives on one field.
pub(crate) const MAX_DIRECTIVES: usize = 10;

/// Maximum depth of the document's syntax, which includes the values of arguments. With the default stack of a thread,
/// the parser fails far beyond it.
pub(crate) const MAX_RECURSION: usize = 64;

/// Maximum number of bytes that a field returns of a file.
pub(crate) const MAX_READ_BYTES: u64 = 1024 * 1024;

/// Number of bytes that a field returns of a file if the query names none.
pub(crate) const READ_BYTES: u64 = 64 * 1024;

/// Maximum size of the body of a request without files, in bytes: a block in base64, and its document.
pub(crate) const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of files in a request.
pub(crate) const MAX_FILES: usize = 100;

/// Maximum number of errors in a response.
pub(crate) const MAX_ERRORS: usize = 100;

/// Maximum number of fields about the schema, with fragments in place.
pub(crate) const MAX_SCHEMA_FIELDS: usize = 1_000;

/// Maximum number of fields of a subscription, with fragments in place: they are resolved for each event.
pub(crate) const MAX_SUBSCRIPTION_FIELDS: usize = 200;

/// Cost of a field that reads and decodes blocks.
pub(crate) const READ_COST: usize = 10;

/// Maximum memory of the decoded files and directories that the fields of one document hold at the same time, in bytes.
pub(crate) const MAX_OBJECT_BYTES: usize = 32 * 1024 * 1024;

/// Maximum length of a path in an argument, in bytes.
pub(crate) const MAX_PATH_BYTES: usize = 16 * 1024;

/// Memory for persisted queries, in bytes.
pub(crate) const PERSISTED_BYTES: u64 = 8 * 1024 * 1024;
