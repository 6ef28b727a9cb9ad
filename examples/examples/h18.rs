#![allow(warnings, clippy::all)]
use std::{future::ready, net::SocketAddr, path::PathBuf, sync::Arc};
use axum::{Router, routing::get};
use futures::TryStreamExt;
use ipfrs_interface::{Config, Embedded, Gateway};
use ipfrs_node::*;

async fn ops(dir: &std::path::Path) {
    let node = Node::open_default(dir.join("r1")).await.unwrap();
    // wrong paths
    for p in ["", "/", "/ipfs/", "/ipfs/notacid", "/ipns/k51qzi5uqu5", "ipfs://", "bafkqaaa/../x", "QmX", "/ipfs/bafkqaaa/a//b/"] {
        println!("parse {p:?} -> {:?}", p.parse::<ContentPath>().map(|p| p.to_string()).map_err(|e| e.to_string()));
    }
    let missing: Cid = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku".parse().unwrap();
    println!("missing {:?}", node.read_range(missing, ..).await.map_err(|e| (e.kind(), e.to_string())));
    println!("inline {:?}", node.read_range("bafkqabdumvzxi".parse::<ContentPath>().unwrap(), 1..3).await);
    #[allow(clippy::reversed_empty_ranges)]
    let r = node.read_range("bafkqabdumvzxi".parse::<ContentPath>().unwrap(), 3..1).await; println!("reversed {r:?}");
    println!("huge {:?}", node.read_range("bafkqabdumvzxi".parse::<ContentPath>().unwrap(), u64::MAX..).await);
    println!("incl max {:?}", node.read_range("bafkqabdumvzxi".parse::<ContentPath>().unwrap(), 0..=u64::MAX).await);
    for p in ["/nonexistent", "/dev/null", "/proc/self/mem", "", "/root/.."] {
        println!("add_path {p:?} -> {:?}", node.add_path(p, AddOptions { only_hash: true, ..AddOptions::default() }).await.map(|a| a.cid.to_string()).map_err(|e| (e.kind(), e.to_string())).err());
        if p == "" { break; }
    }
    let io: Result<()> = (|| { std::fs::read("/nonexistent")?; Ok(()) })(); println!("io {io:?}");
    let t = dir.join("t"); std::fs::create_dir_all(t.join("a/b")).unwrap(); std::fs::write(t.join("a/b/c"), vec![7u8; 3_000_000]).unwrap(); std::fs::write(t.join("x"), "x").unwrap();
    let root = node.add_path(&t, AddOptions::default()).await.unwrap();
    let e: Vec<_> = node.read_dir(root.cid).await.unwrap().try_collect().await.unwrap();
    for e in &e { println!("entry {} {:?} size={} dag={}", e.name, e.kind, e.size, e.dag_size); }
    // gc: two at once, dropped, panicking closure, events not read
    let big = dir.join("big"); std::fs::create_dir_all(&big).unwrap(); for i in 0..30_000u32 { std::fs::write(big.join(format!("{i}")), i.to_le_bytes()).unwrap(); }
    node.add_path(&big, AddOptions { unpinned: true, ..AddOptions::default() }).await.unwrap();
    let (a, b) = futures::join!(node.gc(GcOptions::default()), node.gc(GcOptions::default()));
    println!("two gcs {:?} | {:?}", a.map(|r| r.removed), b.map(|r| r.removed).map_err(|e| e.to_string()));
    node.add_path(&big, AddOptions { unpinned: true, ..AddOptions::default() }).await.unwrap();
    let dropped = tokio::time::timeout(std::time::Duration::from_millis(3), node.gc(GcOptions::default())).await; println!("dropped: {}", dropped.is_err());
    let mut n = 0; let r = node.gc(GcOptions { progress: Some(Box::new(|_| { n += 1; std::thread::sleep(std::time::Duration::from_millis(2)); })), ..Default::default() }).await; println!("gc after {:?} events {n}", r.map(|r| (r.removed, r.kept)));
    node.add_path(&big, AddOptions { unpinned: true, ..AddOptions::default() }).await.unwrap();
    let n2 = node.clone(); let p = tokio::spawn(async move { n2.gc(GcOptions { progress: Some(Box::new(|_| panic!("closure"))), ..Default::default() }).await }).await; println!("panicking closure: {}", p.is_err());
    println!("gc then {:?}", node.gc(GcOptions::default()).await.map(|r| r.removed));
    let (tx, rx) = tokio::sync::mpsc::channel(1); let hang = tokio::time::timeout(std::time::Duration::from_millis(300), node.collect(false, tx)).await; println!("collect with unread receiver hangs: {}", hang.is_err()); drop(rx);
    // second node
    let reg = Registry::new();
    let r2 = Node::builder(dir.join("r2")).registry(&reg).open().await.unwrap();
    println!("second on registry {:?}", Node::builder(dir.join("r3")).registry(&reg).open().await.map_err(|e| (e.kind(), e.to_string())).err());
    println!("same repo {:?}", Node::open_default(dir.join("r2")).await.map_err(|e| (e.kind(), e.to_string())).err());
    r2.close().await.unwrap(); drop(r2);
    println!("after close {:?}", Node::builder(dir.join("r3")).registry(&reg).open().await.map_err(|e| e.to_string()).err());
    println!("file as repo {:?}", Node::open_default(t.join("x")).await.map_err(|e| (e.kind(), e.to_string())).err());
    println!("empty repo {:?}", Node::open_default("").await.map_err(|e| (e.kind(), e.to_string())).err());
    node.close().await.unwrap();
    println!("after close: {:?}", node.read_range(root.cid, ..).await.map(|_| ()).map_err(|e| e.to_string()));
    println!("add after close: {:?}", node.add_path(&t, AddOptions::default()).await.map(|_| ()).map_err(|e| e.to_string()));
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap());
    ops(&dir).await;
    let mut config = Config::default();
    let g = Embedded::open(&config, &dir.join("emb"), "h18").await?;
    let page = g.node().add_path(dir.join("t"), AddOptions::default()).await?;
    let content = Router::new().route("/", get(|| async { "host page\n" })).fallback_service(g.content());
    let all = Router::new().fallback_service(g.everything());
    let nested = Router::new().nest_service("/gw", g.content());
    for (name, app) in [("content", content), ("all", all), ("nested", nested)] {
        let l = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("{name} {} {}", l.local_addr()?, page.cid);
        tokio::spawn(async move { axum::serve(l, app.into_make_service_with_connect_info::<SocketAddr>()).await });
    }
    println!("READY");
    let mut s = String::new(); std::io::stdin().read_line(&mut s)?;
    g.close().await?; println!("closed");
    Ok(())
}
