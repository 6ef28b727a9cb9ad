//! Operations of the RPC, from its commands.

use ipfrs_rpc::commands::{Definition, Kind};
use ipfrs_rpc::types::RpcFailure;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::ArrayBuilder;
use utoipa::openapi::{HttpMethod, Required};

use super::operation::{Described, Operation, binary, boolean, integer, object, one_of, size, text, texts};
use crate::rpc::command::Command;
use crate::rpc::commands;
use crate::rpc::options::remark;

/// Option of all commands, whose other values are refused.
const ENCODING: &str = "encoding";

pub(super) const TAG: &str = "Kubo RPC";

/// Returns the operations of all commands.
pub(super) fn operations() -> Vec<Operation> {
    commands::all().map(|command| describe(command).into()).collect()
}

fn describe(command: &'static Command) -> Described {
    let definition = command.definition;
    let path = format!("/api/v0/{}", definition.path);
    let mut operation = Described::new(HttpMethod::Post, &path, TAG, definition.summary);
    operation = with_arguments(operation, definition);
    for option in definition.all_options() {
        let (names, kind, remark) = (option.names(), option.kind(), remark(option));
        let others = names.iter().skip(1).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let short = if others.is_empty() { others } else { format!("Also {others}. ") };
        let schema = match kind {
            Kind::Bool => boolean(),
            Kind::Int | Kind::Int64 => integer(),
            Kind::Uint | Kind::Uint64 => size(),
            Kind::Text => text(),
            Kind::List => texts(),
        };
        let schema = if option.name() == ENCODING { one_of(&["json", "text", "xml"]) } else { schema };
        operation = operation.query(option.name(), schema, (short + &remark).trim());
    }
    if definition.file().is_some() {
        operation =
            operation.body("multipart/form-data", object()).body("application/octet-stream", binary()).needs_body();
    }
    let mut operation = (command.respond)(operation);
    let failure = operation.schema::<RpcFailure>();
    operation
        .sends(
            "400",
            "The request is not a valid command, or has an option that is not supported",
            "text/plain",
            text(),
        )
        .sends("400", "", "application/json", failure.clone())
        .sends("400", "", "application/xml", text())
        .sends("401", "The caller is unknown", "application/json", failure.clone())
        .sends("403", "The caller may not do this", "application/json", failure.clone())
        .sends("403", "", "text/plain", text())
        .sends("415", "The body has a content coding", "text/plain", text())
        .sends("429", "There are too many requests", "application/json", failure.clone())
        .sends("500", "The command failed", "application/json", failure)
        .sends("500", "", "text/plain", text())
        .sends("500", "", "application/xml", text())
}

fn with_arguments(operation: Described, command: &Definition) -> Described {
    let most = command.texts().count();
    if most == 0 {
        return operation;
    }
    let least = command.texts().filter(|argument| argument.is_required).count();
    let is_unbounded = command.texts().any(|argument| argument.is_repeated);
    let most = (!is_unbounded).then_some(most);
    let list = ArrayBuilder::new().items(text()).min_items(Some(least)).max_items(most);
    let required = if least > 0 { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name("arg").parameter_in(ParameterIn::Query).required(required);
    let names = command.texts().map(|argument| argument.name).collect::<Vec<_>>().join(", ");
    let names = if is_unbounded { format!("{names} ...") } else { names };
    operation.parameter(parameter.schema(Some(list)).description(Some(names)))
}
