use super::*;

async fn node(repo: &Path) -> Node {
    Node::builder(repo).open().await.unwrap()
}

fn new(scopes: &[Scope]) -> NewKey {
    NewKey { name: "ci".to_owned(), scopes: scopes.to_vec(), ..NewKey::default() }
}

#[tokio::test]
async fn keys_survive_a_restart_and_their_tokens_are_not_stored() {
    let repo = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let opened = node(repo.path()).await;
    let keys = Keys::new(&opened);
    let first = keys.create(new(&[Scope::Read])).await.unwrap();
    let second =
        keys.create(NewKey { valid_for: Some(Duration::from_secs(60)), ..new(&[Scope::Admin]) }).await.unwrap();
    let (first_id, second_id) = (first.info.id.clone(), second.info.id.clone());
    assert_ne!(*first.token, *second.token);
    drop(keys);
    opened.close().await.unwrap();
    let stored = fs::read_to_string(repo.path().join("auth/keys.json")).unwrap();
    // The secret may contain `_`.
    let secret = first.token.splitn(3, '_').nth(2).unwrap();
    assert!(!stored.contains(secret) && stored.contains(&first_id));

    let opened = node(repo.path()).await;
    let keys = Keys::new(&opened);
    assert_eq!(keys.find(&first.token, now).unwrap_err(), Outcome::Unknown, "before the file is read");
    keys.load().await.unwrap();
    assert_eq!(
        keys.list().await.unwrap().iter().map(|key| key.id.clone()).collect::<Vec<_>>(),
        [first_id.clone(), second_id]
    );
    let principal = keys.find(&first.token, now).unwrap();
    assert!(principal.scopes.allow(Scope::Read) && !principal.scopes.allow(Scope::Write));
    for wrong in
        [&first.token[..first.token.len() - 1], &format!("{}x", *first.token), "ipfrs_", "ipfrs__", "ipfrs_a_b"]
    {
        assert_eq!(keys.find(wrong, now).unwrap_err(), Outcome::Unknown, "{wrong}");
    }
    assert_eq!(keys.find(&second.token, now + Duration::from_secs(61)).unwrap_err(), Outcome::Expired);
    let ended = Arc::clone(&principal.revoked.clone().into());
    keys.revoke(&first_id).await.unwrap();
    assert!(ended.is_cancelled());
    assert_eq!(keys.find(&first.token, now).unwrap_err(), Outcome::Unknown);
    assert_eq!(keys.revoke(&first_id).await.unwrap_err().kind(), ErrorKind::NotFound);
    drop(keys);
    opened.close().await.unwrap();
}

#[tokio::test]
async fn invalid_keys_are_refused() {
    let repo = tempfile::tempdir().unwrap();
    let opened = node(repo.path()).await;
    let keys = Keys::new(&opened);
    let root = parse_cid("bafkqaaa").unwrap();
    for refused in [
        new(&[]),
        NewKey { name: "x".repeat(129), ..new(&[Scope::Read]) },
        NewKey { name: "a\nb".to_owned(), ..new(&[Scope::Read]) },
        NewKey { roots: vec![root], ..new(&[Scope::Read, Scope::Write]) },
        NewKey { valid_for: Some(Duration::ZERO), ..new(&[Scope::Read]) },
        NewKey { valid_for: Some(Duration::MAX), ..new(&[Scope::Read]) },
    ] {
        assert_eq!(keys.create(refused).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(keys.list().await.unwrap().is_empty());
    opened.close().await.unwrap();
}
