//! Dependencies between the crates: each crate may depend only on crates of lower layers.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Dependencies of each crate within the workspace. Layers: `core <- bitswap, ipns, store, tensor, unixfs <-
/// stream <- retrieval <- node <- front-ends <- interface <- shells`. Front-ends depend on the node and not on a store.
const ARROWS: [(&str, &[&str]); 18] = [
    ("ipfrs-core", &[]),
    ("ipfrs-ipns", &["ipfrs-core"]),
    ("ipfrs-store", &["ipfrs-core"]),
    ("ipfrs-tensor", &["ipfrs-core"]),
    ("ipfrs-unixfs", &["ipfrs-core"]),
    ("ipfrs-stream", &["ipfrs-core", "ipfrs-store", "ipfrs-unixfs"]),
    ("ipfrs-bitswap", &["ipfrs-core"]),
    ("ipfrs-retrieval", &["ipfrs-core", "ipfrs-bitswap", "ipfrs-store", "ipfrs-unixfs", "ipfrs-stream"]),
    (
        "ipfrs-node",
        &[
            "ipfrs-core",
            "ipfrs-ipns",
            "ipfrs-store",
            "ipfrs-tensor",
            "ipfrs-unixfs",
            "ipfrs-stream",
            "ipfrs-bitswap",
            "ipfrs-retrieval",
            // The JSON types of pinning services.
            "ipfrs-rpc",
        ],
    ),
    ("ipfrs-middleware", &["ipfrs-core", "ipfrs-node"]),
    // JSON types for servers, and a client.
    ("ipfrs-rpc", &["ipfrs-core", "ipfrs-unixfs"]),
    ("ipfrs-http", &["ipfrs-core", "ipfrs-node", "ipfrs-middleware", "ipfrs-rpc"]),
    // Clients use this crate too.
    ("ipfrs-proto", &[]),
    ("ipfrs-grpc", &["ipfrs-core", "ipfrs-node", "ipfrs-middleware", "ipfrs-proto"]),
    ("ipfrs-graphql", &["ipfrs-core", "ipfrs-node", "ipfrs-middleware"]),
    // Its listeners use the socket type of `ipfrs-stream`.
    (
        "ipfrs-interface",
        &["ipfrs-core", "ipfrs-stream", "ipfrs-node", "ipfrs-middleware", "ipfrs-http", "ipfrs-graphql", "ipfrs-grpc"],
    ),
    // Writes CAR files of other repos.
    ("ipfrs-cli", &["ipfrs-core", "ipfrs-stream", "ipfrs-interface", "ipfrs-rpc"]),
    // Calls the node directly, without a front-end. Its tests depend on `ipfrs-test-features` so that dependencies
    // are built with the features of all tests.
    ("ipfrs-python", &["ipfrs-core", "ipfrs-node", "ipfrs-interface", "ipfrs-rpc", "ipfrs-test-features"]),
];

/// Returns the workspace crates under `crates/`, each with its dependencies except for dev-dependencies.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let crates = packages.filter(|package| package["manifest_path"].as_str().unwrap().contains("/crates/"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    crates
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            let kept = all.filter(|dependency| dependency["kind"].is_null() || dependency["kind"] == "build");
            (text(&package["name"]), kept.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let dependencies = dependencies();
    let arrows = BTreeMap::from(ARROWS);
    for (name, found) in &dependencies {
        let allowed = arrows.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no place in the order yet"));
        for dependency in found.iter().filter(|dependency| dependency.starts_with("ipfrs-")) {
            assert!(allowed.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
        for allowed in *allowed {
            assert!(
                found.iter().any(|dependency| dependency == allowed),
                "{name} does not depend on {allowed} any more"
            );
        }
    }
    for name in arrows.keys() {
        assert!(dependencies.contains_key(*name), "{name} is gone");
    }
}

/// A program that only stores blocks needs neither DNS nor TLS.
#[test]
fn the_node_without_features_has_no_network_libraries() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "ipfrs-node", "--edges", "normal", "--prefix", "none"])
        .args(["--no-default-features", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"ipfrs-store"));
    for library in ["hickory-resolver", "hyper", "idna", "reqwest", "rustls"] {
        assert!(!names.contains(&library), "ipfrs-node without features depends on {library}");
    }
}

#[test]
fn value_crates_have_no_runtime_and_backends_no_http() {
    for (name, found) in dependencies() {
        let knows = |library: &str| found.iter().any(|dependency| dependency == library);
        match name.as_str() {
            "ipfrs-core" | "ipfrs-ipns" | "ipfrs-tensor" => {
                assert!(!knows("tokio") && !knows("futures"), "{name} does no I/O")
            }
            "ipfrs-store" | "ipfrs-unixfs" | "ipfrs-stream" | "ipfrs-node" => {
                assert!(!knows("http") && !knows("hyper") && !knows("axum"), "{name} knows nothing of HTTP");
            }
            _ => {}
        }
    }
}
