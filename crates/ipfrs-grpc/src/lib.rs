//! The gRPC front-end: blocks, DAGs, files and tensors, with health and reflection.
//!
//! [`Grpc`] answers what a listener of its own takes ([`Grpc::answer`]), and has routes for gRPC-Web on the main listener
//! ([`Grpc::web_routes`]). Methods parse, call the Node and render; what is said in `proto/` of each holds here.

mod block;
mod call;
mod compression;
mod config;
mod dag;
mod error;
mod file;
mod health;
mod inbound;
mod metrics;
mod payload;
mod request_id;
mod server;
mod shortcut;
mod spliced;
mod tensor;

pub use config::GrpcConfig;
pub use server::{Answering, Grpc, Limits};
