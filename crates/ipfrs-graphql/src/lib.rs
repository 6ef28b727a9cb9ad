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
mod query;
mod scalars;
mod schema;
mod subscription;
mod types;
mod variables;

pub use config::GraphQlConfig;
pub use http::GraphQl;
pub use schema::sdl;
