//! The OpenAPI document, compared with the responses of a gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::harness::{TestGateway, hash_of, header, ndjson};
use crate::multipart::Form;

/// Methods that some operation has.
const METHODS: [&str; 6] = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"];

/// Replaces the parameters of a path by values.
fn example(path: &str) -> String {
    let cid = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
    let name = "k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8";
    let path = path.replace("{path}", cid).replace("{cid}", cid).replace("{key}", cid).replace("{name}", name);
    path.replace("{peer_id}", name).replace("/progress/{id}", "/progress/x?wait=0").replace("{id}", "x")
}

#[tokio::test]
async fn routes_have_the_methods_of_the_document() {
    let gateway = TestGateway::start().await;
    let response = gateway.get("/openapi.json").await;
    assert_eq!(header(&response, "content-type"), "application/json");
    let document: Value = response.json().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, item) in document["paths"].as_object().unwrap() {
        let mut described: BTreeSet<_> = item.as_object().unwrap().keys().map(|key| key.to_uppercase()).collect();
        described.remove("OPTIONS");
        let is_rpc = path.starts_with("/api/v0");
        if described.contains("GET") {
            // RFC 9110, 9.3.2.
            described.insert("HEAD".to_owned());
        }
        let mut routed = BTreeSet::new();
        for method in METHODS {
            if path == "/api/v0/shutdown" && method == "POST" {
                routed.insert(method.to_owned());
                continue;
            }
            let method_name: Method = method.parse().unwrap();
            let response = gateway.request(method_name, &example(path)).send().await.unwrap();
            let status = response.status();
            let text = response.text().await.unwrap();
            assert!(!text.contains("no route") && !text.contains("no such command"), "{method} {path}: {text}");
            if status != StatusCode::METHOD_NOT_ALLOWED {
                routed.insert(method.to_owned());
            }
        }
        assert_eq!(described, routed, "{path}");
        assert!(!is_rpc || described == BTreeSet::from(["POST".to_owned()]), "{path}");
    }
}

#[tokio::test]
async fn documented_options_are_those_of_the_command() {
    let gateway = TestGateway::start().await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let parameters = document["paths"]["/api/v0/cat"]["post"]["parameters"].as_array().unwrap();
    let named = |name: &str| parameters.iter().find(|parameter| parameter["name"] == name).unwrap();
    assert_eq!(named("arg")["schema"]["minItems"], 1);
    assert_eq!(named("offset")["schema"]["type"], "integer");
    assert_eq!(named("length")["description"], "Also `l`.");
    // The parameters of each command are the options that `commands` lists, with all names.
    let tree = gateway.rpc_json("commands?flags=true").await;
    let mut open = vec![(String::new(), &tree)];
    let mut described = 0;
    while let Some((path, branch)) = open.pop() {
        for below in branch["Subcommands"].as_array().unwrap() {
            open.push((format!("{path}/{}", below["Name"].as_str().unwrap()), below));
        }
        let operation = &document["paths"][format!("/api/v0{path}")]["post"];
        let Some(parameters) = operation["parameters"].as_array() else { continue };
        let options = [&branch["Options"], &tree["Options"]].map(|options| options.as_array().unwrap());
        let mut listed = BTreeSet::from(["arg"]);
        for names in options.into_iter().flatten().map(|option| option["Names"].as_array().unwrap()) {
            let name = names[0].as_str().unwrap();
            listed.insert(name);
            let parameter = parameters.iter().find(|parameter| parameter["name"] == name);
            let parameter = parameter.unwrap_or_else(|| panic!("{path}: {name} is not described"));
            let remark = parameter["description"].as_str().unwrap_or_default();
            for other in names.iter().skip(1).map(|other| other.as_str().unwrap()) {
                assert!(remark.contains(&format!("`{other}`")), "{path}: {name}, {other}: {remark}");
            }
        }
        // The options of `files` are those of all its commands.
        let is_of_files = path.starts_with("/files/");
        let mut names = parameters.iter().map(|parameter| parameter["name"].as_str().unwrap());
        assert!(names.all(|name| listed.contains(name) || is_of_files && name == "flush"), "{path}: {parameters:?}");
        described += 1;
    }
    assert!(described > 100, "{described} commands");
    // Each reference leads to a schema.
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_required_argument_is_400_and_changes_nothing() {
    let gateway = TestGateway::start().await;
    gateway.add_tree("to-files=/f", &[("f", "content")]).await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let state = async || {
        let mut state = vec![Value::from(gateway.blocks().await)];
        for command in ["pin/ls", "files/stat?arg=/", "key/ls", "bootstrap/list"] {
            state.push(gateway.rpc_json(command).await);
        }
        state
    };
    let before = state().await;
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(command) = path.strip_prefix("/api/v0/") else { continue };
        let operation = &item["post"];
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        let argument = parameters.find(|parameter| parameter["name"] == "arg");
        let least = argument.and_then(|argument| argument["schema"]["minItems"].as_u64()).unwrap_or(0);
        let needs_body = operation["requestBody"]["required"] == true;
        for given in 0..least + u64::from(needs_body) {
            let query = vec!["arg=x"; usize::try_from(given).unwrap()].join("&");
            let called = format!("{command}?{query}");
            let response = tokio::time::timeout(Duration::from_secs(10), gateway.rpc(&called).send()).await;
            let response = response.unwrap_or_else(|_| panic!("{called}: no response")).unwrap();
            assert_eq!(response.status(), 400, "{called}");
            let text = response.text().await.unwrap();
            assert!(text.ends_with(" is required\n"), "{called}: {text}");
            refused += 1;
        }
    }
    assert!(refused > 80, "{refused} requests");
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn swagger_ui_is_served_by_the_api_listener() {
    let gateway = TestGateway::start_with(|config| (config.api.enabled, config.api.port) = (true, Some(0))).await;
    let base = format!("http://{}", gateway.gateway.api_addresses()[0]);
    for (path, media) in
        [("/docs", "text/html"), ("/docs/", "text/html"), ("/docs/swagger-ui-bundle.js", "text/javascript")]
    {
        let response = reqwest::get(format!("{base}{path}")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert!(header(&response, "content-type").starts_with(media), "{path}");
        let policy = header(&response, "content-security-policy").to_owned();
        assert!(policy.contains("script-src 'self';") && policy.contains("connect-src 'self'"), "{policy}");
        let text = response.text().await.unwrap();
        assert!(!text.contains("<script src=\"http"), "{path}");
    }
    assert_eq!(reqwest::get(format!("{base}/docs/absent")).await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn list_responses_have_the_schema_of_their_items() {
    let gateway = TestGateway::start().await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for command in ["cid/bases", "cid/codecs", "cid/hashes", "diag/cmds", "multibase/list"] {
        let path = format!("/api/v0/{command}");
        let schema = &document["paths"][&path]["post"]["responses"]["200"]["content"]["application/json"]["schema"];
        let item = schema["items"]["$ref"].as_str().unwrap().strip_prefix("#/components/schemas/").unwrap();
        let list: Value = gateway.request(Method::POST, &path).send().await.unwrap().json().await.unwrap();
        let entry = list.as_array().unwrap().last().unwrap();
        for property in schemas[item]["required"].as_array().unwrap() {
            assert!(entry.get(property.as_str().unwrap()).is_some(), "{command} lacks {property} of {item}: {entry}");
        }
    }
    assert!(!schemas.contains_key("Vec"), "a name that lists of several types share");
}

#[tokio::test]
async fn responses_of_the_rpc_have_one_of_their_schemas() {
    let gateway = TestGateway::start().await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let content =
        |command: &str| document["paths"][format!("/api/v0/{command}")]["post"]["responses"]["200"]["content"].clone();
    let schemas = &document["components"]["schemas"];
    let schema_of =
        |reference: &Value| schemas[reference["$ref"].as_str().unwrap().rsplit('/').next().unwrap()].clone();
    let lines = gateway.add_form("progress=true&cid-version=1", Form::new().file("a", "content")).await;
    let cid = hash_of(lines.last().unwrap());
    let pinned = ndjson(gateway.rpc(&format!("pin/add?arg={cid}&progress=true")).send().await.unwrap()).await;
    for (command, lines) in [("add", lines), ("pin/add", pinned)] {
        let choices = schema_of(&content(command)["application/json"]["schema"])["oneOf"].as_array().unwrap().clone();
        for line in lines {
            let has_all = |choice: &Value| {
                let schema = schema_of(choice);
                let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema]);
                let required = parts.iter().filter_map(|part| part["required"].as_array()).flatten();
                required.map(|name| name.as_str().unwrap()).all(|name| line.get(name).is_some())
            };
            assert_eq!(choices.iter().filter(|choice| has_all(choice)).count(), 1, "{command}: {line}");
        }
    }
    let node = gateway.rpc(&format!("dag/get?arg={cid}")).send().await.unwrap();
    assert_eq!(content("dag/get").as_object().unwrap().keys().collect::<Vec<_>>(), [header(&node, "content-type")]);
}
