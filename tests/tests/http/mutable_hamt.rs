//! Directories of mutable files with many entries, also at the threshold of 256 KiB, from which they are sharded. All
//! content IDs are those of Kubo 0.44 for the same commands.

use crate::harness::{TestGateway, hash_of, rpc_failure};
use crate::multipart::Form;
use crate::mutable_files::run;
use crate::wire::exchange;

/// A directory that is sharded, and its content IDs after entries are removed.
struct Case {
    version: u8,
    entries: usize,
    root: &'static str,
    /// After the last entry is removed, after the last two, and so on. From the third one on it is not sharded.
    shorter: [&'static str; 4],
    /// Entries that are removed from the whole directory, one after the other.
    others: [(usize, &'static str); 3],
}

const CASES: [Case; 2] = [
    Case {
        version: 0,
        entries: 926,
        root: "QmVVYbRN9hqJsiQTSEMJtqKJRCgQS9pkLHjV2wmatGTtHh",
        shorter: [
            "QmPrQntMJxhFL1DAK8QP37UfpPyYiRRVgSpX9WJiqpYZU8",
            "Qmcx5EJuUSqLTjbCEXQEkPYcRD7iDZaNVdWLSGVCGFX8i3",
            "QmYYVgLnoxahjoTvpVUz8YRiHKDPFyL1KAEVoLeQd33hTW",
            "Qmask6rz79BtfZSEJPGYSRY71aqzXMUztpASNjgGUSzwnD",
        ],
        others: [
            (0, "QmbTQz9dsmb9C5jUbxZ7EvJNXJwfhV9VksHzmXVFAGggJx"),
            (463, "QmciNCykcRSSETMksqQybWssC2R2PhUbY7J68MjwdvmkMR"),
            (308, "QmSFrv5spMkbBag7SYsnQGvkXhFkvoHhvPwQyjFVd41oCx"),
        ],
    },
    Case {
        version: 1,
        entries: 919,
        root: "bafybeigua46b4pp7mt55j66w2wcrcelaxgfjlkirmp25b2hbw5u75imogu",
        shorter: [
            "bafybeih6stl5yatmle2wwas53eyrspwfofrcohxqg6lmrfqwcpjj4qnmhe",
            "bafybeia2btwp663cdddvx7faz5nayx6ge5hcpkscfohxxuyh543iztk2dq",
            "bafybeialqctphxf5zhgm5stwog6kw7vb566kb5gj3qhkxzxowbqlto425m",
            "bafybeidunsjscslmizuocdjwuxzxzge4lblmphd6vg7537n3nwaeksqsee",
        ],
        others: [
            (0, "bafybeif6srye7z27cxfc5yjfygvx6bngcofrymmxbfvcmck6remynrppni"),
            (459, "bafybeig3kcnxx5mpd5umyb7tedyprqpjdlvqkzu2pxc6mh2fc4sbkm2xjy"),
            (306, "bafybeiebnyrn5fx2wxwqbtlcku5562ds3tstpjdllojsdzweow6jitilra"),
        ],
    },
];

/// Returns the name of an entry: 250 bytes, so that fewer than a thousand entries exceed the threshold.
fn name(number: usize) -> String {
    format!("{number:04}{}", "x".repeat(246))
}

async fn cid(gateway: &TestGateway) -> String {
    hash_of(&gateway.rpc_json("files/stat?arg=/h").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_is_sharded_and_restored_as_in_kubo() {
    for Case { version, entries, root, shorter, others } in CASES {
        let gateway = TestGateway::start().await;
        let form = (0..entries).fold(Form::new(), |form, number| form.file(format!("d/{}", name(number)), ""));
        let options = format!("pin=false&cid-version={version}&raw-leaves={}", version == 1);
        let added = gateway.add_form(&options, form).await;
        assert_eq!(hash_of(added.last().unwrap()), root);
        let leaf = hash_of(&added[0]);
        run(&gateway, &format!("cp?arg=/ipfs/{root}&arg=/h")).await;
        for (removed, expected) in shorter.iter().enumerate() {
            run(&gateway, &format!("rm?arg=/h/{}", name(entries - 1 - removed))).await;
            assert_eq!(cid(&gateway).await, *expected, "version {version}, {removed}");
            let size = gateway.rpc_json(&format!("block/stat?arg={expected}")).await["Size"].as_u64().unwrap();
            assert_eq!(size < 256 * 1024, removed < 2, "version {version}, {removed}: {size} bytes");
        }
        for (number, expected) in (entries - 4..).zip(shorter[..3].iter().rev().chain([&root])) {
            run(&gateway, &format!("cp?arg=/ipfs/{leaf}&arg=/h/{}", name(number))).await;
            assert_eq!(cid(&gateway).await, *expected, "version {version}, {number}");
        }
        for (number, expected) in others {
            run(&gateway, &format!("rm?arg=/h/{}", name(number))).await;
            assert_eq!(cid(&gateway).await, expected, "version {version}, {number}");
        }
        let unlink = format!("object/patch/rm-link?arg={root}&arg={}", name(0));
        let text = "cannot remove links from a HAMTShard at the dag-pb level (would corrupt the HAMT bitfield); use \
                    'ipfs files rm' instead, or pass --allow-non-unixfs to override";
        assert_eq!(rpc_failure(gateway.rpc(&unlink).send().await.unwrap()).await, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_more_entries_than_a_page_is_complete() {
    let gateway = TestGateway::start().await;
    // The handler reads the first 1,024 entries before it responds.
    let form = (0..2_500).fold(Form::new(), |form, number| form.file(format!("d/{number:04}"), ""));
    let root = hash_of(gateway.add_form("pin=false", form).await.last().unwrap());
    run(&gateway, &format!("cp?arg=/ipfs/{root}&arg=/h")).await;
    let listed = gateway.rpc_json("files/ls?arg=/h").await;
    let names: Vec<_> =
        listed["Entries"].as_array().unwrap().iter().map(|entry| entry["Name"].as_str().unwrap()).collect();
    assert_eq!(names, (0..2_500).map(|number| format!("{number:04}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_list_begins_before_its_last_entries_are_read() {
    let gateway = TestGateway::start().await;
    let form = (0..2_500).fold(Form::new(), |form, number| form.file(format!("d/{number:04}"), number.to_string()));
    let added = gateway.add_form("pin=false", form).await;
    let last = hash_of(added.iter().find(|line| line["Name"] == "d/2499").unwrap());
    assert_eq!(gateway.rpc(&format!("block/rm?arg={last}")).send().await.unwrap().status(), 200);
    run(&gateway, &format!("cp?arg=/ipfs/{}&arg=/h", hash_of(added.last().unwrap()))).await;
    let request = "POST /api/v0/files/ls?arg=/h&long=true HTTP/1.1\r\nTE: trailers\r\nContent-Length: 0";
    let answer = exchange(&gateway, request).await;
    assert_eq!((answer.status, answer.text().matches("\"Name\":").count()), (200, 2_499));
    assert!(answer.trailer("x-stream-error").contains(&last), "{:?}", answer.trailers);
}
