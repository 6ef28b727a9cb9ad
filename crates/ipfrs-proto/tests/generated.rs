//! The generated code matches `proto/`, and the parts that clients rely on do not change unnoticed.

// clippy.toml allows `unwrap` in tests, but clippy does not recognize the helper functions here as test code.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet, ServiceDescriptorProto};

/// If this environment variable is set, the test writes the files instead of only comparing them.
/// `cargo xtask codegen` sets it.
const WRITE: &str = "IPFRS_CODEGEN";

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles every `.proto` file, with comments.
fn compiled() -> FileDescriptorSet {
    let root = crate_dir().join("../../proto");
    let files = ["block", "dag", "file", "tensor"].map(|name| root.join(format!("ipfrs/{name}/v1/{name}.proto")));
    protox::compile(files, [root]).unwrap()
}

/// Returns the names and contents that the committed directory should have.
fn generate(into: &Path) -> Vec<(String, Vec<u8>)> {
    let descriptors = compiled();
    fs::write(into.join("descriptors.bin"), descriptors.encode_to_vec()).unwrap();
    let builder = tonic_prost_build::configure().build_transport(false).bytes(".").emit_rerun_if_changed(false);
    builder.out_dir(into).compile_fds(descriptors).unwrap();
    read(into)
}

fn read(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named = |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
    paths.into_iter().map(named).collect()
}

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let committed = crate_dir().join("src/generated");
    let fresh = tempfile::tempdir().unwrap();
    let expected = generate(fresh.path());
    if std::env::var_os(WRITE).is_some() {
        for (name, content) in &expected {
            fs::write(committed.join(name), content).unwrap();
        }
    }
    let found = read(&committed);
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert!(found == expected, "{name} is not what proto/ says: run `cargo xtask codegen`");
    }
}

#[test]
fn proto_descriptors_match_the_snapshot() {
    let mut text = String::new();
    for file in compiled().file {
        writeln!(text, "package {}", file.package()).unwrap();
        file.service.iter().for_each(|service| describe_service(service, &mut text));
        file.message_type.iter().for_each(|message| describe_message(message, "", &mut text));
        file.enum_type.iter().for_each(|values| describe_enum(values, &mut text));
    }
    insta::assert_snapshot!("descriptors", text);
}

fn describe_service(service: &ServiceDescriptorProto, text: &mut String) {
    writeln!(text, "service {}", service.name()).unwrap();
    for method in &service.method {
        let streamed = |is_streamed: bool| if is_streamed { "stream " } else { "" };
        let (input, output) = (method.input_type(), method.output_type());
        let (up, down) = (streamed(method.client_streaming()), streamed(method.server_streaming()));
        writeln!(text, "  {}({up}{input}) returns ({down}{output})", method.name()).unwrap();
    }
}

fn describe_message(message: &DescriptorProto, within: &str, text: &mut String) {
    let name = format!("{within}{}", message.name());
    writeln!(text, "message {name}").unwrap();
    for field in &message.field {
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().to_owned(),
            scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_ascii_lowercase(),
        };
        let label = match field.label() {
            Label::Repeated => "repeated ",
            _ if field.proto3_optional() => "optional ",
            _ if field.oneof_index.is_some() => "oneof ",
            _ => "",
        };
        writeln!(text, "  {} {label}{kind} {}", field.number(), field.name()).unwrap();
    }
    for nested in &message.nested_type {
        describe_message(nested, &format!("{name}."), text);
    }
}

fn describe_enum(values: &EnumDescriptorProto, text: &mut String) {
    writeln!(text, "enum {}", values.name()).unwrap();
    for value in &values.value {
        writeln!(text, "  {} {}", value.number(), value.name()).unwrap();
    }
}
