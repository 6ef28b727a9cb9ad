//! The store without a server: adds a file and reads a range of it.
//! `cargo run --package ipfrs-examples --example embedded_store [REPO]`.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_node::{AddOptions, Attributes, ContentPath, Node, NodeConfig, ObjectKind, Span, StoreConfig};
use prometheus::Registry;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let repo = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("ipfrs-example"), PathBuf::from);
    let node =
        Node::open(&repo, StoreConfig::default(), NodeConfig::default(), "embedded_store", &Registry::new()).await?;

    let mut session = node.add(AddOptions::default()).await?;
    let content =
        stream::iter([Ok(Bytes::from_static(b"hello, ")), Ok(Bytes::from_static(b"content-addressed world\n"))]);
    session.file("hello.txt", Attributes::default(), content, |_bytes| {}).await?;
    let added = session.finish().await?.pop().context("nothing was added")?;
    println!("{} is {}", added.name, added.cid);

    let object = node.resolve(ContentPath::parse(added.cid.to_string())?).await?;
    if let ObjectKind::File(file) = &object.kind {
        let mut pieces = node.read(file, Span { start: 7, len: file.size() - 7 });
        while let Some(piece) = pieces.next().await {
            print!("{}", String::from_utf8_lossy(&piece?));
        }
    }
    node.close().await?;
    Ok(())
}
