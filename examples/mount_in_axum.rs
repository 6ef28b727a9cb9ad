//! The gateway in an axum server: `cargo run --package ipfrs-examples --example mount_in_axum [REPO]`.
//!
//! The server has a page of its own at `/` and content at `/ipfs/{CID}`. It has no RPC, so it may be public.
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::routing::get;
use ipfrs_interface::{Config, Embedded};
use ipfrs_node::AddOptions;
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let repo = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ipfrs-example"), PathBuf::from);
    let gateway = Embedded::open(&Config::default(), &repo, "mount_in_axum").await?;
    gateway.start_maintenance();
    let page = gateway.node().add_path("examples/mount_in_axum.rs", AddOptions::default()).await?;

    // `gateway.everything()` would add the RPC, with which anyone could change the store.
    let app = Router::new()
        .route("/", get(|| async { "This page belongs to the host program.\n" }))
        .fallback_service(gateway.content());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}/ipfs/{}", listener.local_addr()?, page.cid);

    // With the addresses of clients, each client has limits of its own.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { drop(ctrl_c().await) })
        .await?;
    gateway.close().await?;
    Ok(())
}
