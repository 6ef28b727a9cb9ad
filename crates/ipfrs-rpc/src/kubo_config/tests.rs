use super::*;

/// Returns a configuration of this daemon with a value for everything that has an equivalent.
fn own() -> Value {
    json!({
        "api": {
            "enabled": true,
            "host": "127.0.0.1",
            "port": 5002,
            "unix_socket": "/run/api.sock",
            "allowed_origins": ["http://localhost:3000"],
            "http_headers": { "X-A": "b" },
        },
        "dns": {
            "enabled": false,
            "max_ttl_seconds": 3_600,
            "resolvers": ["https://d.example/q"],
            "suffix_resolvers": { "eth.": "https://e/q" },
        },
        "gateway": {
            "deserialized": false,
            "max_concurrent_requests": 7,
            "max_range_request_bytes": 9,
            "max_request_seconds": 60,
            "retrieval_timeout_seconds": 30,
            "root_redirect": "/ipns/a.example",
            "hosts": { "a.example": {
                "subdomains": true, "inline_dnslink": true, "deserialized": true, "paths": ["/ipfs"], "retrieve": false,
            } },
        },
        "import": {
            "cid_version": 1,
            "raw_leaves": true,
            "chunker": "size-1048576",
            "hash": "sha2-256",
            "layout": "balanced",
            "max_file_links": 1024,
            "max_directory_links": 0,
            "max_hamt_fanout": 256,
            "directory_size": "block",
            "sharding_threshold_bytes": 262_144,
        },
        "ipns": { "max_cache_ttl_seconds": 60, "record_lifetime_seconds": 172_800 },
        "mutable_files": { "max_unflushed": 256 },
        "retrieval": {
            "enabled": true,
            "routers": ["https://r.example"],
            "bitswap": {
                "enabled": true,
                "listen": ["/ip4/0.0.0.0/tcp/4001", "/ip4/0.0.0.0/udp/4001/quic-v1"],
                "announce": ["/dns4/a.example/tcp/4001"],
                "bootstrap": ["/ip4/1.2.3.5/tcp/1/p2p/C"],
                "peers": ["/ip4/1.2.3.4/tcp/1/p2p/A", "/ip4/1.2.3.4/tcp/2/p2p/A", "/dns4/b/tcp/1/p2p/B"],
                "serve": false,
                "max_outstanding_bytes_per_peer": 65_536,
            },
        },
        "server": { "host": "::1", "port": 8080 },
        "store": { "filestore_root": "/srv", "max_bytes": 1_000_000_000, "verify_on_read": true },
    })
}

#[test]
fn what_is_shown_is_read_as_what_it_was() {
    let translation = translate(&show(&own()), Some("/srv"));
    for (key, value) in &translation.settings {
        assert!(applies(own().pointer(&pointer_of(key)), value), "{key:?} = {value}");
    }
    // The listeners, headers and resolvers are several settings here.
    assert_eq!(translation.settings.len(), SETTINGS.len() + 7);
    let fixed: BTreeMap<String, Value> = fixed().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let others = translation.others;
    assert!(others.iter().all(|(key, value)| fixed.get(key) == Some(value)), "{others:?}");
}

/// Returns the changes after setting keys of Kubo.
fn after(own: &Value, set: &[(&str, Value)]) -> Result<Vec<(String, Option<Value>)>, Vec<String>> {
    let before = show(own);
    let mut after = before.clone();
    for (key, value) in set {
        put_key(&mut after, key, value.clone()).unwrap();
    }
    let changes = changes(own, &before, &after, None, "/parent")?;
    Ok(changes.into_iter().map(|change| (change.key.join("/"), change.value)).collect())
}

#[test]
fn a_change_of_kubo_is_one_of_the_same_settings_here() {
    let own = own();
    let set = |key: &str, value: Value| after(&own, &[(key, value)]);
    let one = |key: &str, value: Value| Ok(vec![(key.to_owned(), Some(value))]);
    assert_eq!(set("Import.CidVersion", json!(0)), one("import/cid_version", json!(0)));
    assert_eq!(set("Import.CidVersion", json!(1)), Ok(vec![]));
    assert_eq!(set("Import.CidVersion", Value::Null), Ok(vec![("import/cid_version".into(), None)]));
    assert_eq!(set("Datastore.StorageMax", json!("10GB")), one("store/max_bytes", json!(10_000_000_000_u64)));
    assert_eq!(set("Gateway.RetrievalTimeout", json!("1m30s")), one("gateway/retrieval_timeout_seconds", json!(90)));
    assert_eq!(set("Gateway.NoFetch", json!(true)), one("retrieval/enabled", json!(false)));
    assert_eq!(set("Addresses.Gateway", json!("/ip6/::1/tcp/0")), one("server/port", json!(0)));
    assert_eq!(set("Gateway.RootRedirect", json!("/b")), one("gateway/root_redirect", json!("/b")));
    assert_eq!(set("Gateway.RootRedirect", json!("")), Ok(vec![("gateway/root_redirect".into(), None)]));
    assert_eq!(show(&json!({}))["Gateway"]["RootRedirect"], "");
    let loopback = |port: u16| json!(["/unix/run/api.sock", "/ip6/::1/tcp/5002", format!("/ip4/127.0.0.1/tcp/{port}")]);
    assert_eq!(set("Addresses.API", loopback(5002)), one("api/host", json!("localhost")));
    assert_eq!(set("Addresses.API", loopback(5003)), Err(vec!["Addresses.API".to_owned()]));
    assert_eq!(set("Addresses.Swarm", json!([])).unwrap()[0], ("retrieval/bitswap/listen".into(), None));
    let bootstrap = "retrieval/bitswap/bootstrap";
    assert_eq!(set("Bootstrap", json!(["/dns4/d/tcp/1/p2p/D"])), one(bootstrap, json!(["/dns4/d/tcp/1/p2p/D"])));
    assert_eq!(set("Bootstrap", json!([])), Ok(vec![(bootstrap.into(), None)]));
    assert_eq!(set("Experimental.FilestoreEnabled", json!(false)), Ok(vec![("store/filestore_root".into(), None)]));
    assert_eq!(set("API.HTTPHeaders.X-A", json!(["c", "d"])), one("api/http_headers/X-A", json!("c, d")));
    assert_eq!(
        set(
            "API.HTTPHeaders",
            json!({ "Access-Control-Allow-Origin": ["*"], "Access-Control-Allow-Methods": ["PUT"] })
        ),
        Ok(vec![("api/http_headers/X-A".into(), None), ("api/allowed_origins".into(), Some(json!(["*"])))])
    );
    assert_eq!(
        set("Routing.DelegatedRouters", json!(["https://s.example"])),
        one("retrieval/routers", json!(["https://s.example"]))
    );
    assert_eq!(set("Ipns.RecordLifetime", json!("")), Ok(vec![("ipns/record_lifetime_seconds".into(), None)]));
    // A setting that is named is set, even if it has this value by default.
    let before = show(&json!({ "gateway": { "deserialized": true } }));
    let named = Some("Gateway.DeserializedResponses");
    assert_eq!(changes(&json!({}), &before, &before, named, "/").unwrap()[0].value, Some(json!(true)));
    // Fields without a name in Kubo stay as they are.
    let host = json!({ "subdomains": false, "inline_dnslink": false, "deserialized": null, "paths": ["/ipns"] });
    assert_eq!(
        set("Gateway.PublicGateways", json!({ "a.example": { "Paths": ["/ipns"] } })),
        one("gateway/hosts/a.example", host)
    );
    assert_eq!(set("Gateway.PublicGateways", json!({})), Ok(vec![("gateway/hosts/a.example".into(), None)]));
}

#[test]
fn a_listener_that_is_off_is_turned_on() {
    let mut own = own();
    own["api"]["enabled"] = json!(false);
    own["api"]["unix_socket"] = Value::Null;
    assert_eq!(show(&own)["Addresses"]["API"], json!([]));
    let changes = after(&own, &[("Addresses.API", json!("/ip4/127.0.0.1/tcp/5001"))]).unwrap();
    assert_eq!(changes, [("api/enabled".into(), Some(json!(true))), ("api/port".into(), Some(json!(5001)))]);
}

#[test]
fn settings_without_an_equivalent_change_nothing() {
    let own = own();
    for (key, value) in [
        ("Swarm.ConnMgr.HighWater", json!(40)),
        ("Discovery.MDNS.Enabled", json!(true)),
        ("Provide.Enabled", json!(true)),
        ("Swarm.Transports.Network.QUIC", json!(false)),
        ("Addresses.Gateway", json!([])),
        ("Addresses.Gateway", json!("/unix/run/a")),
        ("Addresses.Swarm", json!(["/ip4/0.0.0.0/tcp/4001", "/ip4/0.0.0.0/tcp/4002/ws"])),
        ("Gateway.NoFetch", json!("true")),
        ("Gateway.RootRedirect", json!(["/a"])),
        ("Addresses.API", json!(["/ip4/127.0.0.1/tcp/5002", "/ip4/127.0.0.2/tcp/5002"])),
        ("Gateway.RetrievalTimeout", json!("soon")),
        ("Datastore.StorageMax", json!("much")),
        ("Peering.Peers", json!([{ "ID": "A" }])),
        ("Peering.Peers", json!([{ "ID": "A", "Addrs": ["/ip4/1.2.3.4/tcp/1", 2] }])),
        ("Bootstrap", json!(["/ip4/1.2.3.4/tcp/1/p2p/A", "auto"])),
        ("Bootstrap", json!(["/dnsaddr/bootstrap.libp2p.io/p2p/A"])),
        ("Bootstrap", json!(["/dnsaddr/va1.bootstrap.libp2p.io/p2p/A"])),
        ("Bootstrap", json!("/ip4/1.2.3.4/tcp/1/p2p/A")),
        ("Routing.DelegatedRouters", json!({ "a": 1 })),
        ("Routing.DelegatedRouters", json!([1, "https://s.example"])),
        ("Routing.DelegatedRouters", json!(["auto"])),
        ("DNS.Resolvers.eth", json!("auto")),
        ("API.HTTPHeaders.X-A", json!([1])),
    ] {
        assert_eq!(after(&own, &[("Import.CidVersion", json!(0)), (key, value)]), Err(vec![key.to_owned()]));
    }
    let hosts = json!({ "a.example": { "NoDNSLink": true } });
    let without = after(&own, &[("Gateway.PublicGateways", hosts)]);
    assert_eq!(without, Err(vec!["Gateway.PublicGateways.a.example.NoDNSLink".to_owned()]));
    // Features of Kubo that are off here anyway, also if they are left out.
    assert_eq!(after(&own, &[("AutoConf", Value::Null), ("Gateway.ExposeRoutingAPI", Value::Null)]), Ok(vec![]));
    assert_eq!(after(&own, &[("Discovery.MDNS.Enabled", json!(false))]), Ok(vec![]));
    let (mut derived, plain) = (show(&own), show(&own));
    put_key(&mut derived, "Routing.Type", json!("none")).unwrap();
    assert_eq!(changes(&own, &derived, &plain, None, "/parent"), Ok(vec![]));
    assert_eq!(changes(&own, &plain, &derived, None, "/parent"), Err(vec!["Routing.Type".to_owned()]));
    assert_eq!(show(&json!({}))["Bootstrap"], json!([]));
    assert_eq!(after(&json!({}), &[("Bootstrap", Value::Null)]), Ok(vec![]));
}

#[test]
fn bootstrap_peers_besides_public_ones_remain() {
    let own_peers = ["/ip4/1.2.3.4/tcp/1/p2p/A", "/dnsaddr/notbootstrap.libp2p.io/p2p/B"];
    let public = ["auto", "/dnsaddr/va1.bootstrap.libp2p.io/p2p/C"];
    let translation = translate(&json!({ "Bootstrap": [public[0], own_peers[0], public[1], own_peers[1]] }), None);
    let key: Vec<_> = ["retrieval", "bitswap", "bootstrap"].map(str::to_owned).into();
    assert_eq!(translation.settings, BTreeMap::from([(key, json!(own_peers))]));
    assert_eq!(translation.others, BTreeMap::from([("Bootstrap".to_owned(), json!(public))]));
}

#[test]
fn keys_are_set_as_in_kubo() {
    let mut kubo = json!({ "A": { "B": 1 }, "N": null });
    put_key(&mut kubo, "A.C.D", json!(2)).unwrap();
    put_key(&mut kubo, "N.X", json!(3)).unwrap();
    assert_eq!(kubo, json!({ "A": { "B": 1, "C": { "D": 2 } }, "N": { "X": 3 } }));
    for key in ["", "A.", ".A", "A..B", &"a.".repeat(5_000)] {
        assert!(put_key(&mut kubo, key, json!(1)).is_err(), "{key}");
    }
    for (key, known) in [("Import", true), ("Import.CidVersion", true), ("API.HTTPHeaders.X", true), ("Swarm.X", false)]
    {
        assert_eq!(is_known(key), known, "{key}");
    }
    // A name with points is not a path.
    let odd = json!({ "Import.CidVersion": 1 });
    assert_eq!(translate(&odd, None).others.len(), 1);
    assert_eq!(put_key(&mut kubo, "A.B.C", json!(4)), Err("A.B key is not a map".to_owned()));
}
