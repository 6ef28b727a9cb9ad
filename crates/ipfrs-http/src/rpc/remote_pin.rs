//! `pin/remote/*`: pins at pinning services.

use axum::Extension;
use axum::extract::State;
use futures::StreamExt;
use ipfrs_core::{Error, Result, parse_cid};
use ipfrs_middleware::auth::{Caller, Scope};
use ipfrs_node::{PinningService, RemotePinFilter};
use ipfrs_rpc::types::{PinState, PinStatus, RemotePin, RemoteService, RemoteServices, ServiceStat};

use super::args::{Args, Render};
use super::command_result::CommandResult;
use super::paths::parse_root;
use super::{long_command, output};
use crate::state::AppState;

/// `pin/remote/add?arg=path&service=[&name=][&background=]`: asks a service to pin content. Without `background`,
/// responds when it is pinned.
pub(super) async fn add(State(state): State<AppState>, args: Args) -> CommandResult {
    let service = service(&args)?;
    let path = args.path(&state.node, "ipfs-path").await?;
    let name = args.text("name").unwrap_or_default();
    let pinned = state.node.pin_remotely(service, &path, name, args.is_set("background")).await?;
    Ok(output::object(remote_pin(&pinned, args.render)?))
}

/// `pin/remote/ls?service=[&name=][&cid=][&status=]`: lists the pins at a service, newest first. Without `status`, only
/// pinned ones.
pub(super) async fn ls(State(state): State<AppState>, args: Args) -> CommandResult {
    let (service, filter, render) = (service(&args)?.to_owned(), filter(&args)?, args.render);
    long_command::answer(args.takes_trailers, state.config.idle_patience(), move |lines| async move {
        let mut pins = state.node.remote_pins(&service, filter).await?;
        while let Some(pin) = pins.next().await.transpose()? {
            lines.send(&remote_pin(&pin, render)?).await?;
        }
        Ok(())
    })
    .await
}

/// `pin/remote/rm?service=[&name=][&cid=][&status=][&force=]`: removes the pins at a service that [`ls`] would list;
/// several only with `force`.
pub(super) async fn rm(State(state): State<AppState>, args: Args) -> CommandResult {
    let service = service(&args)?;
    // The options select pins, so an argument that is meant to do so must not be ignored.
    if let Some(argument) = args.arguments().first() {
        return Err(Error::invalid(format!("unexpected argument {argument:?}")).into());
    }
    state.node.remove_remote_pins(service, filter(&args)?, args.is_set("force")).await?;
    Ok(output::nothing().await)
}

/// `pin/remote/service/add?arg=name&arg=endpoint&arg=key`: adds a service durably.
pub(super) async fn add_service(State(state): State<AppState>, args: Args) -> CommandResult {
    state.node.add_pinning_service(args.text_at(0), args.text_at(1), args.text_at(2)).await?;
    Ok(output::nothing().await)
}

/// `pin/remote/service/rm?arg=name`: removes a service, if it exists.
pub(super) async fn remove_service(State(state): State<AppState>, args: Args) -> CommandResult {
    state.node.remove_pinning_service(args.text_at(0)).await?;
    Ok(output::nothing().await)
}

/// `pin/remote/service/ls[?stat=]`: lists the services; with `stat`, also whether they respond, and their numbers of
/// pins.
///
/// User names and passwords in URLs are shown only to callers with the scope `admin`.
pub(super) async fn services(
    State(state): State<AppState>,
    caller: Option<Extension<Caller>>,
    args: Args,
) -> CommandResult {
    let with_stat = args.is_set("stat");
    let is_admin = caller.is_none_or(|Extension(caller)| caller.require(Scope::Admin).is_ok());
    let described = |PinningService { name, endpoint }| {
        let node = state.node.clone();
        async move {
            let counted = if with_stat { Some(node.count_remote_pins(&name).await) } else { None };
            let stat = counted.map(|counted| {
                let status = if counted.is_ok() { "valid" } else { "invalid" };
                ServiceStat { status: status.to_owned(), pin_count: counted.ok() }
            });
            let api_endpoint = if is_admin { endpoint } else { without_user(endpoint) };
            RemoteService { service: name, api_endpoint, stat }
        }
    };
    let services = state.node.pinning_services().await?.into_iter().map(described);
    let remote_services = futures::stream::iter(services).buffered(CONCURRENT_SERVICES).collect().await;
    Ok(output::object(RemoteServices { remote_services }))
}

/// Returns a URL without user name and password.
fn without_user(endpoint: String) -> String {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return endpoint };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => endpoint,
    }
}

/// Number of services that are queried at the same time.
const CONCURRENT_SERVICES: usize = 4;

fn service(args: &Args) -> Result<&str> {
    args.text("service").ok_or_else(|| Error::invalid("a service name must be passed"))
}

fn remote_pin(pin: &PinStatus, render: Render) -> Result<RemotePin> {
    let cid = parse_cid(&pin.pin.cid).and_then(|cid| render.cid(&cid)).unwrap_or_else(|_| pin.pin.cid.clone());
    Ok(RemotePin { status: pin.status.to_string(), cid, name: pin.pin.name.clone() })
}

fn filter(args: &Args) -> Result<RemotePinFilter> {
    let mut filter = RemotePinFilter { name: args.text("name").map(str::to_owned), ..RemotePinFilter::default() };
    for text in args.texts("cid") {
        let unparsed = |e: Error| Error::invalid(format!("CID {text:?} cannot be parsed: {e}"));
        filter.cids.push(parse_root(text).map_err(unparsed)?);
    }
    let states = args.texts("status").map(|text| {
        text.parse::<PinState>().map_err(|()| {
            Error::invalid(format!("status {text:?} is not valid: use queued, pinning, pinned and failed"))
        })
    });
    let states: Vec<_> = states.collect::<Result<_>>()?;
    if !states.is_empty() {
        filter.states = states;
    }
    Ok(filter)
}
