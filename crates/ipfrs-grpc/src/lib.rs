//! The gRPC front-end: blocks, DAGs, files and tensors, with health checks and reflection.
//!
//! [`Grpc`] serves the requests of a separate listener ([`Grpc::answer`]), and provides routes for gRPC-Web on the
//! main listener ([`Grpc::web_routes`]). Methods parse the request, call the Node and convert the result. Their
//! documentation is in `proto/`.

mod access;
mod audit_target;
mod block;
mod call;
mod compression;
mod config;
mod dag;
mod deadlines;
mod error;
mod file;
mod health;
mod inbound;
mod limits;
mod metrics;
mod not_a_call;
mod payload;
mod request_id;
mod server;
mod shortcut;
mod tensor;
mod zero_copy;

pub use config::GrpcConfig;
pub use limits::Limits;
pub use server::{Answering, Grpc};
