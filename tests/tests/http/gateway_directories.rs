//! Directories: redirects to them, their index pages and their listings.

use ipfrs_core::Base;
use reqwest::{Method, Url};

use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form;
use crate::wire::exchange;

/// Names with special characters of HTML, URLs or shells, and other unusual names.
const HOSTILE: [&str; 16] = [
    "<script>alert(1)<script>",
    "\"onmouseover=\"alert(1)",
    "'single' & &amp; ampersand",
    "question?mark=1",
    "hash#tag",
    "percent%41",
    "100%",
    "plus+plus",
    "semi;colon,comma",
    "back\\slash",
    "space at end ",
    "javascript:alert(1)",
    "ünï çödé 日本語 🦀",
    "line\nbreak",
    "...",
    ".hidden",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_its_slash_is_redirected_with_its_query() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/sub/x", "x"), ("d/tést/x", "x")]).await;
    for (path, location) in [
        ("", "/"),
        ("?", "/?"),
        ("?a=1&b=%20c", "/?a=1&b=%20c"),
        ("/sub", "/sub/"),
        ("/sub?filename=x", "/sub/?filename=x"),
        ("/t%C3%A9st", "/t%C3%A9st/"),
        ("/t%c3%a9st?q=%c3", "/t%C3%A9st/?q=%c3"),
        // Raw UTF-8, as curl sends it.
        ("/tést", "/t%C3%A9st/"),
        ("/tést?x=ü&filename=日", "/t%C3%A9st/?x=%C3%BC&filename=%E6%97%A5"),
    ] {
        let answer = exchange(&gateway, format!("GET /ipfs/{root}{path} HTTP/1.1")).await;
        assert_eq!(answer.status, 301, "{path}");
        assert_eq!(answer.header("vary"), "Accept", "a CAR of {path} is at the same place");
        // An empty query may be kept or dropped.
        let found = answer.header("location").trim_end_matches('?');
        assert_eq!(found, format!("/ipfs/{root}{}", location.trim_end_matches('?')), "{path}");
        let there = gateway.get(answer.header("location")).await;
        assert_eq!(there.status(), 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_html_is_served_for_its_directory() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/index.html", "<p>hello"), ("d/other", "x")]).await;
    let response = gateway.get(&format!("/ipfs/{root}/")).await;
    assert_eq!(header(&response, "content-type"), "text/html");
    assert_eq!(header(&response, "etag"), format!("\"{root}\""));
    assert_eq!(header(&response, "cache-control"), "public, max-age=29030400, immutable");
    assert_eq!(header(&response, "x-ipfs-path"), format!("/ipfs/{root}/"));
    assert_eq!(header(&response, "x-ipfs-roots"), root);
    assert_eq!(response.text().await.unwrap(), "<p>hello");
    assert_eq!(gateway.get(&format!("/ipfs/{root}")).await.status(), 301);
    // The Go tool follows no redirect.
    assert_eq!(&*gateway.content(&format!("/ipfs/{root}?go-get=1")).await, b"<p>hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_whose_index_is_no_file_has_no_listing() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/index.html/x", "x")]).await;
    let response = gateway.get(&format!("/ipfs/{root}/")).await;
    assert_eq!(response.status(), 422);
    assert!(response.text().await.unwrap().contains("index.html could not be read: not a file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_headers_allow_short_caching() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/sub/a.txt", "hello world"), ("d/sub/b", "")]).await;
    let response = gateway.get(&format!("/ipfs/{root}/sub/")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "content-type"), "text/html; charset=utf-8");
    assert_eq!(header(&response, "cache-control"), "public, max-age=604800, stale-while-revalidate=2678400");
    assert_eq!(header(&response, "x-ipfs-path"), format!("/ipfs/{root}/sub/"));
    assert_eq!(header(&response, "x-ipfs-roots").split(',').count(), 2);
    let page = response.text().await.unwrap();
    assert!(page.contains("Index of"));
    assert!(page.contains("Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD"), "the content ID of an entry");
    assert!(page.contains("class=\"ipfs-hash\" translate=\"no\" href=\"/ipfs/Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD?filename=a.txt\""));
    assert!(page.contains(&format!("/ipfs/<a href=\"/ipfs/{root}\">{root}</a>/<a href=\"/ipfs/{root}/sub\">sub</a>")));
    assert!(page.contains(&format!("<a href=\"/ipfs/{root}/sub/..\">..</a>")), "the way up");
    assert!(page.trim_end().ends_with("</html>"), "it is whole");
}

/// Returns the targets of all links of a page, unescaped as in a browser.
fn links(page: &str) -> Vec<String> {
    let unescape = |text: &str| {
        let text = text.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">");
        text.replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&#38;", "&")
            .replace("&amp;", "&")
    };
    let links = page.split("<a ").skip(1).filter_map(|link| link.split_once("href=\""));
    links.map(|(_, rest)| unescape(rest.split('"').next().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_escaped_and_their_links_work() {
    let gateway = TestGateway::start().await;
    let form = HOSTILE.iter().fold(Form::new(), |form, name| form.file(format!("d/{name}"), format!("this is {name}")));
    let form = form.file("d/<b>sub?</b>/in#side", "inside");
    let root = hash_of(gateway.add_form("", form).await.last().unwrap());
    let base = Url::parse(&gateway.url(&format!("/ipfs/{root}/"))).unwrap();
    let page = String::from_utf8(gateway.content(base.path()).await.to_vec()).unwrap();
    for bad in ["<script>alert", "\"onmouseover", "<b>sub", "href=\"javascript:"] {
        assert!(!page.contains(bad), "{bad} stands in the page unescaped");
    }
    let mut found: Vec<String> = Vec::new();
    for link in links(&page) {
        let url = base.join(&link).unwrap();
        assert_eq!(url.origin(), base.origin(), "{link}");
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let response = gateway.get(&format!("{}{query}", url.path())).await;
        let response = match header(&response, "location") {
            "" => response,
            slash => gateway.get(slash).await,
        };
        assert_eq!(response.status(), 200, "{link}");
        found.push(response.text().await.unwrap());
    }
    for name in HOSTILE {
        // Once by its name, once by its content ID.
        assert_eq!(found.iter().filter(|text| **text == format!("this is {name}")).count(), 2, "{name:?}");
    }
    let sub = gateway.content(&format!("/ipfs/{root}/%3Cb%3Esub%3F%3C/b%3E/")).await;
    let inside = links(std::str::from_utf8(&sub).unwrap()).into_iter().find(|link| link.ends_with("in%23side"));
    assert_eq!(gateway.content(&inside.unwrap()).await, "inside");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_by_content_id_name_the_file() {
    let gateway = TestGateway::start().await;
    let names = [
        ("a+b.txt", "a%2Bb.txt", "a+b.txt"),
        ("a&b:c=d@e$f.txt", "a%26b%3Ac%3Dd%40e%24f.txt", "a&b:c=d@e$f.txt"),
        ("photo (1).jpg", "photo%20%281%29.jpg", "photo (1).jpg"),
        ("100%25", "100%2525", "100%25"),
        // As in Kubo, and in the conformance suite.
        ("file-źł.txt", "file-%25C5%25BA%25C5%2582.txt", "file-%C5%BA%C5%82.txt"),
    ];
    let form = names.iter().fold(Form::new(), |form, (name, ..)| form.file(format!("d/{name}"), name));
    let root = hash_of(gateway.add_form("", form).await.last().unwrap());
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    let links = links(&page);
    for (name, query, saved) in names {
        let link = links.iter().find(|link| link.ends_with(&format!("?filename={query}")));
        let response = gateway.get(link.unwrap_or_else(|| panic!("{query} is not in {links:?}"))).await;
        let disposition = header(&response, "content-disposition");
        assert!(disposition.starts_with(&format!("inline; filename=\"{saved}\";")), "{disposition}");
        assert_eq!(response.text().await.unwrap(), name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sharded_directory_behaves_like_a_plain_one() {
    let gateway = TestGateway::start().await;
    let names: Vec<_> = (0..300).map(|i| format!("d/{i:03}")).collect();
    let form = names.iter().fold(Form::new(), |form, name| form.file(name, name));
    let root = hash_of(gateway.add_form("max-directory-links=100", form).await.last().unwrap());
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    let listed = (0..300).filter(|i| page.contains(&format!(">{i:03}</a>"))).count();
    assert_eq!(listed, 300);
    let response = gateway.get(&format!("/ipfs/{root}/217")).await;
    assert_eq!(header(&response, "x-ipfs-roots").split(',').count(), 2, "one content ID per segment, none per shard");
    assert_eq!(response.text().await.unwrap(), "d/217");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_takes_no_method_but_get_head_and_options() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/x", "x")]).await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let response = gateway.request(method.clone(), &format!("/ipfs/{root}/")).send().await.unwrap();
        assert_eq!(response.status(), 405, "{method}");
        assert!(header(&response, "allow").contains("GET") && header(&response, "allow").contains("HEAD"));
    }
    let options = gateway.request(Method::OPTIONS, &format!("/ipfs/{root}/")).send().await.unwrap();
    assert_eq!(options.status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_of_a_listing_has_no_content_length() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a.txt", "a")]).await;
    let path = format!("/ipfs/{root}/");
    let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(!head.headers().contains_key("content-length"));
    assert_eq!(head.headers()["vary"], "Accept, Accept-Encoding");
    assert_eq!(head.headers()["etag"], gateway.get(&path).await.headers()["etag"]);
}

/// A directory and a shard with one entry, each with its fields in both orders. The blocks are from IPIP-550.
#[tokio::test(flavor = "multi_thread")]
async fn directory_fields_may_be_in_either_order() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.add("raw-leaves=true", "hello\n").await;
    assert_eq!(leaf, "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am");
    let link = |name: &str, size: &str| {
        format!("12{size}0a24015512205891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03{name}1806")
    };
    let plain = (link("120968656c6c6f2e747874", "33"), "0a020801".to_owned());
    let bitmap = format!("1c80{}", "0".repeat(54));
    let shard = (link("120b444668656c6c6f2e747874", "35"), format!("0a25080512{bitmap}2822308002"));
    for ((links, data), data_first, links_first) in [
        (
            plain,
            "bafybeigqvyloizmfcdy6scaxnyltftzptaruqa3hnnplfzsbf4sqteiwlm",
            "bafybeigdcg7pksx2zk5336vrfsktjodlr4rbfz37qr3koc5xboxe5ekv24",
        ),
        (
            shard,
            "bafybeicwgy2rlqmqqu3yy2tqvm2wbgdvy3snu4sbbv4wqpvpnoplpzxz74",
            "bafybeicjwkfslu7gwyywffvqgse5kiibojtktxcdqhgv7ldj5fjdacuceq",
        ),
    ] {
        for (block, expected) in [(format!("{data}{links}"), data_first), (format!("{links}{data}"), links_first)] {
            let block = Base::Base16Lower.decode(block).unwrap();
            let cid = gateway.put_block("cid-codec=dag-pb", block.clone()).await;
            assert_eq!(cid, expected);
            assert_eq!(gateway.content(&format!("/ipfs/{cid}/hello.txt")).await, "hello\n", "{cid}");
            assert_eq!(gateway.content(&format!("/ipfs/{cid}?format=raw")).await, block, "{cid}");
            let page = gateway.content(&format!("/ipfs/{cid}/")).await;
            assert!(String::from_utf8_lossy(&page).contains(">hello.txt</a>"), "{cid}");
        }
    }
}
