//! Types of variables where they are used
//! (<https://spec.graphql.org/October2021/#sec-All-Variable-Usages-are-Allowed>). The library has this rule, but passes
//! it no values.

use std::collections::{HashMap, HashSet};

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, ExecutableDocument, OperationDefinition, OperationType, Selection, SelectionSet, Type, TypeKind,
    TypeSystemDefinition,
};
use async_graphql::{Name, Value as ConstValue, Variables};
use async_graphql_value::Value;
use ipfrs_core::{Error, Result};

use crate::schema::sdl;

/// The types that values have in a document.
pub(crate) struct Positions {
    /// Fields by type.
    fields: HashMap<String, HashMap<String, Field>>,
    /// Names of the enums.
    enums: HashSet<String>,
    /// The type of the argument of `@skip` and `@include`.
    condition: Type,
}

struct Field {
    /// Name of the type, without lists.
    of: String,
    arguments: HashMap<String, Argument>,
}

struct Argument {
    of: Type,
    default: Option<ConstValue>,
}

impl Positions {
    /// Reads the types of the schema.
    pub(crate) fn of_schema() -> Result<Self> {
        let unreadable = |e| Error::internal(format!("the GraphQL schema cannot be read: {e}"));
        let schema = parse_schema(sdl()).map_err(unreadable)?;
        let types = schema.definitions.into_iter().filter_map(|definition| match definition {
            TypeSystemDefinition::Type(of) => Some(of.node),
            _ => None,
        });
        let types: Vec<_> = types.collect();
        let enums = types.iter().filter(|of| matches!(of.kind, TypeKind::Enum(_)));
        let enums = enums.map(|of| of.name.node.to_string()).collect();
        let fields = types.into_iter().filter_map(|of| {
            let fields = match of.kind {
                TypeKind::Object(object) => object.fields,
                TypeKind::Interface(interface) => interface.fields,
                _ => return None,
            };
            let fields = fields.into_iter().map(|field| {
                let arguments = field.node.arguments.into_iter().map(|argument| {
                    let argument = argument.node;
                    let default = argument.default_value.map(|default| default.node);
                    (argument.name.node.to_string(), Argument { of: argument.ty.node, default })
                });
                let of = name_of(&field.node.ty.node).to_owned();
                (field.node.name.node.to_string(), Field { of, arguments: arguments.collect() })
            });
            Some((of.name.node.to_string(), fields.collect()))
        });
        let condition = Type { base: BaseType::Named(Name::new("Boolean")), nullable: false };
        Ok(Self { fields: fields.collect(), enums, condition })
    }

    /// Gives variables without a value the default of the argument that they are used for: such an argument counts as
    /// left out (<https://spec.graphql.org/October2021/#CoerceArgumentValues()>), which the library does not know. The
    /// document must have passed [`check`](Self::check).
    pub(crate) fn complete(
        &self,
        document: &ExecutableDocument,
        operation: &OperationDefinition,
        given: &mut Variables,
    ) {
        let declared = operation.variable_definitions.iter().map(|variable| &variable.node);
        let absent = declared.filter(|variable| variable.default_value.is_none());
        let absent: Vec<_> =
            absent.map(|variable| &variable.name.node).filter(|name| !given.contains_key(*name)).collect();
        if absent.is_empty() {
            return;
        }
        let mut walk = Walk::new(self, document, operation);
        if walk.root().is_err() {
            return;
        }
        for name in absent {
            // With different defaults, no value is right.
            if let Some([Some(default), others @ ..]) = walk.uses.get(name).map(Vec::as_slice)
                && others.iter().all(|other| *other == Some(default))
            {
                given.insert(name.clone(), (*default).clone());
            }
        }
    }

    /// Checks that each variable may be used where it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the variable and both types.
    pub(crate) fn check(&self, document: &ExecutableDocument) -> Result<()> {
        for (_, operation) in document.operations.iter() {
            Walk::new(self, document, &operation.node).root()?;
        }
        Ok(())
    }
}

struct Walk<'a> {
    positions: &'a Positions,
    document: &'a ExecutableDocument,
    operation: &'a OperationDefinition,
    /// Fragments that were checked with the variables of this operation.
    seen: HashSet<&'a str>,
    /// The default of each argument that a variable is used for; `None` for other uses.
    uses: HashMap<&'a Name, Vec<Option<&'a ConstValue>>>,
}

impl<'a> Walk<'a> {
    fn new(positions: &'a Positions, document: &'a ExecutableDocument, operation: &'a OperationDefinition) -> Self {
        Self { positions, document, operation, seen: HashSet::new(), uses: HashMap::new() }
    }

    fn root(&mut self) -> Result<()> {
        let root = match self.operation.ty {
            OperationType::Query => "Query",
            OperationType::Mutation => "Mutation",
            OperationType::Subscription => "Subscription",
        };
        self.selections(&self.operation.selection_set.node, root)
    }

    /// Skips unknown fields and fragments, which other rules refuse.
    fn selections(&mut self, selections: &'a SelectionSet, parent: &str) -> Result<()> {
        let positions = self.positions;
        for selection in &selections.items {
            let directives = match &selection.node {
                Selection::Field(field) => &field.node.directives,
                Selection::FragmentSpread(spread) => &spread.node.directives,
                Selection::InlineFragment(fragment) => &fragment.node.directives,
            };
            for (_, value) in directives.iter().flat_map(|directive| &directive.node.arguments) {
                self.value(&value.node, &positions.condition, None)?;
            }
            match &selection.node {
                Selection::Field(field) => {
                    let field = &field.node;
                    let known = positions.fields.get(parent).and_then(|fields| fields.get(&*field.name.node));
                    let Some(known) = known else { continue };
                    for (name, value) in &field.arguments {
                        if let Some(argument) = known.arguments.get(&*name.node) {
                            self.value(&value.node, &argument.of, argument.default.as_ref())?;
                        }
                    }
                    self.selections(&field.selection_set.node, &known.of)?;
                }
                Selection::InlineFragment(fragment) => {
                    let on = fragment.node.type_condition.as_ref().map(|on| &*on.node.on.node);
                    self.selections(&fragment.node.selection_set.node, on.unwrap_or(parent))?;
                }
                Selection::FragmentSpread(spread) => {
                    let name = &*spread.node.fragment_name.node;
                    let Some(fragment) = self.document.fragments.get(name) else { continue };
                    if self.seen.insert(name) {
                        let fragment = &fragment.node;
                        self.selections(&fragment.selection_set.node, &fragment.type_condition.node.on.node)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, value: &'a Value, at: &Type, argument_default: Option<&'a ConstValue>) -> Result<()> {
        match (value, &at.base) {
            (Value::Variable(name), _) => {
                self.uses.entry(name).or_default().push(argument_default);
                let declared = self.operation.variable_definitions.iter().find(|of| of.node.name.node == *name);
                let Some(declared) = declared.map(|declared| &declared.node) else { return Ok(()) };
                let default = declared.default_value.as_ref().map(|default| &default.node);
                let is_never_null = default.is_some_and(|default| *default != async_graphql::Value::Null);
                if is_allowed(&declared.var_type.node, at, is_never_null || argument_default.is_some()) {
                    return Ok(());
                }
                let (given, why) = (&declared.var_type.node, "declare it with the type of its use");
                Err(Error::invalid(format!("the variable ${name} of type {given} is used where {at} is needed: {why}")))
            }
            (Value::List(items), BaseType::List(of)) => items.iter().try_for_each(|item| self.value(item, of, None)),
            // One value stands for a list of it.
            (value, BaseType::List(of)) => self.value(value, of, None),
            (Value::String(text), BaseType::Named(name)) if self.positions.enums.contains(name.as_str()) => {
                let why = "write a value of an enum without quotes";
                Err(Error::invalid(format!("{text:?} is a string, and {name} is needed: {why}")))
            }
            // The schema has no input objects.
            _ => Ok(()),
        }
    }
}

/// Whether a variable may be used at a position. A default of either stands for null.
fn is_allowed(variable: &Type, at: &Type, has_default: bool) -> bool {
    let is_null_possible = variable.nullable && !has_default;
    if is_null_possible && !at.nullable {
        return false;
    }
    match (&variable.base, &at.base) {
        (BaseType::Named(variable), BaseType::Named(at)) => variable == at,
        (BaseType::List(variable), BaseType::List(at)) => is_allowed(variable, at, false),
        _ => false,
    }
}

fn name_of(of: &Type) -> &str {
    match &of.base {
        BaseType::Named(name) => name,
        BaseType::List(of) => name_of(of),
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    #[test]
    fn variables_are_used_where_their_type_is_allowed() {
        let positions = Positions::of_schema().unwrap();
        for (document, is_allowed) in [
            ("query($c: Cid!) { block(cid: $c) { size } }", true),
            ("query($c: Cid = \"bafkqaaa\") { block(cid: $c) { size } }", true),
            ("query($c: Cid = null) { block(cid: $c) { size } }", false),
            ("query($c: Cid) { block(cid: $c) { size } }", false),
            ("query($c: String!) { block(cid: $c) { size } }", false),
            ("query($n: Int) { blocks(first: $n) { edges { cursor } } }", true),
            ("query($n: Int!) { blocks(first: $n) { edges { cursor } } }", true),
            ("query($n: Long) { blocks(first: $n) { edges { cursor } } }", false),
            ("query($n: [Int]) { blocks(first: $n) { edges { cursor } } }", false),
            ("query($c: [Cid!]!) { blocksByCid(cids: $c) { size } }", true),
            ("query($c: [Cid]!) { blocksByCid(cids: $c) { size } }", false),
            ("query($c: Cid!) { blocksByCid(cids: $c) { size } }", false),
            ("query($c: Cid!) { blocksByCid(cids: [$c]) { size } }", true),
            ("query($c: Cid) { blocksByCid(cids: [$c]) { size } }", false),
            ("query($s: Boolean!) { version @skip(if: $s) { version } }", true),
            ("query($s: Boolean) { ... @include(if: $s) { version { version } } }", false),
            ("query($p: String!) { ...F } fragment F on Query { directory(path: $p) { path } }", true),
            ("query($p: Int!) { ...F } fragment F on Query { ... { directory(path: $p) { path } } }", false),
            ("query A($p: Int!) { ...F } query B($p: Cid!) { ...F } fragment F on Query { hasBlock(cid: $p) }", false),
            ("{ pins(type: RECURSIVE) { nodes { name } } }", true),
            ("{ pins(type: \"RECURSIVE\") { nodes { name } } }", false),
            ("query($x: Int) { nosuch(a: $x) version(a: $x) { ...Missing } hasBlock(cid: $unknown) }", true),
        ] {
            let checked = positions.check(&parse_query(document).unwrap());
            assert_eq!(checked.is_ok(), is_allowed, "{document}: {checked:?}");
        }
    }

    #[test]
    fn absent_variables_have_the_default_of_their_argument() {
        let positions = Positions::of_schema().unwrap();
        let document = parse_query(
            "mutation($p: Boolean, $n: String, $q: Boolean = false, $c: Cid!, $both: Boolean) {
                 addBlock(data: \"YQ==\", pin: $p) { cid } pin(path: \"a\", name: $n) { name }
                 b: addBlock(data: \"YQ==\", pin: $q) { cid }
                 deleteBlock(cid: $c, force: $both) c: pin(path: \"a\", recursive: $both) { name }
             }",
        );
        let document = document.unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let mut given = Variables::default();
        positions.complete(&document, &operation.node, &mut given);
        let given = serde_json::to_value(&given).unwrap();
        assert_eq!(given, serde_json::json!({ "p": false, "n": "" }), "{given}");
    }
}
