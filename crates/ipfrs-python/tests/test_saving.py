"""Saving content to the local file system: completely or not at all, and never outside the target."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest

import ipfrs
from conftest import Store
from content import cid_bytes, directory_block, small_tree, symlink_block


def tree(root: Path) -> dict[str, object]:
    """Returns the contents of a directory: bytes of files and targets of symlinks."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = "directory" if path.is_dir() else path.read_bytes()
    return found


def test_saved_tree_matches_original(store: Store, tmp_path: Path) -> None:
    original = small_tree(tmp_path / "original")
    folder = store.add_dir(original, hidden=True)
    assert store.save(folder, tmp_path / "copy") == str(tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(original)
    assert tree(tmp_path / "copy")["link"] == "a/b/hello.txt"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "original"]


def test_a_file_is_replaced_and_in_a_directory_gets_its_name(store: Store, tmp_path: Path) -> None:
    folder = store.add(b"x" * 600_000, name="long.txt", wrap=True)
    (tmp_path / "there.txt").write_bytes(b"old")
    store.save(folder + "/long.txt", tmp_path / "there.txt")
    assert (tmp_path / "there.txt").read_bytes() == b"x" * 600_000
    assert store.save(folder + "/long.txt", tmp_path) == str(tmp_path / "long.txt")
    assert (tmp_path / "long.txt").read_bytes() == b"x" * 600_000
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "long.txt").stat().st_mode & 0o777 == 0o666 & ~umask


def test_save_replaces_only_files(store: Store, tmp_path: Path) -> None:
    folder = store.add(b"hello", name="a", wrap=True)
    (tmp_path / "file").write_bytes(b"mine")
    os.symlink("elsewhere", tmp_path / "link")
    for target in ("file", "link"):
        with pytest.raises(FileExistsError, match="already exists"):
            store.save(folder, tmp_path / target)
    with pytest.raises(FileExistsError):
        store.save(folder + "/a", tmp_path / "link")
    with pytest.raises(FileNotFoundError, match="create it first"):
        store.save(folder, tmp_path / "no" / "such" / "directory")
    with pytest.raises(ipfrs.InvalidInputError, match="dest is empty"):
        store.save(folder, "")
    assert tree(tmp_path) == {"file": b"mine", "link": "elsewhere"}


def test_errors_of_local_files_name_path_and_cause(store: Store, tmp_path: Path) -> None:
    cid = store.add(b"hello")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / cid).mkdir()
    cases: list[tuple[Path, type[OSError], str]] = [
        (tmp_path / "none" / "file", FileNotFoundError, "does not exist"),
        (tmp_path / "taken", FileExistsError, "already exists"),
        (tmp_path / "file" / "below", NotADirectoryError, "Not a directory"),
    ]
    (tmp_path / "file").write_bytes(b"")
    for save in (store.save, store.export_car):
        for dest, built_in, cause in cases[: 3 if save == store.save else 1]:
            with pytest.raises(ipfrs.LocalFileError, match=cause) as caught:
                save(cid, dest)
            assert isinstance(caught.value, built_in) or built_in is NotADirectoryError
            assert cid in str(caught.value) and str(dest) in str(caught.value) and caught.value.errno
            assert isinstance(caught.value.__cause__, built_in)
        with pytest.raises(ipfrs.InvalidInputError, match=cid):
            save(cid, "nul\0")
        for content in (cid, "bafkreiafvynwucuwsa6bekk6pffisurkiqckyv4tphi7ndscjxaskatcny"):
            with pytest.raises(ipfrs.InvalidInputError, match="dest is empty"):
                save(content, "")


def test_a_symlink_is_saved_as_one(store: Store, tmp_path: Path) -> None:
    cid = store.put(symlink_block("../somewhere/ünï"), codec="dag-pb")
    store.save(cid, tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "../somewhere/ünï"
    # The target is the content, with and without a daemon.
    assert (store.cat(cid), store.cat(cid, 3, 4)) == ("../somewhere/ünï".encode(), b"some")
    stat = store.stat(cid)
    assert (stat.kind, stat.size, stat.mode) == ("symlink", len("../somewhere/ünï".encode()), 0o777)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..", ".", "", "a/b", "..\\..", "nul\0byte"])
def test_save_rejects_escaping_names(store: Store, tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    file = store.put(b"evil")
    folder = store.put(directory_block([(name, file)]), codec="dag-pb")
    if name == "..\\..":
        # The separator is the slash, so this is an ordinary name.
        store.save(folder, inside / "saved")
        assert tree(inside) == {"saved": "directory", "saved/" + name: b"evil"}
        return
    with pytest.raises(ipfrs.InvalidInputError):
        store.save(folder, inside / "saved")
    assert tree(tmp_path) == {"inside": "directory"}


def test_save_never_follows_symlinks(store: Store, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    link = store.put(symlink_block(str(victim)), codec="dag-pb")
    inner = store.put(directory_block([("evil", store.put(b"evil"))]), codec="dag-pb")
    for entries in ([("x", link), ("x", inner)], [("x", inner), ("x", link)], [("x", link), ("x", store.put(b"evil"))]):
        with pytest.raises(ipfrs.InvalidInputError, match="two entries"):
            store.save(store.put(directory_block(entries), codec="dag-pb"), tmp_path / "saved")
    assert tree(tmp_path) == {"victim": "directory"}


def test_incomplete_content_is_not_saved(store: Store, tmp_path: Path) -> None:
    absent = "bafkreiafvynwucuwsa6bekk6pffisurkiqckyv4tphi7ndscjxaskatcny"
    assert len(cid_bytes(absent)) == 36
    folder = store.put(directory_block([("a", store.put(b"here")), ("b", absent)]), codec="dag-pb")
    with pytest.raises(ipfrs.IpfrsError):
        store.save(folder, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_directories_that_are_too_deep_are_refused(node: ipfrs.Node, tmp_path: Path) -> None:
    cid = node.put(b"deep")
    for _ in range(140):
        cid = node.put(directory_block([("d", cid)]), codec="dag-pb")
    with pytest.raises(ipfrs.InvalidInputError, match="128"):
        node.save(cid, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_small_files_take_few_requests(gateway: ipfrs.Gateway, tmp_path: Path) -> None:
    original = tmp_path / "original"
    (original / "sub").mkdir(parents=True)
    for number in range(600):
        (original / f"{number}").write_bytes(b"%d" % (number % 500))
        os.symlink(f"../{number}", original / "sub" / f"{number}")
    (original / "empty").write_bytes(b"")
    (original / "large").write_bytes(os.urandom(600_000))

    def requests() -> int:
        with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith("ipfrs_http_requests_total{"))

    with gateway.client() as client:
        for number, options in enumerate(({}, {"cid_version": 1}, {"raw_leaves": False, "chunker": "size-100"})):
            folder = client.add_dir(original, **options)  # type: ignore[arg-type]
            before = requests()
            client.save(folder, tmp_path / f"copy{number}")
            assert tree(tmp_path / f"copy{number}") == tree(original)
            assert requests() - before < 30


def test_save_of_malformed_file_fails_like_cat(store: Store, tmp_path: Path) -> None:
    # A file whose node claims more bytes than it contains, and another file in the same directory.
    wrong = store.put(bytes.fromhex("0a0808021202686918") + b"\x07", codec="dag-pb")
    folder = store.put(directory_block([("a", store.put(b"here")), ("b", wrong)]), codec="dag-pb")
    with pytest.raises(ipfrs.IpfrsError):
        store.cat(wrong)
    with pytest.raises(ipfrs.IpfrsError):
        store.save(folder, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_save_rejects_non_unixfs_content(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ipfrs.InvalidInputError, match="export_car"):
        store.save(store.put(b"\xa0", codec="dag-cbor"), tmp_path / "saved")


def test_progress_counts_what_was_saved(store: Store, tmp_path: Path) -> None:
    calls: list[tuple[int, object]] = []
    store.save(store.add(bytes(700_000)), tmp_path / "saved", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (700_000, 700_000)


def test_non_utf8_names_round_trip(store: Store, tmp_path: Path) -> None:
    names = [b"\xff.txt", b"caf\xe9", "caf\u00e9".encode()]
    original = os.path.join(os.fsencode(tmp_path), b"original")
    os.mkdir(original)
    for name in names:
        Path(os.fsdecode(os.path.join(original, name))).write_bytes(name)
    os.symlink(b"\xff.txt", os.path.join(original, b"link\xff"))
    folder = store.add_dir(tmp_path / "original")
    listed = {os.fsencode(entry.name): entry.kind for entry in store.ls(folder)}
    assert listed == {**dict.fromkeys(names, "file"), b"link\xff": "symlink"}
    for name in names:
        assert store.cat(f"{folder}/{os.fsdecode(name)}") == name
        assert store.stat(f"/ipfs/{folder}/{os.fsdecode(name)}").size == len(name)
    with pytest.raises(ipfrs.NotFoundError, match="no link named"):
        store.cat(f"{folder}/{os.fsdecode(bytes([0xFE]))}")
    copy = os.fsencode(store.save(folder, tmp_path / "copy"))
    for name in names:
        assert Path(os.fsdecode(os.path.join(copy, name))).read_bytes() == name
    assert os.readlink(os.path.join(copy, b"link\xff")) == b"\xff.txt"
