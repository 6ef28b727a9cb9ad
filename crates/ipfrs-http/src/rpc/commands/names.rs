//! `key/*`, `name/*` and `resolve`.

use axum::routing::any;
use ipfrs_middleware::auth::Scope;
use ipfrs_rpc::types::{
    InspectedRecord, Key, Keys, PublishedName, PubsubState, RenamedKey, ResolvedPath, SignatureCheck, Signed,
};

use super::responses::{json, never, record};
use crate::rpc::command::{Command, command};
use crate::rpc::{key, name, resolve, unavailable};

pub(super) static COMMANDS: &[Command] = &[
    command("key/gen", Scope::Names, json::<Key>, || any(key::generate)),
    command("key/import", Scope::Names, json::<Key>, || any(key::import)),
    command("key/list", Scope::Names, json::<Keys>, || any(key::list)),
    command("key/ls", Scope::Names, json::<Keys>, || any(key::list)),
    command("key/rename", Scope::Names, json::<RenamedKey>, || any(key::rename)),
    command("key/rm", Scope::Names, json::<Keys>, || any(key::rm)),
    command("key/sign", Scope::Names, json::<Signed>, || any(key::sign)),
    command("key/verify", Scope::Names, json::<SignatureCheck>, || any(key::verify)),
    command("name/get", Scope::Read, record, || any(name::get)),
    command("name/inspect", Scope::Read, json::<InspectedRecord>, || any(name::inspect)),
    command("name/publish", Scope::Names, json::<PublishedName>, || any(name::publish)),
    command("name/pubsub/cancel", Scope::Names, never, || any(unavailable::name_pubsub)),
    command("name/pubsub/state", Scope::Read, json::<PubsubState>, || any(unavailable::name_pubsub_state)),
    command("name/pubsub/subs", Scope::Names, never, || any(unavailable::name_pubsub)),
    command("name/put", Scope::Names, json::<PublishedName>, || any(name::put)),
    command("name/resolve", Scope::Read, json::<ResolvedPath>, || any(name::resolve)),
    command("resolve", Scope::Read, json::<ResolvedPath>, || any(resolve::resolve)),
];
