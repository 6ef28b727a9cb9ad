//! The fields that an operation selects, in the order in which a response has them
//! (<https://spec.graphql.org/October2021/#CollectFields()>).
//!
//! The library puts fields into a response as their values arrive, and makes an object without fields null.

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{
    Directive, DocumentOperations, ExecutableDocument, Field, OperationDefinition, OperationType, Selection,
    SelectionSet,
};
use async_graphql::{Name, PathSegment, Positioned, Response, Value as ConstValue, Variables};
use async_graphql_value::Value;

/// Alias of a field that keeps an object from being empty. No response has it.
const MARK: &str = "__mark";

/// Fields of an object, with those below each.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    fields: IndexMap<Name, Selected>,
    /// Whether the value is an object of the schema, and no scalar.
    is_object: bool,
    is_subscription: bool,
}

/// Asks for one more field in each object whose own fields may all be left out.
pub(crate) fn mark(document: &mut ExecutableDocument) {
    let operations: Vec<&mut Positioned<OperationDefinition>> = match &mut document.operations {
        DocumentOperations::Single(operation) => vec![operation],
        DocumentOperations::Multiple(operations) => operations.values_mut().collect(),
    };
    let roots = operations.into_iter().map(|operation| &mut operation.node.selection_set.node);
    // The root of an operation always is an object, so its own fields need no mark.
    let fragments = document.fragments.values_mut().map(|fragment| &mut fragment.node.selection_set.node);
    let mut sets: Vec<_> = roots.chain(fragments).collect();
    while let Some(set) = sets.pop() {
        for item in &mut set.items {
            match &mut item.node {
                Selection::Field(field) => {
                    let below = &mut field.node.selection_set.node;
                    if !below.items.is_empty() && below.items.iter().all(|item| may_be_left_out(&item.node)) {
                        let position = field.pos;
                        let name = |name: &str| Positioned::new(Name::new(name), position);
                        let mark = Field {
                            alias: Some(name(MARK)),
                            name: name("__typename"),
                            arguments: Vec::new(),
                            directives: Vec::new(),
                            selection_set: Positioned::new(SelectionSet::default(), position),
                        };
                        below.items.push(Positioned::new(Selection::Field(Positioned::new(mark, position)), position));
                    }
                    sets.push(below);
                }
                Selection::InlineFragment(fragment) => sets.push(&mut fragment.node.selection_set.node),
                Selection::FragmentSpread(_) => {}
            }
        }
    }
}

fn may_be_left_out(selection: &Selection) -> bool {
    match selection {
        Selection::Field(field) => !field.node.directives.is_empty(),
        Selection::InlineFragment(_) | Selection::FragmentSpread(_) => true,
    }
}

impl Selected {
    /// Returns the fields of an operation. The document must have passed the checks of its size.
    pub(crate) fn of(document: &ExecutableDocument, operation: &OperationDefinition, given: &Variables) -> Self {
        let defaults = operation.variable_definitions.iter().filter_map(|variable| {
            let default = variable.node.default_value.as_ref()?;
            Some((variable.node.name.node.clone(), default.node.clone()))
        });
        let mut variables: IndexMap<Name, ConstValue> = defaults.collect();
        variables.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        let collecting = Collecting { document, variables };
        let is_subscription = operation.ty == OperationType::Subscription;
        let mut selected = Self { is_subscription, ..Self::default() };
        collecting.collect(&operation.selection_set.node, &mut selected, &mut Vec::new());
        selected
    }

    /// Completes the data of a response: fields that failed are null, and all have their order.
    pub(crate) fn complete(&self, response: &mut Response) {
        // A subscription that has no events has no object.
        if response.data != ConstValue::Null || !self.is_subscription {
            response.errors.iter().for_each(|error| set_null(&mut response.data, &error.path));
        }
        // Every field of the root was left out.
        if response.data == ConstValue::Null && response.errors.is_empty() && self.is_object && !self.is_subscription {
            response.data = ConstValue::Object(IndexMap::new());
        }
        self.arrange(&mut response.data);
    }

    /// Puts the fields of a value into their order, and removes those that the client did not ask for.
    fn arrange(&self, value: &mut ConstValue) {
        match value {
            ConstValue::List(items) => items.iter_mut().for_each(|item| self.arrange(item)),
            ConstValue::Object(fields) if self.is_object => {
                fields.shift_remove(MARK);
                let place = |name: &Name| self.fields.get_index_of(name).unwrap_or(usize::MAX);
                if !fields.keys().is_sorted_by_key(place) {
                    fields.sort_by_cached_key(|name, _| place(name));
                }
                for (name, value) in fields {
                    if let Some(below) = self.fields.get(name) {
                        below.arrange(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Sets a field that failed to null, where the library left it out. All fields that can fail are nullable.
fn set_null(data: &mut ConstValue, path: &[PathSegment]) {
    let mut target = data;
    for segment in path {
        target = match (target, segment) {
            (ConstValue::List(items), PathSegment::Index(index)) => match items.get_mut(*index) {
                Some(item) => item,
                None => return,
            },
            (object, PathSegment::Field(name)) => {
                // An object whose fields all failed.
                if *object == ConstValue::Null {
                    *object = ConstValue::Object(IndexMap::new());
                }
                let ConstValue::Object(fields) = object else { return };
                fields.entry(Name::new(name)).or_insert(ConstValue::Null)
            }
            _ => return,
        };
    }
}

struct Collecting<'a> {
    document: &'a ExecutableDocument,
    variables: IndexMap<Name, ConstValue>,
}

impl<'a> Collecting<'a> {
    fn collect(&self, set: &'a SelectionSet, selected: &mut Selected, within: &mut Vec<&'a str>) {
        selected.is_object |= !set.items.is_empty();
        for item in &set.items {
            match &item.node {
                Selection::Field(field) if self.is_included(&field.node.directives) => {
                    let key = field.node.response_key().node.clone();
                    if key == MARK {
                        continue;
                    }
                    let below = selected.fields.entry(key).or_default();
                    self.collect(&field.node.selection_set.node, below, within);
                }
                Selection::InlineFragment(fragment) if self.is_included(&fragment.node.directives) => {
                    self.collect(&fragment.node.selection_set.node, selected, within);
                }
                Selection::FragmentSpread(spread) if self.is_included(&spread.node.directives) => {
                    let name = spread.node.fragment_name.node.as_str();
                    // The library refuses cycles.
                    let Some(fragment) = self.document.fragments.get(name).filter(|_| !within.contains(&name)) else {
                        continue;
                    };
                    within.push(name);
                    self.collect(&fragment.node.selection_set.node, selected, within);
                    within.pop();
                }
                _ => {}
            }
        }
    }

    /// Evaluates `@skip` and `@include`.
    fn is_included(&self, directives: &[Positioned<Directive>]) -> bool {
        directives.iter().all(|directive| {
            let condition = match directive.node.get_argument("if").map(|value| &value.node) {
                Some(Value::Boolean(condition)) => *condition,
                Some(Value::Variable(name)) => self.variables.get(name) == Some(&ConstValue::Boolean(true)),
                _ => return true,
            };
            match directive.node.name.node.as_str() {
                "skip" => !condition,
                "include" => condition,
                _ => true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;
    use serde_json::{Value as Json, json};

    use super::*;

    fn arranged(document: &str, variables: Json, data: Json) -> String {
        let document = parse_query(document).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let selected = Selected::of(&document, &operation.node, &Variables::from_json(variables));
        let mut data = ConstValue::from_json(data).unwrap();
        selected.arrange(&mut data);
        data.to_string()
    }

    #[test]
    fn fields_have_the_order_of_their_first_selection() {
        let document = "query($no: Boolean!, $yes: Boolean = true) {
            x: a @include(if: $no) { p }
            b { ...both q }
            a { q @skip(if: $yes) p q }
            j
            ... on Query { b { r } c }
        }
        fragment both on B { s q ...both }";
        let data = json!({"c": [{"z": 1}], "a": {"q": 1, "p": 2}, "x": null,
            "b": [{"__mark": "B", "r": 1, "q": 2, "s": 3}, null, {"__mark": "B"}],
            "j": {"__mark": 1}});
        let expected = r#"{b: [{s: 3, q: 2, r: 1}, null, {}], a: {p: 2, q: 1}, j: {__mark: 1}, c: [{z: 1}], x: null}"#;
        assert_eq!(arranged(document, json!({"no": false}), data), expected);
    }

    #[test]
    fn objects_whose_fields_may_be_left_out_are_marked() {
        let mut document = parse_query(
            "query A { a { b @skip(if: true) } c { d e @skip(if: true) } f } query B { g { ...h } }
             fragment h on G { i { ... on I { j } } }",
        )
        .unwrap();
        mark(&mut document);
        let printed = format!("{document:?}");
        assert_eq!(printed.matches("\"__mark\"").count(), 3, "{printed}");
    }

    #[test]
    fn fields_that_failed_are_null_within_their_object() {
        let mut data = ConstValue::from_json(json!({"a": null, "b": [null, {"c": 1}]})).unwrap();
        for path in [["a", "x"], ["a", "y"], ["z", "x"]] {
            set_null(&mut data, &path.map(|name| PathSegment::Field(name.to_owned())));
        }
        set_null(&mut data, &[PathSegment::Field("b".into()), PathSegment::Index(0), PathSegment::Field("c".into())]);
        assert_eq!(data.to_string(), "{a: {x: null, y: null}, b: [{c: null}, {c: 1}], z: {x: null}}");
    }
}
