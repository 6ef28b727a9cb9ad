//! Tests of the guarantees of [`Pins`].

use ipfrs_core::{ErrorKind, codec, hash, new_cid};
use tempfile::tempdir;

use super::*;

fn cid(text: &str) -> Cid {
    new_cid(1, codec::DAG_PB, hash::sha2_256(text.as_bytes())).unwrap()
}

fn named(text: &str, mode: PinMode, name: &str) -> Pin {
    Pin { cid: cid(text), mode, name: name.to_owned() }
}

async fn all(pins: &Pins) -> Vec<Pin> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = pins.page(after).await.unwrap();
        let Some(last) = page.last() else { return found };
        after = Some(last.cid);
        found.extend(page);
    }
}

#[tokio::test]
async fn pin_rules_match_kubo() {
    let pins = Pins::in_memory(false).unwrap();
    let get = async || pins.get(&cid("a")).await.unwrap();
    pins.insert_many(vec![named("a", PinMode::Direct, "first")]).await.unwrap();
    pins.insert_many(vec![named("a", PinMode::Recursive, "")]).await.unwrap();
    assert_eq!(get().await, Some(named("a", PinMode::Recursive, "first")), "recursive replaces direct, names stay");
    let error = pins.insert_many(vec![Pin::recursive(cid("b")), named("a", PinMode::Direct, "x")]).await.unwrap_err();
    assert!(error.message().contains("already pinned recursively"), "{error}");
    assert_eq!(pins.get(&cid("b")).await.unwrap(), None, "all or none");
    pins.insert_many(vec![named("a", PinMode::Recursive, "second")]).await.unwrap();
    assert_eq!(get().await.unwrap().name, "second");
    assert_eq!(pins.remove_many(vec![cid("a")], false).await.unwrap_err().kind(), ErrorKind::Conflict);
    pins.replace(&cid("a"), &cid("c"), false).await.unwrap();
    assert_eq!(
        (get().await, pins.get(&cid("c")).await.unwrap()),
        (None, Some(named("c", PinMode::Recursive, "second")))
    );
    let error = pins.remove_many(vec![cid("a")], true).await.unwrap_err();
    assert!(error.message().contains("not pinned or pinned indirectly"), "{error}");
    assert_eq!(pins.replace(&cid("a"), &cid("b"), true).await.unwrap_err().kind(), ErrorKind::NotFound);
    let long = named("d", PinMode::Direct, &"x".repeat(MAX_PIN_NAME_BYTES + 1));
    assert_eq!(pins.insert_many(vec![long]).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(pins.count().await.unwrap(), 1);
}

#[tokio::test]
async fn versions_of_a_cid_are_one_pin_and_codecs_are_not() {
    let pins = Pins::in_memory(false).unwrap();
    let v0 = new_cid(0, codec::DAG_PB, hash::sha2_256(b"a")).unwrap();
    let raw = new_cid(1, codec::RAW, hash::sha2_256(b"a")).unwrap();
    pins.insert_many(vec![Pin::recursive(v0)]).await.unwrap();
    assert_eq!(pins.get(&cid("a")).await.unwrap(), Some(Pin::recursive(v0)), "shown as it was pinned");
    assert_eq!(pins.get(&raw).await.unwrap(), None);
    pins.remove_many(vec![cid("a")], true).await.unwrap();
    assert_eq!(pins.count().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_pins_of_many_callers_survive_restart() {
    let dir = tempdir().unwrap();
    let pins = Pins::open(dir.path(), false).unwrap();
    let callers: Vec<_> = (0..PAGE_PINS + 500)
        .map(|n| {
            let pins = pins.clone();
            tokio::spawn(async move { pins.insert_many(vec![named(&n.to_string(), PinMode::Recursive, "n")]).await })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    let before = all(&pins).await;
    assert_eq!(before.len(), PAGE_PINS + 500);
    pins.close().await.unwrap();
    assert_eq!(pins.count().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let read_only = Pins::open_read_only(dir.path()).unwrap();
    assert_eq!(all(&read_only).await, before);
    assert_eq!(read_only.remove_many(vec![before[0].cid], true).await.unwrap_err().kind(), ErrorKind::Forbidden);
    read_only.close().await.unwrap();
    assert_eq!(all(&Pins::open(dir.path(), false).unwrap()).await, before);
}

#[tokio::test]
async fn damage_never_looks_like_fewer_pins() {
    let dir = tempdir().unwrap();
    let pins = Pins::open(dir.path(), false).unwrap();
    pins.insert_many((0..200).map(|n| named(&n.to_string(), PinMode::Recursive, "name")).collect()).await.unwrap();
    let whole = all(&pins).await;
    pins.close().await.unwrap();
    let path = dir.path().join(FILE);
    let bytes = std::fs::read(&path).unwrap();
    let refused = std::cell::Cell::new(0);
    let judge = async |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        match Pins::open(dir.path(), false) {
            Ok(pins) => {
                assert_eq!(all(&pins).await, whole, "{what}");
                pins.close().await.unwrap();
            }
            Err(error) => {
                assert!(error.message().contains("pins.redb"), "{error}");
                refused.set(refused.get() + 1);
            }
        }
    };
    judge(&[], "empty").await;
    judge(&bytes[..bytes.len() / 2], "cut").await;
    judge(&vec![0; bytes.len()], "zeros").await;
    // The step visits different offsets of pages, records and headers.
    for at in (0..bytes.len()).step_by(4_999) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x5a;
        judge(&damaged, &format!("byte {at} of {}", bytes.len())).await;
    }
    judge(&bytes, "whole").await;
    assert!(refused.get() > 3, "{refused:?} of the damaged files were refused");
}
