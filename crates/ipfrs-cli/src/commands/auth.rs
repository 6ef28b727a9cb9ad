//! `auth`.

use anyhow::{Result, bail};
use axum::http::Method;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{ApiKey, ApiKeys, AuthenticatedCaller, CreatedApiKey, NewApiKey};

use crate::api::Api;
use crate::args::{AuthCommand, AuthKeyCommand, AuthKeyCreateArgs};
use crate::output::{Output, printable};

const KEYS: &str = "/v1/auth/keys";

pub(super) async fn run(api: &Api, command: AuthCommand, out: &mut Output) -> Result<()> {
    match command {
        AuthCommand::Key(AuthKeyCommand::Create(args)) => create(api, args, out).await,
        AuthCommand::Key(AuthKeyCommand::List) => list(api, out).await,
        AuthCommand::Key(AuthKeyCommand::Revoke { ids }) => revoke(api, &ids, out).await,
        AuthCommand::Whoami => whoami(api, out).await,
    }
}

async fn create(api: &Api, args: AuthKeyCreateArgs, out: &mut Output) -> Result<()> {
    let AuthKeyCreateArgs { name, scopes, roots, expires_in } = args;
    let roots = Some(roots).filter(|roots| !roots.is_empty());
    let new = NewApiKey { name, scopes, roots, valid_seconds: expires_in.map(|time| time.as_secs()) };
    let request = Request::post(KEYS).with_body("application/json", serde_json::to_vec(&new)?)?;
    let created: CreatedApiKey = api.call(request).await?.json().await?;
    if out.is_json() { out.object(&created) } else { out.line(&created.token) }
}

async fn list(api: &Api, out: &mut Output) -> Result<()> {
    let ApiKeys { keys } = api.call(Request::get(KEYS)).await?.json().await?;
    for key in &keys {
        if out.is_json() { out.object(key)? } else { out.line(&line(key))? }
    }
    Ok(())
}

fn line(key: &ApiKey) -> String {
    let expires = key.expires.as_deref().map_or_else(|| "never expires".to_owned(), |time| format!("expires {time}"));
    let roots = if key.roots.is_empty() { String::new() } else { format!("  below {}", key.roots.join(", ")) };
    format!("{}  {}  {expires}{roots}  {}", key.id, key.scopes.join(","), printable(&key.name)).trim_end().to_owned()
}

async fn revoke(api: &Api, ids: &[String], out: &mut Output) -> Result<()> {
    for id in ids {
        // A token contains the ID of its key.
        let id = id.strip_prefix("ipfrs_").and_then(|rest| rest.split('_').next()).unwrap_or(id);
        if id.is_empty() {
            bail!("give the ID of a key: `ipfrs-cli auth key list` prints them");
        }
        let path = format!("{KEYS}/{}", ipfrs_rpc::client::escape_path(id.as_bytes())?);
        let revoked: ApiKey = api.call(Request::new(Method::DELETE, path)).await?.json().await?;
        if out.is_json() { out.object(&revoked)? } else { out.line(&format!("revoked {}", revoked.id))? }
    }
    Ok(())
}

async fn whoami(api: &Api, out: &mut Output) -> Result<()> {
    let caller: AuthenticatedCaller = api.call(Request::get("/v1/auth/session")).await?.json().await?;
    if out.is_json() {
        return out.object(&caller);
    }
    let roots = if caller.roots.is_empty() { String::new() } else { format!(" below {}", caller.roots.join(", ")) };
    match caller.principal {
        Some(principal) => out.line(&format!("{}: {}{roots}", printable(&principal), caller.scopes.join(", "))),
        None => out.line("anyone may do everything: authentication is off (auth.enabled = false)"),
    }
}
