//! The GraphQL front-end: queries, mutations and subscriptions over a [`Node`](ipfrs_node::Node).
//!
//! [`GraphQl::routes`] serves it over HTTP (GraphQL over HTTP, draft of 2025), server-sent events (graphql-sse,
//! distinct connections) and WebSockets (graphql-transport-ws). Each resolver parses its arguments, calls one method of
//! the Node and returns the result.

mod config;
mod context;
mod document;
mod documents;
mod error;
mod files;
mod http;
mod json;
mod limits;
mod metrics;
mod mutation;
mod operation;
mod persisted;
mod positions;
mod query;
mod scalars;
mod schema;
mod selected;
mod subscription;
mod types;
mod variables;

pub use config::GraphQlConfig;
pub use http::GraphQl;
pub use schema::sdl;

/// The checks of documents, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    use async_graphql::parser::parse_query;

    use crate::document::{asks_for_schema, check_fragments, check_introspection, check_nesting, check_subscription};

    /// Parses and checks a document as before its execution; see `fuzz/fuzz_targets/graphql_document.rs`.
    pub fn document(text: &str) {
        if check_nesting(text).is_err() {
            return;
        }
        let Ok(document) = parse_query(text) else { return };
        if check_fragments(&document, 20_000).is_err() {
            return;
        }
        let _ = (asks_for_schema(&document), check_introspection(&document));
        for (_, operation) in document.operations.iter() {
            let _ = check_subscription(&document, &operation.node);
        }
    }
}
