//! DNSLink resolution: the choice of resolvers, the parsing of records, and caching.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use ipfrs_core::ErrorKind;
use ipfrs_node::{Answers, DnsConfig, Link, NameRoot, Node, NodeConfig, StoreConfig};
use ipfrs_store::Engine;
use prometheus::{Encoder, Registry, TextEncoder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::dns_server::{DnsServer, Reply};

const TARGET: &str = "/ipfs/bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";

struct Resolving {
    node: Node,
    registry: Registry,
    _repo: TempDir,
}

impl Resolving {
    async fn with(dns: Value, links: &[(&str, &str)]) -> Self {
        let repo = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let dns: DnsConfig = serde_json::from_value(dns).unwrap();
        let dnslink: BTreeMap<_, _> = links.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect();
        let config = NodeConfig { dns, dnslink, ..NodeConfig::default() };
        let store = StoreConfig { engine: Engine::Memory, ..StoreConfig::default() };
        let node = Node::builder(repo.path()).store(store).config(config).registry(&registry).open().await.unwrap();
        Self { node, registry, _repo: repo }
    }

    async fn through(server: &DnsServer) -> Self {
        Self::with(json!({ "resolvers": server.address.to_string() }), &[]).await
    }

    async fn link(&self, domain: &str) -> Option<(String, u64)> {
        let link = self.node.dnslink(domain).await.unwrap();
        link.map(|Link { target, ttl }| (target, ttl.as_secs()))
    }

    fn metric(&self, name: &str) -> u64 {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
    }
}

async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

fn found(ttl: u64) -> Option<(String, u64)> {
    Some((TARGET.to_owned(), ttl))
}

#[tokio::test]
async fn link_is_kept_for_the_ttl_of_its_record() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 300))]).await;
    let resolving = Resolving::through(&server).await;
    assert_eq!(resolving.link("Site.ORG.").await, found(300));
    assert_eq!(server.questions(), ["_dnslink.site.org"]);
    later(100).await;
    assert_eq!(resolving.link("site.org").await, found(200));
    assert!(server.questions().is_empty());
    server.tell("_dnslink.site.org", Reply::link("/ipns/other.org", 1));
    later(201).await;
    // TTLs that are too short are raised to five seconds.
    assert_eq!(resolving.link("site.org").await, Some(("/ipns/other.org".to_owned(), 5)));
    assert_eq!(server.questions().len(), 1);
    assert_eq!(resolving.metric("ipfrs_dnslink_lookups_total{outcome=\"found\"}"), 2);
    assert_eq!(resolving.metric("ipfrs_cache_hits_total{cache=\"dnslink\"}"), 1);
    assert_eq!(resolving.metric("ipfrs_cache_misses_total{cache=\"dnslink\"}"), 2);
}

#[tokio::test]
async fn new_answers_bypass_the_dnslink_cache() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 300))]).await;
    let resolving = Resolving::through(&server).await;
    let path = async |answers| resolving.node.content_path_as("/ipns/site.org/a", answers).await.unwrap().to_string();
    assert_eq!(path(Answers::New).await, format!("{TARGET}/a"));
    server.tell("_dnslink.site.org", Reply::link(&format!("{TARGET}/b"), 300));
    assert_eq!(path(Answers::Kept).await, format!("{TARGET}/a"));
    assert_eq!(path(Answers::New).await, format!("{TARGET}/b/a"));
    let name = NameRoot::Domain("site.org".to_owned());
    server.tell("_dnslink.site.org", Reply::link(TARGET, 300));
    assert_eq!(resolving.node.resolve_name_once(&name, Answers::New).await.unwrap(), TARGET.as_bytes());
    assert_eq!(path(Answers::Kept).await, format!("{TARGET}/a"), "others get the new answer as well");
}

#[tokio::test]
async fn dnslink_records_are_found_in_all_zone_layouts() {
    let long = format!("{TARGET}/{}", "directory/".repeat(40).trim_end_matches('/'));
    let text = format!("dnslink={long}");
    let strings: Vec<_> = text.as_bytes().chunks(255).map(|part| String::from_utf8(part.to_vec()).unwrap()).collect();
    let several = ["v=spf1 -all", "dnslink=/ipns/z.org", "dnslink=/ipns/a.org"].map(str::to_owned).to_vec();
    let server = DnsServer::start([
        ("_dnslink.long.org", Reply::Txt(strings, 60)),
        ("_dnslink.alias.org", Reply::Alias("_dnslink.hop.net", 100)),
        ("_dnslink.hop.net", Reply::Alias("link.host.net", 30)),
        ("link.host.net", Reply::link(TARGET, 60)),
        // The domain's own record is used if the record at `_dnslink` has no link, whatever other text it has.
        ("bare.org", Reply::link(TARGET, 60)),
        ("_dnslink.spf.org", Reply::Several(vec!["v=spf1 -all".to_owned()], 60)),
        ("spf.org", Reply::link(TARGET, 60)),
        ("_dnslink.both.org", Reply::link("/ipns/first.org", 60)),
        ("both.org", Reply::link(TARGET, 60)),
        ("_dnslink.several.org", Reply::Several(several, 60)),
        ("_dnslink.xn--bcher-kva.org", Reply::link(TARGET, 60)),
        ("_dnslink.empty.org", Reply::Empty),
    ])
    .await;
    let resolving = Resolving::through(&server).await;
    let leads = async |domain: &str| resolving.link(domain).await.map(|(target, _)| target);
    assert_eq!(leads("long.org").await, Some(long));
    assert_eq!(resolving.link("alias.org").await, found(30));
    assert_eq!(resolving.link("bare.org").await, found(60));
    assert_eq!(resolving.link("spf.org").await, found(60));
    assert_eq!(leads("both.org").await.as_deref(), Some("/ipns/first.org"));
    assert_eq!(leads("several.org").await.as_deref(), Some("/ipns/a.org"));
    assert_eq!(resolving.link("bücher.org").await, found(60));
    assert_eq!(leads("empty.org").await, None);
}

#[tokio::test]
async fn truncated_dns_answer_is_retried_over_tcp() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    server.truncate();
    assert_eq!(Resolving::through(&server).await.link("site.org").await, found(60));
    assert_eq!(server.questions().len(), 2);
}

#[tokio::test]
async fn absent_dnslink_is_cached_for_soa_ttl_within_limits() {
    let absent = |name, ttl| (name, Reply::Absent(ttl));
    let server = DnsServer::start([
        absent("_dnslink.short.org", 50),
        absent("short.org", 60),
        absent("_dnslink.long.org", 1_000_000),
        absent("long.org", 1_000_000),
    ])
    .await;
    let resolving = Resolving::through(&server).await;
    for (domain, seconds) in [("short.org", 50), ("long.org", 300)] {
        assert_eq!(resolving.link(domain).await, None);
        assert_eq!(server.questions(), [format!("_dnslink.{domain}"), domain.to_owned()]);
        later(seconds - 1).await;
        assert_eq!(resolving.link(domain).await, None);
        assert!(server.questions().is_empty());
        later(2).await;
        assert_eq!(resolving.link(domain).await, None);
        assert_eq!(server.questions().len(), 2);
    }
    assert_eq!(resolving.metric("ipfrs_dnslink_lookups_total{outcome=\"none\"}"), 4);
}

#[tokio::test]
async fn dnslink_failures_are_cached_briefly() {
    let own = Reply::link("/ipns/never.org", 60);
    let server = DnsServer::start([("_dnslink.site.org", Reply::Failure), ("site.org", own)]).await;
    let resolving = Resolving::through(&server).await;
    let error = resolving.node.dnslink("site.org").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("site.org") && error.message().contains(&server.address.to_string()), "{error}");
    let asked = server.questions();
    assert!(asked.iter().all(|name| name == "_dnslink.site.org"), "{asked:?}");
    // An immediate second lookup returns the same error.
    assert_eq!(resolving.node.dnslink("site.org").await.unwrap_err().message(), error.message());
    assert!(server.questions().is_empty());
    server.tell("_dnslink.site.org", Reply::link(TARGET, 60));
    later(4).await;
    assert_eq!(resolving.link("site.org").await, found(60));

    server.tell("_dnslink.slow.org", Reply::Silence);
    tokio::time::pause();
    let error = resolving.node.dnslink("slow.org").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.message().contains("slow.org"), "{error}");
    assert_eq!(resolving.metric("ipfrs_dnslink_lookups_total{outcome=\"failed\"}"), 1);
    assert_eq!(resolving.metric("ipfrs_dnslink_lookups_total{outcome=\"timeout\"}"), 1);
}

#[tokio::test]
async fn resolvers_are_queried_in_order_and_by_suffix() {
    let broken = DnsServer::start([("_dnslink.site.org", Reply::Failure)]).await;
    let general = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let special = DnsServer::start([
        ("_dnslink.site.test", Reply::link("/ipns/special.org", 60)),
        ("_dnslink.deep.site.test", Reply::link("/ipns/special.org", 60)),
    ])
    .await;
    let text = |server: &DnsServer| server.address.to_string();
    let dns = json!({
        "resolvers": [text(&broken), text(&general)],
        "suffix_resolvers": { "test.": text(&special), "org.test": text(&broken) },
    });
    let resolving = Resolving::with(dns, &[]).await;
    assert_eq!(resolving.link("site.org").await, found(60));
    for domain in ["site.test", "deep.site.test"] {
        assert_eq!(resolving.link(domain).await, Some(("/ipns/special.org".to_owned(), 60)));
    }
    // Any valid reply is final: the next resolver is not queried.
    assert_eq!(resolving.link("nothing.org").await, None);
    assert_eq!(general.questions(), ["_dnslink.site.org"]);
    assert_eq!(special.questions().len(), 2);
}

#[tokio::test]
async fn concurrent_lookups_of_one_domain_are_joined() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let resolving = Resolving::through(&server).await;
    let held = server.hold();
    let lookups = join_all((0..50).map(|_| resolving.link("site.org")));
    let release = async {
        server.asked().await;
        server.release(&held);
    };
    let (links, ()) = tokio::join!(lookups, release);
    assert!(links.iter().all(|link| *link == found(60)));
    assert_eq!(server.questions().len(), 1);
}

#[tokio::test]
async fn concurrent_lookups_are_joined_without_caching() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 0))]).await;
    let dns = json!({ "resolvers": server.address.to_string(), "min_ttl_seconds": 0 });
    let resolving = Resolving::with(dns, &[]).await;
    let held = server.hold();
    let lookups = join_all((0..50).map(|_| resolving.link("site.org")));
    let release = async {
        server.asked().await;
        server.release(&held);
    };
    let (links, ()) = tokio::join!(lookups, release);
    assert!(links.iter().all(|link| *link == found(0)));
    assert_eq!(server.questions().len(), 1);
    assert_eq!(resolving.link("site.org").await, found(0));
    assert_eq!(server.questions().len(), 1, "whoever comes later asks");
}

#[tokio::test]
async fn cancelled_lookup_is_continued_for_other_clients() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let resolving = Resolving::through(&server).await;
    let held = server.hold();
    {
        let mut first = std::pin::pin!(resolving.link("site.org"));
        tokio::select! {
            _ = &mut first => panic!("it has no answer"),
            () = server.asked() => {}
        }
    }
    server.release(&held);
    assert_eq!(resolving.link("site.org").await, found(60));
}

#[tokio::test]
async fn lookups_beyond_the_limit_wait() {
    let link = Reply::link(TARGET, 60);
    let server = DnsServer::start([("_dnslink.a.org", link.clone()), ("_dnslink.b.org", link)]).await;
    let dns = json!({ "resolvers": server.address.to_string(), "max_lookups": 1 });
    let resolving = Resolving::with(dns, &[]).await;
    let held = server.hold();
    let release = async {
        server.asked().await;
        let asked = server.questions();
        server.release(&held);
        asked
    };
    let (a, b, asked) = tokio::join!(resolving.link("a.org"), resolving.link("b.org"), release);
    assert_eq!((a, b), (found(60), found(60)));
    assert_eq!(asked, ["_dnslink.a.org"]);
    assert_eq!(server.questions(), ["_dnslink.b.org"]);
}

#[tokio::test]
async fn single_resolver_gets_the_whole_lookup_timeout() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let resolving =
        Resolving::with(json!({ "resolvers": server.address.to_string(), "timeout_seconds": 10 }), &[]).await;
    let held = server.hold();
    let late = async {
        server.asked().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(9_500)).await;
        tokio::time::resume();
        server.release(&held);
    };
    let (link, ()) = tokio::join!(resolving.link("site.org"), late);
    assert_eq!(link, found(60));
}

#[tokio::test]
async fn lookup_timeout_in_permit_wait_names_max_lookups() {
    let server = DnsServer::start([("_dnslink.a.org", Reply::Silence), ("_dnslink.b.org", Reply::Silence)]).await;
    let dns = json!({ "resolvers": server.address.to_string(), "max_lookups": 1 });
    let resolving = Resolving::with(dns, &[]).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(resolving.node.dnslink("a.org"), resolving.node.dnslink("b.org"));
    assert!(begun.elapsed() < Duration::from_secs(6), "the wait is a part of the lookup's time");
    let (first, second) = (first.unwrap_err(), second.unwrap_err());
    assert_eq!(first.kind(), ErrorKind::Timeout, "{first}");
    assert_eq!(second.kind(), ErrorKind::Unavailable, "{second}");
    assert!(second.message().contains("dns.max_lookups = 1"), "{second}");
    assert!(!second.message().contains(&server.address.to_string()), "{second}");
    // The failure is not cached, so the next request queries again.
    tokio::time::resume();
    server.tell("_dnslink.b.org", Reply::link(TARGET, 60));
    assert_eq!(resolving.link("b.org").await, found(60));
}

#[tokio::test]
async fn expired_link_is_served_while_no_resolver_answers() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let dns = json!({ "resolvers": server.address.to_string(), "max_stale_seconds": 1_000 });
    let resolving = Resolving::with(dns, &[]).await;
    assert_eq!(resolving.link("site.org").await, found(60));
    server.tell("_dnslink.site.org", Reply::Failure);
    later(61).await;
    server.questions();
    assert_eq!(resolving.link("site.org").await, found(30));
    assert!(!server.questions().is_empty());
    assert_eq!(resolving.link("site.org").await, found(30));
    assert!(server.questions().is_empty(), "resolvers that fail are asked every 30 seconds");
    // A request for a new link fails, and the old link stays available to others.
    let name = NameRoot::Domain("site.org".to_owned());
    resolving.node.resolve_name_once(&name, Answers::New).await.unwrap_err();
    assert_eq!(resolving.link("site.org").await, found(30));
    later(31).await;
    assert_eq!(resolving.link("site.org").await, found(30));
    later(1_000).await;
    assert_eq!(resolving.node.dnslink("site.org").await.unwrap_err().kind(), ErrorKind::Unavailable);
    server.tell("_dnslink.site.org", Reply::link("/ipns/new.org", 60));
    later(31).await;
    assert_eq!(resolving.link("site.org").await, Some(("/ipns/new.org".to_owned(), 60)));
    // A zone may withdraw its link.
    server.tell("_dnslink.site.org", Reply::Absent(60));
    later(61).await;
    assert_eq!(resolving.link("site.org").await, None);
}

#[tokio::test]
async fn expired_link_is_not_served_by_default() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let dns = json!({ "resolvers": server.address.to_string() });
    let resolving = Resolving::with(dns, &[]).await;
    assert_eq!(resolving.link("site.org").await, found(60));
    server.tell("_dnslink.site.org", Reply::Failure);
    later(61).await;
    assert_eq!(resolving.node.dnslink("site.org").await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn local_and_configured_names_need_no_dns_query() {
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let links = [("site.org", "/ipns/configured.org/"), ("localhost", TARGET), ("Bücher.test", TARGET)];
    let resolving = Resolving::with(json!({ "resolvers": server.address.to_string() }), &links).await;
    assert_eq!(resolving.link("SITE.org").await, Some(("/ipns/configured.org".to_owned(), 60)));
    assert_eq!(resolving.link("localhost").await, found(60));
    assert_eq!(resolving.link("xn--bcher-kva.test").await, found(60));
    for domain in ["127.0.0.1", "[::1]", "::1", "printer", "nas.local", "a.localhost", "x.test", "x.invalid", "1.2"] {
        assert_eq!(resolving.link(domain).await, None, "{domain}");
    }
    for domain in ["", "a..b", "a b.org", "a.org:80", "-\u{0}.org"] {
        assert_eq!(resolving.node.dnslink(domain).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{domain}");
    }
    let silent = Resolving::with(json!({ "resolvers": server.address.to_string(), "enabled": false }), &links).await;
    assert_eq!(silent.link("other.org").await, None);
    assert_eq!(silent.link("localhost").await, found(60));
    assert!(server.questions().is_empty());
}

#[tokio::test]
async fn dns_queries_over_https_follow_rfc_8484() {
    let server = DnsServer::start([
        ("_dnslink.site.org", Reply::link(TARGET, 300)),
        ("_dnslink.alias.org", Reply::Alias("_dnslink.site.org", 100)),
        ("_dnslink.broken.org", Reply::Failure),
    ])
    .await;
    let url = format!("http://{}/dns-query", server.http);
    let resolving = Resolving::with(json!({ "resolvers": url }), &[]).await;
    assert_eq!(resolving.link("site.org").await, found(300));
    assert_eq!(resolving.link("alias.org").await, found(100));
    assert_eq!(resolving.link("absent.org").await, None);
    later(59).await;
    server.questions();
    assert_eq!(resolving.link("absent.org").await, None);
    assert!(server.questions().is_empty());
    let failure = async |domain: &str| {
        let error = resolving.node.dnslink(domain).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let shown = url.rsplit_once('/').unwrap().0;
        assert!(error.message().contains(shown) && error.message().contains(domain), "{error}");
        assert!(!error.message().contains(&url), "the path may be a secret: {error}");
        error.message().to_owned()
    };
    assert!(failure("broken.org").await.to_lowercase().contains("server failure"));
    server.http_head("HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/dns-message\r\n");
    assert!(failure("a.org").await.contains("502"));
    server.http_head("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n");
    assert!(failure("b.org").await.contains("application/dns-message"));
    // The `Age` header of a cache on the path reduces the TTL.
    server.http_head("HTTP/1.1 200 OK\r\nContent-Type: application/dns-message\r\nAge: 60\r\n");
    later(300).await;
    assert_eq!(resolving.link("site.org").await, found(240));
}

#[tokio::test]
async fn unreachable_https_resolver_is_named_in_error() {
    // Without a listener, connections are refused, and no other test gets the port.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = unused.local_addr().unwrap();
    let url = format!("https://{nobody}/dns-query");
    let server = DnsServer::start([("_dnslink.site.org", Reply::link(TARGET, 60))]).await;
    let resolving = Resolving::with(json!({ "resolvers": url }), &[]).await;
    let error = resolving.node.dnslink("site.org").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let shown = format!("https://{nobody}");
    assert!(error.message().contains(&shown) && error.message().contains("refused"), "{error}");
    let resolving = Resolving::with(json!({ "resolvers": [url, server.address.to_string()] }), &[]).await;
    assert_eq!(resolving.link("site.org").await, found(60));
}
