//! Values of variables, which are checked before anything is executed
//! (<https://spec.graphql.org/October2021/#CoerceVariableValues()>). The library checks each where it is used, after
//! fields before it were executed.

use async_graphql::parser::types::{BaseType, OperationDefinition, Type};
use async_graphql::{InputType, ScalarType, Value, Variables};
use ipfrs_core::{Error, Result};

use crate::scalars::{Base64, Cid, Long, Upload};
use crate::types::pin::PinType;

/// Checks the variables of an operation.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the variable and its type.
pub(crate) fn check_values(operation: &OperationDefinition, given: &Variables) -> Result<()> {
    for definition in &operation.variable_definitions {
        let definition = &definition.node;
        let (name, declared) = (&definition.name.node, &definition.var_type.node);
        let fits = match given.get(name) {
            Some(value) => fits(value, declared),
            None => declared.nullable || definition.default_value.is_some(),
        };
        if !fits {
            let what = if given.contains_key(name) { "is not" } else { "is missing, or is not" };
            return Err(Error::invalid(format!("the variable ${name} {what} a value of the type {declared}")));
        }
    }
    Ok(())
}

fn fits(value: &Value, declared: &Type) -> bool {
    if *value == Value::Null {
        return declared.nullable;
    }
    match (&declared.base, value) {
        (BaseType::List(inner), Value::List(items)) => items.iter().all(|item| fits(item, inner)),
        // One value stands for a list of it.
        (BaseType::List(inner), value) => fits(value, inner),
        (BaseType::Named(name), value) => match (name.as_str(), value) {
            ("Int", Value::Number(number)) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            ("Float", Value::Number(_)) | ("String" | "ID", Value::String(_)) | ("Boolean", Value::Boolean(_)) => true,
            ("ID", Value::Number(number)) => number.is_i64() || number.is_u64(),
            ("Int" | "Float" | "String" | "ID" | "Boolean", _) => false,
            ("Cid", value) => Cid::is_valid(value),
            ("Long", value) => Long::is_valid(value),
            ("Base64", value) => Base64::is_valid(value),
            ("Upload", value) => Upload::is_valid(value),
            ("PinType", value) => <PinType as InputType>::parse(Some(value.clone())).is_ok(),
            // Validation names unknown types.
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_fit_their_types() {
        let cid = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
        for (declared, value, is_valid) in [
            ("Cid!", json!(cid), true),
            ("Cid!", json!(5), false),
            ("Cid!", json!("bogus"), false),
            ("Cid!", json!(null), false),
            ("Cid", json!(null), true),
            ("[Cid!]!", json!([cid]), true),
            ("[Cid!]!", json!(cid), true),
            ("[Cid!]!", json!([null]), false),
            ("Int", json!(2_147_483_647), true),
            ("Int", json!(2_147_483_648_u64), false),
            ("Int", json!(1.5), false),
            ("Long", json!(18_446_744_073_709_551_615_u64), true),
            ("Long", json!(-1), false),
            ("String", json!(1), false),
            ("Boolean", json!("true"), false),
            ("PinType", json!("DIRECT"), true),
            ("PinType", json!("direct"), false),
            ("Upload!", json!("file.txt"), false),
        ] {
            let document = parse_query(format!("query($v: {declared}) {{ a }}")).unwrap();
            let (_, operation) = document.operations.iter().next().unwrap();
            let given = Variables::from_json(json!({ "v": value }));
            assert_eq!(check_values(&operation.node, &given).is_ok(), is_valid, "{declared} {value}");
        }
        let document = parse_query("query($a: Int!, $b: Int = 3, $c: Int) { a }").unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        assert!(check_values(&operation.node, &Variables::default()).is_err());
        assert!(check_values(&operation.node, &Variables::from_json(json!({"a": 1}))).is_ok());
    }
}
