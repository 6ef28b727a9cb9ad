use super::*;

const DIGEST: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

fn object(kind: &str, body: &str) -> Vec<u8> {
    with_head(kind, body.as_bytes())
}

/// A merge of a signed tag, with all headers that have fields.
fn commit() -> Vec<u8> {
    let person = "A U Thor <a@example.com> 1700000000 +0100";
    object(
        "commit",
        &format!(
            "tree {DIGEST}\nparent {DIGEST}\nparent {DIGEST}\nauthor {person}\ncommitter {person}\nencoding UTF-8\n\
             mergetag object {DIGEST}\n type commit\n tag v1\n tagger {person}\n \n tag message\n\
             gpgsig -----BEGIN PGP SIGNATURE-----\n \n abcd\n -----END PGP SIGNATURE-----\nHG:extra value\n\nsubject\n\nbody\n"
        ),
    )
}

fn tree() -> Vec<u8> {
    let entry = |mode: &str, name: &str| [format!("{mode} {name}\0").as_bytes(), &[7; DIGEST_BYTES]].concat();
    // As git sorts them: "lib-x" < "lib/" < "lib0".
    let body = [entry("100644", "a"), entry("100644", "lib-x"), entry("40000", "lib"), entry("100755", "lib0")];
    with_head("tree", &body.concat())
}

fn tag() -> Vec<u8> {
    let tagger = "tagger A <a@example.com> 1700000000 -0800";
    object("tag", &format!("object {DIGEST}\ntype commit\ntag v1\n{tagger}\n\nmessage\n"))
}

#[test]
fn decoded_objects_are_encoded_to_the_same_bytes() {
    let untagged = object("tag", &format!("object {DIGEST}\ntype commit\ntag v1\n"));
    let minimal = object("commit", &format!("tree {DIGEST}\n\nmessage"));
    for object in [object("blob", "content"), tree(), object("tree", ""), commit(), tag(), untagged, minimal] {
        let value = decode(&object).unwrap();
        check(&object).unwrap();
        assert_eq!(String::from_utf8_lossy(&encode(&value).unwrap()), String::from_utf8_lossy(&object));
    }
}

#[test]
fn links_and_paths_lead_to_other_objects() {
    let of = |object: &[u8]| links(object).unwrap().len();
    assert_eq!([of(&commit()), of(&tree()), of(&tag()), of(&object("blob", "tree 1"))], [4, 4, 1, 0]);
    let linked = cid_of(&[7; DIGEST_BYTES]);
    let path = |object: &[u8], path: &str| {
        let segments: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        follow(object, &segments).unwrap()
    };
    assert_eq!(path(&tree(), "lib/hash/a/hash"), Step::Link { cid: linked, used: 2 });
    assert_eq!(path(&tree(), "lib"), Step::Within);
    assert_eq!([path(&tree(), "lib/mode"), path(&tree(), "lib/size")], [Step::Within, Step::Missing(1)]);
    assert_eq!(path(&tree(), "li"), Step::Missing(0));
    assert!(matches!(path(&commit(), "parents/1/tree"), Step::Link { used: 2, .. }));
    assert!(matches!(path(&commit(), "mergetag/0/object"), Step::Link { used: 3, .. }));
    assert_eq!([path(&commit(), "author/name"), path(&commit(), "parents/2")], [Step::Within, Step::Missing(1)]);
    assert_eq!(path(&object("blob", ""), "a"), Step::Missing(0));
    // Latin-1: such commits are stored and followed, but not converted.
    let latin = [format!("tree {DIGEST}\nauthor Ren").as_bytes(), b"\xe9 <r@example.com> 1 +0000\n\nsubject"].concat();
    let latin = with_head("commit", &latin);
    check(&latin).unwrap();
    assert!(matches!(path(&latin, "tree/a"), Step::Link { used: 1, .. }));
    assert!(decode(&latin).unwrap_err().message().contains("is not UTF-8"));
}

#[test]
fn fields_are_those_of_kubo() {
    let Ipld::Map(fields) = decode(&commit()).unwrap() else { panic!("not a map") };
    let person = map([
        ("date", Ipld::String("1700000000".to_owned())),
        ("timezone", Ipld::String("+0100".to_owned())),
        ("email", Ipld::String("a@example.com".to_owned())),
        ("name", Ipld::String("A U Thor".to_owned())),
    ]);
    assert_eq!([&fields["author"], &fields["committer"]], [&person, &person]);
    assert_eq!(fields["message"], Ipld::String("subject\n\nbody\n".to_owned()));
    assert_eq!(fields["signature"], Ipld::String(" \n abcd\n".to_owned()));
    assert_eq!(fields["other"], Ipld::List(vec![Ipld::String("HG:extra value".to_owned())]));
    assert_eq!(fields["encoding"], Ipld::String("UTF-8".to_owned()));
    let Ipld::Map(fields) = decode(&object("commit", &format!("tree {DIGEST}\n\nm"))).unwrap() else { panic!() };
    assert_eq!(["author", "signature"].map(|field| fields[field] == Ipld::Null), [true; 2]);
}

#[test]
fn malformed_objects_are_refused() {
    let digits = DIGEST.replace('4', "+");
    for (object, reason) in [
        (b"commit".to_vec(), "no head"),
        (b"tree 1\0".to_vec(), "says 1 bytes, and 0 follow"),
        (object("branch", ""), "no head"),
        (object("tree", "100644 a\0short"), "cut off"),
        (object("tree", "100644"), "cut off"),
        (object("commit", "\nmessage"), "no tree"),
        (object("commit", "tree 12\n"), "not a SHA-1 digest"),
        (object("commit", &format!("tree {digits}\n")), "not a SHA-1 digest"),
        (object("commit", &format!("tree {DIGEST}\nauthor nobody\n")), "has no <email>"),
        (object("commit", &format!("tree {DIGEST}\ngpgsig -----BEGIN PGP SIGNATURE-----\n ab\n")), "no end"),
        (object("tag", "type commit\n"), "no object"),
    ] {
        let error = decode(&object).unwrap_err();
        assert!(error.message().contains(reason), "{error}");
    }
    let link = link_of(&[7; DIGEST_BYTES]);
    let entry = |mode: &str| map([("mode", Ipld::String(mode.to_owned())), ("hash", link.clone())]);
    for (value, reason) in [
        (Ipld::Bytes(b"content".to_vec()), "no head"),
        (Ipld::Bytes(tree()), "bytes are a blob"),
        (Ipld::List(vec![]), "a map or bytes"),
        (map([("a b\0", entry("1"))]), "a name is not empty"),
        (map([("a", entry("1 2"))]), "a mode is octal digits"),
        (map([("tree", link.clone())]), "parents of a commit must be a list"),
        (map([("tree", link.clone()), ("branch", link.clone())]), "has no field \"branch\""),
        (map([("object", Ipld::Null)]), "must be a link"),
    ] {
        let error = encode(&value).unwrap_err();
        assert!(error.message().contains(reason), "{error}");
    }
}
