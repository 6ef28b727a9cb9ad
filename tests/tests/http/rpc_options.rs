//! Options of the commands: long and short names, values, and unsupported options.

use serde_json::{Value, json};

use crate::content::{self, bytes};
use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure, rpc_refusal};
use crate::multipart::Form;

/// Every option that Kubo 0.44 defines for the supported commands, as `name/short:type`. The types are `b` for a
/// Boolean, `i` and `I` for integers of 32 and 64 bits, `u` and `U` for unsigned ones, `t` for text and `l` for
/// several texts. A trailing `!` marks options that are not supported.
const KUBO: &[(&str, &str)] = &[
    (
        "add",
        "recursive/r:b dereference-args:b dereference-symlinks:b stdin-name:t hidden/H:b ignore:l ignore-rules-path:t \
         empty-dirs/E:b quiet/q:b quieter/Q:b silent:b progress/p:b only-hash/n:b wrap-with-directory/w:b pin:b pin-name:t \
         to-files:t cid-version:i hash:t raw-leaves:b chunker/s:t trickle/t:b max-file-links:i max-directory-links:i \
         max-hamt-fanout:i inline:b inline-limit:i nocopy:b fscache:b preserve-mode:b preserve-mtime:b mode:u mtime:I \
         mtime-nsecs:u fast-provide-root:b fast-provide-dag:b fast-provide-wait:b",
    ),
    ("block/get", ""),
    ("block/put", "cid-codec:t mhtype:t mhlen:i pin:b allow-big-block:b format/f:t"),
    ("block/rm", "force/f:b quiet/q:b"),
    ("block/stat", ""),
    ("bootstrap/list", "expand-auto:b"),
    ("cat", "offset/o:I length/l:I progress/p:b"),
    ("cid/base32", ""),
    ("cid/bases", "prefix:b numeric:b"),
    ("cid/codecs", "numeric/n:b supported/s:b"),
    ("cid/format", "f:t v:t mc:t b:t"),
    ("cid/hashes", "numeric/n:b supported/s:b"),
    ("cid/inspect", ""),
    ("commands", "flags/f:b"),
    ("config", "bool:b json:b expand-auto:b"),
    ("config/show", "expand-auto:b"),
    ("dag/export", "progress/p:b local-only:b"),
    ("dag/get", "output-codec:t"),
    (
        "dag/import",
        "pin-roots:b local-only:b silent:b stats:b fast-provide-root:b fast-provide-dag:b fast-provide-wait:b \
         allow-big-block:b",
    ),
    ("dag/put", "store-codec:t input-codec:t pin:b hash:t allow-big-block:b"),
    ("dag/resolve", ""),
    ("dag/stat", "progress/p:b"),
    ("files/chcid", "flush/f:b cid-version/cid-ver:i hash:t"),
    ("files/chmod", "flush/f:b"),
    ("files/cp", "flush/f:b force:b parents/p:b"),
    ("files/flush", "flush/f:b"),
    ("files/ls", "flush/f:b long/l:b U:b"),
    ("files/mkdir", "flush/f:b parents/p:b cid-version/cid-ver:i hash:t"),
    ("files/mv", "flush/f:b"),
    ("files/read", "flush/f:b offset/o:I count/n:I"),
    ("files/rm", "flush/f:b recursive/r:b force:b"),
    ("files/stat", "flush/f:b format:t hash:b size:b with-local:b"),
    ("files/touch", "flush/f:b mtime:I mtime-nsecs:u"),
    (
        "files/write",
        "flush/f:b offset/o:I create/e:b parents/p:b truncate/t:b count/n:I raw-leaves:b cid-version/cid-ver:i hash:t",
    ),
    ("get", "output/o:t archive/a:b compress/C:b compression-level/l:i progress/p:b"),
    ("id", "format/f:t peerid-base:t"),
    ("key/gen", "type/t:t size/s:i ipns-base:t"),
    ("key/import", "ipns-base:t format/f:t allow-any-key-type:b"),
    ("key/list", "l:b ipns-base:t"),
    ("key/ls", "l:b ipns-base:t"),
    ("key/rename", "force/f:b ipns-base:t"),
    ("key/rm", "l:b ipns-base:t"),
    ("key/sign", "key/k:t ipns-base:t"),
    ("key/verify", "key/k:t signature/s:t ipns-base:t"),
    ("ls", "headers/v:b resolve-type:b size:b stream/s:b long/l:b"),
    ("multibase/decode", ""),
    ("multibase/encode", "b:t"),
    ("multibase/list", "prefix:b numeric:b"),
    ("multibase/transcode", "b:t"),
    ("name/get", ""),
    ("name/inspect", "verify:t dump:b"),
    (
        "name/publish",
        "key/k:t resolve:b lifetime/t:t ttl:t quieter/Q:b v1compat:b allow-offline:b allow-delegated:b! sequence:U ipns-base:t",
    ),
    ("name/put", "force/f:b allow-offline:b allow-delegated:b! quiet/q:b"),
    ("name/resolve", "recursive/r:b nocache/n:b dht-record-count/dhtrc:u dht-timeout/dhtt:t stream/s:b"),
    ("pin/add", "recursive/r:b name/n:t progress:b fast-provide-root:b fast-provide-dag:b fast-provide-wait:b"),
    ("pin/ls", "type/t:t quiet/q:b name/n:t stream/s:b names:b"),
    ("pin/rm", "recursive/r:b"),
    ("pin/update", "unpin:b fast-provide-root:b fast-provide-dag:b fast-provide-wait:b"),
    ("pin/verify", "verbose:b quiet/q:b"),
    ("refs", "format:t edges/e:b unique/u:b recursive/r:b max-depth:i"),
    ("refs/local", ""),
    ("repo/gc", "stream-errors:b quiet/q:b silent:b"),
    ("repo/ls", ""),
    ("repo/stat", "size-only/s:b human/H:b"),
    ("repo/verify", "drop:b heal:b heal-timeout:t"),
    ("repo/version", "quiet/q:b"),
    ("resolve", "recursive/r:b dht-record-count/dhtrc:i dht-timeout/dhtt:t"),
    ("routing/findpeer", "verbose/v:b"),
    ("routing/get", ""),
    ("routing/put", "allow-offline:b"),
    ("shutdown", ""),
    ("stats/bitswap", "verbose/v:b human:b"),
    ("stats/bw", "peer/p:t! proto/t:t! poll:b interval/i:t"),
    ("stats/repo", "size-only/s:b human/H:b"),
    ("swarm/peering/add", ""),
    ("swarm/peering/rm", ""),
    ("version", "number/n:b commit:b repo:b all:b"),
    ("bitswap/stat", "verbose/v:b human:b"),
    ("bitswap/wantlist", "peer/p:t"),
    ("bootstrap/rm", "all:b"),
    ("config/profile/apply", "dry-run:b"),
    ("dht/query", "verbose/v:b"),
    ("diag/cmds", "verbose/v:b"),
    ("diag/profile", "output/o:t collectors:l profile-time:t mutex-profile-fraction:i block-profile-rate:t"),
    ("filestore/ls", "file-order:b"),
    ("filestore/verify", "file-order:b remove-bad-blocks:b"),
    ("log/tail", "log-level:t"),
    ("mount", "ipfs-path/f:t ipns-path/n:t mfs-path/m:t"),
    ("name/pubsub/subs", "ipns-base:t"),
    ("object/diff", "verbose/v:b"),
    ("object/patch/add-link", "create/p:b allow-big-block:b allow-non-unixfs:b"),
    ("object/patch/rm-link", "allow-big-block:b allow-non-unixfs:b"),
    ("p2p/close", "all/a:b protocol/p:t listen-address/l:t target-address/t:t"),
    ("p2p/forward", "allow-custom-protocol:b foreground/f:b"),
    ("p2p/listen", "allow-custom-protocol:b report-peer-id/r:b foreground/f:b"),
    ("p2p/ls", "headers/v:b"),
    ("p2p/stream/close", "all/a:b"),
    ("p2p/stream/ls", "headers/v:b"),
    ("pin/remote/add", "service:t name:t background:b"),
    ("pin/remote/ls", "service:t name:t cid:l status:l"),
    ("pin/remote/rm", "service:t name:t cid:l status:l force:b"),
    ("pin/remote/service/ls", "stat:b"),
    ("ping", "count/n:i"),
    ("provide/clear", "quiet/q:b"),
    ("provide/once", "recursive/r:b"),
    (
        "provide/stat",
        "lan:b all/a:b compact:b connectivity:b network:b schedule:b timings:b workers:b operations:b queues:b",
    ),
    ("pubsub/reset", "peer/p:t"),
    ("routing/findprovs", "verbose/v:b num-providers/n:i"),
    ("routing/provide", "verbose/v:b recursive/r:b"),
    (
        "stats/provide",
        "lan:b all/a:b compact:b connectivity:b network:b schedule:b timings:b workers:b operations:b queues:b",
    ),
    (
        "stats/reprovide",
        "lan:b all/a:b compact:b connectivity:b network:b schedule:b timings:b workers:b operations:b queues:b",
    ),
    ("swarm/addrs/local", "id:b"),
    ("swarm/peers", "verbose/v:b streams:b latency:b direction:b identify:b"),
    ("version/check", "min-percent/t:i"),
];

/// Options that every command has.
const GLOBAL: &str = "cid-base:t upgrade-cidv0-in-output:b encoding/enc:t stream-channels:b timeout:t offline:b local/L:b \
                      debug/D:b help:b h:b repo-dir:t config-file:t config/c:t api:t api-auth:t";

struct KuboOption {
    names: Vec<String>,
    kind: char,
    is_offered: bool,
}

fn options(text: &str) -> Vec<KuboOption> {
    let of = |option: &str| {
        let (names, kind) = option.split_once(':').unwrap();
        let names = names.split('/').map(str::to_owned).collect();
        KuboOption { names, kind: kind.chars().next().unwrap(), is_offered: !kind.ends_with('!') }
    };
    text.split_whitespace().map(of).collect()
}

/// Returns the text of a request that is refused before the command runs.
async fn refusal(gateway: &TestGateway, command: &str) -> String {
    // With a body, because a missing file is found first.
    let response = gateway.rpc(command).body("x").send().await.unwrap();
    assert_eq!(response.status(), 400, "{command}");
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn option_of_kubo_with_a_wrong_value_is_refused_by_name() {
    let gateway = TestGateway::start().await;
    for (command, of_command) in KUBO {
        for KuboOption { names, kind, .. } in options(of_command).into_iter().chain(options(GLOBAL)) {
            let wrong: &[&str] = match kind {
                'b' => &["maybe", "2", "yes"],
                'i' => &["", "many", "1.5", "2147483648", "08"],
                'I' => &["", "many", "9223372036854775808"],
                'u' => &["", "-1", "4294967296"],
                'U' => &["-1", "18446744073709551616"],
                _ => &[],
            };
            for (name, value) in names.iter().flat_map(|name| wrong.iter().map(move |value| (name, value))) {
                let text = refusal(&gateway, &format!("{command}?{name}={value}")).await;
                let given = if value.is_empty() { "empty value".to_owned() } else { format!("value {value:?}") };
                assert!(text.starts_with(&format!("could not convert {given} to type ")), "{command} {name}: {text}");
                assert!(text.ends_with(&format!("(for option \"-{}\")\n", names[0])), "{command} {name}: {text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_with_options_is_in_the_table() {
    let gateway = TestGateway::start().await;
    let (mut open, mut missing) = (vec![(String::new(), gateway.rpc_json("commands?flags=true").await)], Vec::new());
    while let Some((path, tree)) = open.pop() {
        let has_options = tree["Options"].as_array().is_some_and(|options| !options.is_empty());
        // The root has the global options, and `files` those of its commands.
        let is_listed = path.is_empty() || path == "files" || KUBO.iter().any(|(command, _)| *command == path);
        for below in tree["Subcommands"].as_array().unwrap() {
            let name = below["Name"].as_str().unwrap();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            open.push((path, below.clone()));
        }
        if has_options && !is_listed {
            missing.push(path);
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn option_of_kubo_given_twice_is_refused_under_any_name() {
    let gateway = TestGateway::start().await;
    for (command, of_command) in KUBO {
        for KuboOption { names, kind, is_offered } in options(of_command).into_iter().chain(options(GLOBAL)) {
            // A single text argument is already refused, and a list accepts several.
            if !is_offered && kind == 't' || kind == 'l' || names[0] == "timeout" || names[0] == "encoding" {
                continue;
            }
            let value = if matches!(kind, 'b') { "false" } else { "1" };
            let value = if names[0] == "cid-base" { "base32" } else { value };
            for second in &names {
                let text = refusal(&gateway, &format!("{command}?{}={value}&{second}={value}", names[0])).await;
                let expected = match *second == names[0] {
                    true => format!("expected key {second} to have only a single value, received [{value} {value}]\n"),
                    false => format!("options {:?} and {second:?} are the same: give one of them\n", names[0]),
                };
                assert_eq!(text, expected, "{command}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn option_not_offered_is_refused_with_its_remedy() {
    let gateway = TestGateway::start().await;
    for (command, of_command) in KUBO {
        for KuboOption { names, kind, .. } in options(of_command).into_iter().filter(|option| !option.is_offered) {
            let values = if kind == 'b' { ["true", "1", ""] } else { ["x", "", "/"] };
            for (name, value) in names.iter().flat_map(|name| values.map(|value| (name, value))) {
                let message =
                    rpc_refusal(gateway.rpc(&format!("{command}?{name}={value}")).body("x").send().await.unwrap())
                        .await;
                assert!(message.contains(&format!("{name:?} is not supported")), "{message}");
                assert!(message.split(": ").count() > 1, "a remedy: {message}");
            }
        }
    }
    assert_eq!(gateway.blocks().await, 0);
    gateway.add("nocopy=false&fscache=0&dereference-args=true&ignore=a&ignore=b&fast-provide-wait=true&r", "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_kubo_does_not_define_are_ignored() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("N=1&only_hash=true&x=y&x=z&Pin=false", "hello world").await;
    assert_eq!(cid, "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD");
    // As the Go client sends it, although the option does not exist.
    let directory = gateway.add_tree("", &[("d/x", "x")]).await;
    gateway.rpc_json(&format!("ls?arg={directory}&resolve-size=true&stream=true")).await;
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}&O=5")).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_under_short_names_does_as_under_long_ones() {
    let gateway = TestGateway::start().await;
    let content = bytes(1_000_000);
    for (short, long) in [
        ("n=1", "only-hash=true"),
        ("n", "only-hash"),
        ("n=1&w=1", "only-hash=true&wrap-with-directory=true"),
        ("n=1&s=size-65536", "only-hash=true&chunker=size-65536"),
        ("n=1&t=TRUE", "only-hash=true&trickle=true"),
        ("n=1&t=0&w=F&s=", "only-hash=true"),
        ("n=1&cid-version=0x1", "only-hash=true&cid-version=1"),
        ("n=1&cid-version=-1&raw-leaves=false", "only-hash=true"),
    ] {
        assert_eq!(gateway.add(short, content.clone()).await, gateway.add(long, content.clone()).await, "{short}");
    }
    assert_eq!(gateway.blocks().await, 0, "nothing was stored");
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"], json!({}));
    let lines = gateway.add_form("n=1&p=1", Form::new().file("f", "x")).await;
    assert!(lines.iter().any(|line| line["Bytes"] == 1), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_and_get_read_their_short_options() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    for (query, expected) in
        [("o=6", "world"), ("l=5", "hello"), ("o=5&l=3", " wo"), ("o=0x6&length=010", "world"), ("offset=11", "")]
    {
        assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}&{query}")).await, expected, "{query}");
    }
    for wrong in ["offset=99999999999999999999", "o=", "o=1&offset=1"] {
        refusal(&gateway, &format!("cat?arg={cid}&{wrong}")).await;
    }
    let long = gateway.rpc_bytes(&format!("get?arg={cid}&archive=true&compress=true&compression-level=9")).await;
    assert_eq!(gateway.rpc_bytes(&format!("get?arg={cid}&a=1&C=1&l=9&o=out")).await, long);
    assert!(long.starts_with(&[0x1f, 0x8b]), "gzip");
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_and_lists_read_their_short_options() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("pin=false", bytes(600_000)).await;
    gateway.rpc_json(&format!("pin/add?arg={cid}&r=false&n=a%20name")).await;
    let pins = gateway.rpc_json("pin/ls?t=direct&n=a%20n").await;
    assert_eq!(pins["Keys"], json!({ &cid: {"Type": "direct", "Name": "a name"} }));
    assert_eq!(gateway.rpc_json("pin/ls?t=recursive").await["Keys"], json!({}));
    let lines = ndjson(gateway.rpc("pin/ls?s=1&names=1").send().await.unwrap()).await;
    assert_eq!(lines, [json!({"Cid": cid, "Name": "a name", "Type": "direct"})]);
    gateway.rpc_json(&format!("pin/rm?arg={cid}&r=0")).await;
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"], json!({}));
    let lines = ndjson(gateway.rpc(&format!("ls?arg={cid}&s=1&v=1&l=1")).send().await.unwrap()).await;
    assert_eq!(lines.len(), 3, "a line for each link");
    let short = gateway.rpc_json("repo/stat?s=1").await;
    assert_eq!(short["NumObjects"], 0, "{short}");
    let removed = ndjson(gateway.rpc(&format!("block/rm?arg={cid}&q=1&f=1")).send().await.unwrap()).await;
    assert_eq!(removed, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_names_read_their_short_options() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "content").await;
    let key = gateway.rpc_json("key/gen?arg=site&t=rsa&s=2048").await;
    let published = gateway.rpc_json(&format!("name/publish?arg={cid}&k=site&t=2h&Q=1&allow-offline=true")).await;
    assert_eq!(published["Name"], key["Id"], "not under the node's own name");
    let own = gateway.rpc_json("key/ls?l=1").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
    rpc_failure(gateway.rpc(&format!("name/get?arg={own}")).send().await.unwrap()).await;
    let name = key["Id"].as_str().unwrap();
    let resolved = gateway.rpc_json(&format!("name/resolve?arg={name}&r=0&n=1&dhtrc=16&dhtt=1m0s")).await;
    assert_eq!(resolved["Path"], format!("/ipfs/{cid}"));
    let resolved = gateway.rpc_json(&format!("resolve?arg=/ipns/{name}&r=false")).await;
    assert_eq!(resolved["Path"], format!("/ipfs/{cid}"));
    let sign = |query: &'static str| gateway.post_form(query, Form::new().file("", "message"));
    let signed: Value = sign("key/sign?k=site").await.json().await.unwrap();
    assert_eq!(signed["Key"]["Name"], "site");
    let signature = signed["Signature"].as_str().unwrap();
    let verify = format!("key/verify?k=site&s={signature}");
    let verified = gateway.post_form(&verify, Form::new().file("", "message")).await;
    assert_eq!(verified.json::<Value>().await.unwrap()["SignatureValid"], true);
    gateway.rpc_json("key/gen?arg=other").await;
    let renamed = gateway.rpc_json("key/rename?arg=site&arg=other&f=1").await;
    assert_eq!(renamed["Overwrite"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_gen_takes_the_size_that_clients_in_go_send() {
    let gateway = TestGateway::start().await;
    for (name, query) in [("a", "type=ed25519&size=-1"), ("b", "type=secp256k1&size=-1"), ("c", "type=rsa&size=-1")] {
        assert_eq!(gateway.rpc_json(&format!("key/gen?arg={name}&{query}")).await["Name"], name);
    }
    for wrong in ["size=-2", "size=2147483648", "size=x", "size="] {
        refusal(&gateway, &format!("key/gen?arg=d&type=rsa&{wrong}")).await;
    }
    rpc_failure(gateway.rpc("key/gen?arg=d&type=rsa&size=0").send().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn id_is_written_as_peerid_base_asks() {
    let gateway = TestGateway::start().await;
    let plain = gateway.rpc_json("id").await["ID"].as_str().unwrap().to_owned();
    let keys = gateway.rpc_json("key/ls").await;
    let base36 = keys["Keys"][0]["Id"].as_str().unwrap();
    assert_eq!(gateway.rpc_json("id?peerid-base=base36").await["ID"], base36);
    // A base may be named by its prefix.
    for (prefix, base) in
        [("k", "base36"), ("b", "base32"), ("B", "base32upper"), ("F", "base16upper"), ("z", "base58btc")]
    {
        let id = gateway.rpc_json(&format!("id?peerid-base={base}")).await["ID"].take();
        assert!(id.as_str().unwrap().starts_with(prefix), "{id}");
        assert_eq!(gateway.rpc_json(&format!("id?peerid-base={prefix}")).await["ID"], id);
        assert_eq!(gateway.rpc_json(&format!("key/ls?ipns-base={prefix}")).await["Keys"][0]["Id"], id);
    }
    assert_eq!(gateway.rpc_json("id?peerid-base=b58mh&f=x").await["ID"], *plain);
    assert_eq!(gateway.rpc_json(&format!("id?arg={base36}")).await["ID"], *plain);
    rpc_failure(gateway.rpc("id?peerid-base=base7").send().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_ids_of_version_0_are_upgraded_as_asked() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    let of_version_1 = |base: &str| format!("cid-version=1&raw-leaves=false&cid-base={base}");
    let in_base32 = gateway.add(&of_version_1("base32"), "hello world").await;
    let in_base58 = gateway.add(&of_version_1("base58btc"), "hello world").await;
    for (query, expected) in [
        ("upgrade-cidv0-in-output=true", &in_base32),
        ("upgrade-cidv0-in-output", &in_base32),
        ("upgrade-cidv0-in-output=true&cid-base=base58btc", &in_base58),
        ("upgrade-cidv0-in-output=false&cid-base=base32", &cid),
        ("upgrade-cidv0-in-output=false&cid-base=", &cid),
    ] {
        let stat = gateway.rpc_json(&format!("block/stat?arg={cid}&{query}")).await;
        assert_eq!(stat["Key"], **expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn block_put_takes_format_and_codec_as_kubo_does() {
    let gateway = TestGateway::start().await;
    let v0 = gateway.put_block("format=v0", "\n\u{2}\u{8}\u{1}").await;
    assert!(v0.starts_with("Qm"), "{v0}");
    // Kubo's command line also sends the default of cid-codec.
    assert_eq!(gateway.put_block("format=v0&cid-codec=raw&mhlen=-1&pin=false", "\n\u{2}\u{8}\u{1}").await, v0);
    assert_eq!(gateway.put_block("f=v0&cid-codec=&mhtype=sha2-256&mhlen=32", "\n\u{2}\u{8}\u{1}").await, v0);
    for (query, same) in [
        ("format=cbor&cid-codec=raw", "cid-codec=dag-cbor"),
        ("format=protobuf", "cid-codec=dag-pb"),
        ("f=raw", ""),
        ("format=&cid-codec=dag-pb", "cid-codec=dag-pb"),
    ] {
        assert_eq!(gateway.put_block(query, "\u{a0}").await, gateway.put_block(same, "\u{a0}").await, "{query}");
    }
    for wrong in ["format=v0&cid-codec=dag-pb", "f=v0&cid-codec=dag-cbor", "format=v0&mhtype=sha2-512"] {
        rpc_failure(gateway.post_form(&format!("block/put?{wrong}"), Form::new().file("x", "x")).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_directories_are_left_out_when_asked() {
    let gateway = TestGateway::start().await;
    let form = || Form::new().directory("d").directory("d/e").directory("d/f").directory("d/f/g").file("d/x", "x");
    let without = Form::new().directory("d").directory("d/f").file("d/x", "x");
    let expected = gateway.add_form("", without).await;
    for query in ["empty-dirs=false", "E=0", "E=f&pin=false"] {
        let lines = gateway.add_form(query, form()).await;
        assert_eq!(lines, expected, "{query}: f is there, as something came in it");
    }
    assert_ne!(gateway.add_form("empty-dirs=true", form()).await.last(), expected.last());
    // An empty directory at the top is kept. Within a wrapping directory it is not at the top.
    let empty = gateway.add_form("E=0", Form::new().directory("top")).await;
    assert_eq!(hash_of(&empty[0]), "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn");
    let wrapped = gateway.add_form("E=0&w=1", Form::new().directory("top").file("x", "x")).await;
    assert_eq!(wrapped.last(), gateway.add_form("w=1", Form::new().file("x", "x")).await.last());
    let rooted = gateway.add_form("E=0", Form::new().directory("").directory("top").file("x", "x")).await;
    assert_eq!(rooted.last(), wrapped.last());
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_client_in_go_give_the_content_ids_of_kubo() {
    let gateway = TestGateway::start().await;
    let sent = "encoding=json&stream-channels=true&hash=sha2-256&chunker=size-262144&cid-version=0&fscache=false&inline=false\
                &inline-limit=32&nocopy=false&only-hash=true&pin=false&silent=false&progress=false";
    for vector in content::vectors().files.iter().filter(|v| v.flags.is_empty() && v.profile == "unixfs-v0-2015") {
        if vector.size < 2_000_000 {
            let cid = gateway.add(sent, content::keystream(&vector.seed, vector.size)).await;
            assert_eq!(cid, vector.cid, "{}", vector.size);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_value_is_refused_where_kubo_refuses_it() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "x").await;
    for command in [
        "pin/ls?type=".to_owned(),
        "key/gen?arg=k&type=".to_owned(),
        "key/gen?arg=k&ipns-base=".to_owned(),
        format!("dag/get?arg={cid}&output-codec="),
        format!("name/publish?arg=/ipfs/{cid}&lifetime="),
    ] {
        let status = gateway.rpc(&command).send().await.unwrap().status();
        assert!(status.is_client_error() || status.is_server_error(), "{command}: {status}");
    }
    assert_eq!(gateway.rpc_json("key/list").await["Keys"].as_array().unwrap().len(), 1, "no key was made");
    gateway.add("chunker=&hash=&cid-base=", "y").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_contradict_each_other_are_refused() {
    let gateway = TestGateway::start().await;
    for options in ["pin=false&pin-name=x", "pin=false&pin-name=", "only-hash=true&pin-name=x"] {
        let response = gateway.post_form(&format!("add?{options}"), Form::new().file("a", "x")).await;
        assert!(response.status().is_server_error() || response.status().is_client_error(), "{options}");
    }
    let import = gateway.post_form("dag/import?local-only=true&pin-roots=true", Form::new().file("a", "x")).await;
    assert!(import.text().await.unwrap().contains("cannot be combined"));
    assert_eq!(gateway.blocks().await, 0);
}
