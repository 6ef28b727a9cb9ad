//! `ListDirectory`: pagination.

use std::collections::BTreeSet;

use ipfrs_proto::file::v1::{DirectoryEntry, FileType, ListDirectoryRequest, ListDirectoryResponse};
use tonic::{Code, Status};

use super::assert_failed;
use super::files::file_client;
use crate::harness::{TestGateway, hash_of};
use crate::multipart::Form;

async fn page(gateway: &TestGateway, path: &str, size: u32, token: &str) -> Result<ListDirectoryResponse, Status> {
    let request = ListDirectoryRequest { path: path.to_owned(), page_size: size, page_token: token.to_owned() };
    Ok(file_client(gateway).list_directory(request).await?.into_inner())
}

/// Returns all pages of a directory.
async fn pages(gateway: &TestGateway, path: &str, size: u32) -> Vec<Vec<DirectoryEntry>> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let page = page(gateway, path, size, &token).await.unwrap();
        pages.push(page.entries);
        token = page.next_page_token;
        if token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn directory_pages_contain_each_entry_once() {
    let gateway = TestGateway::start().await;
    let names: BTreeSet<_> = (0..2_500).map(|number| format!("{number}.txt")).collect();
    for options in ["max-directory-links=100", ""] {
        let form = names.iter().fold(Form::new(), |form, name| form.file(format!("d/{name}"), name.as_str()));
        let root = hash_of(gateway.add_form(&format!("cid-version=1&{options}"), form).await.last().unwrap());
        for (size, lengths) in [(0, vec![1_000, 1_000, 500]), (999, vec![999, 999, 502]), (10_001, vec![2_500])] {
            let pages = pages(&gateway, &root, size).await;
            assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{options}");
            let entries: Vec<_> = pages.concat();
            let listed: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
            assert_eq!(listed, names, "{options}");
            assert!(entries.iter().all(|entry| entry.size == entry.name.len() as u64), "{options}");
        }
    }
}

#[tokio::test]
async fn directory_entries_have_known_types_and_sizes() {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("d/file", vec![1; 300_000]).file("d/raw", "raw").file("d/in/deep", "deep");
    let form = form.file("d/gone", vec![2; 300_000]).symlink("d/link", "file");
    let lines = gateway.add_form("cid-version=1&pin=false", form).await;
    let root = hash_of(lines.last().unwrap());
    let gone = hash_of(lines.iter().find(|line| line["Name"] == "d/gone").unwrap());
    assert_eq!(gateway.rpc(&format!("block/rm?arg={gone}")).send().await.unwrap().status(), 200);
    let mut entries = page(&gateway, &format!("/ipfs/{root}"), 0, "").await.unwrap().entries;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.r#type(), entry.size)).collect();
    let (link, gone_size) = (entries[3].size, entries[1].size);
    assert!(gone_size > 300_000, "what the link says of all below it");
    assert_eq!(
        found,
        [
            ("file", FileType::File, 300_000),
            ("gone", FileType::Unspecified, gone_size),
            ("in", FileType::Directory, 0),
            ("link", FileType::Symlink, link),
            ("raw", FileType::File, 3),
        ]
    );
}

#[tokio::test]
async fn page_token_of_another_directory_is_refused() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/a", "a"), ("d/b", "b"), ("d/in/c", "c"), ("d/in/e", "e")]).await;
    let token = page(&gateway, &root, 1, "").await.unwrap().next_page_token;
    let rest = page(&gateway, &root, 10, &token).await.unwrap();
    assert_eq!((rest.entries.len(), rest.next_page_token.as_str()), (2, ""));
    let beyond = token.replace(":1", ":9");
    for (path, token) in [(format!("{root}/in"), token.as_str()), (root.clone(), "what"), (root.clone(), &beyond)] {
        let refused = page(&gateway, &path, 1, token).await.unwrap_err();
        assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", Some("page_token"));
    }
    let refused = page(&gateway, &format!("{root}/a"), 1, "").await.unwrap_err();
    assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", Some("path"));
}
