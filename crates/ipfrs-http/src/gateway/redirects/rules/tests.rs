use proptest::prelude::*;

use super::*;
use crate::gateway::path::names;

fn segments_of(path: &str) -> Vec<LinkName> {
    names(path, path).unwrap()
}

/// Describes the result of a file for a path: `301 /to`, `200 [a, b]`, `-` for nothing, `!` for an error.
fn outcome(file: &str, path: &str, query: Option<&str>) -> String {
    let outcome = Rules::parse(file.as_bytes()).and_then(|rules| rules.apply(&segments_of(path), query));
    match outcome {
        Ok(None) => "-".to_owned(),
        Ok(Some(Outcome::Redirect { status, location })) => format!("{} {location}", status.as_u16()),
        Ok(Some(Outcome::Content { status, segments })) => {
            let segments: Vec<_> = segments.iter().map(ToString::to_string).collect();
            format!("{} [{}]", status.as_u16(), segments.join(", "))
        }
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn first_matching_redirect_rule_applies() {
    for (file, path, expected) in [
        ("/a /b", "/a", "301 /b"),
        ("/a /b", "/a/", "301 /b"),
        ("/a/ /b", "/a", "301 /b"),
        ("/a /b", "/A", "-"),
        ("/a /b", "/a/b", "-"),
        ("/a/b /c", "/a", "-"),
        ("/a /b 302\n/a /c 301", "/a", "302 /b"),
        ("/x /y\n\n  \t\n# /a /wrong\n\t/a \t /b\t303  \r\n", "/a", "303 /b"),
        ("\u{feff}/a /b 307", "/a", "307 /b"),
        ("/a /b 308", "/a", "308 /b"),
        ("/a /b.html 200", "/a", "200 [b.html]"),
        ("/a /b.html 404\n", "/a", "404 [b.html]"),
        ("/a /b/c.html 410", "/a", "410 [b, c.html]"),
        ("/a /b.html 451", "/a", "451 [b.html]"),
        ("/a https://example.com/b?x#y", "/a", "301 https://example.com/b?x#y"),
        ("/a IPNS://example.com", "/a", "301 IPNS://example.com"),
        // Placeholders.
        ("/p/:y/:m/:slug /q/:slug-:y-:m", "/p/2022/06/x", "301 /q/x-2022-06"),
        ("/p/:y /q/:y/:y", "/p/1", "301 /q/1/1"),
        ("/p/:y /q/:z/:y", "/p/1", "301 /q/:z/1"),
        ("/p/:a/:ab /q/:ab/:a", "/p/1/2", "301 /q/2/1"),
        ("/p/:a/:b /q/:a:b", "/p/:b/2", "301 /q/:b2"),
        ("/p/:year.html /:year.html/x", "/p/1", "301 /1/x"),
        ("/p/: /q", "/p/:", "301 /q"),
        ("/p/:y /q", "/p", "-"),
        // The asterisk.
        ("/s/* /t/:splat", "/s/a/b", "301 /t/a/b"),
        ("/s/* /t/:splat", "/s/a/b/", "301 /t/a/b"),
        ("/s/* /t/:splat", "/s", "-"),
        ("/s/* /t/:splat", "/s/", "-"),
        ("/s* /t/:splat", "/sabc/d", "301 /t/abc/d"),
        ("/s* /t/:splat", "/s", "301 /t/"),
        ("/%C3* /t/:splat", "/%C3%A9", "-"),
        ("/* /index.html 200", "/any/thing", "200 [index.html]"),
        ("/* / 200", "/any", "200 []"),
        ("/:x/* /:splat/:x", "/1/2/3", "301 /2/3/1"),
        ("/:x /y/:splat", "/1", "301 /y/"),
        ("/:splat /y/:splat", "/1", "301 /y/1"),
        ("/* /t/:splat 200", "/a/b c", "200 [t, a, b c]"),
        ("/* /t:splat.html 200", "/a/b", "200 [ta, b.html]"),
        // Escapes: decoded characters are compared, and no value leaves its segment.
        ("/caf\u{e9} /x", "/caf%C3%A9", "301 /x"),
        ("/caf%c3%a9 /x", "/caf\u{e9}", "301 /x"),
        ("/%3Aa /x", "/:a", "301 /x"),
        ("/a%2Fb /x", "/a%2fb", "301 /x"),
        ("/a%2Fb /x", "/a/b", "301 /x"),
        ("/a/b /x", "/a%2Fb", "301 /x"),
        ("/a /b%2Fc 200", "/a", "200 [b, c]"),
        ("/a /\u{e9}/%20", "/a", "301 /%C3%A9/%20"),
        ("/a /%C3%A9/%20 200", "/a", "200 [\u{e9},  ]"),
        ("/a /b.html?x=/y#z 200", "/a", "200 [b.html]"),
        ("/* /t/:splat", "/a%2F%3F%23%25%0D%0A@:", "301 /t/a/%3F%23%25%0D%0A@:"),
        ("/* /:splat", "/%2F%2Fevil.example", "301 /evil.example"),
        ("/a* /:splat", "/a/evil.example/b", "301 /evil.example/b"),
        ("/a* /:splat/:splat", "/a/evil.example", "301 /evil.example//evil.example"),
        ("/a //:splat/x", "/a", "301 ///x"),
        ("/* https://example.com:splat", "/@evil.example", "301 https://example.com%40evil.example"),
        ("/:a /t?a=:a#:a", "/1&b=2 3", "301 /t?a=1%26b%3D2%203#1%26b%3D2%203"),
        ("/a /b%FF 200", "/a", r"200 [b\xff]"),
        ("/:a /x/:a", "/%FF", "301 /x/%FF"),
        ("/:a /x/:a 200", "/%ff", r"200 [x, \xff]"),
        ("/%FF* /x/:splat", "/%FF%C3%BC%FE/b", "301 /x/%C3%BC%FE/b"),
        ("/%FF /x", "/%EF%BF%BD", "-"),
        ("/%C3* /x", "/%C3%BC", "-"),
    ] {
        assert_eq!(outcome(file, path, None), expected, "{file:?} of {path}");
    }
    assert_eq!(outcome("", "/a", None), "-");
    let elsewhere = outcome("/a https://example.com/ 200\n/b /c", "/a", None);
    assert!(elsewhere.starts_with("! the rule for /a: content"), "{elsewhere}");
    assert_eq!(outcome("/a https://example.com/ 200\n/b /c", "/b", None), "301 /c");
}

#[test]
fn redirect_query_overrides_rule_parameters() {
    for (to, query, expected) in [
        ("/b", "", "/b"),
        ("/b", "x=1", "/b?x=1"),
        ("/b?y=2", "x=1", "/b?y=2&x=1"),
        ("/b?x=0&y=2&%78=3", "x=1&x=4", "/b?y=2&x=1&x=4"),
        ("/b?x#f?g", "y", "/b?x&y#f?g"),
        ("https://example.com/b", "x=%2F", "https://example.com/b?x=%2F"),
        ("/t?code=:code", "name=n", "/t?code=v&name=n"),
        ("/t?code=:code", "code=w", "/t?code=w"),
    ] {
        let found = outcome(&format!("/:code {to}"), "/v", Some(query));
        assert_eq!(found, format!("301 {expected}"), "{to} with {query}");
    }
    assert_eq!(outcome("/a /b 200", "/a", Some("x=1")), "200 [b]");
}

#[test]
fn invalid_redirects_file_error_names_the_line() {
    for (file, line, reason) in [
        ("/a", 1, "missing 'to' path"),
        ("\n/a /b 301 #", 2, "must match format 'from to [status]'"),
        ("/a /b 301!", 1, "forced redirects"),
        ("/ok /b\r\n/a /b 42", 2, "status code 42 is not supported"),
        ("/a /b 300", 1, "status code 300 is not supported"),
        ("/a /b x=:y 301", 1, "must match format"),
        ("a /b", 1, "path must begin with '/'"),
        ("https://example.com/a /b", 1, "path must begin with '/'"),
        ("/a/*/b /c", 1, "asterisk must be at the end"),
        ("/a/** /c", 1, "asterisk must be at the end"),
        ("/:a/:b/:a /c", 1, "placeholder :a is used more than once"),
        ("/:splat/* /c", 1, "reserved for the asterisk"),
        ("/:a* /c", 1, "a placeholder and an asterisk"),
        ("/a b", 1, "neither a path"),
        ("/a ftp://example.com", 1, "neither a path"),
        ("/a javascript:alert(1)", 1, "neither a path"),
        ("/a /100%", 1, "write %25 for a percent sign"),
        ("/%zz /b", 1, "invalid escape %zz"),
        ("/a /b\u{7f}", 1, "control character"),
    ] {
        let error = Rules::parse(file.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {line}: ")) && error.contains(reason), "{file:?}: {error}");
    }
    let deep = format!("{} /b", "/a".repeat(MAX_PATH_SEGMENTS + 1));
    assert!(Rules::parse(deep.as_bytes()).unwrap_err().to_string().contains("segments"));
    assert!(Rules::parse(b"# \xff\n/a /b").is_ok(), "comments may be in any encoding");
    assert!(Rules::parse(b"/\xff /b").unwrap_err().to_string().contains("not UTF-8"));
}

#[test]
fn redirects_file_and_target_sizes_are_limited() {
    let mut file = b"/a /b\n".to_vec();
    file.resize(MAX_FILE_BYTES, b'\n');
    assert!(Rules::parse(&file).is_ok());
    file.push(b'\n');
    let error = Rules::parse(&file).unwrap_err().to_string();
    assert_eq!(error, "redirects file size cannot exceed 65536 bytes");

    let many = format!("/:a /{}", ":a".repeat(20_000));
    let long = "x".repeat(4_000);
    for status in ["301", "200", "404"] {
        let found = outcome(&format!("{many} {status}"), &long, None);
        assert!(found.contains("more than 8192 bytes"), "{status}: {}", &found[..found.len().min(80)]);
    }
}

/// A simple reference implementation: one match per line, by comparing lists of segments.
fn naive(file: &[(Vec<String>, bool, Vec<String>)], path: &[String]) -> Option<String> {
    file.iter().find_map(|(from, splat, to)| {
        let fits = if *splat { path.len() > from.len() } else { path.len() == from.len() };
        let is_like = |(pattern, segment): (&String, &String)| pattern.starts_with(':') || pattern == segment;
        if !fits || !from.iter().zip(path).all(is_like) {
            return None;
        }
        let value = |segment: &String| match segment.as_str() {
            ":splat" if *splat => path[from.len()..].join("/"),
            ":splat" => String::new(),
            name => {
                from.iter().position(|pattern| pattern == name).map_or(name.to_owned(), |index| path[index].clone())
            }
        };
        let location: String = to.iter().map(|segment| format!("/{}", value(segment))).collect();
        Some(format!("/{}", location.trim_start_matches('/')))
    })
}

fn rule() -> impl Strategy<Value = (Vec<String>, bool, Vec<String>)> {
    let fixed = || proptest::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let from = prop::collection::vec((fixed(), any::<bool>()), 0..4).prop_map(|segments| {
        let name = |(index, (fixed, is_placeholder))| if is_placeholder { format!(":p{index}") } else { fixed };
        segments.into_iter().enumerate().map(name).collect::<Vec<_>>()
    });
    let names = || proptest::sample::select(vec![":p0", ":p1", ":p2", ":splat", "a", "z"]).prop_map(str::to_owned);
    (from, any::<bool>(), prop::collection::vec(names(), 1..4))
}

proptest! {
    #[test]
    fn redirect_rules_match_reference_implementation(
        file in prop::collection::vec(rule(), 0..6),
        path in prop::collection::vec(proptest::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned), 1..5),
    ) {
        let line = |(from, splat, to): &(Vec<String>, bool, Vec<String>)| {
            let from: Vec<&str> = from.iter().map(String::as_str).chain(splat.then_some("*")).collect();
            format!("/{} /{}\n", from.join("/"), to.join("/"))
        };
        let text: String = file.iter().map(line).collect();
        let expected = naive(&file, &path).map_or("-".to_owned(), |location| format!("301 {location}"));
        prop_assert_eq!(outcome(&text, &path.join("/"), None), expected, "{}", text);
    }

    #[test]
    fn no_file_and_no_path_cause_a_panic(
        file in "([/:*%#a-c \t\r\n?=&!\u{e9}.-]|200|301|404|https://|splat){0,80}",
        path in prop::collection::vec("[a-c:%/\u{e9}*]{1,4}", 0..4),
        query in proptest::option::of("[a-c=&%#+]{0,8}"),
    ) {
        if let Ok(rules) = Rules::parse(file.as_bytes()) && let Ok(Some(Outcome::Redirect { location, .. })) = rules.apply(&path.iter().map(|name| name.as_str().into()).collect::<Vec<_>>(), query.as_deref()) {
            prop_assert!(http::HeaderValue::try_from(location).is_ok());
        }
    }

    #[test]
    fn parsing_arbitrary_bytes_never_panics(file in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Rules::parse(&file).map(|rules| rules.0.len());
    }
}
