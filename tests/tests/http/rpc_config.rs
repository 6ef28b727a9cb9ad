//! `config` and its subcommands.

use std::fs;

use ipfrs_interface::{Config, Sources};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{TestGateway, rpc_failure};
use crate::multipart::Form;

/// Starts a gateway with the file `config.toml` of a repo, if there is one. `text` takes precedence.
pub(crate) async fn start(repo: TempDir, text: &str) -> TestGateway {
    let file = Some(repo.path().join("config.toml"));
    let text = Some(format!("[store]\nverify_on_read = false\n{text}"));
    let read = Config::load(&Sources { file, is_file_optional: true, text, ..Sources::default() }).unwrap();
    TestGateway::start_on(repo, |config| {
        *config = read;
        config.server.port = 0;
        config.grpc.port = Some(0);
        config.api.enabled = false;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_read_by_the_names_of_kubo() {
    let gateway = start(tempfile::tempdir().unwrap(), "").await;
    let shown = gateway.rpc_json("config/show").await;
    let id = gateway.rpc_json("id").await["ID"].clone();
    for (key, value) in [
        ("Identity.PeerID", id),
        ("Datastore.StorageMax", json!("")),
        ("Peering.Peers", Value::Null),
        ("Import.CidVersion", json!(0)),
        ("Import.UnixFSChunker", json!("size-262144")),
        ("Import.UnixFSFileMaxLinks", json!(174)),
        ("Import.UnixFSDAGLayout", json!("balanced")),
        ("Import.UnixFSDirectoryMaxLinks", json!(0)),
        ("Import.UnixFSHAMTDirectoryMaxFanout", json!(256)),
        ("Import.UnixFSHAMTDirectorySizeThreshold", json!("256KiB")),
        ("Import.UnixFSHAMTDirectorySizeEstimation", json!("links")),
        ("Routing.Type", json!("none")),
        ("Addresses", shown["Addresses"].clone()),
    ] {
        assert_eq!(gateway.rpc_json(&format!("config?arg={key}")).await, json!({ "Key": key, "Value": value }));
    }
    let listener = json!(format!("/ip4/127.0.0.1/tcp/{}", gateway.port()));
    assert_eq!((&shown["Addresses"]["Gateway"], &shown["Addresses"]["API"]), (&listener, &listener));
    assert!(shown["Identity"].get("PrivKey").is_none());
    for (query, text) in [
        ("arg=Nope", "failed to get config value: \"Nope not found\""),
        ("arg=Addresses.Nope", "failed to get config value: \"Addresses.Nope not found\""),
        ("arg=Addresses.Swarm.0", "failed to get config value: \"Addresses.Swarm key is not a map\""),
        ("arg=Identity.PrivKey", "cannot show or change private key through API"),
        ("arg=identity", "cannot show or change private key through API"),
        ("arg=API.Authorizations.a", "cannot show or change API authorizations"),
        ("arg=Routing.Type&arg=dht", "failed to set config value: Routing.Type: no setting of config.toml"),
        ("arg=Import.CidVersion&arg={&json=true", "failed to unmarshal json. unexpected end of JSON input"),
        ("arg=Swarm.ConnMgr.HighWater&arg=9&json=true", "failed to set config value: Swarm.ConnMgr.HighWater: "),
        ("arg=Import.CidVersion.X&arg=9", "failed to set config value: Import.CidVersion key is not a map"),
        ("arg=Import.CidVersion&arg=1&expand-auto=true", "--expand-auto can only be used for reading"),
        ("arg=Import.CidVersion&arg=7&json=true", "failed to set config value: [import]: unknown CID version: 7"),
        (
            "arg=Import.CidVersion&arg=1",
            "failed to set config value: with this change: import.cid_version = \"1\": invalid type: string \"1\", \
             expected an integer of 0 or more (maybe use --json?)",
        ),
        (
            "arg=Reprovider.Strategy&arg=all",
            "failed to set config value: Reprovider.Strategy: no setting of config.toml",
        ),
        // A table would change nothing in place of a value.
        (
            "arg=Import.CidVersion&arg={}&json=true",
            "failed to set config value: Import.CidVersion: no setting of config.toml",
        ),
        (
            "arg=Import.HashFunction&arg={\"a\":{}}&json=true",
            "failed to set config value: Import.HashFunction: no setting of config.toml",
        ),
        (
            "arg=Addresses.Announce&arg=[[]]&json=true",
            "failed to set config value: Addresses.Announce: no setting of config.toml",
        ),
        ("arg=Nope.Deep&arg=", "failed to set config value: Nope not found: no setting of config.toml"),
        ("arg=Import..X&arg=1", "failed to set config value: the key has empty names, or more than 16"),
        (
            "arg=Addresses.Gateway&arg=/ip4/0.0.0.0/tcp/8080",
            "failed to set config value: refusing to listen on 0.0.0.0",
        ),
        // The text of the program takes precedence over the file.
        (
            "arg=Datastore.HashOnRead&arg=true&bool=true",
            "failed to set config value: store.verify_on_read is set by config, line",
        ),
    ] {
        let message = rpc_failure(gateway.rpc(&format!("config?{query}")).send().await.unwrap()).await;
        assert!(message.starts_with(text), "{query}: {message}");
    }
    let deep = format!("arg={}&arg=1", "a.".repeat(5_000));
    let message = rpc_failure(gateway.rpc(&format!("config?{deep}")).send().await.unwrap()).await;
    assert!(message.starts_with("failed to set config value: the key has"), "{message}");
    assert!(!gateway.repo().path().join("config.toml").exists());
    let read_only = start(gateway.stop().await, "read_only = true").await;
    let refused = read_only.rpc("config?arg=Import.CidVersion&arg=1&json=true").send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 403);
    assert!(refused.text().await.unwrap().contains("the repo is read-only, and so is its configuration"));
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_set_by_the_names_of_kubo_and_applies_after_a_restart() {
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("config.toml");
    fs::write(&file, "# Ours.\n[import] # Defaults.\ncid_version = 0 # As ever.\n").unwrap();
    let gateway = start(repo, "").await;
    for (query, value) in [
        ("arg=Import.CidVersion&arg=1&json=true", json!(1)),
        ("arg=Import.HashFunction&arg=blake3", json!("blake3")),
        ("arg=Gateway.DeserializedResponses&arg=false&bool=true", json!(false)),
        ("arg=Gateway.RetrievalTimeout&arg=1m", json!("60s")),
        ("arg=Datastore.StorageMax&arg=10GB", json!("10GB")),
        (
            "arg=API.HTTPHeaders.Access-Control-Allow-Origin&arg=[\"https://a.example\"]&json=true",
            json!(["https://a.example"]),
        ),
        ("arg=API.HTTPHeaders.Access-Control-Allow-Methods&arg=[\"PUT\"]&json=true", json!(["PUT"])),
        (
            "arg=Gateway.PublicGateways&arg={\"b.example\":{\"UseSubdomains\":true}}&json=true",
            json!({
                "b.example": { "UseSubdomains": true, "InlineDNSLink": false, "Paths": ["/ipfs", "/ipns"] },
            }),
        ),
        ("arg=Discovery.MDNS.Enabled&arg=false&bool=true", json!(false)),
        ("arg=Bitswap.ServerEnabled&arg=false&bool=true", json!(false)),
        ("arg=Gateway.RootRedirect&arg=/ipns/a.example", json!("/ipns/a.example")),
        ("arg=Internal.Bitswap.MaxOutstandingBytesPerPeer&arg=65536&json=true", json!(65_536)),
        ("arg=DNS.MaxCacheTTL&arg=5m0s", json!("300s")),
    ] {
        let key = query[4..].split('&').next().unwrap();
        assert_eq!(
            gateway.rpc_json(&format!("config?{query}")).await,
            json!({ "Key": key, "Value": value }),
            "{query}"
        );
    }
    assert_eq!(gateway.rpc_json("config?arg=Import.CidVersion").await["Value"], 1);
    // The running daemon is as it was.
    let added =
        gateway.post_form("add?only-hash=true", Form::new().file("f", "x")).await.json::<Value>().await.unwrap();
    assert!(added["Hash"].as_str().unwrap().starts_with("Qm"), "{added}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# Ours.\n[import] # Defaults.\ncid_version = 1 # As ever.\nhash = \"blake3\"\n"),
        "{text}"
    );
    let gateway = start(gateway.stop().await, "").await;
    let added =
        gateway.post_form("add?only-hash=true", Form::new().file("f", "x")).await.json::<Value>().await.unwrap();
    assert!(added["Hash"].as_str().unwrap().starts_with("bafkr4i"), "{added}");
    let file_at = format!("/ipfs/{}", added["Hash"].as_str().unwrap());
    assert_eq!(gateway.get(&file_at).await.status(), 406);
    // `null` is the default.
    gateway.rpc_json("config?arg=Import.CidVersion&arg=null&json=true").await;
    assert!(!fs::read_to_string(&file).unwrap().contains("cid_version"));
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_networks_apply_if_all_of_them_has_an_equivalent() {
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("config.toml");
    let text = "[retrieval.bitswap]\nenabled = true\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n";
    fs::write(&file, text).unwrap();
    let gateway = start(repo, "").await;
    for (profile, why) in [
        ("announce-on", "announces its content nowhere"),
        ("autoconf-on", "gets no settings from the network"),
        ("default-networking", "no DHT, local discovery, port mapping or WebRTC"),
        ("flatfs", "one kind of store"),
        ("local-discovery", "does not look for peers in local networks"),
        ("lowpower", "retrieval.bitswap.max_peers"),
        ("server", "cannot filter addresses"),
    ] {
        let refused = gateway.rpc(&format!("config/profile/apply?arg={profile}")).send().await.unwrap();
        let message = rpc_failure(refused).await;
        let start = format!("the profile {profile} has no equivalent: ");
        assert!(message.starts_with(&start) && message.contains(why), "{message}");
    }
    let unknown = gateway.rpc("config/profile/apply?arg=nope").send().await.unwrap();
    assert_eq!(rpc_failure(unknown).await, "nope is not a profile");
    for profile in ["announce-off", "autoconf-off"] {
        let applied = gateway.rpc_json(&format!("config/profile/apply?arg={profile}")).await;
        assert_eq!(applied["NewCfg"], applied["OldCfg"], "{profile}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let applied = gateway.rpc_json("config/profile/apply?arg=randomports").await;
    let swarm = applied["NewCfg"]["Addresses"]["Swarm"].clone();
    let port: u16 = swarm[0].as_str().unwrap().strip_prefix("/ip4/0.0.0.0/tcp/").unwrap().parse().unwrap();
    assert!(port > 0);
    assert_eq!(swarm, json!([format!("/ip4/0.0.0.0/tcp/{port}"), format!("/ip6/::/tcp/{port}")]));
    assert!(fs::read_to_string(&file).unwrap().contains(&format!("/ip6/::/tcp/{port}")));
    let applied = gateway.rpc_json("config/profile/apply?arg=test").await;
    assert_eq!(applied["NewCfg"]["Addresses"]["Swarm"][0].as_str().map(|text| text.len() > 20), Some(true));
    assert!(fs::read_to_string(&file).unwrap().contains("listen = [\"/ip4/127.0.0.1/tcp/0\"]"));
    // A node without peers has no addresses for them.
    let plain = start(tempfile::tempdir().unwrap(), "").await;
    let refused = plain.rpc("config/profile/apply?arg=randomports").send().await.unwrap();
    assert!(rpc_failure(refused).await.starts_with("randomports: peers are disabled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_peers_are_connected_and_kept_for_a_restart() {
    let with_peers = "[retrieval.bitswap]\nenabled = true\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n";
    let other = start(tempfile::tempdir().unwrap(), with_peers).await;
    let address = other.rpc_json("id").await["Addresses"][0].as_str().unwrap().to_owned();
    let peer = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";
    let absent = format!("/ip4/127.0.0.1/tcp/1/p2p/{peer}");
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("config.toml");
    fs::write(&file, with_peers).unwrap();
    let gateway = start(repo, "").await;
    let peers = async |gateway: &TestGateway, command: &str| gateway.rpc_json(command).await["Peers"].clone();
    assert_eq!(peers(&gateway, "bootstrap").await, json!([]));
    let added = peers(&gateway, &format!("bootstrap/add?arg={address}&arg={address}")).await;
    assert_eq!(added, json!([address]));
    gateway.assert_metric("ipfrs_bitswap_peers", 1).await;
    assert_eq!(peers(&gateway, &format!("bootstrap/add?arg={absent}")).await, json!([absent]));
    assert_eq!(peers(&gateway, "bootstrap/list").await, json!([absent, address]));
    assert_eq!(gateway.rpc_json("config?arg=Bootstrap").await["Value"], json!([absent, address]));
    assert_eq!(peers(&gateway, "swarm/peering/ls").await, json!([]));
    let mut sorted = [format!("{absent}\n"), format!("{address}\n")];
    sorted.sort();
    assert_eq!(gateway.rpc_bytes("bootstrap?encoding=text").await, sorted.concat());
    let public = "[\"/dnsaddr/bootstrap.libp2p.io/p2p/A\"]";
    let refused = gateway.rpc(&format!("config?arg=Bootstrap&arg={public}&json=true")).send().await.unwrap();
    assert!(rpc_failure(refused).await.starts_with("failed to set config value: Bootstrap: no setting"));
    let public = format!("/dnsaddr/va1.bootstrap.libp2p.io/p2p/{peer}");
    let refused = gateway.rpc(&format!("bootstrap/add?arg={public}")).send().await.unwrap();
    assert!(rpc_failure(refused).await.contains("is of the public DHT"));
    assert_eq!(gateway.rpc_json("config?arg=Bootstrap&arg=[]&json=true").await["Value"], json!([]));
    assert_eq!(peers(&gateway, &format!("bootstrap/add?arg={absent}&arg={address}")).await, json!([absent, address]));

    let gateway = start(gateway.stop().await, "").await;
    gateway.assert_metric("ipfrs_bitswap_peers", 1).await;
    assert_eq!(peers(&gateway, &format!("bootstrap/rm?arg=/p2p/{peer}")).await, json!([absent]));
    assert_eq!(peers(&gateway, &format!("bootstrap/rm?arg={absent}")).await, json!([]));
    assert_eq!(peers(&gateway, "bootstrap/rm?all=true").await, json!([address]));
    assert_eq!(peers(&gateway, "bootstrap/rm/all").await, json!([]));
    assert!(!fs::read_to_string(&file).unwrap().contains("bootstrap"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_peers_are_stored_while_peers_are_disabled() {
    let gateway = start(tempfile::tempdir().unwrap(), "").await;
    let file = gateway.repo().path().join("config.toml");
    let address = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";
    let peers = async |command: &str| gateway.rpc_json(command).await["Peers"].clone();
    assert_eq!(peers(&format!("bootstrap/add?arg={address}")).await, json!([address]));
    assert_eq!(peers("bootstrap/list").await, json!([address]));
    assert!(fs::read_to_string(&file).unwrap().contains(address));
    assert_eq!(peers(&format!("bootstrap/rm?arg={address}")).await, json!([address]));
    assert_eq!(peers("bootstrap/list").await, json!([]));
    assert!(!fs::read_to_string(&file).unwrap().contains(address));
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_replaced_and_profiles_are_applied() {
    let gateway = start(tempfile::tempdir().unwrap(), "").await;
    let file = gateway.repo().path().join("config.toml");
    let dry = gateway.rpc_json("config/profile/apply?arg=unixfs-v1-2025&dry-run=true").await;
    assert_eq!(
        (&dry["OldCfg"]["Import"]["CidVersion"], &dry["NewCfg"]["Import"]["CidVersion"]),
        (&json!(0), &json!(1))
    );
    assert!(!file.exists());
    gateway.rpc_json("config?arg=Import.UnixFSFileMaxLinks&arg=7&json=true").await;
    let applied = gateway.rpc_json("config/profile/apply?arg=unixfs-v1-2025").await;
    assert_eq!(applied["OldCfg"]["Import"]["UnixFSFileMaxLinks"], 7);
    assert_eq!(applied["NewCfg"], gateway.rpc_json("config/show").await);
    assert_eq!(fs::read_to_string(&file).unwrap(), "[import]\nprofile = \"unixfs-v1-2025\"\n");
    let diff = gateway.rpc_bytes("config/profile/apply?arg=legacy-cid-v0&dry-run=true&encoding=text").await;
    let diff = String::from_utf8(diff.to_vec()).unwrap();
    let changed = "\n\"Import\": {\n\x1b[33m    <> \"CidVersion\": 1,\n    ** \"CidVersion\": 0,\x1b[0m\n";
    assert!(diff.starts_with("{\n\"API\": ") && diff.contains(changed) && diff.ends_with("}\n}"), "{diff}");

    let mut shown = gateway.rpc_json("config/show").await;
    shown["Import"]["CidVersion"] = json!(0);
    shown["Import"]["UnixFSRawLeaves"] = json!(false);
    shown["Identity"] = json!({ "PeerID": "other" });
    // Settings that this daemon lacks, or derives from others, may be left out.
    for section in ["AutoConf", "AutoTLS", "Discovery", "Provide", "Routing"] {
        shown.as_object_mut().unwrap().remove(section).unwrap();
    }
    let replaced = gateway.post_form("config/replace", Form::new().file("f", shown.to_string())).await;
    assert_eq!((replaced.status().as_u16(), replaced.text().await.unwrap().as_str()), (200, ""));
    let new = gateway.rpc_json("config/show").await;
    assert_eq!((&new["Import"], new["Identity"]["PeerID"] != "other"), (&shown["Import"], true));
    let before = fs::read_to_string(&file).unwrap();
    shown["Swarm"]["ConnMgr"] = json!({ "HighWater": 1 });
    shown["Import"]["CidVersion"] = json!(1);
    for (body, text) in [
        (shown.to_string(), "failed to set config value: Swarm.ConnMgr.HighWater: no setting"),
        (json!({ "Identity": { "PrivKey": "x" } }).to_string(), "setting private key with API is not supported"),
        (json!({ "Pinning": { "RemoteServices": { "a": {} } } }).to_string(), "cannot change remote pinning services"),
        ("[]".to_owned(), "failed to decode file as config"),
        ("{".to_owned(), "failed to decode file as config"),
    ] {
        let refused = gateway.post_form("config/replace", Form::new().file("f", body)).await;
        let message = rpc_failure(refused).await;
        assert!(message.starts_with(text), "{message}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_configuration_removes_the_settings_of_the_file() {
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("config.toml");
    fs::write(&file, "[gateway]\nroot_redirect = \"/ipns/a.example\"\n[import]\ncid_version = 1\n").unwrap();
    // The text of the program sets store.verify_on_read. That is no obstacle, because the file does not have it.
    let gateway = start(repo, "").await;
    assert_eq!(gateway.rpc_json("config?arg=Gateway.RootRedirect").await["Value"], "/ipns/a.example");
    let replaced = gateway.post_form("config/replace", Form::new().file("f", "{}")).await;
    assert_eq!((replaced.status().as_u16(), replaced.text().await.unwrap().as_str()), (200, ""));
    let shown = gateway.rpc_json("config/show").await;
    assert_eq!((&shown["Gateway"]["RootRedirect"], &shown["Import"]["CidVersion"]), (&json!(""), &json!(0)));
    let datastore = json!({
        "BloomFilterSize": 0, "GCPeriod": "", "HashOnRead": false, "StorageGCWatermark": 0, "StorageMax": "",
    });
    assert_eq!(shown["Datastore"], datastore);
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("root_redirect") && !text.contains("cid_version"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_configuration_keeps_what_is_not_shown() {
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("config.toml");
    let secret = "[dns]\nresolvers = [\"https://dns.example/q?token=hunter2\"]\n";
    fs::write(&file, secret).unwrap();
    let gateway = start(repo, "").await;
    let mut shown = gateway.rpc_json("config/show").await;
    assert_eq!(shown["DNS"]["Resolvers"]["."], "https://dns.example/q?***");
    shown["Import"]["CidVersion"] = json!(1);
    let replaced = gateway.post_form("config/replace", Form::new().file("f", shown.to_string())).await;
    assert_eq!(replaced.status(), 200);
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.starts_with(secret) && written.contains("cid_version = 1"), "{written}");
    // A placeholder in a value that has changed is refused.
    shown["DNS"]["Resolvers"]["."] = json!("https://other.example/q?***");
    let refused = gateway.post_form("config/replace", Form::new().file("f", shown.to_string())).await;
    assert!(rpc_failure(refused).await.contains("change it in the file"));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
}
