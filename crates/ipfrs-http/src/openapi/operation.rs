//! Builders of operations.

use ipfrs_middleware::auth::{Need, Scope};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, HttpMethod, KnownFormat, Ref, RefOr, Required, ResponseBuilder, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::TOKEN_SCHEME;
use crate::access_rule::Access;

/// Names of schemas with the schemas.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// One method of a path, and the schemas that it refers to.
pub(crate) struct Operation {
    pub(super) path: String,
    method: HttpMethod,
    operation: OperationBuilder,
    are_credentials_optional: bool,
    pub(super) schemas: Schemas,
}

impl Operation {
    /// Returns the description of the method, whose access rule is `access`.
    pub(super) fn item(self, access: Access) -> PathItem {
        let operation = match requirements(access, &self.method) {
            Some(mut requirements) => {
                // An empty requirement makes the others optional.
                requirements.extend(self.are_credentials_optional.then(SecurityRequirement::default));
                self.operation.securities(Some(requirements))
            }
            None => self.operation,
        };
        PathItem::new(self.method, operation.build())
    }
}

/// Builder of an [`Operation`].
pub(crate) struct Described {
    path: String,
    method: HttpMethod,
    operation: OperationBuilder,
    body: Option<RequestBodyBuilder>,
    responses: Vec<(String, ResponseBuilder)>,
    are_credentials_optional: bool,
    schemas: Schemas,
}

impl From<Described> for Operation {
    fn from(described: Described) -> Self {
        let Described { path, method, mut operation, body, responses, are_credentials_optional, schemas } = described;
        for (status, response) in responses {
            operation = operation.response(status, response.build());
        }
        let operation = operation.request_body(body.map(RequestBodyBuilder::build));
        Self { path, method, operation, are_credentials_optional, schemas }
    }
}

/// Returns the alternatives of credentials for a method, or `None` if it needs none.
fn requirements(access: Access, method: &HttpMethod) -> Option<Vec<SecurityRequirement>> {
    let need = match method {
        HttpMethod::Options => return None,
        HttpMethod::Get | HttpMethod::Head => access.read,
        _ => access.write,
    };
    let token = |scopes: &[Scope]| SecurityRequirement::new(TOKEN_SCHEME, scopes.iter().map(|scope| scope.name()));
    Some(match need {
        Need::Nothing => return None,
        // An empty requirement makes the credentials optional.
        Need::Content | Need::Records => vec![SecurityRequirement::default(), token(&[Scope::Read])],
        Need::Path => vec![token(&[Scope::Read])],
        Need::Scope(scope) | Need::Command(scope) => vec![token(&[scope])],
        Need::Any | Need::Later => vec![token(&[])],
    })
}

impl Described {
    /// Describes a method of a path. The parameters of the path are strings.
    pub(crate) fn new(method: HttpMethod, path: &str, tag: &str, summary: &str) -> Self {
        let id = operation_id(&method, path);
        let mut operation = OperationBuilder::new().tag(tag).summary(Some(summary)).operation_id(Some(id));
        for name in path.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name) {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            operation = operation.parameter(
                parameter
                    .required(Required::True)
                    .schema(Some(path_parameter(path, name)))
                    .description(about_path_parameter(name)),
            );
        }
        Self {
            path: path.to_owned(),
            method,
            operation,
            body: None,
            responses: Vec::new(),
            are_credentials_optional: false,
            schemas: Vec::new(),
        }
    }

    /// Says that callers without credentials get a response too.
    pub(crate) fn without_credentials(mut self) -> Self {
        self.are_credentials_optional = true;
        self
    }

    pub(crate) fn describe(mut self, description: &str) -> Self {
        self.operation = self.operation.description(Some(description));
        self
    }

    /// Adds an optional parameter of the query.
    pub(crate) fn query(self, name: &str, schema: impl Into<RefOr<Schema>>, description: &str) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).schema(Some(schema));
        self.parameter(parameter.description((!description.is_empty()).then_some(description)))
    }

    /// Adds an optional header of the request.
    pub(crate) fn header(self, name: &str, schema: impl Into<RefOr<Schema>>, description: &str) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).schema(Some(schema));
        self.parameter(parameter.description(Some(description)))
    }

    /// Adds a header without which the request is refused.
    pub(crate) fn required_header(self, name: &str, schema: impl Into<RefOr<Schema>>, description: &str) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).schema(Some(schema));
        self.parameter(parameter.required(Required::True).description(Some(description)))
    }

    pub(crate) fn parameter(mut self, parameter: ParameterBuilder) -> Self {
        self.operation = self.operation.parameter(parameter);
        self
    }

    /// Adds a media type of the request body.
    pub(crate) fn body(mut self, media: &str, schema: impl Into<RefOr<Schema>>) -> Self {
        self.body = Some(self.body.unwrap_or_default().content(media, content(schema)));
        self
    }

    /// Declares that the request must have one of the bodies.
    pub(crate) fn needs_body(mut self) -> Self {
        self.body = self.body.map(|body| body.required(Some(Required::True)));
        self
    }

    /// Adds a JSON body.
    pub(crate) fn json_body<T: ToSchema>(mut self) -> Self {
        let schema = self.schema::<T>();
        self.body("application/json", schema)
    }

    /// Adds a response without a body.
    pub(crate) fn responds(mut self, status: &str, description: &str) -> Self {
        self.responses.push((status.to_owned(), ResponseBuilder::new().description(description)));
        self
    }

    /// Adds a response, or another media type of the latest response if it has the same status.
    pub(crate) fn sends(
        mut self,
        status: &str,
        description: &str,
        media: &str,
        schema: impl Into<RefOr<Schema>>,
    ) -> Self {
        let latest = self.responses.pop_if(|(known, _)| known == status);
        let (_, response) = latest.unwrap_or_else(|| (String::new(), ResponseBuilder::new().description(description)));
        self.responses.push((status.to_owned(), response.content(media, content(schema))));
        self
    }

    /// Adds a JSON response.
    pub(crate) fn sends_json<T: ToSchema>(mut self, status: &str, description: &str) -> Self {
        let schema = self.schema::<T>();
        self.sends(status, description, "application/json", schema)
    }

    /// Adds a JSON response that is a list.
    pub(crate) fn sends_list<T: ToSchema>(mut self, status: &str, description: &str) -> Self {
        // `Vec<T>` has the same name for every `T`.
        let items = self.schema::<T>();
        self.sends(status, description, "application/json", ArrayBuilder::new().items(items))
    }

    /// Adds a header to the latest response.
    pub(crate) fn with_header(mut self, name: &str, description: &str) -> Self {
        if let Some((status, response)) = self.responses.pop() {
            let header = HeaderBuilder::new().schema(Some(text())).description(Some(description)).build();
            self.responses.push((status, response.header(name, header)));
        }
        self
    }

    /// Adds the schema of `T` to the document and returns a reference to it.
    pub(crate) fn schema<T: ToSchema>(&mut self) -> Ref {
        T::schemas(&mut self.schemas);
        self.schemas.push((T::name().into_owned(), T::schema()));
        Ref::from_schema_name(T::name())
    }
}

fn content(schema: impl Into<RefOr<Schema>>) -> Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

/// Returns a unique name of an operation, from which generators make the names of functions: `get_v1_progress_id`.
fn operation_id(method: &HttpMethod, path: &str) -> String {
    let method = match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Put => "put",
        HttpMethod::Delete => "delete",
        HttpMethod::Options => "options",
        HttpMethod::Head => "head",
        HttpMethod::Patch => "patch",
        HttpMethod::Trace => "trace",
    };
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    [method].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

fn path_parameter(path: &str, name: &str) -> RefOr<Schema> {
    if path == "/v1/progress/{id}" && name == "id" { operation_token() } else { text() }
}

fn about_path_parameter(name: &str) -> Option<&'static str> {
    match name {
        "path" => Some("Content ID, and the names of a path below it, separated by slashes"),
        "cid" => Some("Content ID"),
        "name" => Some("IPNS name of a key"),
        _ => None,
    }
}

pub(crate) fn text() -> RefOr<Schema> {
    String::schema()
}

pub(crate) fn boolean() -> RefOr<Schema> {
    bool::schema()
}

pub(crate) fn integer() -> RefOr<Schema> {
    i64::schema()
}

/// A whole number from 0.
pub(crate) fn size() -> RefOr<Schema> {
    u64::schema()
}

/// A whole number of seconds up to a maximum.
pub(crate) fn seconds(most: u32) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(most)).into()
}

/// One of some words.
pub(crate) fn one_of(words: &[&str]) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied())).into()
}

/// A string that matches a regular expression.
pub(crate) fn text_like(pattern: &str) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

/// An ID that a client chooses for an operation.
pub(crate) fn operation_token() -> RefOr<Schema> {
    text_like("^[A-Za-z0-9._-]{1,128}$")
}

/// A list of strings.
pub(crate) fn texts() -> RefOr<Schema> {
    ArrayBuilder::new().items(text()).into()
}

/// Bytes.
pub(crate) fn binary() -> RefOr<Schema> {
    let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
    ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
}

/// A JSON object without further description.
pub(crate) fn object() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Object).into()
}
