//! The API listener: the routes besides content, for programs and for pages of its origin.

use reqwest::{Method, Response};

use crate::harness::{TestGateway, header};

struct Api {
    gateway: TestGateway,
    url: String,
}

impl Api {
    async fn start(allowed_origins: &[&str]) -> Self {
        let allowed_origins = allowed_origins.iter().map(|origin| (*origin).to_owned()).collect();
        let gateway = TestGateway::start_with(|config| {
            (config.api.enabled, config.api.port) = (true, Some(0));
            config.api.allowed_origins = allowed_origins;
        })
        .await;
        let url = format!("http://{}", gateway.gateway.api_addresses()[0]);
        Self { gateway, url }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

#[tokio::test]
async fn api_listener_has_every_route_but_content() {
    let api = Api::start(&[]).await;
    let cid = api.gateway.add("", "hello").await;
    for (method, path) in [
        (Method::POST, "/api/v0/version".to_owned()),
        (Method::POST, format!("/api/v0/cat?arg={cid}")),
        (Method::GET, format!("/v1/stream/download/{cid}")),
        (Method::GET, "/health".to_owned()),
        (Method::GET, "/metrics".to_owned()),
        (Method::GET, "/debug/metrics/prometheus".to_owned()),
    ] {
        assert_eq!(api.send(method, &path, &[]).await.status(), 200, "{path}");
    }
    let gateway_port = api.gateway.gateway.addresses()[0].port();
    for path in [format!("/ipfs/{cid}?format=raw"), "/ipns/example.org/a%20b".to_owned(), "/".to_owned()] {
        let response = api.send(Method::GET, &path, &[]).await;
        let expected = format!("http://127.0.0.1:{gateway_port}{path}");
        assert_eq!((response.status().as_u16(), header(&response, "location")), (307, &*expected));
    }
    // A client that follows the redirect gets the content.
    assert_eq!(reqwest::get(format!("{}/ipfs/{cid}", api.url)).await.unwrap().text().await.unwrap(), "hello");
    let health: serde_json::Value = reqwest::get(format!("{}/health", api.url)).await.unwrap().json().await.unwrap();
    assert_eq!(health["api"][0], api.url.strip_prefix("http://").unwrap());
}

#[tokio::test]
async fn pages_on_the_main_port_redirect_to_the_api_listener() {
    let api = Api::start(&[]).await;
    let main = api.gateway.gateway.urls()[0].clone();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for page in ["/ui/", "/ui/style.css", "/docs/", "/ui/a%0d%0ab"] {
        let response = client.get(format!("{main}{page}")).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), header(&response, "location")),
            (307, &*format!("{}{page}", api.url.trim_start_matches("http:")))
        );
    }
    assert_eq!(reqwest::get(format!("{main}/ui")).await.unwrap().status(), 200);
    // The address of Kubo's console.
    for url in [format!("{main}/webui"), format!("{}/webui/", api.url)] {
        let page = reqwest::get(url).await.unwrap();
        assert_eq!((page.status().as_u16(), page.url().path()), (200, "/ui/"));
    }
    let without = TestGateway::start_with(|config| config.api.enabled = false).await;
    let response = without.request(Method::GET, "/ui/").send().await.unwrap();
    assert_eq!(response.status(), 404);
    assert!(response.text().await.unwrap().contains("api.enabled = true"));
}

#[tokio::test]
async fn configured_headers_are_on_all_responses_that_lack_them() {
    let gateway = TestGateway::start_with(|config| {
        (config.api.enabled, config.api.port) = (true, Some(0));
        let headers = [("Strict-Transport-Security", "max-age=60"), ("X-Frame-Options", "SAMEORIGIN")];
        config.api.http_headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    })
    .await;
    let url = format!("http://{}", gateway.gateway.api_addresses()[0]);
    let api = Api { gateway, url };
    for (method, path, host, frames) in [
        (Method::POST, "/api/v0/version", "localhost", "SAMEORIGIN"),
        (Method::GET, "/ipfs/bafkqaaa", "localhost", "SAMEORIGIN"),
        (Method::GET, "/nothing", "localhost", "SAMEORIGIN"),
        (Method::GET, "/metrics", "example.org", "SAMEORIGIN"),
        (Method::GET, "/ui/", "localhost", "DENY"),
    ] {
        let response = api.send(method, path, &[("host", host)]).await;
        assert_eq!(header(&response, "strict-transport-security"), "max-age=60", "{path}");
        assert_eq!(header(&response, "x-frame-options"), frames, "{path}");
    }
    let content = api.gateway.request(Method::GET, "/health").send().await.unwrap();
    assert_eq!(header(&content, "strict-transport-security"), "");
}

#[tokio::test]
async fn pages_of_the_api_may_call_it_and_others_may_not() {
    let api = Api::start(&["https://console.example.org"]).await;
    let (own, gateway) = (api.url.clone(), api.gateway.gateway.urls()[0].clone());
    let browser = [("user-agent", "Mozilla/5.0"), ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")];
    let from = |origin| [&browser[..], &[("origin", origin)]].concat();
    for path in ["/api/v0/version", "/v1/block/batch/has"] {
        let body = [("content-length", "0")];
        assert_ne!(api.send(Method::POST, path, &browser).await.status(), 403);
        let response = api.send(Method::POST, path, &[&from(&own)[..], &body].concat()).await;
        assert_ne!(response.status(), 403);
        assert_eq!(header(&response, "access-control-allow-origin"), own);
        let response = api.send(Method::POST, path, &from("https://console.example.org")).await;
        assert_ne!(response.status(), 403);
        assert_eq!(header(&response, "access-control-allow-origin"), "https://console.example.org");
        for foreign in [gateway.as_str(), "https://example.org", "null"] {
            let response = api.send(Method::POST, path, &from(foreign)).await;
            assert_eq!(response.status(), 403, "{foreign}");
            assert_eq!(header(&response, "access-control-allow-origin"), "");
        }
        let response = api.send(Method::POST, path, &[("host", "rebound.example.org:5001")]).await;
        assert_eq!((response.status().as_u16(), header(&response, "x-content-type-options")), (403, "nosniff"));
        assert!(response.text().await.unwrap().contains("[api] hosts"));
    }
    let asked = [("access-control-request-method", "POST"), ("access-control-request-headers", "x-own")];
    let preflight = [&from("https://console.example.org")[..], &asked].concat();
    let response = api.send(Method::OPTIONS, "/api/v0/add", &preflight).await;
    assert_eq!((response.status().as_u16(), header(&response, "access-control-allow-headers")), (204, "x-own"));
    // The main listener has its own rules.
    let response = api.gateway.request(Method::POST, "/api/v0/version").header("origin", &own).send().await.unwrap();
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn api_listener_is_optional_unless_its_port_is_configured() {
    let api = Api::start(&[]).await;
    let port = api.gateway.gateway.api_addresses()[0].port();
    let repo = tempfile::tempdir().unwrap();
    let mut config = ipfrs_interface::Config::default();
    config.server.port = 0;
    config.grpc.enabled = false;
    config.api.port = Some(port);
    let error = ipfrs_interface::Gateway::bind(&config, repo.path()).await.unwrap_err();
    assert!(error.message().contains("--api-port or [api] port"), "{error}");
    // If the default port is in use by another daemon or program, this one starts without it.
    config.api.port = None;
    let first = ipfrs_interface::Gateway::bind(&config, repo.path()).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let second = ipfrs_interface::Gateway::bind(&config, other.path()).await.unwrap();
    assert!(second.api_addresses().is_empty());
    drop((first, second));
}
