//! Parsed documents: programs send the same few documents again and again.

use std::sync::Arc;

use async_graphql::parser::types::ExecutableDocument;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Maximum length of a document that is kept, in bytes.
const MAX_DOCUMENT_BYTES: usize = 4 * 1024;

/// Memory for all of them, in bytes.
const DOCUMENTS_BYTES: u64 = 16 * 1024 * 1024;

/// Upper bound of the memory of a parsed document per byte of its text.
const MEMORY_PER_BYTE: u64 = 256;

/// Parsed and checked documents by their text, limited by their memory.
pub(crate) struct Documents(Cache<String, Arc<ExecutableDocument>, Memory>);

#[derive(Clone)]
struct Memory;

impl Weighter<String, Arc<ExecutableDocument>> for Memory {
    fn weight(&self, text: &String, _: &Arc<ExecutableDocument>) -> u64 {
        (text.len() as u64 + 16) * MEMORY_PER_BYTE
    }
}

impl Default for Documents {
    fn default() -> Self {
        Self(Cache::with_weighter(256, DOCUMENTS_BYTES, Memory))
    }
}

impl Documents {
    /// Returns a document that was kept.
    pub(crate) fn get(&self, text: &str) -> Option<Arc<ExecutableDocument>> {
        (text.len() <= MAX_DOCUMENT_BYTES).then(|| self.0.get(text)).flatten()
    }

    /// Keeps a document that passed the checks.
    pub(crate) fn insert(&self, text: &str, document: ExecutableDocument) {
        if text.len() <= MAX_DOCUMENT_BYTES {
            self.0.insert(text.to_owned(), Arc::new(document));
        }
    }
}
