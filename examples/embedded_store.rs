//! The store without a server: adds a directory, reads a range of a file in it and collects garbage.
//! `cargo run --package ipfrs-examples --example embedded_store DIRECTORY [REPO]`.
#![allow(clippy::print_stdout)]

use futures::TryStreamExt;
use ipfrs_node::{AddOptions, ContentPath, GcOptions, Node, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "examples".to_owned());
    let node = Node::open_default(arguments.next().unwrap_or_else(|| "/tmp/ipfrs-example".to_owned())).await?;

    let root = node.add_path(directory, AddOptions::default()).await?;
    println!("{}", root.cid);
    let mut entries = node.read_dir(root.cid).await?;
    while let Some(entry) = entries.try_next().await? {
        println!("{:>10}  {}", entry.dag_size, entry.name);
    }

    let path = ContentPath::from(root.cid).join("embedded_store.rs");
    let bytes = node.read_range(path, 4..44).await?;
    println!("{}", String::from_utf8_lossy(&bytes));

    let report = node.gc(GcOptions::default()).await?;
    println!("gc removed {} blocks", report.removed);
    node.close().await
}
