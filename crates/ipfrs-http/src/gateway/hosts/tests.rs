//! Which place of the gateway a host stands for.

use super::*;

/// Describes the place of a host in these test gateways.
fn place(host: &str) -> String {
    let mut config = GatewayConfig::default();
    for (name, subdomains) in [
        ("example.com", true),
        ("gw.example.com", true),
        ("*.wild.example", true),
        ("a.*.example", false),
        ("plain.example", false),
        ("[::1]", false),
    ] {
        config.hosts.insert(name.into(), HostConfig { subdomains, ..HostConfig::default() });
    }
    let uri = Uri::default();
    let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
    let Ok(request_host) = RequestHost::read(&uri, &headers, false, false) else { return "invalid".into() };
    match Hosts::new(&config, &[]).route(&request_host, "/") {
        Route::Daemon => "daemon".into(),
        Route::Gateway => "plain".into(),
        Route::Hosted(hosted_request) => match hosted_request.place {
            Place::Local => "local".into(),
            Place::Unknown => format!("unknown {}", hosted_request.name),
            Place::Gateway(_) => format!("gateway {}", hosted_request.host),
            Place::Root { namespace, id, gateway, .. } => format!("{id} in {} of {gateway}", namespace.as_str()),
            Place::Below(_) => format!("below {}", hosted_request.name),
        },
    }
}

#[test]
fn listeners_are_written_as_multiaddrs() {
    assert_eq!(tcp_multiaddr("127.0.0.1", 80), "/ip4/127.0.0.1/tcp/80");
    assert_eq!(tcp_multiaddr("[::1]", 80), "/ip6/::1/tcp/80");
    assert_eq!(tcp_multiaddr("localhost", 80), "/dns/localhost/tcp/80");
}

#[test]
fn longest_configured_host_wins_ignoring_case_and_port() {
    for (host, expected) in [
        ("example.com", "gateway example.com"),
        ("EXAMPLE.com.:8080", "gateway example.com:8080"),
        ("bafy.ipfs.example.com", "bafy in ipfs of example.com"),
        ("QmAb.IPFS.gw.Example.com:1", "QmAb in ipfs of gw.example.com:1"),
        ("en.wiki-on-ipfs.org.ipns.example.com", "en.wiki-on-ipfs.org in ipns of example.com"),
        ("one.wild.example", "gateway one.wild.example"),
        ("k51.ipns.one.wild.example", "k51 in ipns of one.wild.example"),
        ("a.b.example", "gateway a.b.example"),
        ("wild.example", "unknown wild.example"),
        ("x.example.com", "below x.example.com"),
        ("bafy.ipld.example.com", "below bafy.ipld.example.com"),
        ("ipfs.example.com", "below ipfs.example.com"),
        ("x.plain.example", "unknown x.plain.example"),
        ("notexample.com", "unknown notexample.com"),
        ("[::1]:80", "gateway [::1]:80"),
        ("[::2]", "daemon"),
        ("127.0.0.1:8080", "daemon"),
        ("localhost", "daemon"),
        ("", "daemon"),
        ("a b", "invalid"),
        ("[::1", "invalid"),
        ("[a.b", "invalid"),
        ("[::1]x", "invalid"),
        (".", "invalid"),
        (".ipfs.example.com", "invalid"),
        ("a..example.com", "invalid"),
        // A second trailing dot must not let a request bypass the configured host and reach the daemon.
        ("example.com..", "invalid"),
        ("example.com..:80", "invalid"),
        (&format!("{}example.com", "a.".repeat(121)), &format!("below {}example.com", "a.".repeat(121))),
        (&format!("{}example.com", "a.".repeat(122)), "invalid"),
    ] {
        assert_eq!(place(host), expected, "{host}");
    }
}
