//! The HTTP front-end, judged from outside: a real gateway in this process, real sockets, and what the public
//! specifications say (RFC 9110, <https://specs.ipfs.tech/http-gateways/>, the Kubo RPC reference).

// clippy.toml lets tests unwrap, but does not see that the functions beside them are tests too.
#![allow(clippy::unwrap_used)]

mod add_files;
mod add_trees;
mod arrows;
mod batch_get;
mod batch_put;
mod car;
mod collect;
mod compression;
mod compression_cache;
mod content;
mod crafted;
mod daemon;
mod dag;
mod dag_node;
mod damaged_packs;
mod denylists;
mod download;
mod endings;
mod gateway_car;
mod gateway_directories;
mod gateway_formats;
mod gateway_headers;
mod gateway_hosts;
mod gateway_ipfs_uri;
mod gateway_matrix;
mod gateway_names;
mod gateway_paths;
mod gateway_ranges;
mod gateway_redirects;
mod gateway_subdomains;
mod grpc;
mod harness;
mod hostile_dags;
mod ipns;
mod keys;
mod limits;
mod missing_blocks;
mod multipart;
mod names_publish;
mod observability;
mod pages;
mod permits;
mod pins;
mod progress;
mod proxy;
mod ready_answers;
mod request_memory;
mod request_rules;
mod rpc_blocks;
mod rpc_files;
mod rpc_get;
mod rpc_protocol;
mod sockets;
mod tensor_limits;
mod tensor_slices;
mod tensors;
mod tus;
mod upload;
mod wire;
mod withholding;
