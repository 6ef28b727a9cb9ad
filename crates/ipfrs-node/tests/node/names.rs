//! Limit on IPNS records, and removal of keys.

use std::fs;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ipfrs_core::ErrorKind;
use ipfrs_ipns::PrivateKey;
use ipfrs_node::{KeyFormat, KeyType, Name, Node, NodeConfig, PublishOptions, Record, StoreConfig};
use ipfrs_store::Engine;

const TARGET: &str = "/ipfs/bafkqaaa";
const HOUR: Duration = Duration::from_secs(3_600);

async fn open(repo: &tempfile::TempDir, max_records: usize) -> Node {
    let mut config = NodeConfig::default();
    config.ipns.max_records = max_records;
    let store = StoreConfig { engine: Engine::Memory, ..StoreConfig::default() };
    Node::builder(repo.path()).store(store).config(config).open().await.unwrap()
}

fn key() -> (PrivateKey, Name) {
    let key = PrivateKey::generate(KeyType::Ed25519, None).unwrap();
    let name = Name::of(key.public());
    (key, name)
}

fn record(key: &PrivateKey, sequence: u64, end: SystemTime) -> Bytes {
    Record::create(key, TARGET, sequence, end, HOUR).unwrap().bytes().clone()
}

#[tokio::test]
async fn expired_records_are_evicted_except_for_own_keys() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo, 1).await;
    let (now, [own, stranger, valid, late]) = (SystemTime::now(), [key(), key(), key(), key()]);
    node.import_key("own", own.0.to_protobuf().unwrap(), KeyFormat::Protobuf, false).await.unwrap();
    fs::create_dir(repo.path().join("ipns")).unwrap();
    for (key, name) in [&own, &stranger] {
        let file = repo.path().join(format!("ipns/{name}.ipns-record"));
        fs::write(file, record(key, 7, now - HOUR)).unwrap();
    }
    assert!(node.last_ipns_record(&stranger.1).await.unwrap().is_some());
    node.put_ipns_record(&valid.1, record(&valid.0, 0, now + HOUR)).await.unwrap();
    assert_eq!(node.last_ipns_record(&stranger.1).await.unwrap(), None);
    let full = node.put_ipns_record(&late.1, record(&late.0, 0, now + HOUR)).await.unwrap_err();
    assert!(full.kind() == ErrorKind::RateLimited && full.message().contains("ipns.max_records"), "{full}");
    // Records of this node's own keys are exempt from the limit, and their sequence numbers continue.
    for (key, sequence) in [("self", 0), ("own", 8)] {
        let options = PublishOptions { key: key.into(), must_resolve: false, ttl: Some(HOUR), ..Default::default() };
        let published = node.publish_name(&format!("{TARGET}/{key}"), &options).await.unwrap();
        assert_eq!(node.ipns_record(&published.name).await.unwrap().sequence(), sequence, "{key}");
    }
    node.close().await.unwrap();
}

#[tokio::test]
async fn remove_keys_refuses_duplicate_names() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo, 1).await;
    for name in ["a", "b"] {
        node.generate_key(name, KeyType::Ed25519, None).await.unwrap();
    }
    let names = ["a", "b", "a"].map(str::to_owned);
    let refused = node.remove_keys(&names).await.unwrap_err();
    assert_eq!((refused.kind(), refused.message()), (ErrorKind::NotFound, "no key named a was found"));
    assert_eq!(node.keys().await.unwrap().len(), 3);
    node.close().await.unwrap();
}
