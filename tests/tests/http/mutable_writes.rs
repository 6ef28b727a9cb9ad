//! Writes to mutable files that meet other changes or are cut off.

use futures::future::join_all;

use crate::harness::{TestGateway, rpc_failure};
use crate::mutable_files::{failure, pattern, run, write};

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_different_files_run_in_parallel() {
    let gateway = TestGateway::start().await;
    let writers = (0..10).map(|n| {
        let gateway = &gateway;
        async move { write(gateway, &format!("/dir/{n}&create=true&parents=true"), pattern(400_000, n)).await }
    });
    join_all(writers).await;
    for n in 0..10 {
        let content = gateway.rpc_bytes(&format!("files/read?arg=/dir/{n}")).await;
        assert_eq!(content, pattern(400_000, n), "{n}");
    }
    // Writers of one file are serialised, so each write is whole.
    let writers = (0..10_usize).map(|n| {
        let gateway = &gateway;
        async move { write(gateway, "/dir/0&truncate=true", vec![n as u8; 300_000]).await }
    });
    join_all(writers).await;
    let content = gateway.rpc_bytes("files/read?arg=/dir/0").await;
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
