//! Sources that do not deliver, or deliver something else than was asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::content::bytes;
use crate::harness::header;
use crate::retrieval::{CAR, Original, raw, retrieving, section};
use crate::source_server::{Handler, SourceServer, always, write_head};

/// Returns a handler that sends sections of a CAR again and again until the client leaves.
fn endless(first: Vec<Bytes>, repeated: impl Fn(u64) -> Bytes + Send + Sync + 'static) -> Handler {
    let repeated = Arc::new(repeated);
    Arc::new(move |_, mut connection| {
        let (first, repeated) = (first.concat(), Arc::clone(&repeated));
        Box::pin(async move {
            write_head(&mut connection, "200 OK", CAR).await;
            let mut sent = connection.write_all(&first).await;
            for number in 0.. {
                if sent.is_err() {
                    return;
                }
                sent = connection.write_all(&repeated(number)).await;
            }
        })
    })
}

/// Sources that do not deliver, or deliver something else, and what the report says about them.
fn hostile(original: &Original) -> Vec<(&'static str, Handler, &'static str)> {
    let sections = original.sections();
    let car = |sections: &[Bytes]| always("200 OK", CAR, sections.concat());
    let mut flipped = original.car.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let reordered: Vec<_> = sections[..1].iter().chain(sections[1..].iter().rev()).cloned().collect();
    let first = sections[..2].to_vec();
    let leaf = sections[2].clone();
    let foreign = endless(first.clone(), |number| section(&raw(&number.to_le_bytes())));
    let repeated = endless([&first[..], std::slice::from_ref(&leaf)].concat(), move |_| leaf.clone());
    let long = format!("{CAR}content-length: {}\r\n", original.car.len() + 1_000).leak();
    vec![
        ("a flipped bit", always("200 OK", CAR, flipped), "invalid"),
        ("a truncated CAR", always("200 OK", CAR, original.car.slice(..original.car.len() / 3)), "failed"),
        ("a reordered CAR", car(&reordered), "invalid"),
        ("an endless CAR of other blocks", foreign, "invalid"),
        ("an endless CAR of the same block", repeated, "unusable"),
        ("a CAR without blocks", car(&sections[..1]), "absent"),
        ("a false length", always("200 OK", long, original.car.slice(..2_000)), "failed"),
        ("garbage", always("200 OK", CAR, bytes(100_000)), "failed"),
        ("an endless header", endless(Vec::new(), |_| Bytes::from_static(&[0xff; 1024])), "failed"),
        ("a page", always("200 OK", "content-type: text/html\r\n", "<p>hello"), "absent"),
        ("a redirect", always("302 Found", "location: http://127.0.0.1:1/\r\n", ""), "failed"),
        ("an error", always("500 Internal Server Error", "", ""), "failed"),
        ("a busy server", always("429 Too Many Requests", "retry-after: 60\r\n", ""), "busy"),
        ("absence", always("404 Not Found", "", ""), "absent"),
        ("a response that ends at once", Arc::new(|_, _| Box::pin(async {})), "failed"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_sources_are_replaced_by_others() {
    let original = Original::start().await;
    for (what, handler, outcome) in hostile(&original) {
        let source = SourceServer::start(handler).await;
        let gateway = retrieving(&[source.url(), original.origin.url("")]).await;
        let served = gateway.content(&original.path()).await;
        assert!(served == original.content, "{what}");
        source.until_requests(1).await;
        // If the other source was faster, the attempt is cancelled before its fault shows.
        let attempts = |outcome| format!("ipfrs_retrieval_attempts_total{{outcome=\"{outcome}\",source=\"gateway\"}}");
        while gateway.metric(&attempts(outcome)).await + gateway.metric(&attempts("cancelled")).await == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_lists_what_was_tried_as_text_json_and_page() {
    let original = Original::start().await;
    let missing = raw(b"nobody has this").cid().to_string();
    for (what, handler, _) in hostile(&original) {
        let source = SourceServer::start(handler).await;
        // A report has the attempts of its request. Later ones do not ask a source that is excluded.
        let request = async |accept| {
            let gateway = retrieving(&[source.url()]).await;
            let request = gateway.request(Method::GET, &format!("/ipfs/{missing}")).header("accept", accept);
            (request.send().await.unwrap(), gateway)
        };
        let (response, _gateway) = request("*/*").await;
        let status = response.status().as_u16();
        assert!(matches!(status, 502 | 504), "{what}: {status}");
        assert_eq!(header(&response, "cache-control"), "no-store");
        let text = response.text().await.unwrap();
        assert!(text.contains(&source.url()) && text.contains(&missing), "{what}: {text}");
        let (response, _gateway) = request("application/json").await;
        assert_eq!(header(&response, "content-type"), "application/problem+json", "{what}");
        let report: Value = response.json().await.unwrap();
        let attempts = report["attempts"].as_array().unwrap();
        assert!(attempts.iter().any(|attempt| attempt["address"] == source.url()), "{report}");
        let (response, _gateway) = request("text/html").await;
        let page = response.text().await.unwrap();
        assert!(page.contains("What was tried") && page.contains(&source.url()), "{what}: {page}");
    }
}
