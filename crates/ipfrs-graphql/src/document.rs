//! Checks of a document before the library parses and validates it.

use std::collections::HashMap;

use async_graphql::parser::types::{
    ExecutableDocument, FragmentDefinition, OperationDefinition, Selection, SelectionSet,
};
use async_graphql::{Name, Positioned, Value as ConstValue, Variables};
use async_graphql_value::Value;
use ipfrs_core::{Error, Result};

use crate::limits::{MAX_RECURSION, MAX_SCHEMA_FIELDS, MAX_SUBSCRIPTION_FIELDS};

/// Checks that the brackets of a document are not nested too deeply. The library's parser uses the stack of its thread
/// for each level, and a document that is deep enough would end the process.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) states the limit.
pub(crate) fn check_nesting(document: &str) -> Result<()> {
    let mut rest = document.as_bytes();
    let mut depth = 0_usize;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'{' | b'[' | b'(' => {
                depth += 1;
                if depth > MAX_RECURSION {
                    return Err(Error::invalid(format!(
                        "the brackets of the document are nested more than {MAX_RECURSION} levels deep, which is a fixed \
                         limit: query in several steps"
                    )));
                }
            }
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            b'#' => rest = behind_line(rest),
            b'"' => rest = behind_string(rest),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a document with its fragments put in place has at most `most` fields and fragments. The library visits
/// each of them, so that a short document in which each fragment uses the next one twice would take years.
///
/// # Errors
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) states the limit.
pub(crate) fn check_fragments(document: &ExecutableDocument, most: usize) -> Result<()> {
    if Expansion::total(document, None) <= most {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "with its fragments in place, the document has more than {most} fields (graphql.max_complexity): query less"
    )))
}

/// Whether an operation or a fragment of a document asks for the schema.
pub(crate) fn asks_for_schema(document: &ExecutableDocument) -> bool {
    let operations = document.operations.iter().map(|(_, operation)| &operation.node.selection_set.node);
    let fragments = document.fragments.values().map(|fragment| &fragment.node.selection_set.node);
    let mut selections: Vec<_> = operations.chain(fragments).collect();
    while let Some(next) = selections.pop() {
        for selection in &next.items {
            match &selection.node {
                // Only the root of a query has these fields, and fragments of it.
                Selection::Field(field) if matches!(&*field.node.name.node, "__schema" | "__type") => return true,
                Selection::InlineFragment(fragment) => selections.push(&fragment.node.selection_set.node),
                Selection::Field(_) | Selection::FragmentSpread(_) => {}
            }
        }
    }
    false
}

/// Bytes of a variable that count as much as a field: the library copies a variable at each use.
const BYTES_PER_FIELD: usize = 256;

/// Size of variables from which their uses are counted, in bytes.
const SMALL_VARIABLES: usize = 4 * 1024;

/// Memory of a value besides its text, in bytes.
const VALUE_BYTES: usize = 64;

/// Sizes of the variables of a request, in bytes.
pub(crate) struct VariableSizes(HashMap<Name, usize>);

impl VariableSizes {
    pub(crate) fn of(variables: &Variables) -> Self {
        Self(variables.iter().map(|(name, value)| (name.clone(), size_of(value))).collect())
    }
}

fn size_of(value: &ConstValue) -> usize {
    let below = match value {
        ConstValue::String(text) => text.len(),
        ConstValue::List(items) => items.iter().map(size_of).sum(),
        ConstValue::Object(members) => members.iter().map(|(name, value)| name.len() + size_of(value)).sum(),
        _ => 0,
    };
    below.saturating_add(VALUE_BYTES)
}

/// Checks that large variables are not used too often.
///
/// # Errors
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind).
pub(crate) fn check_variables(document: &ExecutableDocument, sizes: &VariableSizes, most: usize) -> Result<()> {
    if sizes.0.values().sum::<usize>() <= SMALL_VARIABLES || Expansion::total(document, Some(sizes)) <= most {
        return Ok(());
    }
    let bytes = most.saturating_mul(BYTES_PER_FIELD);
    Err(Error::too_large(format!(
        "the variables have more than {bytes} bytes, at all of their uses together (graphql.max_complexity): send \
         several requests"
    )))
}

/// Checks that a document does not ask for too much of the schema, whose lists have no pages.
///
/// # Errors
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind).
pub(crate) fn check_introspection(document: &ExecutableDocument) -> Result<()> {
    if !asks_for_schema(document) || Expansion::total(document, None) <= MAX_SCHEMA_FIELDS {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "a document about the schema has at most {MAX_SCHEMA_FIELDS} fields: send several requests"
    )))
}

/// Checks that a subscription selects one field (<https://spec.graphql.org/October2021/#sec-Single-root-field>),
/// without fragments at its root, which the library ignores.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for several fields,
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for too many fields below it.
pub(crate) fn check_subscription(document: &ExecutableDocument, operation: &OperationDefinition) -> Result<()> {
    let root = &operation.selection_set.node;
    if !matches!(&*root.items, [only] if matches!(only.node, Selection::Field(_))) {
        return Err(Error::invalid("a subscription selects exactly one field, and no fragment at its root"));
    }
    let mut expansion = Expansion { fragments: &document.fragments, counted: HashMap::new(), sizes: None };
    if expansion.count(root, 0) > MAX_SUBSCRIPTION_FIELDS {
        return Err(Error::too_large(format!("a subscription has at most {MAX_SUBSCRIPTION_FIELDS} fields")));
    }
    Ok(())
}

/// Sizes of the fragments of a document.
struct Expansion<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    /// Sizes of variables, if their uses count.
    sizes: Option<&'a VariableSizes>,
    /// Sizes that are known; 0 for a fragment that is being counted, because the library refuses cycles.
    counted: HashMap<&'a str, usize>,
}

impl<'a> Expansion<'a> {
    /// Returns the number of fields and fragments in all operations and fragments of a document.
    fn total(document: &'a ExecutableDocument, sizes: Option<&'a VariableSizes>) -> usize {
        let mut expansion = Expansion { fragments: &document.fragments, counted: HashMap::new(), sizes };
        let operations = document.operations.iter().map(|(_, operation)| &operation.node.selection_set.node);
        let fragments = document.fragments.values().map(|fragment| &fragment.node.selection_set.node);
        let counts = operations.chain(fragments).map(|selections| expansion.count(selections, 0));
        counts.fold(0, usize::saturating_add)
    }

    /// Returns the weight of the variables in a value.
    fn weight(&self, value: &Value) -> usize {
        let Some(sizes) = self.sizes else { return 0 };
        match value {
            Value::Variable(name) => sizes.0.get(name).map_or(0, |size| size / BYTES_PER_FIELD),
            Value::List(items) => items.iter().map(|item| self.weight(item)).fold(0, usize::saturating_add),
            Value::Object(members) => members.values().map(|value| self.weight(value)).fold(0, usize::saturating_add),
            _ => 0,
        }
    }

    /// Returns the number of fields and fragments in `selections`. `level` is the number of selections around them.
    fn count(&mut self, selections: &'a SelectionSet, level: usize) -> usize {
        // The library would refuse the document too, and sizes that are known must not depend on the level.
        if level > MAX_RECURSION {
            return usize::MAX;
        }
        let mut total = 0_usize;
        for selection in &selections.items {
            let below = match &selection.node {
                Selection::Field(field) => {
                    let values = field.node.arguments.iter().map(|(_, value)| self.weight(&value.node));
                    let weight = values.fold(0, usize::saturating_add);
                    self.count(&field.node.selection_set.node, level + 1).saturating_add(weight)
                }
                Selection::InlineFragment(fragment) => self.count(&fragment.node.selection_set.node, level + 1),
                Selection::FragmentSpread(spread) => self.fragment(&spread.node.fragment_name.node, level + 1),
            };
            total = total.saturating_add(below).saturating_add(1);
        }
        total
    }

    fn fragment(&mut self, name: &'a str, level: usize) -> usize {
        if let Some(count) = self.counted.get(name) {
            return *count;
        }
        let fragments = self.fragments;
        let Some(fragment) = fragments.get(name) else { return 0 };
        self.counted.insert(name, 0);
        let count = self.count(&fragment.node.selection_set.node, level);
        self.counted.insert(name, count);
        count
    }
}

fn behind_line(rest: &[u8]) -> &[u8] {
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
    &rest[end..]
}

/// Returns what follows a string whose first quotation mark was read. A string that does not end is an error of the
/// parser, which reads no further than the line, so the brackets behind it count.
fn behind_string(rest: &[u8]) -> &[u8] {
    if let Some(block) = rest.strip_prefix(b"\"\"") {
        let mut at = 0;
        while at < block.len() {
            match &block[at..] {
                [b'\\', b'"', b'"', b'"', ..] => at += 4,
                [b'"', b'"', b'"', behind @ ..] => return behind,
                _ => at += 1,
            }
        }
        return block;
    }
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return &rest[at + 1..],
            b'\n' | b'\r' => break,
            _ => at += 1,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_count_as_often_as_they_are_used() {
        let check = |document: &str| check_fragments(&async_graphql::parser::parse_query(document).unwrap(), 100);
        let doubling = |levels: usize| {
            let fragments = (0..levels).map(|n| format!("fragment f{n} on Query {{ ...f{} ...f{} }}", n + 1, n + 1));
            format!("{{ ...f0 }} {} fragment f{levels} on Query {{ a }}", fragments.collect::<String>())
        };
        check(&doubling(3)).unwrap();
        check(&doubling(6)).unwrap_err();
        check(&doubling(60)).unwrap_err();
        check(&format!("{{ {} }}", "a ".repeat(100))).unwrap();
        check(&format!("{{ {} }}", "a { b } ".repeat(51))).unwrap_err();
        check("{ ...a } fragment a on Query { ...b } fragment b on Query { ...a c }").unwrap();
        check("{ ...missing ... on Query { a } }").unwrap();
    }

    #[test]
    fn only_brackets_of_the_syntax_count() {
        let nested = |levels: usize| format!("{{a(x:{}1{})}}", "[".repeat(levels), "]".repeat(levels));
        check_nesting(&nested(MAX_RECURSION - 2)).unwrap();
        check_nesting(&nested(MAX_RECURSION - 1)).unwrap_err();
        check_nesting(&"{".repeat(10_000)).unwrap_err();
        let many = "[".repeat(1_000);
        for harmless in [
            format!("{{a(x:\"{many}\")}}"),
            format!("{{a(x:\"\\\"{many}\")}}"),
            format!("{{a(x:\"\"\"{many}\\\"\"\"{many}\"\"\")}}"),
            format!("# {many}\n{{a}}"),
            "{a}".repeat(1_000),
        ] {
            check_nesting(&harmless).unwrap();
        }
        for hidden in [
            format!("{{a(x:\"\")}}{many}"),
            format!("# \"\n{many}"),
            format!("{{a(x:\"\\\\\")}}{many}"),
            format!("{{a(x:\"b\n{many}"),
            format!("\"\"\"{many}"),
            format!("\"\"\"\"\"\"{many}"),
            format!("\"\"\"\\\\\"\"\"{many}"),
        ] {
            check_nesting(&hidden).unwrap_err();
        }
    }
}
