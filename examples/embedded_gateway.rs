//! A gateway inside your own program: `cargo run --package ipfrs-examples --example embedded_gateway [REPO]`.
//!
//! The gateway listens on an ephemeral port of the loopback interface and stops on Ctrl-C.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use ipfrs_interface::{Config, Gateway, Signals, run_until_signalled};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let repo = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ipfrs-example"), PathBuf::from);
    let mut config = Config::default();
    config.server.port = 0;
    config.grpc.port = Some(0);
    // By default, the API has a second listener, on the fixed port 5001.
    config.api.enabled = false;
    let mut gateway = Gateway::bind(&config, &repo).await?;
    let signals = Signals::listen()?;
    for url in gateway.urls() {
        println!("{url}");
    }
    run_until_signalled(&mut gateway, signals, || Ok(config.clone())).await?;
    Ok(())
}
