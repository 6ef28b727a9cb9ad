//! Clients of a gateway that retrieves: their shares, and what they learn about its sources.

use std::sync::Arc;

use futures::future::join_all;
use http::Method;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use serde_json::Value;

use crate::harness::TestGateway;
use crate::source_server::{SourceServer, always, write_head};

fn missing(number: u32) -> String {
    let data = number.to_le_bytes().to_vec().into();
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, data).unwrap().cid().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_client_leaves_sessions_to_others() {
    let origin = TestGateway::start().await;
    let cid = origin.add("raw-leaves=true", "for the modest one").await;
    let block = origin.content(&format!("/ipfs/{cid}?format=raw")).await;
    let wanted = cid.clone();
    let source = SourceServer::start(Arc::new(move |target, mut connection| {
        let block = target.contains(&wanted).then(|| block.clone());
        Box::pin(async move {
            let Some(block) = block else { return std::future::pending().await };
            write_head(&mut connection, "200 OK", "content-type: application/vnd.ipld.raw\r\n").await;
            tokio::io::AsyncWriteExt::write_all(&mut connection, &block).await.unwrap();
        })
    }))
    .await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![source.url()];
        config.retrieval.max_sessions = 8;
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
    })
    .await;
    let get = |client: &'static str, cid: &str| {
        gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("x-forwarded-for", client).send()
    };
    let greedy: Vec<_> = (0..4).map(|number| tokio::spawn(get("10.0.0.1", &missing(number)))).collect();
    gateway.until_metric("ipfrs_retrieval_sessions", |sessions| sessions == 4).await;
    for response in join_all((4..8).map(|number| get("10.0.0.1", &missing(number)))).await {
        let response = response.unwrap();
        assert_eq!(response.status(), 429);
        let text = response.text().await.unwrap();
        assert!(text.contains("this client") && text.contains("retrieval.max_sessions"), "{text}");
    }
    let response = get("10.0.0.2", &cid).await.unwrap();
    assert_eq!((response.status().as_u16(), &*response.text().await.unwrap()), (200, "for the modest one"));
    greedy.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_that_send_little_leave_memory_for_others() {
    let origin = TestGateway::start().await;
    let content = crate::content::bytes(600_000);
    let cid = origin.add("", content.clone()).await;
    let car = origin.content(&format!("/ipfs/{cid}?format=car")).await;
    let wanted = cid.clone();
    let source = SourceServer::start(Arc::new(move |target, mut connection| {
        let car = target.contains(&wanted).then(|| car.clone());
        Box::pin(async move {
            write_head(&mut connection, "200 OK", "content-type: application/vnd.ipld.car\r\n").await;
            match car {
                Some(car) => tokio::io::AsyncWriteExt::write_all(&mut connection, &car).await.unwrap(),
                None => std::future::pending().await,
            }
        })
    }))
    .await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![source.url()];
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
    })
    .await;
    let get = |client: &'static str, cid: String| {
        gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("x-forwarded-for", client).send()
    };
    // Without turns, they would take all of 128 places.
    let slow: Vec<_> = (0..200).map(|n| tokio::spawn(get("10.0.0.1", missing(n)))).collect();
    source.until_requests(200).await;
    let found = get("10.0.0.2", cid).await.unwrap().bytes().await.unwrap();
    crate::content::assert_same(&found, &content, "what was fetched");
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn router_that_hangs_delays_no_lookup_at_others() {
    let origin = TestGateway::start().await;
    let cid = origin.add("raw-leaves=true", "found").await;
    let hanging = SourceServer::start(Arc::new(|_, _| Box::pin(std::future::pending()))).await;
    let address = format!("/ip4/127.0.0.1/tcp/{}/http", origin.port());
    let record = serde_json::json!({"Schema": "peer", "ID": "12D3", "Addrs": [address]}).to_string();
    let good = SourceServer::start(always("200 OK", "content-type: application/x-ndjson\r\n", record)).await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.routers = vec![hanging.url(), good.url()];
        config.retrieval.allow_private_addresses = true;
    })
    .await;
    let get = |cid: String| gateway.request(Method::GET, &format!("/ipfs/{cid}")).send();
    let others: Vec<_> = (0..20).map(|n| tokio::spawn(get(missing(n)))).collect();
    hanging.until_requests(16).await;
    good.until_requests(20).await;
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, "found");
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_sends_one_request_after_the_other_is_never_over_its_share() {
    let origin = TestGateway::start().await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![origin.url("")];
        config.retrieval.max_sessions = 8;
    })
    .await;
    for number in 0..40 {
        // The files have one block and several blocks in turn.
        let content = crate::content::bytes(if number % 2 == 0 { 10 } else { 600_000 } + number);
        let cid = origin.add("", content.clone()).await;
        let found = gateway.content(&format!("/ipfs/{cid}")).await;
        crate::content::assert_same(&found, &content, "what was fetched");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_see_the_urls_of_sources() {
    let source = SourceServer::start(always("404 Not Found", "", "")).await;
    let url = format!("http://alice-17:secret-17@{}/path-with-key", source.address);
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![url];
        (config.api.enabled, config.api.port) = (true, Some(0));
    })
    .await;
    let secrets = ["alice-17", "secret-17", "path-with-key"];
    let path = format!("/ipfs/{}", missing(1));
    for accept in ["*/*", "application/json", "text/html"] {
        let response = gateway.request(Method::GET, &path).header("accept", accept).send().await.unwrap();
        let text = response.text().await.unwrap();
        assert!(text.contains(&source.url()) && !secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
    let route = format!("/v1/retrieve/{}", missing(2));
    let on_api = format!("http://{}{route}", gateway.gateway.api_addresses()[0]);
    for (url, address) in [(gateway.url(&route), source.url()), (on_api, format!("{}/path-with-key/", source.url()))] {
        let report: Value = reqwest::Client::new().post(url).send().await.unwrap().json().await.unwrap();
        assert_eq!(report["attempts"][0]["address"], address, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_does_not_wait_for_targets_that_hang() {
    let origin = TestGateway::start().await;
    let files = [("d/one", "1"), ("d/two", "2")];
    let cid = origin.add_tree("", &files).await;
    let car = origin.content(&format!("/ipfs/{cid}?format=car&dag-scope=entity")).await;
    let source = SourceServer::start(Arc::new(move |target, mut connection| {
        let car = target.contains("format=car").then(|| car.clone());
        Box::pin(async move {
            let Some(car) = car else { return std::future::pending().await };
            write_head(&mut connection, "200 OK", "content-type: application/vnd.ipld.car\r\n").await;
            tokio::io::AsyncWriteExt::write_all(&mut connection, &car).await.unwrap();
        })
    }))
    .await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![source.url()];
        // Longer than the test may take.
        (config.retrieval.timeout_seconds, config.gateway.retrieval_timeout_seconds) = (600, 600);
    })
    .await;
    let page = gateway.request(Method::GET, &format!("/ipfs/{cid}/")).header("accept", "text/html");
    let page = page.send().await.unwrap().text().await.unwrap();
    for name in ["one", "two"] {
        assert!(page.contains(&format!("/ipfs/{cid}/{name}")), "{page}");
    }
    assert!(page.contains("2 others"), "{page}");
}
