//! Moving of the keys of IPNS names.

use anyhow::Result;
use ipfrs_interface::key_id;
use ipfrs_rpc::client::{Attributes, Form, Request};
use ipfrs_rpc::types::{Key, Keys};

use super::Report;
use super::source::Source;
use crate::api::Api;

/// Name that the key of Kubo's node gets: a repo of ipfrs has a node of its own.
const IDENTITY: &str = "kubo-self";
/// Name of the node's own key in listings.
const OWN: &str = "self";
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

pub(super) async fn copy(source: &Source, api: &Api, report: &mut Report) -> Result<()> {
    let keys = match source {
        Source::Repo(repo, _) => {
            let mut keys = repo.keys()?;
            keys.extend(repo.identity()?.map(|key| (IDENTITY.to_owned(), key)));
            keys
        }
        Source::Rpc(kubo) => {
            let Keys { keys } = kubo.call(Request::query("key/list")).await?.json().await?;
            for key in keys.iter().filter(|key| key.name != OWN) {
                report.fail(format!(
                    "key {}: the RPC does not export keys: run the command with --from PATH while Kubo is stopped",
                    key.name
                ));
            }
            return Ok(());
        }
    };
    let Keys { keys: existing } = api.call(Request::query("key/list")).await?.json().await?;
    if !keys.is_empty() {
        let text = "IPNS records: publish each name with --sequence above that of its record in Kubo";
        report.without_equivalent.push(text.to_owned());
    }
    for (name, key) in keys {
        // A key may have another name here, and another key may have its name.
        let id = match key_id(&key) {
            Ok(id) => id.to_string(),
            Err(e) => {
                report.fail(format!("key {name}: {e}"));
                continue;
            }
        };
        if existing.iter().any(|known| known.id == id) {
            report.keys += 1;
            continue;
        }
        if existing.iter().any(|known| known.name == name) {
            report.fail(format!(
                "key {name}: another key has this name here: rename that one (key rename), then run the command again"
            ));
            continue;
        }
        match import(api, &name, &key).await {
            Ok(_) => report.keys += 1,
            Err(e) => report.fail(format!("key {name}: {e:#}")),
        }
    }
    Ok(())
}

async fn import(api: &Api, name: &str, key: &[u8]) -> Result<Key> {
    let mut form = Form::new();
    let head = form.file(b"key", Attributes::default());
    let body = [head.as_bytes(), key, form.end().as_bytes()].concat();
    let request = Request::command("key/import").with_arg(name).with("allow-any-key-type", true);
    let response = api.call(request.with_body(&form.media_type(), body)?).await?;
    Ok(serde_json::from_slice(&response.bytes(MAX_RESPONSE_BYTES).await?)?)
}
