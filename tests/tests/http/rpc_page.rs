//! `docs/RPC.md`, whose table follows from the definitions of the commands.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::harness::TestGateway;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/RPC.md");

/// Returns the parameters of an operation.
fn parameters(operation: &Value) -> impl Iterator<Item = &Value> {
    operation["parameters"].as_array().into_iter().flatten()
}

/// Returns the row of a command, without the options in `common`.
fn row(command: &str, operation: &Value, common: &[&Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('|', "\\|");
    let mut arguments = Vec::new();
    let mut options = Vec::new();
    for parameter in parameters(operation) {
        let (name, about) = (&parameter["name"], text(&parameter["description"]));
        if name == "arg" {
            let remark = if parameter["required"] == true { "" } else { ", optional" };
            arguments.push(format!("`{about}`{remark}"));
        } else if !common.contains(&name) {
            let option = format!("`{}` {}. {about}", text(name), text(&parameter["schema"]["type"]));
            options.push(option.trim_end().to_owned());
        }
    }
    if operation["requestBody"].is_object() {
        arguments.push("body".to_owned());
    }
    let (arguments, options) = (arguments.join("; "), options.join("<br>"));
    let scope = text(&operation["security"][0]["token"][0]);
    format!("| `{command}` | {} | {scope} | {arguments} | {options} |", text(&operation["summary"]))
}

#[tokio::test]
async fn page_of_the_rpc_has_all_commands_and_options() {
    let gateway = TestGateway::start().await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let paths = document["paths"].as_object().unwrap();
    let commands: BTreeMap<&str, &Value> =
        paths.iter().filter_map(|(path, item)| Some((path.strip_prefix("/api/v0/")?, &item["post"]))).collect();
    // This command has no options of its own.
    let common: Vec<&Value> = parameters(commands["shutdown"]).map(|parameter| &parameter["name"]).collect();
    let page = fs::read_to_string(PAGE).unwrap();
    let is_row = |line: &&str| line.starts_with("| `");
    if std::env::var("INSTA_UPDATE").is_ok_and(|mode| mode == "always") {
        let mut updated: String = page.split_inclusive('\n').take_while(|line| !is_row(line)).collect();
        for (command, operation) in &commands {
            updated.push_str(&row(command, operation, &common));
            updated.push('\n');
        }
        return fs::write(PAGE, updated).unwrap();
    }
    let remedy = "run this test with INSTA_UPDATE=always";
    let mut rows = page.lines().filter(is_row);
    for (command, operation) in &commands {
        assert_eq!(rows.next(), Some(&*row(command, operation, &common)), "{remedy}");
    }
    assert_eq!(rows.next(), None, "{remedy}");
}
