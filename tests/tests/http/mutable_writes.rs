//! Writes to mutable files that meet other changes or are cut off.

use futures::future::join_all;

use crate::harness::{TestGateway, rpc_failure};
use crate::mutable_files::{failure, pattern, run, write};
use crate::wire::Wire;

/// Begins a write with a body of `len` bytes. The daemon sends `100 Continue` when the operation reads the body, which
/// it does with the lock of the file.
async fn begin(gateway: &TestGateway, arguments: &str, len: usize) -> Wire {
    let mut writer = Wire::connect(gateway).await;
    let head = format!(
        "POST /api/v0/files/write?arg={arguments} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {len}\r\n\r\n"
    );
    writer.send(head).await;
    writer
}

async fn entered(writer: &mut Wire) {
    assert_eq!(writer.take(25).await, b"HTTP/1.1 100 Continue\r\n\r\n");
}

async fn written(writer: &mut Wire) {
    let answer = writer.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_different_files_run_in_parallel() {
    let gateway = TestGateway::start().await;
    let before = gateway.metric("ipfrs_upload_bytes_total").await;
    let contents: Vec<_> = (0..10).map(|n| pattern(400_000, n)).collect();
    let mut writers = Vec::new();
    for (n, content) in contents.iter().enumerate() {
        writers.push(begin(&gateway, &format!("/dir/{n}&create=true&parents=true"), content.len()).await);
    }
    for (writer, content) in writers.iter_mut().zip(&contents) {
        entered(writer).await;
        writer.send(&content[..200_000]).await;
    }
    // Each has written its first half before one gets the second.
    gateway.until_metric("ipfrs_upload_bytes_total", |bytes| bytes == before + 2_000_000).await;
    for (writer, content) in writers.iter_mut().zip(&contents) {
        writer.send(&content[200_000..]).await;
        written(writer).await;
    }
    for (n, content) in contents.iter().enumerate() {
        assert_eq!(gateway.rpc_bytes(&format!("files/read?arg=/dir/{n}")).await, *content, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_file_are_serialised() {
    let gateway = TestGateway::start().await;
    let mut first = begin(&gateway, "/file&create=true", 10).await;
    entered(&mut first).await;
    let mut second = begin(&gateway, "/file&offset=5", 10).await;
    gateway.assert_metric("ipfrs_http_requests_active", 2).await;
    write(&gateway, "/other&create=true", "content").await;
    assert!(!second.has_received(), "the second writer waits for the first one");
    first.send("0123456789").await;
    written(&mut first).await;
    entered(&mut second).await;
    second.send("abcdefghij").await;
    written(&mut second).await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/file").await, "01234abcdefghij");
    // The result of many writers is that of a last one.
    let writers = (0..10_usize).map(|n| {
        let gateway = &gateway;
        async move { write(gateway, "/file&truncate=true", vec![n as u8; 300_000]).await }
    });
    join_all(writers).await;
    let content = gateway.rpc_bytes("files/read?arg=/file").await;
    assert_eq!(content.len(), 300_000);
    assert!(content.iter().all(|byte| *byte == content[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn write_fails_if_its_file_is_moved_or_removed_meanwhile() {
    for change in ["mv?arg=/a&arg=/b", "rm?arg=/a&recursive=true", "mv?arg=/a/f&arg=/a/g", "rm?arg=/a/f"] {
        let gateway = TestGateway::start().await;
        write(&gateway, "/a/f&create=true&parents=true", "old").await;
        let before = gateway.metric("ipfrs_upload_bytes_total").await;
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"data\"\r\n\r\n";
        let (sender, pieces) = futures::channel::mpsc::unbounded::<Result<String, std::io::Error>>();
        let request = gateway.rpc("files/write?arg=/a/f&truncate=true");
        let request = request.header("content-type", "multipart/form-data; boundary=b");
        let written = tokio::spawn(request.body(reqwest::Body::wrap_stream(pieces)).send());
        sender.unbounded_send(Ok(format!("{head}{}", "new ".repeat(1_000)))).unwrap();
        gateway.until_metric("ipfrs_upload_bytes_total", |bytes| bytes > before).await;
        run(&gateway, change).await;
        sender.unbounded_send(Ok("\r\n--b--\r\n".to_owned())).unwrap();
        drop(sender);
        let failure = rpc_failure(written.await.unwrap().unwrap()).await;
        assert!(failure.contains("was moved or removed while it was written"), "{change}: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_stores_the_blocks_that_it_changes() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("pin=false", pattern(10_000_000, 0)).await;
    run(&gateway, &format!("cp?arg=/ipfs/{file}&arg=/file")).await;
    let before = gateway.blocks().await;
    write(&gateway, "/file&offset=5000000", "x").await;
    assert_eq!(gateway.blocks().await, before + 3, "a leaf, the node above it and the directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_upload_leaves_the_file_as_it_was() {
    let gateway = TestGateway::start().await;
    write(&gateway, "/file&create=true", "content").await;
    let body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"data\"\r\n\r\ncut";
    for arguments in ["/file&truncate=true", "/other/file&create=true&parents=true"] {
        let request = gateway.rpc(&format!("files/write?arg={arguments}"));
        let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
        rpc_failure(request.send().await.unwrap()).await;
    }
    assert_eq!(gateway.rpc_bytes("files/read?arg=/file").await, "content");
    assert_eq!(failure(&gateway, "stat?arg=/other").await, "file does not exist");
}
